"""Clients of a cluster with views: producers of JSON, and an administrator who creates, deletes and recreates views."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

from cluster.admin import PATIENCE_MS, AdminClient
from compaction.clients import KeyedProducer
from compaction.ledger import CompactedLedger
from transactions.producer import TransactionalProducer

from moldau.base.errors import ErrorCode, KafkaError
from moldau.wire.apis import ApiKey
from moldau.wire.batch import BatchHeader
from moldau.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from moldau.wire.records import Record, decode_records
from views.cases import CASES, json_record

if TYPE_CHECKING:
    from views.world import ViewsWorld

GAP_MS = 1_500
DELETIONS = 0.3
OF_THE_SOURCE = -1


class JsonProducer(KeyedProducer):
    def record(self, name: bytes) -> Record:
        return json_record(self.rng, self.world.elapsed_ms, self.world.clock.now_ms(), name)


class JsonTransactionalProducer(TransactionalProducer):
    def record(self, name: bytes) -> Record:
        return json_record(self.rng, self.world.elapsed_ms, self.world.clock.now_ms(), name)


class SourceLedger(CompactedLedger):
    """Keeps every committed record: views are compared with these."""

    def __init__(self, name: str, complain: Any) -> None:
        super().__init__(name, complain)
        self.records: dict[int, Record] = {}

    def _extend(self, header: BatchHeader, batch: memoryview) -> None:
        super()._extend(header, batch)
        if not header.is_control:
            self.records.update((record.offset, record) for record in decode_records(batch, header))


class ViewAdmin(AdminClient):
    """Creates each view of the world. Now and then it deletes one; the recreated view may have another definition."""

    def __init__(self, world: ViewsWorld, name: str, rng: Random) -> None:
        super().__init__(world, name, rng)
        self._views = world.views
        for view in self._views:
            self._create(view)
        self.later(GAP_MS, self._act)

    def _act(self) -> None:
        self.later(1 + int(self.rng.expovariate(1) * GAP_MS), self._act)
        image = self.world.newest_image()
        for view, source in self._views.items():
            topic = image.topics.get(view)
            if topic is None:
                if source in image.topics:
                    self._create(view)
            elif not topic.partitions and source in image.topics:
                self.delete(topic)  # it was a view of an earlier topic of this name
        if not self.world.faults.is_over and self.rng.random() < DELETIONS:
            view = self.rng.choice(list(self._views))
            if view in image.topics:
                self.world.faults.count("a view is deleted", view)
                self.delete(image.topics[view])

    def _create(self, view: str) -> None:
        case = self.rng.choice(list(CASES))
        configs = {"from": self._views[view], **CASES[case].configs}
        entries = [CreatableTopicConfig(f"moldau.view.{key}", value) for key, value in configs.items()]
        topic = CreatableTopic(view, OF_THE_SOURCE, OF_THE_SOURCE, configs=entries)

        def then(reply: Any) -> None:
            code = reply.code if isinstance(reply, KafkaError) else ErrorCode(reply.topics[0].error_code)
            self.trace_result(f"creates the view {view}: {case}", code)
            if code in (ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.POLICY_VIOLATION):
                self.world.violated(f"{self.name} creates the view {view}: {code.name}")

        self.ask(self.some_broker(), ApiKey.CREATE_TOPICS, 7, CreateTopicsRequest([topic], PATIENCE_MS), then, "admin")
