"""One partition on this node, as leader or follower: appends, the high watermark, and waiting requests.

All in-sync replicas have the records below the high watermark, on disk if `flush.messages` is 1. Consumers never read
past it. When it moves, waiting produce and fetch requests go on. Followers read up to the log end offset. Without
followers `_leadership` is None, and this node's log alone decides how far it moves.

A leader that another node may have replaced, because this one has not reached the controller for a while, is withheld
(runtime/broker/leader_lease.py): it keeps its state, but answers as if it did not lead.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from moldau.base.errors import ErrorCode, KafkaError, StorageFault
from moldau.base.ids import TopicPartition, Uuid
from moldau.base.promise import Promise
from moldau.log.log import Appended, Log
from moldau.log.validate import Origin
from moldau.metadata.image import PartitionState
from moldau.replica.faults import ReportFault, unreported
from moldau.replica.flushing import Flusher
from moldau.replica.leadership import Leadership
from moldau.replica.replication import IsrDecision, IsrProposal, Replication
from moldau.replica.traffic import TopicTraffic
from moldau.replica.watching import Watchers

ACKS_ALL = -1
ACKS_LEADER = 1
ANY_EPOCH = -1

_Waiting = deque[tuple[int, Promise[ErrorCode]]]
"""(last offset, promise) of produce requests that wait until the log is acknowledged up to it, by offset."""


class Partition:
    __slots__ = (
        "_flusher", "_leadership", "_node_id", "_replication", "_waiting", "_waiting_for_disk", "epoch_start_offset",
        "high_watermark", "is_closed", "is_leader", "is_withheld", "leads", "log", "min_insync_replicas", "name",
        "on_durable", "report_fault", "state", "topic_id", "traffic", "watchers",
    )  # fmt: skip

    def __init__(
        self,
        name: TopicPartition,
        topic_id: Uuid,
        log: Log,
        state: PartitionState,
        node_id: int,
        min_insync_replicas: int,
        high_watermark: int,
        flusher: Flusher,
        replication: Replication | None = None,
        traffic: TopicTraffic | None = None,
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.log = log
        self.state = state
        self.min_insync_replicas = min_insync_replicas
        self.high_watermark = high_watermark
        self.is_closed = False
        self.leads = False
        """Whether the last image says that this node leads the partition."""
        self.is_withheld = False
        """Whether another node may have been elected since."""
        self.is_leader = False
        """Whether it answers as the leader: it leads and is not withheld."""
        self.epoch_start_offset = 0
        """Where the log ended when this node began to lead it."""
        self.on_durable: Callable[[Partition], None] | None = None
        """Called on a follower when more of its log is on disk."""
        self.report_fault: ReportFault = unreported
        self.traffic = traffic or TopicTraffic()
        self._node_id = node_id
        self._flusher = flusher
        self._replication = replication
        self._leadership: Leadership | None = None
        self._waiting: _Waiting = deque()
        self._waiting_for_disk: _Waiting | None = None
        self.watchers: Watchers[Partition] = Watchers()

    @property
    def last_stable_offset(self) -> int:
        """How far a consumer with read_committed may read."""
        return self.log.last_stable_offset(self.high_watermark)

    @property
    def durable_offset(self) -> int:
        """Up to where this replica acknowledges: if `flush.messages` is 1, only what is on disk."""
        log = self.log
        return log.recovery_point if log.config.flush_messages == 1 else log.end_offset

    @property
    def has_enough_replicas(self) -> bool:
        """Whether the in-sync set is as large as `min.insync.replicas` asks for, so that acks=all is accepted."""
        state = self.state
        return len(state.isr) >= min(self.min_insync_replicas, len(state.replicas))

    @property
    def leadership(self) -> Leadership | None:
        """The leader's view of its followers; None on a follower and without followers."""
        return self._leadership

    # --- leadership ---------------------------------------------------------------------------------------------

    def lead(self, state: PartitionState) -> None:
        """Become or stay leader as the image says. Waiting requests go on waiting if this node was the leader
        before."""
        if self._is_stale(state):
            return
        is_new_epoch = not self.leads or state.leader_epoch > self.state.leader_epoch
        self.state = state
        if is_new_epoch:
            self.leads = True
            self.release()
            self._begin_epoch(state)
        elif self._leadership is not None:
            self._leadership.adopt(state)
        else:
            self._leadership = self._new_leadership(state)
        self.reevaluate_isr()
        if is_new_epoch and self.durable_offset < self.log.end_offset:
            # Records found at start may never have been synced: without a flush, consumers would see them only after
            # the next append.
            self._flusher.request(self)

    def _begin_epoch(self, state: PartitionState) -> None:
        log, earlier = self.log, self._leadership
        self.epoch_start_offset = log.end_offset
        log.accept_gap()
        if log.epochs.latest_epoch < state.leader_epoch:
            log.epochs.assign(state.leader_epoch, log.end_offset)
        self._leadership = leadership = self._new_leadership(state)
        if earlier is not None and leadership is not None:
            leadership.inherit(earlier)

    def _new_leadership(self, state: PartitionState) -> Leadership | None:
        """Called for a new epoch, and when a partition with one replica gets more within an epoch."""
        if self._replication is None or len(state.replicas) == 1:
            return None
        self._replication.expect_new_followers()
        topic = (self.topic_id, self.name.partition)
        return Leadership(topic, state, self._node_id, self.epoch_start_offset, self._replication)

    def become_follower(self, state: PartitionState) -> None:
        """Another node leads the partition, or none does. Waiting requests fail."""
        if self._is_stale(state) or (state == self.state and not self.leads):
            return
        self.state = state
        self.leads = self.is_leader = self.is_withheld = False
        self.log.producers.forget_refusals()
        self._end_leadership(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self.watchers.readable(self, 0)

    def withhold(self) -> None:
        """Answer as if this node did not lead the partition. Followers are served: their epoch fences them."""
        self.is_withheld = True
        self.is_leader = False

    def release(self) -> None:
        """Answer as the leader, if this node is."""
        self.is_withheld = False
        self.is_leader = self.leads

    def fail_waiting(self) -> None:
        """Let the clients that wait for this leader ask another one."""
        self._fail_produces(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self.watchers.readable_by_consumers(self, 0)

    def _is_stale(self, state: PartitionState) -> bool:
        """Return whether the state is older than the current one, or changes nothing. The image can be older, because
        the controller's response to an ISR change arrives first."""
        current = self.state
        is_older = state.leader_epoch < current.leader_epoch or state.partition_epoch < current.partition_epoch
        return self.is_closed or is_older or (self.leads and state == current)

    def reevaluate_isr(self, *, looks_for_laggards: bool = False) -> None:
        """Compute the in-sync replicas and the high watermark again, after brokers, configs or the time changed."""
        leadership = self._leadership
        if leadership is not None:
            log_end = self.log.end_offset
            proposal = leadership.change(log_end, self.high_watermark, looks_for_laggards=looks_for_laggards)
            if proposal is not None:
                self._propose(proposal)
            leadership.complete_deletions(self.log.start_offset)
        if self.leads:
            self._advance(0)

    def _propose(self, proposal: IsrProposal) -> None:
        assert self._replication is not None, "proposals need followers"
        self._replication.proposals.propose(proposal).then(partial(self._on_decision, proposal))

    def _on_decision(self, proposal: IsrProposal, decision: IsrDecision | KafkaError) -> None:
        leadership, state = self._leadership, self.state
        if leadership is None or leadership.proposed is not proposal:
            return
        assert self._replication is not None, "proposals need followers"
        if isinstance(decision, KafkaError):
            self._replication.isr_failures += 1
            leadership.on_rejected(decision.code)
        elif decision.leader_epoch == state.leader_epoch and decision.partition_epoch >= state.partition_epoch:
            self._replication.isr_changed(len(state.isr), len(decision.isr))
            self.state = replace(state, isr=decision.isr, partition_epoch=decision.partition_epoch)
            leadership.proposed = None
            leadership.adopt(self.state)
        self.reevaluate_isr()

    # --- appending ----------------------------------------------------------------------------------------------

    def check_writable(self, acks: int) -> None:
        """Raise KafkaError if nothing may be appended now."""
        if not self.is_leader:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if acks == ACKS_ALL and not self.has_enough_replicas:
            raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, f"{self.name} has {len(self.state.isr)} in-sync replicas")

    def append(
        self,
        batches: memoryview,
        acks: int,
        now_ms: int,
        origin: Origin = Origin.CLIENT,
        *,
        transaction_version: int = 0,
        sent_bytes: int | None = None,
    ) -> Appended:
        """Append batches to the log, or raise KafkaError and leave the log unchanged. `sent_bytes` is their size as the
        client sent them, if it is another now."""
        state = self.state
        if not self.is_leader or (acks == ACKS_ALL and len(state.isr) < self.min_insync_replicas):
            self.check_writable(acks)
        log, traffic = self.log, self.traffic
        traffic.produces += 1
        try:
            appended = log.append(
                batches,
                leader_epoch=state.leader_epoch,
                now_ms=now_ms,
                origin=origin,
                transaction_version=transaction_version,
            )
        except StorageFault as fault:
            self.report_fault(f"{self.name}: records cannot be appended", fault)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(fault)) from fault
        first_offset, last_offset, _, is_duplicate = appended
        if not is_duplicate:
            size = len(batches)
            traffic.messages_in += last_offset - first_offset + 1
            traffic.bytes_in += size if sent_bytes is None else sent_bytes
            self._advance(size)
            if self.watchers.followers:
                self.watchers.readable_by_followers(self, size)
        if log.end_offset - log.flushing.recovery_point >= log.config.flush_messages:
            self._flusher.request(self)
        return appended

    def acknowledged(self, last_offset: int, acks: int = ACKS_ALL) -> Promise[ErrorCode] | None:
        """Return None if the offset is already acknowledged, else a promise. With acks=all the high watermark must pass
        it, otherwise this replica alone must have it."""
        if last_offset < self.high_watermark:
            return None
        waiting = self._waiting
        if acks != ACKS_ALL and self._leadership is not None:
            if last_offset < self.durable_offset:
                return None
            waiting = self._waiting_for_disk = self._waiting_for_disk or deque()
        promise: Promise[ErrorCode] = Promise()
        waiting.append((last_offset, promise))
        return promise

    def flushed(self) -> None:
        """Called after a flush: more of the log is on disk."""
        if self._waiting_for_disk:
            _complete_passed(self._waiting_for_disk, self.log.recovery_point)
        if self.leads:
            self._advance(0)
        elif self.on_durable is not None:
            self.on_durable(self)

    def flush_postponed(self, fault: StorageFault) -> None:
        self.report_fault(f"{self.name}: flush failed and will be retried", fault)

    def request_flush(self) -> None:
        self._flusher.request(self)

    def _advance(self, size: int, committed: int | None = None) -> None:
        """Move the high watermark to the offset that all in-sync replicas have. A follower passes the leader's high
        watermark as `committed`. `size` is the number of bytes just appended, for waiting fetches."""
        if committed is None:
            log = self.log
            committed = log.recovery_point if log.config.flush_messages == 1 else log.end_offset
            if self._leadership is not None:
                committed = self._leadership.limit(committed, self.min_insync_replicas)
        if committed <= self.high_watermark:
            return
        self.high_watermark = committed
        producers = self.log.producers
        if producers.unreplicated:
            producers.forget_replicated(committed)
        if self._waiting:
            _complete_passed(self._waiting, committed)
        watchers = self.watchers
        if watchers.consumers or watchers.followers:
            watchers.high_watermark_moved(self, size)

    # --- reading ------------------------------------------------------------------------------------------------

    def check_leader_epoch(self, current_leader_epoch: int, *, leader_only: bool = True) -> None:
        """Raise KafkaError if this node does not lead the partition, or not in that leader epoch."""
        if self.is_withheld:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self._check_role(current_leader_epoch, leader_only)

    def check_certain(self) -> None:
        """Raise KafkaError if another node may lead the partition since a moment ago. To be called before a client is
        told that this log lacks an offset or an epoch: it may have read them from the new leader, and would begin
        again."""
        leadership, replication = self._leadership, self._replication
        if leadership is not None and leadership.rivals and replication is not None and not replication.is_certain:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def _check_role(self, current_leader_epoch: int, leader_only: bool) -> None:
        if self.is_closed:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if current_leader_epoch not in (ANY_EPOCH, self.state.leader_epoch):
            is_old = current_leader_epoch < self.state.leader_epoch
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH if is_old else ErrorCode.UNKNOWN_LEADER_EPOCH)
        if leader_only and not self.leads:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    # --- followers ----------------------------------------------------------------------------------------------

    def check_replica(self, replica_id: int, broker_epoch: int, current_leader_epoch: int) -> None:
        """Raise KafkaError if the broker with that epoch is no follower of this partition. A follower's fetch moves the
        high watermark, so it must be checked."""
        self._check_role(current_leader_epoch, leader_only=True)
        leadership = self._leadership
        if leadership is None or replica_id not in leadership.followers:
            # If the leader epoch is right, the image with the new replica may not have arrived here yet.
            is_early = current_leader_epoch != ANY_EPOCH
            raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH if is_early else ErrorCode.NOT_LEADER_OR_FOLLOWER)
        assert self._replication is not None, "followers need the brokers"
        broker = self._replication.brokers.get(replica_id)
        if broker is None or broker.epoch != broker_epoch:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def replica_fetched(self, replica_id: int, broker_epoch: int, fetch_offset: int, start_offset: int) -> None:
        """Record a follower's fetch, which `check_replica` has accepted: the follower has all records below
        `fetch_offset`."""
        leadership = self._leadership
        assert leadership is not None, "check_replica was called before"
        assert self._replication is not None, "followers need the clock"
        progress = leadership.followers[replica_id]
        has_deleted = start_offset > progress.start_offset
        now_ms = self._replication.clock.monotonic_ms()
        has_moved = progress.fetched(fetch_offset, start_offset, self.log.end_offset, broker_epoch, now_ms)
        if has_deleted or leadership.has_outsiders:
            self.reevaluate_isr()
        elif has_moved:
            self._advance(0)

    def update_from_leader(self, high_watermark: int, start_offset: int) -> None:
        """As a follower: take over the leader's offsets. The high watermark only decreases with a truncation."""
        log = self.log
        start_offset = min(start_offset, log.end_offset)
        if start_offset > log.start_offset:
            self._move_start(start_offset)
            self.watchers.readable_by_consumers(self, 0)
        self._advance(0, min(high_watermark, log.end_offset))

    def on_truncated(self) -> None:
        """As a follower, after a truncation: lower the high watermark to the log end offset."""
        if self.high_watermark > self.log.end_offset:
            self.high_watermark = self.log.end_offset
            self.watchers.readable_by_consumers(self, 0)

    # --- deleting -----------------------------------------------------------------------------------------------

    def delete_records(self, before_offset: int) -> int:
        """Move the log start offset and return it. -1 means the high watermark."""
        if not self.log.config.deletes_by_retention:
            raise KafkaError(ErrorCode.POLICY_VIOLATION, "cleanup.policy of the topic does not include delete")
        start_offset = self.high_watermark if before_offset == -1 else before_offset
        if not 0 <= start_offset <= self.high_watermark:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        try:
            self._move_start(start_offset)
        except StorageFault as fault:
            self.report_fault(f"{self.name}: records cannot be deleted", fault)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(fault)) from fault
        self.watchers.readable(self, 0)
        return self.log.start_offset

    def _move_start(self, offset: int) -> None:
        """Move the log start offset. A checkpoint has it only up to the recovery point, so that needs a flush."""
        self.log.delete_records(offset)
        if self.log.start_offset > self.log.recovery_point:
            self._flusher.request(self)

    def delete_expired(self, now_ms: int, at_most: int = sys.maxsize) -> int:
        """Delete expired segments, at most `at_most`; return how many. Watchers learn the new log start offset."""
        start_offset = self.log.start_offset
        try:
            return len(self.log.delete_expired(now_ms, self.high_watermark, at_most))
        finally:  # a full disk may end it after some segments
            if self.log.start_offset != start_offset:
                self.watchers.readable(self, 0)
                self._flusher.request(self)  # at a start, leader epochs without their segments look like a loss

    # --- close --------------------------------------------------------------------------------------------------

    def close(self, code: ErrorCode) -> None:
        """Stop serving the partition. Waiting requests fail with `code`."""
        self.is_closed = True
        self.leads = self.is_leader = self.is_withheld = False
        self._end_leadership(code)
        self.watchers.readable(self, 0)
        self.watchers.clear()

    def _end_leadership(self, code: ErrorCode) -> None:
        leadership, self._leadership = self._leadership, None
        self._fail_produces(code)
        if leadership is not None:
            leadership.end(code)

    def _fail_produces(self, code: ErrorCode) -> None:
        waiting = [promise for _, promise in (*self._waiting, *(self._waiting_for_disk or ()))]
        self._waiting.clear()
        self._waiting_for_disk = None
        for promise in waiting:
            promise.complete(code)


def _complete_passed(waiting: _Waiting, offset: int) -> None:
    while waiting and waiting[0][0] < offset:
        waiting.popleft()[1].complete(ErrorCode.NONE)
