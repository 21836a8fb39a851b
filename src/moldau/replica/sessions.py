"""Incremental fetch sessions (KIP-227): the broker keeps the partitions and fetch offsets of a consumer or follower,
and both sides send only changes.

A response looks only at the partitions that changed since the last one, so a fetch costs as much as what changed. A
fetch without a session is a session that is dropped after one response.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from moldau.base.errors import ErrorCode, KafkaError, StorageFault
from moldau.base.ids import Uuid
from moldau.base.limits import FETCH_SESSION_PARTITIONS_MAX

if TYPE_CHECKING:
    from moldau.replica.view_partition import ReadablePartition

INITIAL_EPOCH = 0
FINAL_EPOCH = -1
EPOCH_MAX = 2**31 - 1
CONSUMER = -1
"""The replica id of a consumer."""
NEVER_SENT = -1
NEVER_MS = -(2**62)

PartitionKey = tuple[str | Uuid, int]
"""A partition as the client names it: by topic name, or by topic id from Fetch v13 on."""


class FetchedPartition:
    """A partition in a session: the values of the client's last request, and of the last response."""

    __slots__ = (
        "current_leader_epoch",
        "fetch_offset",
        "index",
        "is_held_back",
        "last_fetched_epoch",
        "log_start_offset",
        "partition",
        "partition_max_bytes",
        "seen_stable_offset",
        "sent_high_watermark",
        "sent_log_start_offset",
        "topic",
    )

    def __init__(self, topic: str | Uuid, index: int) -> None:
        self.topic = topic
        self.index = index
        self.partition: ReadablePartition | None = None
        self.fetch_offset = 0
        self.partition_max_bytes = 0
        self.current_leader_epoch = -1
        self.last_fetched_epoch = -1
        self.log_start_offset = -1
        """The log start offset of the follower that fetches; -1 for a consumer."""
        self.sent_high_watermark = NEVER_SENT
        self.sent_log_start_offset = NEVER_SENT
        self.seen_stable_offset = NEVER_SENT
        """With read_committed: the last stable offset when the partition was last read."""
        self.is_held_back = False
        """With read_committed: whether an open transaction has hidden records since then."""


class SessionRoom:
    """Counts the partitions of all cached sessions."""

    __slots__ = ("used",)

    def __init__(self) -> None:
        self.used = 0


_UNCOUNTED = SessionRoom()
"""For sessions that are not cached."""


class FetchSession:
    """The partitions of a session, and which of them (`dirty`) the next response looks at, in this order."""

    __slots__ = (
        "_by_partition",
        "_room",
        "dirty",
        "entries",
        "epoch",
        "fetched_ms",
        "id",
        "on_touch",
        "reads_committed",
        "replica_id",
        "uses_topic_ids",
    )

    def __init__(
        self,
        session_id: int = 0,
        uses_topic_ids: bool = False,
        replica_id: int = CONSUMER,
        room: SessionRoom | None = None,
    ) -> None:
        """`room` counts the partitions of a cached session."""
        self._room = room or _UNCOUNTED
        self.id = session_id
        self.replica_id = replica_id
        self.uses_topic_ids = uses_topic_ids
        self.reads_committed = False
        self.epoch = 1
        self.fetched_ms = NEVER_MS
        """When a follower fetched last, by the lease clock."""
        self.entries: dict[PartitionKey, FetchedPartition] = {}
        self.dirty: dict[FetchedPartition, None] = {}
        self.on_touch: Callable[[int], None] | None = None
        """Set while a fetch waits or is handled in several turns: called with the number of new bytes, or 0 if it must
        look again."""
        self._by_partition: dict[ReadablePartition, FetchedPartition] = {}

    def put(self, topic: str | Uuid, index: int, partition: ReadablePartition | None) -> FetchedPartition:
        """Add or find a partition; the next response looks at it."""
        key = (topic, index)
        entry = self.entries.get(key)
        if entry is None:
            entry = self.entries[key] = FetchedPartition(topic, index)
            self._room.used += 1
        if entry.partition is not partition:
            self._rebind(entry, partition)
        self.dirty[entry] = None
        return entry

    def take(self, entry: FetchedPartition) -> bool:
        """Take a partition out of those that the next response looks at, because it is about to be read: a change
        after that puts it back. Return False if the session no longer has it."""
        if self.entries.get((entry.topic, entry.index)) is not entry:
            return False
        self.dirty.pop(entry, None)
        return True

    def forget(self, topic: str | Uuid, index: int) -> None:
        entry = self.entries.pop((topic, index), None)
        if entry is not None:
            self._room.used -= 1
            self._rebind(entry, None)
            self.dirty.pop(entry, None)

    def rebind(self, entry: FetchedPartition, partition: ReadablePartition | None) -> None:
        """Bind the entry to another partition of the same name, which was created since."""
        if entry.partition is not partition:
            self._rebind(entry, partition)

    def _rebind(self, entry: FetchedPartition, partition: ReadablePartition | None) -> None:
        if entry.partition is not None:
            entry.partition.watchers.remove(self)
            self._by_partition.pop(entry.partition, None)
        entry.partition = partition
        if partition is not None and (self.id or self.on_touch is not None):
            self._watch(entry, partition)

    def watch_all(self) -> None:
        """Watch all partitions, for a fetch without a session that has to wait. One that is handled in several turns
        (`Fetch._steps`) watches them already."""
        if self._by_partition:
            return
        for entry in self.entries.values():
            if entry.partition is not None:
                self._watch(entry, entry.partition)

    def _watch(self, entry: FetchedPartition, partition: ReadablePartition) -> None:
        self._by_partition[partition] = entry
        if self.replica_id == CONSUMER:
            partition.watchers.consumers[self] = None
        else:
            partition.watchers.followers[self] = None

    def high_watermark_moved(self, partition: ReadablePartition, size: int) -> None:
        """Wake the waiting fetch. With read_committed, records of an open transaction do not wake it; once the marker
        is there, more can be read than `size`, so the fetch must count again."""
        entry = self._by_partition.get(partition)
        if entry is None:
            return
        self.dirty[entry] = None
        if self.on_touch is None:
            return
        if self.reads_committed:
            try:
                stable_offset = partition.last_stable_offset
            except (KafkaError, StorageFault):
                # The fetch reads the partition again and reports the error.
                self.on_touch(0)
                return
            if entry.is_held_back or stable_offset < partition.high_watermark:
                if stable_offset <= max(entry.fetch_offset, entry.seen_stable_offset):
                    entry.is_held_back = True
                    return
                size = 0
        self.on_touch(size)

    def readable(self, partition: ReadablePartition, size: int) -> None:
        entry = self._by_partition.get(partition)
        if entry is not None:
            self.dirty[entry] = None
            if partition.is_closed:
                # The client may never fetch again: its session must not keep the files of the log open.
                self._rebind(entry, None)
            if self.on_touch is not None:
                self.on_touch(size)

    def metadata_changed(self, partition: ReadablePartition) -> None:
        entry = self._by_partition.get(partition)
        if entry is not None:
            self.dirty[entry] = None

    def close(self) -> None:
        """Forget everything. A request that is still handled goes on without a session."""
        self.id = 0
        for partition in self._by_partition:
            partition.watchers.remove(self)
        self._by_partition.clear()
        self._room.used -= len(self.entries)
        self._room = _UNCOUNTED
        self.entries.clear()
        self.dirty.clear()


class _CachedSession(NamedTuple):
    session: FetchSession
    used_ms: int


class SessionCache:
    """All sessions, the least recently used first. The first one is evicted when there are too many, or when they have
    too many partitions."""

    def __init__(
        self,
        slots_max: int,
        evict_after_ms: int,
        rng: Random,
        partitions_max: int = FETCH_SESSION_PARTITIONS_MAX,
    ) -> None:
        self._room = SessionRoom()
        self._partitions_max = partitions_max
        self._slots_max = slots_max
        self._evict_after_ms = evict_after_ms
        self._rng = rng
        self._sessions: OrderedDict[int, _CachedSession] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sessions)

    def create(
        self, uses_topic_ids: bool, now_ms: int, replica_id: int = CONSUMER, partition_count: int = 0
    ) -> FetchSession:
        """Return a new session, or one with id 0 (no session, which is always allowed) if there is no slot, or no room
        for its partitions. Followers may evict consumers, and have as many partitions as they follow: without a session
        they would send all of them with every fetch."""
        is_follower = replica_id != CONSUMER
        while len(self._sessions) >= self._slots_max or not (is_follower or self._has_room(partition_count)):
            is_too_large = not is_follower and partition_count > self._partitions_max
            if is_too_large or not self._evict(now_ms, replica_id):
                return FetchSession(0, uses_topic_ids, replica_id)
        while (session_id := self._rng.randint(1, 2**31 - 1)) in self._sessions:
            continue
        session = FetchSession(session_id, uses_topic_ids, replica_id, self._room)
        self._sessions[session_id] = _CachedSession(session, now_ms)
        return session

    def resume(
        self, session_id: int, epoch: int, uses_topic_ids: bool, now_ms: int, replica_id: int = CONSUMER
    ) -> FetchSession:
        """Return the session for its client's next request. Raise KafkaError if there is none, or if its epoch or its
        use of topic ids does not match."""
        cached = self._sessions.get(session_id)
        if cached is None or cached.session.replica_id != replica_id:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        session = cached.session
        if epoch != session.epoch:
            raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if uses_topic_ids != session.uses_topic_ids:
            raise KafkaError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        session.epoch = 1 if epoch == EPOCH_MAX else epoch + 1
        self._sessions[session_id] = _CachedSession(session, now_ms)
        self._sessions.move_to_end(session_id)
        return session

    def check_room(self, session: FetchSession, named_count: int, new_count: Callable[[], int]) -> None:
        """Remove a consumer's session for whose new partitions there is no room, and raise KafkaError: its client opens
        another. `named_count` is how many the request names; `new_count` returns how many of them are new."""
        if session.replica_id == CONSUMER and not self._has_room(named_count) and not self._has_room(new_count()):
            self.remove(session.id)
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)

    def _has_room(self, partition_count: int) -> bool:
        return self._room.used + partition_count <= self._partitions_max

    def remove(self, session_id: int) -> None:
        cached = self._sessions.pop(session_id, None)
        if cached is not None:
            cached.session.close()

    def _evict(self, now_ms: int, replica_id: int) -> bool:
        """Remove the least recently used session if it is old enough. Otherwise, for a follower, remove the least
        recently used session of a consumer. Return False if none was removed."""
        if not self._sessions:
            return False
        session_id, oldest = next(iter(self._sessions.items()))
        if now_ms - oldest.used_ms < self._evict_after_ms:
            if replica_id == CONSUMER:
                return False
            of_consumers = (key for key, cached in self._sessions.items() if cached.session.replica_id == CONSUMER)
            session_id = next(of_consumers, 0)
        self.remove(session_id)
        return bool(session_id)
