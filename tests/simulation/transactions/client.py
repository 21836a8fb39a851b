"""Base of transactional clients of a simulated cluster: knows the leaders of several topics, finds coordinators, and
retries requests.

A client runs a script (cluster/scripted.py). When the process dies, its script ends where it was.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

from cluster.client import Leader
from cluster.scripted import Script, ScriptedClient

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import Uuid
from moldau.wire.apis import ApiKey
from moldau.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from moldau.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from moldau.wire.schema import Message

if TYPE_CHECKING:
    from transactions.world import TransactionsWorld

Place = tuple[str, int]
"""A topic and a partition index."""

GROUP = 0
TRANSACTION = 1
LOST = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.UNSUPPORTED_VERSION,  # the client's own error for a node that is no broker any more
    }
)
"""The coordinator may have moved."""
EARLY = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""Errors after which the same coordinator is asked again."""
WITHOUT_EFFECT = frozenset({ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.CONCURRENT_TRANSACTIONS})
"""Errors after which it is certain that the request changed nothing."""


class Answered(NamedTuple):
    code: ErrorCode
    reply: Any
    is_doubtful: bool
    """Whether an earlier attempt may have had an effect: it had no response, or an error that leaves it open."""
    was_replaced: bool
    """Whether another process used the transactional id before this request was sent."""


class TransactionalClient(ScriptedClient):
    """One process. `is_replaced` is set when a later process with the same transactional id got its epoch."""

    world: TransactionsWorld

    def __init__(self, world: TransactionsWorld, name: str, topics: Sequence[str], rng: Random) -> None:
        self._topics = list(topics)
        self.routes: dict[Place, Leader] = {}
        self._topic_ids: dict[str, Uuid] = {}
        """The latest topic id of each name."""
        self._coordinators: dict[tuple[int, str], int] = {}
        self.is_replaced = False
        super().__init__(world, name, "", rng)
        self.refresh()

    # --- metadata -------------------------------------------------------------------------------------------------

    def refresh(self) -> None:
        if self._is_refreshing:
            return
        self._is_refreshing = True
        request = MetadataRequest(
            [MetadataRequestTopic(name=name) for name in self._topics], allow_auto_topic_creation=False
        )
        self.ask(self.some_broker(), ApiKey.METADATA, 12, request, self._refreshed, "metadata", 1_000)

    def _refreshed(self, response: MetadataResponse | KafkaError) -> None:
        self._is_refreshing = False
        if isinstance(response, KafkaError):
            self.retry(self.refresh)
            return
        if response.brokers:
            self.brokers = {each.node_id: (each.host, each.port) for each in response.brokers}
        for topic in response.topics:
            if topic.error_code == ErrorCode.NONE:
                self._learn(topic)
            elif self.world.may_be_deleted(topic.name):
                self._forget(topic.name)
        lasting = [topic for topic in response.topics if not self.world.may_be_deleted(topic.name)]
        is_whole = all(topic.error_code == ErrorCode.NONE for topic in lasting)
        if not is_whole or any(leader.node_id not in self.brokers for leader in self.routes.values()):
            self.retry(self.refresh)

    def _forget(self, name: str) -> None:
        for place in [place for place in self.routes if place[0] == name]:
            del self.routes[place]

    def _learn(self, topic: Any) -> None:
        known_id = self._topic_ids.setdefault(topic.name, topic.topic_id)
        if topic.topic_id != known_id:
            if not self.world.audit.was_created_later(topic.topic_id, known_id):
                return  # from a broker that does not know yet that the topic was deleted
            self._topic_ids[topic.name] = topic.topic_id
            self._forget(topic.name)
        for each in topic.partitions:
            place = (topic.name, each.partition_index)
            known = self.routes.get(place)
            if known is None or each.leader_epoch > known.epoch:
                self.routes[place] = Leader(topic.topic_id, each.leader_id, each.leader_epoch)
            elif each.leader_epoch == known.epoch:
                known.node_id = each.leader_id

    def route(self, place: Place) -> Leader | None:
        """Return the leader of a partition, or None if none can be asked."""
        leader = self.routes.get(place)
        return leader if leader is not None and leader.node_id in self.brokers else None

    # --- coordinators ---------------------------------------------------------------------------------------------

    def coordinator_of(self, kind: int, key: str) -> Script[int]:
        failures = 0
        while True:
            known = self._coordinators.get((kind, key))
            if known is not None and known in self.brokers:
                return known
            self._coordinators.pop((kind, key), None)
            request = FindCoordinatorRequest("", kind, [key])
            reply = yield self.request(self.some_broker(), ApiKey.FIND_COORDINATOR, 4, request, "metadata", 1_500)
            self._found_coordinator(kind, key, reply)
            if (kind, key) not in self._coordinators:
                failures += 1
                yield self.pause_after(failures)

    def _found_coordinator(self, kind: int, key: str, reply: FindCoordinatorResponse | KafkaError) -> None:
        code = reply.code if isinstance(reply, KafkaError) else ErrorCode(reply.coordinators[0].error_code)
        if isinstance(reply, KafkaError) or code is not ErrorCode.NONE:
            self.judge(code, f"finds the coordinator of {key}", LOST | EARLY)
            return
        found = reply.coordinators[0]
        self._coordinators[kind, key] = found.node_id
        self.brokers.setdefault(found.node_id, (found.host, found.port))

    def judge(self, code: ErrorCode, what: str, allowed: frozenset[ErrorCode]) -> None:
        self.trace_result(what, code)
        if code not in allowed:
            self.world.violated(f"{self.name} {what}: {code.name}")

    def coordinated(
        self,
        kind: int,
        key: str,
        what: str,
        api: ApiKey,
        version: int,
        request: Message,
        code_of: Callable[[Any], int],
        early: frozenset[ErrorCode] = EARLY,
    ) -> Script[Answered]:
        """Send a request to the coordinator, whichever broker that is, until the error is not retriable."""
        failures, is_doubtful = 0, False
        while True:
            node_id = yield from self.coordinator_of(kind, key)
            was_replaced = self.is_replaced
            reply = yield self.request(node_id, api, version, request, f"coordinator-{kind}")
            code = reply.code if isinstance(reply, KafkaError) else ErrorCode(code_of(reply))
            self.trace_result(f"{what} at n{node_id}", code)
            if code not in LOST and code not in early:
                return Answered(code, reply, is_doubtful, was_replaced)
            if code in LOST:
                self._coordinators.pop((kind, key), None)
            is_doubtful |= code not in WITHOUT_EFFECT
            failures += 1
            yield self.pause_after(failures)
