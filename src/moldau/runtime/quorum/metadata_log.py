"""The log `__cluster_metadata-0` with its snapshots, as the quorum and the readers of metadata see it.

Snapshots lie beside the segments. The two newest are kept, and the log goes back to the older of them: whoever is a
little behind when a snapshot is written need not start over from it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

from moldau.base.errors import ErrorCode, KafkaError, MalformedData
from moldau.log.config import NO_LIMIT
from moldau.log.epochs import UNDEFINED_EPOCH
from moldau.log.files import File, Files, write_all
from moldau.log.log import Log
from moldau.log.reading import Slice
from moldau.log.store import LogStore
from moldau.log.validate import Origin
from moldau.log.walk import walk_batches
from moldau.raft.ports import EpochEnd
from moldau.raft.snapshots import SnapshotId, check_snapshot, snapshot_batches, snapshot_values
from moldau.raft.voters import VoterSet
from moldau.wire.batch import BATCH_HEADER_BYTES, BatchHeader, read_header

SNAPSHOTS_KEPT: Final = 2
PARTIAL: Final = ".part"
"""Of a snapshot that is being written or received; what a crash leaves of it is removed at the next start."""


class MetadataLog:
    def __init__(self, log: Log, store: LogStore, files: Files) -> None:
        self.log = log
        self._store = store
        self._files = files
        self._snapshots: list[SnapshotId] = []
        # Nothing of this log goes by age or size: what a snapshot does not hold is needed.
        log.update_config(replace(log.config, retention_ms=NO_LIMIT, retention_bytes=NO_LIMIT))
        self._find_snapshots()
        if self._is_behind_snapshot():
            # The machine stopped between the last byte of a snapshot and the cut that belongs to it.
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
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"The leader sent offset {first}, {expected} was to come.")
        self.log.append(batches, leader_epoch=UNDEFINED_EPOCH, now_ms=now_ms, origin=Origin.REPLICATION)

    def truncate(self, offset: int) -> None:
        self._store.truncate(self.log.partition, offset)

    def end_of_epoch(self, epoch: int) -> EpochEnd:
        known, end_offset = self.log.epochs.end_offset_for(epoch, self.log.end_offset)
        if known == UNDEFINED_EPOCH:
            return EpochEnd(self.last_epoch, self.log.end_offset)
        earliest = self.earliest_snapshot()
        if earliest is not None and known == epoch and end_offset == earliest.end_offset:
            # Below the log's beginning only the snapshot knows the epochs.
            return EpochEnd(earliest.epoch, earliest.end_offset)
        return EpochEnd(known, end_offset)

    def read(self, offset: int, max_bytes: int) -> Slice | None:
        return self.log.read(offset, max_bytes, self.log.end_offset)

    def batches(self, from_offset: int, to_offset: int) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Every batch that begins within these offsets, read in large pieces."""
        segments = self.log.segments
        for place in range(segments.floor(from_offset), len(segments)):
            segment = segments.at(place)
            if segment.base_offset >= to_offset:
                return
            found = segment.locate(from_offset) if segment.base_offset < from_offset else (0, 0, 0)
            if found is None:
                continue
            for header, batch in walk_batches(segment.file, found[0], segment.size):
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

    def snapshot_batches(self, snapshot: SnapshotId) -> Iterator[tuple[BatchHeader, memoryview]]:
        file = self._files.open(self._path(snapshot))
        return walk_batches(file, 0, file.size())

    def read_snapshot(self, snapshot: SnapshotId) -> Iterator[bytes]:
        """The values of its metadata records, in order. MalformedData where the file is damaged."""
        return snapshot_values(self.snapshot_batches(snapshot))

    def write_snapshot(
        self,
        snapshot: SnapshotId,
        values: Iterable[bytes],
        now_ms: int,
        *,
        last_contained_ms: int = 0,
        kraft_version: int = 0,
        voters: VoterSet | None = None,
    ) -> bool:
        """Writes one that stands for all below its end offset, then lets go of what the kept ones make needless.

        False if there is one as new already. Its end must be the end of a batch, and committed.
        """
        latest = self.latest_snapshot()
        if latest is not None and snapshot.end_offset <= latest.end_offset:
            return False
        assert snapshot.end_offset <= self.log.end_offset, "a snapshot stands for what is there"
        download = _Download(self, self._files, snapshot)
        for batch in snapshot_batches(
            snapshot.epoch, values, last_contained_ms=last_contained_ms, now_ms=now_ms,
            kraft_version=kraft_version, voters=voters,
        ):  # fmt: skip
            download.append(batch)
        download.freeze()
        self._let_go_of_the_old(now_ms)
        return True

    def receive_snapshot(self, snapshot: SnapshotId) -> _Download:
        return _Download(self, self._files, snapshot)

    def truncate_to_snapshot(self) -> None:
        latest = self.latest_snapshot()
        assert latest is not None, "there is a snapshot to go on from"
        if not self._is_behind_snapshot():
            return
        if latest.end_offset < self.log.end_offset:
            # Lowers the recovery point that is written down, before there is a log to which it does not apply.
            self.truncate(max(latest.end_offset, self.log.start_offset))
        self.log.truncate_fully(latest.end_offset)
        self.log.epochs.truncate_from_end(0)
        self._keep(self._snapshots[-1:])

    def snapshot_frozen(self, snapshot: SnapshotId) -> None:
        self._snapshots = sorted({*self._snapshots, snapshot})

    def _is_behind_snapshot(self) -> bool:
        """Whether the latest snapshot knows more than the log does, or something else."""
        latest = self.latest_snapshot()
        if latest is None or latest.end_offset == 0:
            return False
        last_epoch = max(self.log.last_epoch, 0)
        return latest.epoch > last_epoch or (latest.epoch == last_epoch and latest.end_offset > self.log.end_offset)

    def _let_go_of_the_old(self, now_ms: int) -> None:
        kept = self._snapshots[-SNAPSHOTS_KEPT:]
        self._keep(kept)
        # A segment of its own for what comes behind: then this one can go as a whole one day.
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
        """By their names, which they get when they are whole. Bytes that were never finished are removed."""
        for name in self._files.names(self.log.directory):
            if name.endswith(PARTIAL):
                self._files.unlink(f"{self.log.directory}/{name}")
            snapshot = SnapshotId.of_file(name)
            if snapshot is not None:
                self._snapshots.append(snapshot)
        self._snapshots.sort()

    def _path(self, snapshot: SnapshotId) -> str:
        return f"{self.log.directory}/{snapshot.file_name}"


class _Download:
    """A snapshot that is being written, piece by piece. It gets its name when it is whole and on disk."""

    def __init__(self, owner: MetadataLog, files: Files, snapshot: SnapshotId) -> None:
        self._owner = owner
        self._files = files
        self._snapshot = snapshot
        self._path = f"{owner.log.directory}/{snapshot.file_name}{PARTIAL}"
        self._file: File = files.open(self._path, create=True)
        self._file.truncate(0)
        self.size = 0

    def append(self, piece: bytes | bytearray | memoryview) -> None:
        write_all(self._file, piece, self.size)
        self.size += len(piece)

    def freeze(self) -> None:
        try:
            check_snapshot(walk_batches(self._file, 0, self.size))
        except MalformedData:
            self.abandon()
            raise
        self._file.sync()
        self._files.rename(self._path, self._path.removesuffix(PARTIAL))
        self._files.sync_directory(self._owner.log.directory)
        self._owner.snapshot_frozen(self._snapshot)

    def abandon(self) -> None:
        self._files.unlink(self._path)
