"""What a partition with followers needs from its node: the clock, the brokers of the image, and the controller, which
alone decides which replicas are in sync.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from moldau.base.clock import Clock
from moldau.base.errors import KafkaError
from moldau.base.ids import Uuid
from moldau.base.promise import Promise
from moldau.metadata.image import BrokerImage

UNKNOWN_BROKER_EPOCH = -1
EXPECTING_MS = 1_000
"""For how long after a new leadership the fetches of followers wait only briefly: so long they may take to learn that
this node leads the partition."""


class IsrProposal(NamedTuple):
    """The in-sync replicas that a leader proposes."""

    topic_id: Uuid
    partition_index: int
    leader_epoch: int
    partition_epoch: int
    members: tuple[tuple[int, int], ...]
    """(broker id, broker epoch): the epoch excludes a broker that was restarted since (KIP-903)."""

    @property
    def isr(self) -> tuple[int, ...]:
        return tuple(broker_id for broker_id, _ in self.members)


class IsrDecision(NamedTuple):
    """The controller's response to a proposal."""

    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]


class Proposals(Protocol):
    def propose(self, proposal: IsrProposal) -> Promise[IsrDecision | KafkaError]:
        """Send the proposal to the controller, with retries. The promise is never completed inside the call."""
        ...


class Replication:
    """Shared by all partitions of a node. `Partitions` keeps `brokers` up to date with the image.

    A follower has one fetch under way at a leader. If that fetch waits for data, it does not include partitions that
    the leader has begun to lead since. So for a while after a new leadership such fetches wait only briefly.
    """

    __slots__ = (
        "_expecting_until_ms",
        "brokers",
        "certain_ms",
        "clock",
        "contact_ms",
        "isr_expands",
        "isr_failures",
        "isr_shrinks",
        "lag_time_max_ms",
        "lease_clock",
        "on_expecting_followers",
        "proposals",
    )

    def __init__(
        self,
        clock: Clock,
        proposals: Proposals,
        lag_time_max_ms: int,
        lease_clock: Clock | None = None,
        certain_ms: int = sys.maxsize,
    ) -> None:
        """`lease_clock` goes on while this node does not run; None to use `clock`. `certain_ms` is the time that the
        controller needs at least to replace this leader."""
        self.clock = clock
        self.lease_clock = lease_clock or clock
        self.certain_ms = certain_ms
        self.proposals = proposals
        self.lag_time_max_ms = lag_time_max_ms
        self.brokers: Mapping[int, BrokerImage] = {}
        self.on_expecting_followers: Callable[[], None] | None = None
        """Ends the followers' fetches that wait for data: their next ones may include the new partition."""
        self._expecting_until_ms = clock.monotonic_ms()
        self.isr_shrinks = self.isr_expands = self.isr_failures = 0
        self.contact_ms = self.lease_clock.monotonic_ms()
        """When the controller last knew this broker as unfenced, by the lease clock."""

    @property
    def is_certain(self) -> bool:
        """Whether the controller cannot have replaced a leader of this node since the last contact."""
        return self.lease_clock.monotonic_ms() - self.contact_ms <= self.certain_ms

    @property
    def expects_new_followers(self) -> bool:
        return self.clock.monotonic_ms() < self._expecting_until_ms

    def expect_new_followers(self) -> None:
        self._expecting_until_ms = self.clock.monotonic_ms() + EXPECTING_MS
        if self.on_expecting_followers is not None:
            self.on_expecting_followers()

    def isr_changed(self, before: int, after: int) -> None:
        """Count a decision of the controller by the number of in-sync replicas."""
        self.isr_shrinks += after < before
        self.isr_expands += after > before

    def is_live(self, broker_id: int) -> bool:
        broker = self.brokers.get(broker_id)
        return broker is not None and not broker.fenced

    def may_join(self, broker_id: int, broker_epoch: int) -> bool:
        """Whether a broker that fetched with that epoch may join the ISR: not if it is fenced, shutting down or without
        space."""
        broker = self.brokers.get(broker_id)
        return broker is not None and broker.is_active and not broker.cannot_write and broker.epoch == broker_epoch
