"""An administrator of the cluster: creates, grows and deletes topics, moves replicas and elects leaders, and may send
any of these requests to any broker.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any

from cluster.client import ClusterClient
from moldau.base.errors import ErrorCode, KafkaError
from moldau.metadata.image import TopicImage
from moldau.wire.apis import ApiKey
from moldau.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from moldau.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from moldau.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from moldau.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from moldau.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from moldau.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions

if TYPE_CHECKING:
    from cluster.world import ClusterWorld

PATIENCE_MS = 4_000
PARTITIONS_MAX = 5
PREFERRED = 0
NOWHERE = -1


def deletion(name: str, index: int, offset: int, patience_ms: int = PATIENCE_MS) -> DeleteRecordsRequest:
    """Return a request to delete all records of a partition below an offset."""
    return DeleteRecordsRequest([DeleteRecordsTopic(name, [DeleteRecordsPartition(index, offset)])], patience_ms)


def deleted(reply: DeleteRecordsResponse | KafkaError) -> tuple[ErrorCode, int]:
    """Return the error of a DeleteRecords response, and the log start offset if there is none."""
    if isinstance(reply, KafkaError):
        return reply.code, NOWHERE
    found = reply.topics[0].partitions[0]
    return ErrorCode(found.error_code), found.low_watermark


class AdminClient(ClusterClient):
    def __init__(self, world: ClusterWorld, name: str, rng: Random) -> None:
        super().__init__(world, name, "", rng)
        self._names = 0

    def refresh(self) -> None:
        """Do nothing: an admin sends to any broker, and knows all of them."""

    # --- topics that must exist -----------------------------------------------------------------------------------

    def create(self, name: str, partitions: int) -> None:
        """Create a topic; retry until it exists."""
        configs = [CreatableTopicConfig(key, value) for key, value in self.world.topic_configs(name).items()]
        topic = CreatableTopic(name, partitions, self.world.replication_factor, configs=configs)
        request = CreateTopicsRequest([topic], PATIENCE_MS)

        def then(reply: Any) -> None:
            code = reply.code if isinstance(reply, KafkaError) else ErrorCode(reply.topics[0].error_code)
            self.trace_result(f"creates {name}", code)
            if code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                self.retry(lambda: self.create(name, partitions))

        self.ask(self.some_broker(), ApiKey.CREATE_TOPICS, 7, request, then, "admin")

    # --- random administration ------------------------------------------------------------------------------------

    def _ask(self, what: str, api: ApiKey, version: int, request: Any, codes: Callable[[Any], list[int]]) -> None:
        def then(reply: Any) -> None:
            for code in [reply.code] if isinstance(reply, KafkaError) else codes(reply) or [ErrorCode.NONE]:
                self.trace_result(what, code)
                if code == ErrorCode.UNKNOWN_SERVER_ERROR:
                    self.world.violated(f"{self.name} {what}: {ErrorCode(code).name}")

        self.ask(self.some_broker(), api, version, request, then, "admin", PATIENCE_MS)

    def _some_topic(self) -> TopicImage | None:
        topics = [topic for name, topic in sorted(self.world.image.topics.items()) if name in self.world.topics]
        return self.rng.choice(topics) if topics else None

    def create_or_delete_topic(self) -> None:
        name = self.rng.choice(self.world.fleeting)
        topic = self.world.image.topics.get(name)
        if topic is None:
            self.create(name, self.rng.randint(1, 2))
        else:
            self.delete(topic)

    def delete(self, topic: TopicImage) -> None:
        request = DeleteTopicsRequest([DeleteTopicState(None, topic.id)], (), PATIENCE_MS)
        self._ask(
            f"deletes {topic.name}",
            ApiKey.DELETE_TOPICS,
            6,
            request,
            lambda reply: [each.error_code for each in reply.responses],
        )

    def grow(self) -> None:
        topic = self._some_topic()
        if topic is not None and len(topic.partitions) < PARTITIONS_MAX:
            request = CreatePartitionsRequest(
                [CreatePartitionsTopic(topic.name, len(topic.partitions) + 1, None)], PATIENCE_MS
            )
            self._ask(
                f"grows {topic.name}",
                ApiKey.CREATE_PARTITIONS,
                3,
                request,
                lambda reply: [each.error_code for each in reply.results],
            )

    def reassign(self) -> None:
        """Move replicas: to other brokers, in another order, or cancel the reassignment."""
        topic = self._some_topic()
        if topic is None:
            return
        index = self.rng.randrange(len(topic.partitions))
        replicas = None
        if self.rng.random() < 0.9:
            replicas = self.rng.sample(self.world.broker_ids, self.world.replication_factor)
        reassignment = ReassignableTopic(topic.name, [ReassignablePartition(index, replicas)])
        request = AlterPartitionReassignmentsRequest(PATIENCE_MS, True, [reassignment])
        self._ask(
            f"moves {topic.name}-{index} to {replicas}",
            ApiKey.ALTER_PARTITION_REASSIGNMENTS,
            1,
            request,
            lambda reply: [
                reply.error_code,
                *(each.error_code for topic in reply.responses for each in topic.partitions),
            ],
        )

    def elect(self) -> None:
        topic = self._some_topic()
        if topic is None:
            return
        partitions = [TopicPartitions(topic.name, list(range(len(topic.partitions))))]
        request = ElectLeadersRequest(PREFERRED, partitions if self.rng.random() < 0.7 else None, PATIENCE_MS)
        self._ask(
            f"elects leaders of {topic.name}",
            ApiKey.ELECT_LEADERS,
            2,
            request,
            lambda reply: [
                reply.error_code,
                *(each.error_code for topic in reply.replica_election_results for each in topic.partition_result),
            ],
        )
