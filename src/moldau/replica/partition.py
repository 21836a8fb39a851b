"""One partition as its leader sees it: who may append, how far consumers may read, who waits for what.

The high watermark is what every in-sync replica has, on disk where `flush.messages` is 1. Consumers never see past it,
and whoever waits, for an acknowledgement or for new data, is told when it moves.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

from moldau.base.errors import ErrorCode, KafkaError, StorageFault
from moldau.base.ids import TopicPartition, Uuid
from moldau.base.later import Later
from moldau.log.log import Appended, Log, Slice
from moldau.log.validate import Origin
from moldau.metadata.image import PartitionState
from moldau.replica.flushing import Flusher

ACKS_ALL = -1


class Watcher(Protocol):
    """A fetch that wants to know of new data."""

    def touched(self, partition: Partition, size: int) -> None: ...


class Partition:
    __slots__ = (
        "_flusher",
        "_node_id",
        "_waiting",
        "_watchers",
        "high_watermark",
        "is_closed",
        "log",
        "min_insync_replicas",
        "name",
        "state",
        "topic_id",
    )

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
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.log = log
        self.state = state
        self.min_insync_replicas = min_insync_replicas
        self.high_watermark = high_watermark
        self.is_closed = False
        self._node_id = node_id
        self._flusher = flusher
        self._waiting: deque[tuple[int, Later[ErrorCode]]] = deque()
        self._watchers: set[Watcher] = set()

    @property
    def last_stable_offset(self) -> int:
        """How far a reader of committed data may read."""
        return self.log.last_stable_offset(self.high_watermark)

    def lead(self, state: PartitionState) -> None:
        """This node leads the partition, by the image, from this epoch on."""
        self.state = state
        epochs = self.log.epochs
        if epochs.latest != state.leader_epoch:
            epochs.assign(state.leader_epoch, self.log.end_offset)
        self._advance(0)
        if self.high_watermark < self.log.end_offset:
            # Found at start and perhaps never synced: without this, it would be seen with the next append only.
            self._flusher.request(self)

    def append(self, batches: memoryview, acks: int, now_ms: int, origin: Origin = Origin.CLIENT) -> Appended:
        """Takes somebody's batches into the log, or raises KafkaError and leaves the log as it was."""
        if self.state.leader != self._node_id or self.is_closed:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if acks == ACKS_ALL and len(self.state.isr) < min(self.min_insync_replicas, len(self.state.replicas)):
            raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, f"{len(self.state.isr)} in-sync replicas of {self.name}")
        log = self.log
        try:
            appended = log.append(batches, leader_epoch=self.state.leader_epoch, now_ms=now_ms, origin=origin)
        except StorageFault as fault:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(fault)) from fault
        if not appended.duplicate:
            self._advance(len(batches))
        if log.end_offset - log.recovery_point >= log.config.flush_messages:
            self._flusher.request(self)
        return appended

    def acknowledged(self, last_offset: int) -> Later[ErrorCode] | None:
        """None if the high watermark has passed the offset already, else a promise that it will."""
        if last_offset < self.high_watermark:
            return None
        promise: Later[ErrorCode] = Later()
        self._waiting.append((last_offset, promise))
        return promise

    def flushed(self) -> None:
        """The log, or more of it, is on disk."""
        self._advance(0)

    def read(self, offset: int, max_bytes: int, up_to: int, at_least_one: bool) -> Slice | None:
        """The records from that offset, as a slice of a file; KafkaError where there is no such offset."""
        try:
            return self.log.read(offset, max_bytes, up_to, at_least_one=at_least_one)
        except StorageFault as fault:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(fault)) from fault

    def fence(self, current_leader_epoch: int) -> None:
        """Raises KafkaError if the client's idea of who leads, and since when, is not ours."""
        if self.state.leader != self._node_id or self.is_closed:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if current_leader_epoch == -1 or current_leader_epoch == self.state.leader_epoch:
            return
        if current_leader_epoch < self.state.leader_epoch:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
        raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH)

    def delete_records(self, before_offset: int) -> int:
        """Moves the start of the log; gives the new one. -1 means the high watermark."""
        if not self.log.config.deletes_by_retention:
            raise KafkaError(ErrorCode.POLICY_VIOLATION, "cleanup.policy of the topic does not include delete")
        wanted = self.high_watermark if before_offset == -1 else before_offset
        if not 0 <= wanted <= self.high_watermark:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        try:
            self.log.delete_records(wanted)
        except StorageFault as fault:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(fault)) from fault
        self._tell(0)
        return self.log.start_offset

    def delete_expired(self, now_ms: int) -> int:
        """Lets go of the segments whose time has come; gives how many. A log that begins elsewhere is news."""
        dropped = self.log.delete_expired(now_ms, self.high_watermark)
        if dropped:
            self._tell(0)
        return len(dropped)

    def watch(self, watcher: Watcher) -> None:
        self._watchers.add(watcher)

    def unwatch(self, watcher: Watcher) -> None:
        self._watchers.discard(watcher)

    def close(self, code: ErrorCode) -> None:
        """Nobody will be served here any more: those who wait are told why."""
        self.is_closed = True
        waiting, self._waiting = self._waiting, deque()
        for _, promise in waiting:
            promise.complete(code)
        self._tell(0)
        self._watchers.clear()

    def _advance(self, size: int) -> None:
        """Moves the high watermark to what all in-sync replicas have. Today they are this node alone."""
        log = self.log
        durable = log.recovery_point if log.config.flush_messages == 1 else log.end_offset
        if durable <= self.high_watermark:
            return
        self.high_watermark = durable
        while self._waiting and self._waiting[0][0] < durable:
            self._waiting.popleft()[1].complete(ErrorCode.NONE)
        if self._watchers:
            self._tell(size)

    def _tell(self, size: int) -> None:
        for watcher in list(self._watchers):
            watcher.touched(self, size)
