"""The log `__cluster_metadata-0` with its snapshots, for the quorum and for the readers of metadata.

Snapshots are in the directory of the segments. The two newest are kept, and the log begins at the older of them, so
that a node that is a little behind need not load a new snapshot.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from moldau.base.errors import ErrorCode, KafkaError, MalformedData
from moldau.log.config import NO_LIMIT
from moldau.log.epochs import UNDEFINED_EPOCH
from moldau.log.files import File, Files, write_all
from moldau.log.log import Log
from moldau.log.reading import Slice
from moldau.log.store import LogStore
from moldau.log.validate import Origin
from moldau.log.walk import walk_batches, walk_headers
from moldau.raft.ports import EpochEnd
from moldau.raft.snapshots import SnapshotId, check_snapshot, snapshot_batches, snapshot_values
from moldau.raft.voters import VoterSet
from moldau.wire.batch import BATCH_HEADER_BYTES, BatchHeader, read_header

SNAPSHOTS_KEPT: Final = 2
PARTIAL: Final = ".part"
"""The suffix of a snapshot that is being written or received; after a crash the next start removes such files."""


class MetadataLog:
    def __init__(self, log: Log, store: LogStore, files: Files) -> None:
        self.log = log
        self._store = store
        self._files = files
        self._snapshots: list[SnapshotId] = []
        # Retention must not delete from this log: everything that is not in a snapshot is needed.
        log.update_config(replace(log.config, retention_ms=NO_LIMIT, retention_bytes=NO_LIMIT))
        self._find_snapshots()
        if self._is_behind_snapshot():
            # The node crashed after a snapshot was complete and before the log was truncated to it.
            self.truncate_to_snapshot()

    @property
    def start_offset(self) -> int:
        return self.log.start_offset

    @property
    def end_offset(self) -> int:
        return self.log.end_offset

    @property
    def flushed_offset(self) -> int:
        return self.log.recovery_point

    @property
    def last_epoch(self) -> int:
        if self.log.last_epoch != UNDEFINED_EPOCH:
            return self.log.last_epoch
        return self._snapshots[-1].epoch if self._snapshots else 0

    # --- batches ------------------------------------------------------------------------------------------------

    def append(self, batch: bytearray, epoch: int, now_ms: int) -> None:
        self.log.append(memoryview(batch), leader_epoch=epoch, now_ms=now_ms, origin=Origin.RAFT)

    def append_from_leader(self, batches: memoryview, now_ms: int) -> None:
        if len(batches) >= BATCH_HEADER_BYTES and read_header(batches).base_offset != self.log.end_offset:
            first, expected = read_header(batches).base_offset, self.log.end_offset
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"The leader sent offset {first} instead of {expected}.")
        self.log.append(batches, leader_epoch=UNDEFINED_EPOCH, now_ms=now_ms, origin=Origin.REPLICATION)

    def truncate(self, offset: int) -> None:
        self._store.truncate(self.log.partition, offset)

    def end_of_epoch(self, epoch: int) -> EpochEnd:
        found_epoch, end_offset = self.log.epochs.end_offset_for(epoch, self.log.end_offset)
        if found_epoch == UNDEFINED_EPOCH:
            return EpochEnd(self.last_epoch, self.log.end_offset)
        earliest = self.earliest_snapshot()
        if earliest is not None and found_epoch == epoch and end_offset == earliest.end_offset:
            # Below the log start offset, only the snapshot knows the epoch.
            return EpochEnd(earliest.epoch, earliest.end_offset)
        return EpochEnd(found_epoch, end_offset)

    def read(self, offset: int, max_bytes: int) -> Slice | None:
        return self.log.read(offset, max_bytes, self.log.end_offset)

    def batches(self, from_offset: int, to_offset: int) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Yield every batch that begins within these offsets, read in large chunks."""
        segments = self.log.segments
        for place in range(segments.floor(from_offset), len(segments)):
            segment = segments.at(place)
            if segment.base_offset >= to_offset:
                return
            start = segment.locate(from_offset) if segment.base_offset < from_offset else (0, 0, 0)
            if start is None:
                continue
            for header, batch in walk_batches(segment.file, start[0], segment.size):
                if header.base_offset >= to_offset:
                    return
                if header.base_offset >= from_offset:
                    yield header, batch

    # --- snapshots ----------------------------------------------------------------------------------------------

    def earliest_snapshot(self) -> SnapshotId | None:
        return self._snapshots[0] if self._snapshots else None

    def latest_snapshot(self) -> SnapshotId | None:
        return self._snapshots[-1] if self._snapshots else None

    def snapshot_size(self, snapshot: SnapshotId) -> int | None:
        return self._files.size(self._path(snapshot)) if snapshot in self._snapshots else None

    def snapshot_bytes(self, snapshot: SnapshotId, position: int, max_bytes: int) -> Slice:
        return Slice(self._files.open(self._path(snapshot)), position, max_bytes)

    def snapshot_control_batches(self, snapshot: SnapshotId) -> Iterator[tuple[BatchHeader, memoryview]]:
        file = self._files.open(self._path(snapshot))
        for position, header in walk_headers(file, 0, file.size()):
            if header.is_control:
                yield header, memoryview(file.pread(header.size_in_bytes, position))

    def read_snapshot(self, snapshot: SnapshotId) -> Iterator[bytes]:
        """Yield the values of its metadata records in order. Raise MalformedData if the file is damaged."""
        file = self._files.open(self._path(snapshot))
        return snapshot_values(walk_batches(file, 0, file.size()))

    def begin_snapshot(
        self,
        snapshot: SnapshotId,
        values: Iterable[bytes],
        now_ms: int,
        *,
        last_contained_ms: int = 0,
        kraft_version: int = 0,
        voters: VoterSet | None = None,
    ) -> SnapshotWork | None:
        """Return the work that writes a snapshot of everything below its end offset; None if a snapshot at least as new
        exists. The end offset must be committed, and the end of a batch."""
        if self._has_as_new(snapshot):
            return None
        assert snapshot.end_offset <= self.log.end_offset, "a snapshot must not go beyond the log end offset"
        batches = snapshot_batches(
            snapshot.epoch, values, last_contained_ms=last_contained_ms, now_ms=now_ms,
            kraft_version=kraft_version, voters=voters,
        )  # fmt: skip
        return SnapshotWork(snapshot, _PartialSnapshot(self, self._files, snapshot), batches)

    def finish_snapshot(self, work: SnapshotWork, now_ms: int) -> bool:
        """Take over a snapshot that is on disk, then delete old snapshots and segments. Return False if a newer one was
        received meanwhile."""
        if self._has_as_new(work.snapshot):
            self._files.unlink(self._path(work.snapshot))
            return False
        self.snapshot_frozen(work.snapshot)
        self._delete_old(now_ms)
        return True

    def _has_as_new(self, snapshot: SnapshotId) -> bool:
        latest = self.latest_snapshot()
        return latest is not None and snapshot.end_offset <= latest.end_offset

    def receive_snapshot(self, snapshot: SnapshotId) -> _PartialSnapshot:
        return _PartialSnapshot(self, self._files, snapshot)

    def truncate_to_snapshot(self) -> None:
        latest = self.latest_snapshot()
        assert latest is not None, "there is no snapshot to truncate to"
        if not self._is_behind_snapshot():
            return
        if latest.end_offset < self.log.end_offset:
            # Lower the recovery point on disk first: it must never be beyond the end of the truncated log.
            self.truncate(max(latest.end_offset, self.log.start_offset))
        self.log.truncate_fully(latest.end_offset)
        self._keep(self._snapshots[-1:])

    def snapshot_frozen(self, snapshot: SnapshotId) -> None:
        self._snapshots = sorted({*self._snapshots, snapshot})

    def _is_behind_snapshot(self) -> bool:
        """Return whether the latest snapshot has a later epoch than the log, or ends after it in the same epoch."""
        latest = self.latest_snapshot()
        if latest is None or latest.end_offset == 0:
            return False
        last_epoch = max(self.log.last_epoch, 0)
        return latest.epoch > last_epoch or (latest.epoch == last_epoch and latest.end_offset > self.log.end_offset)

    def _delete_old(self, now_ms: int) -> None:
        kept = self._snapshots[-SNAPSHOTS_KEPT:]
        self._keep(kept)
        # Roll, so that the segment that is active now can be deleted later; only whole segments are deleted.
        self.log.roll(now_ms)
        if len(kept) == SNAPSHOTS_KEPT:
            self.log.delete_records(max(self.log.start_offset, kept[0].end_offset))
            self.log.delete_expired(now_ms, self.log.start_offset)

    def _keep(self, kept: list[SnapshotId]) -> None:
        for snapshot in self._snapshots:
            if snapshot not in kept:
                self._files.unlink(self._path(snapshot))
        self._snapshots = kept

    def _find_snapshots(self) -> None:
        """Find complete snapshots by their file names, and remove partial files."""
        for name in self._files.names(self.log.directory):
            if name.endswith(PARTIAL):
                self._files.unlink(f"{self.log.directory}/{name}")
            snapshot = SnapshotId.of_file(name)
            if snapshot is not None:
                self._snapshots.append(snapshot)
        self._snapshots.sort()

    def _path(self, snapshot: SnapshotId) -> str:
        return f"{self.log.directory}/{snapshot.file_name}"


class _PartialSnapshot:
    """A snapshot that is being written, by this node or as it is received. The file gets its final name when it is
    complete and on disk."""

    def __init__(self, owner: MetadataLog, files: Files, snapshot: SnapshotId) -> None:
        self._owner = owner
        self._files = files
        self._snapshot = snapshot
        self._path = f"{owner.log.directory}/{snapshot.file_name}{PARTIAL}"
        self._file: File = files.open(self._path, create=True)
        self._file.truncate(0)
        self.size = 0
        self._is_renamed = self._is_complete = False

    def append(self, chunk: bytes | bytearray | memoryview) -> None:
        write_all(self._file, chunk, self.size)
        self.size += len(chunk)

    def check(self) -> bool:
        """Complete the file, if it is a whole snapshot; may run in a thread. Raise StorageFault."""
        try:
            self.complete()
        except MalformedData:
            return False
        return True

    def freeze(self) -> None:
        """Add the snapshot, whose file is complete, to the log."""
        assert self._is_complete, "only a snapshot that was checked is added to the log"
        self._owner.snapshot_frozen(self._snapshot)

    def complete(self) -> None:
        """Check and sync the file, then give it its final name. Raise MalformedData if the snapshot is damaged."""
        check_snapshot(walk_batches(self._file, 0, self.size))
        self._file.sync()
        self._files.rename(self._path, self._path.removesuffix(PARTIAL))
        self._is_renamed = True
        self._files.sync_directory(self._owner.log.directory)
        self._is_complete = True

    def abandon(self) -> None:
        self._files.unlink(self._path.removesuffix(PARTIAL) if self._is_renamed else self._path)


@dataclass(frozen=True, slots=True)
class SnapshotWork:
    """Writes a snapshot of this node's own. The log has it only after `MetadataLog.finish_snapshot`."""

    snapshot: SnapshotId
    _file: _PartialSnapshot
    _batches: Iterable[bytearray]

    def run(self) -> None:
        """Encode, write and sync the snapshot; may run in a thread. Raise StorageFault."""
        for batch in self._batches:
            self._file.append(batch)
        self._file.complete()

    def abandon(self) -> None:
        """Delete what was written, after a failure."""
        self._file.abandon()
