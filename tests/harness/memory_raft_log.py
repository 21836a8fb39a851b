"""A metadata log and a quorum state store in memory. The log distinguishes written batches from flushed ones: a crash
may lose batches that were not flushed."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from random import Random

from moldau.base.errors import ErrorCode, KafkaError, MalformedData
from moldau.raft.ports import EpochEnd
from moldau.raft.quorum_state import QuorumState
from moldau.raft.snapshots import SnapshotId, check_snapshot, snapshot_batches, snapshot_values
from moldau.raft.voters import VoterSet
from moldau.wire.batch import BATCH_HEADER_BYTES, BatchHeader, has_valid_crc, read_header, split_batches, stamp


class MemoryRaftLog:
    def __init__(self) -> None:
        self.content: list[bytes] = []
        self._bases: list[int] = []
        self.headers: list[BatchHeader] = []
        self.start_offset = 0
        self.end_offset = 0
        self.flushed_offset = 0
        self.snapshots: dict[SnapshotId, bytes] = {}

    # --- the disk -----------------------------------------------------------------------------------------------

    def flush(self, up_to: int) -> None:
        self.flushed_offset = max(self.flushed_offset, min(up_to, self.end_offset))

    def crash(self, rng: Random) -> None:
        """Keep a random prefix of what was not flushed."""
        self._remove_from(rng.randint(self.flushed_offset, self.end_offset))
        self.flushed_offset = self.end_offset

    # --- batches ------------------------------------------------------------------------------------------------

    @property
    def last_epoch(self) -> int:
        if self.headers:
            return self.headers[-1].leader_epoch
        return max((each.epoch for each in self.snapshots), default=0)

    def append(self, batch: bytearray, epoch: int, now_ms: int) -> None:
        stamp(memoryview(batch), self.end_offset, epoch)
        self._store(bytes(batch))

    def _store(self, batch: bytes) -> None:
        header = read_header(batch)
        assert header.base_offset == self.end_offset
        assert header.leader_epoch >= self.last_epoch, "epochs in a log never decrease"
        self.content.append(batch)
        self._bases.append(header.base_offset)
        self.headers.append(header)
        self.end_offset = header.next_offset

    def append_from_leader(self, batches: memoryview, now_ms: int) -> None:
        position = 0
        while len(batches) - position >= BATCH_HEADER_BYTES:
            header = read_header(batches, position)
            batch = batches[position : position + header.size_in_bytes]
            if len(batch) < header.size_in_bytes:
                return
            if header.base_offset != self.end_offset or not has_valid_crc(batch):
                raise KafkaError(ErrorCode.CORRUPT_MESSAGE)
            self._store(bytes(batch))
            position += header.size_in_bytes

    def truncate(self, offset: int) -> None:
        self._remove_from(offset)
        self.flushed_offset = min(self.flushed_offset, self.end_offset)

    def _remove_from(self, offset: int) -> None:
        while self.headers and self.headers[-1].last_offset >= offset:
            self.end_offset = self.headers.pop().base_offset
            self._bases.pop()
            self.content.pop()

    def end_of_epoch(self, epoch: int) -> EpochEnd:
        earliest = self.earliest_snapshot()
        if epoch >= self.last_epoch:
            return EpochEnd(self.last_epoch, self.end_offset)
        index = bisect_right(self.headers, epoch, key=lambda header: header.leader_epoch)
        if index:
            return EpochEnd(self.headers[index - 1].leader_epoch, self.headers[index - 1].next_offset)
        start_epoch = earliest.epoch if earliest is not None and earliest.end_offset == self.start_offset else 0
        return EpochEnd(start_epoch, self.start_offset)

    def read(self, offset: int, max_bytes: int) -> bytes | None:
        index = bisect_left(self._bases, offset)
        assert offset == self.end_offset or self._bases[index] == offset, "fetched from the middle of a batch"
        records = bytearray()
        for batch in self.content[index:]:
            records += batch
            if len(records) > max_bytes:
                break
        return bytes(records) or None

    def batches(self, from_offset: int, to_offset: int) -> Iterator[tuple[BatchHeader, memoryview]]:
        for index in range(bisect_left(self._bases, from_offset), len(self.headers)):
            if self._bases[index] < to_offset:
                yield self.headers[index], memoryview(self.content[index])

    # --- snapshots ----------------------------------------------------------------------------------------------

    def earliest_snapshot(self) -> SnapshotId | None:
        return min(self.snapshots, default=None)

    def latest_snapshot(self) -> SnapshotId | None:
        return max(self.snapshots, default=None)

    def snapshot_size(self, snapshot: SnapshotId) -> int | None:
        return len(self.snapshots[snapshot]) if snapshot in self.snapshots else None

    def snapshot_bytes(self, snapshot: SnapshotId, position: int, max_bytes: int) -> bytes:
        return self.snapshots[snapshot][position : position + max_bytes]

    def snapshot_control_batches(self, snapshot: SnapshotId) -> Iterator[tuple[BatchHeader, memoryview]]:
        return (each for each in split_batches(memoryview(self.snapshots[snapshot])) if each[0].is_control)

    def read_snapshot(self, snapshot: SnapshotId) -> Iterator[bytes]:
        return snapshot_values(split_batches(memoryview(self.snapshots[snapshot])))

    def write_snapshot(
        self,
        snapshot: SnapshotId,
        values: list[bytes],
        now_ms: int,
        last_contained_ms: int = 0,
        kraft_version: int = 0,
        voters: VoterSet | None = None,
    ) -> bool:
        latest = self.latest_snapshot()
        if latest is not None and latest.end_offset >= snapshot.end_offset:
            return False
        batches = snapshot_batches(
            snapshot.epoch, values, last_contained_ms=0, now_ms=now_ms, kraft_version=kraft_version, voters=voters
        )
        self.snapshots[snapshot] = b"".join(batches)
        for old in sorted(self.snapshots)[:-2]:
            del self.snapshots[old]
        if len(self.snapshots) == 2:
            self._delete_before(min(self.snapshots).end_offset)
        return True

    def _delete_before(self, offset: int) -> None:
        if offset > self.start_offset:
            index = bisect_left(self._bases, offset)
            del self.content[:index], self._bases[:index], self.headers[:index]
            self.start_offset = offset

    def receive_snapshot(self, snapshot: SnapshotId) -> MemoryDownload:
        return MemoryDownload(self, snapshot)

    def truncate_to_snapshot(self) -> None:
        latest = self.latest_snapshot()
        assert latest is not None
        if (latest.epoch, latest.end_offset) > (self.last_epoch if self.headers else 0, self.end_offset):
            self.content, self._bases, self.headers = [], [], []
            self.start_offset = self.end_offset = latest.end_offset
            self.flushed_offset = min(self.flushed_offset, self.end_offset)
            self.snapshots = {latest: self.snapshots[latest]}


class MemoryDownload:
    def __init__(self, log: MemoryRaftLog, snapshot: SnapshotId) -> None:
        self._log = log
        self._snapshot = snapshot
        self._bytes = bytearray()

    @property
    def size(self) -> int:
        return len(self._bytes)

    def append(self, piece: bytes | memoryview) -> None:
        self._bytes += piece

    def check(self) -> bool:
        try:
            check_snapshot(split_batches(memoryview(self._bytes)))
        except MalformedData:
            return False
        return True

    def freeze(self) -> None:
        self._log.snapshots[self._snapshot] = bytes(self._bytes)

    def abandon(self) -> None:
        self._bytes.clear()


class MemoryStateStore:
    def __init__(self) -> None:
        self.content: bytes | None = None
        self.written: list[QuorumState] = []

    def read(self) -> QuorumState | None:
        return None if self.content is None else QuorumState.decode(self.content)

    def write(self, state: QuorumState) -> None:
        self.content = state.encode()
        self.written.append(state)
