"""Base of all clients of a simulated cluster: a connection to each broker, and the leaders of a topic's partitions.

The clients are small and use the protocol directly. Like real ones they never go back to an older leader epoch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any

from machines.network import SimulatedPeers
from machines.process import Process

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import Uuid
from moldau.wire.apis import ApiKey
from moldau.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from moldau.wire.schema import Message

if TYPE_CHECKING:
    from cluster.world import ClusterWorld

REQUEST_TIMEOUT_MS = 3_000
RETRY_MS = (20, 150)
PATIENCE_MAX = 5
METADATA_MAX_AGE_MS = 5_000
NO_NODE = -1


@dataclass(slots=True)
class Leader:
    topic_id: Uuid
    node_id: int
    epoch: int


class ClusterClient:
    def __init__(self, world: ClusterWorld, name: str, topic: str, rng: Random) -> None:
        self.world = world
        self.name = name
        self.topic = topic
        self.rng = rng
        self.process = Process(name)
        self.peers = SimulatedPeers(world.network, self.process, world.timers.after_ms)
        self.brokers: dict[int, tuple[str, int]] = dict(world.bootstrap)
        self.topic_id: Uuid | None = None
        self.leaders: dict[int, Leader] = {}
        """The known leader of each partition of the topic."""
        self.is_sticky = False
        """Whether it asks one broker for as long as that answers, as clients do that have a connection to it."""
        self._favourite = NO_NODE
        self._is_refreshing = False
        self.later(METADATA_MAX_AGE_MS, self._age)

    # --- requests -------------------------------------------------------------------------------------------------

    def later(self, delay_ms: int, call: Callable[[], None]) -> None:
        self.world.timers.after_ms(delay_ms, lambda: self.process.act(call))

    def retry(self, call: Callable[[], None], failures: int = 0) -> None:
        """Call again a little later, and later still after several failures."""
        self.later(self.rng.randint(*RETRY_MS) * min(1 + failures, PATIENCE_MAX), call)

    def some_broker(self) -> int:
        if not self.is_sticky:
            return self.rng.choice(list(self.brokers))
        if self._favourite not in self.brokers:
            self._favourite = self.rng.choice(list(self.brokers))
        return self._favourite

    def ask(
        self,
        node_id: int,
        api: ApiKey,
        version: int,
        request: Message,
        then: Callable[[Any], None],
        purpose: str = "",
        timeout_ms: int = REQUEST_TIMEOUT_MS,
    ) -> None:
        """Call `then` with the response, or with the KafkaError instead of it."""
        host, port = self.brokers[node_id]
        self.peers.to(host, port, purpose).ask(api, request, timeout_ms, version).then(
            then if node_id != self._favourite else lambda reply: self._favourite_answered(reply, then)
        )

    def _favourite_answered(self, reply: Any, then: Callable[[Any], None]) -> None:
        if isinstance(reply, KafkaError):
            self._favourite = NO_NODE
        then(reply)

    def trace_result(self, what: str, code: ErrorCode | int) -> None:
        self.world.trace(f"{self.name} {what} {ErrorCode(code).name}")

    # --- metadata -------------------------------------------------------------------------------------------------

    def _age(self) -> None:
        self.refresh()
        self.later(METADATA_MAX_AGE_MS, self._age)

    def refresh(self) -> None:
        if self._is_refreshing:
            return
        self._is_refreshing = True
        request = MetadataRequest([MetadataRequestTopic(name=self.topic)], allow_auto_topic_creation=False)
        self.ask(self.some_broker(), ApiKey.METADATA, 12, request, self._refreshed, "metadata", 1_000)

    def _refreshed(self, response: MetadataResponse | KafkaError) -> None:
        self._is_refreshing = False
        if isinstance(response, KafkaError):
            self.retry(self.refresh)
            return
        if response.brokers:
            self.brokers = {each.node_id: (each.host, each.port) for each in response.brokers}
        topic = response.topics[0]
        if topic.error_code == ErrorCode.NONE:
            self._learn(topic)
            if any(leader.node_id not in self.brokers for leader in self.leaders.values()):
                self.retry(self.refresh)
        else:
            self.retry(self.refresh)

    def _learn(self, topic: Any) -> None:
        if topic.topic_id != self.topic_id:
            if self.topic_id is not None and not self.world.audit.was_created_later(topic.topic_id, self.topic_id):
                return  # from a broker that does not know yet that the topic was deleted
            self.topic_id = topic.topic_id
            self.leaders = {}
            self.topic_changed()
        for each in topic.partitions:
            leader = self.leaders.get(each.partition_index)
            if leader is None or each.leader_epoch > leader.epoch:
                self.leaders[each.partition_index] = Leader(topic.topic_id, each.leader_id, each.leader_epoch)
            elif each.leader_epoch == leader.epoch:
                leader.node_id = each.leader_id
        self.leaders_known()

    def leader_of(self, partition: int) -> Leader | None:
        """Return the known leader of a partition, or None if there is none that can be asked."""
        leader = self.leaders.get(partition)
        return leader if leader is not None and leader.node_id in self.brokers else None

    def topic_changed(self) -> None:
        """Called when the topic is known for the first time, or was recreated."""

    def leaders_known(self) -> None:
        """Called after each metadata response."""
