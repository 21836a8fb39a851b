"""The leader's view of a partition's followers in one leader epoch: their progress, which are in sync, which should be,
and how far the high watermark may go.

While an ISR change is under way the leader does not know whether it happened: the members of the old and of the
proposed ISR all count then (KIP-497).
"""

from __future__ import annotations

from moldau.base.errors import ErrorCode
from moldau.base.ids import Uuid
from moldau.base.promise import Promise
from moldau.metadata.image import PartitionState
from moldau.replica.progress import NEVER_MS, Progress
from moldau.replica.replication import UNKNOWN_BROKER_EPOCH, IsrProposal, Replication

NO_ADVANCE = -1
"""Below every high watermark, so that it does not move."""
REJECTED_PAUSE_MS = 500
"""Pause after the controller rejected a change: its image of the brokers is newer than this node's."""
NOT_APPLIED = (ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED)
"""Errors that mean that nothing was changed. After any other error the image must show the result."""


class Leadership:
    __slots__ = (
        "_deletions",
        "_maximal_isr",
        "_node_id",
        "_not_before_ms",
        "_replication",
        "_topic",
        "followers",
        "proposed",
        "start_offset",
        "state",
    )

    def __init__(
        self, topic: tuple[Uuid, int], state: PartitionState, node_id: int, start_offset: int, replication: Replication
    ) -> None:
        self.start_offset = start_offset
        """The log end offset when the epoch began: a follower below it may lack committed records."""
        self.proposed: IsrProposal | None = None
        self.followers: dict[int, Progress] = {}
        self._topic = topic
        self._node_id = node_id
        self._replication = replication
        self._not_before_ms = NEVER_MS
        self._deletions: list[tuple[int, Promise[ErrorCode]]] = []
        self.adopt(state)

    def adopt(self, state: PartitionState) -> None:
        """Take over a new state. A proposal for an older partition epoch is dropped: the new state shows its result."""
        now_ms = self._replication.clock.monotonic_ms()
        previous = self.followers
        self.followers = {
            replica_id: previous.get(replica_id) or Progress(now_ms if replica_id in state.isr else NEVER_MS)
            for replica_id in state.replicas
            if replica_id != self._node_id
        }
        self.state = state
        if self.proposed is not None and self.proposed.partition_epoch < state.partition_epoch:
            self.proposed = None
        self._update_maximal_isr()

    def _update_maximal_isr(self) -> None:
        proposed = () if self.proposed is None else self.proposed.isr
        self._maximal_isr = frozenset((*self.state.isr, *proposed))

    @property
    def rivals(self) -> frozenset[int]:
        """The other nodes that the controller may elect, as far as this leader knows: only members of the ISR."""
        return self._maximal_isr - {self._node_id}

    @property
    def has_outsiders(self) -> bool:
        """Whether a follower is not in the ISR."""
        return len(self.state.isr) <= len(self.followers)

    # --- high watermark -----------------------------------------------------------------------------------------

    def limit(self, own_offset: int, min_insync_replicas: int) -> int:
        """Return how far the high watermark may go. It does not move while fewer than `min_insync_replicas` are in
        sync, because records that only these few have could be lost (KIP-966)."""
        state = self.state
        if len(state.isr) < min_insync_replicas and len(state.isr) < len(state.replicas):
            return NO_ADVANCE
        offset = own_offset
        for replica_id, progress in self.followers.items():
            if progress.end_offset < offset and (
                replica_id in self._maximal_isr or self._is_about_to_join(replica_id, progress)
            ):
                offset = progress.end_offset
        return offset

    def _is_about_to_join(self, replica_id: int, progress: Progress) -> bool:
        """Return whether the high watermark waits for a follower that was caught up lately and may join the ISR.
        Without the wait, such a follower would never reach the high watermark of a busy leader."""
        replication = self._replication
        since_ms = replication.clock.monotonic_ms() - progress.caught_up_ms
        return since_ms <= replication.lag_time_max_ms and replication.may_join(replica_id, progress.broker_epoch)

    # --- in-sync replicas ---------------------------------------------------------------------------------------

    def change(self, end_offset: int, high_watermark: int, *, looks_for_laggards: bool) -> IsrProposal | None:
        """Return the ISR change to propose to the controller now, or None. From now on the proposal counts as under
        way."""
        now_ms = self._replication.clock.monotonic_ms()
        if self.proposed is not None or now_ms < self._not_before_ms:
            return None
        caught_up = self._caught_up(end_offset, now_ms)
        joining = [
            replica_id
            for replica_id in caught_up
            if replica_id not in self.state.isr and self._has_all(replica_id, high_watermark)
        ]
        lagging = (set(self.state.isr) & self.followers.keys()).difference(caught_up) if looks_for_laggards else ()
        if not joining and not lagging:
            return None
        isr = [replica_id for replica_id in self.state.isr if replica_id not in lagging] + joining
        members = tuple((replica_id, self._broker_epoch(replica_id)) for replica_id in isr)
        topic_id, index = self._topic
        self.proposed = IsrProposal(topic_id, index, self.state.leader_epoch, self.state.partition_epoch, members)
        self._update_maximal_isr()
        return self.proposed

    def _caught_up(self, end_offset: int, now_ms: int) -> list[int]:
        """Return the followers that were caught up lately. A follower that joins must be one: it may have died
        since."""
        lag_time_max_ms = self._replication.lag_time_max_ms
        return [
            replica_id
            for replica_id, progress in self.followers.items()
            if progress.is_caught_up(end_offset, now_ms, lag_time_max_ms)
        ]

    def _has_all(self, replica_id: int, high_watermark: int) -> bool:
        progress = self.followers[replica_id]
        has_all = progress.end_offset >= high_watermark and progress.end_offset >= self.start_offset
        return has_all and self._replication.may_join(replica_id, progress.broker_epoch)

    def _broker_epoch(self, replica_id: int) -> int:
        progress = self.followers.get(replica_id)
        if progress is not None and progress.broker_epoch != UNKNOWN_BROKER_EPOCH:
            return progress.broker_epoch
        broker = self._replication.brokers.get(replica_id)
        return UNKNOWN_BROKER_EPOCH if broker is None else broker.epoch

    def on_rejected(self, code: ErrorCode) -> None:
        """Called if the controller rejected the proposal, or did not respond. The proposal still counts, unless the
        code says that nothing was changed."""
        if code in NOT_APPLIED:
            self.proposed = None
            self._not_before_ms = self._replication.clock.monotonic_ms() + REJECTED_PAUSE_MS
            self._update_maximal_isr()

    # --- deleting records ---------------------------------------------------------------------------------------

    def low_watermark(self, own_start_offset: int) -> int:
        """Return the smallest log start offset of all live replicas."""
        starts = [
            progress.start_offset
            for replica_id, progress in self.followers.items()
            if self._replication.is_live(replica_id)
        ]
        return min([own_start_offset, *starts])

    def deleted_below(self, offset: int, own_start_offset: int) -> Promise[ErrorCode] | None:
        """Return None if no live replica has records below `offset`, else a promise that is completed then."""
        if self.low_watermark(own_start_offset) >= offset:
            return None
        promise: Promise[ErrorCode] = Promise()
        self._deletions.append((offset, promise))
        return promise

    def complete_deletions(self, own_start_offset: int) -> None:
        if not self._deletions:
            return
        low_watermark = self.low_watermark(own_start_offset)
        done = [promise for offset, promise in self._deletions if offset <= low_watermark]
        self._deletions = [(offset, promise) for offset, promise in self._deletions if offset > low_watermark]
        for promise in done:
            promise.complete(ErrorCode.NONE)

    def inherit(self, earlier: Leadership) -> None:
        """Take over waiting deletions: the same node was elected again."""
        self._deletions, earlier._deletions = earlier._deletions, []

    def end(self, code: ErrorCode) -> None:
        deletions, self._deletions = self._deletions, []
        for _, promise in deletions:
            promise.complete(code)
