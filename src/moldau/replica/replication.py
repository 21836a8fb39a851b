"""What stands around a partition with replicas elsewhere: the time, the brokers as the image has them, and the
controller, which alone decides who is in sync.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from moldau.base.clock import Clock
from moldau.base.errors import KafkaError
from moldau.base.ids import Uuid
from moldau.base.promise import Promise
from moldau.metadata.image import BrokerImage

UNKNOWN_BROKER_EPOCH = -1
EXPECTING_MS = 1_000
"""After something new is led here: how long its followers may take to learn of it."""


class IsrProposal(NamedTuple):
    """Who should be in sync with a leader, as the leader sees it."""

    topic_id: Uuid
    partition_index: int
    leader_epoch: int
    partition_epoch: int
    members: tuple[tuple[int, int], ...]
    """(broker, its epoch): a broker that has been restarted since is not the one that is meant (KIP-903)."""

    @property
    def isr(self) -> tuple[int, ...]:
        return tuple(broker_id for broker_id, _ in self.members)


class IsrDecision(NamedTuple):
    """What the controller made of it."""

    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]


class Proposals(Protocol):
    def propose(self, proposal: IsrProposal) -> Promise[IsrDecision | KafkaError]:
        """Sees to it that the controller learns of it, however long that takes. Never answers inside the call."""
        ...


class Replication:
    """One for all partitions of a node; `brokers` is kept as the image says by who follows it.

    A follower has one fetch under way at a leader. One that waits there for data knows nothing of what the leader has
    come to lead since, which has no follower until the next fetch: while all is new, such fetches wait but briefly.
    """

    __slots__ = ("_expecting_until_ms", "brokers", "clock", "lag_time_max_ms", "on_expecting_followers", "proposals")

    def __init__(self, clock: Clock, proposals: Proposals, lag_time_max_ms: int) -> None:
        self.clock = clock
        self.proposals = proposals
        self.lag_time_max_ms = lag_time_max_ms
        self.brokers: Mapping[int, BrokerImage] = {}
        self.on_expecting_followers: Callable[[], None] | None = None
        self._expecting_until_ms = clock.elapsed_ms()

    @property
    def expects_new_followers(self) -> bool:
        return self.clock.elapsed_ms() < self._expecting_until_ms

    def expect_new_followers(self) -> None:
        self._expecting_until_ms = self.clock.elapsed_ms() + EXPECTING_MS
        if self.on_expecting_followers is not None:
            self.on_expecting_followers()

    def is_live(self, broker_id: int) -> bool:
        broker = self.brokers.get(broker_id)
        return broker is not None and not broker.fenced

    def may_join(self, broker_id: int, broker_epoch: int) -> bool:
        """Whether a broker that fetched under that epoch may be in sync: one that leaves, or left, may not."""
        broker = self.brokers.get(broker_id)
        return (
            broker is not None
            and not broker.fenced
            and not broker.in_controlled_shutdown
            and broker.epoch == broker_epoch
        )
