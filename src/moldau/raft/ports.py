"""The interfaces that the quorum needs: a log with its snapshots, and a durable store for its epoch and vote."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

from moldau.raft.quorum_state import QuorumState
from moldau.raft.snapshots import SnapshotId
from moldau.wire.batch import BatchHeader
from moldau.wire.schema import Records


class EpochEnd(NamedTuple):
    """An epoch, and the offset at which it ends."""

    epoch: int
    end_offset: int


class RaftLog(Protocol):
    @property
    def start_offset(self) -> int: ...

    @property
    def end_offset(self) -> int: ...

    @property
    def flushed_offset(self) -> int:
        """The offset below which everything is on disk."""
        ...

    @property
    def last_epoch(self) -> int:
        """The epoch of the newest batch, or of the newest snapshot if there is no batch behind it."""
        ...

    def append(self, batch: bytearray, epoch: int, now_ms: int) -> None:
        """Append one batch of this leader: set its offsets and epoch."""
        ...

    def append_from_leader(self, batches: memoryview, now_ms: int) -> None:
        """Append the leader's batches unchanged. An incomplete batch at the end is left out. Raise KafkaError for
        corrupt ones."""
        ...

    def truncate(self, offset: int) -> None:
        """Remove all batches with `offset` or a higher one."""
        ...

    def end_of_epoch(self, epoch: int) -> EpochEnd:
        """Return the largest epoch of the log that is not above `epoch`, and where the next one begins (the log end if
        none does). If all are above: `epoch`, and where the first begins."""
        ...

    def read(self, offset: int, max_bytes: int) -> Records | None:
        """Return batches from `offset` on, the first one whole even above `max_bytes`; None at the end of the log."""
        ...

    def batches(self, from_offset: int, to_offset: int) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Yield every batch whose base offset is in this range."""
        ...

    # --- snapshots ----------------------------------------------------------------------------------------------

    def earliest_snapshot(self) -> SnapshotId | None: ...

    def latest_snapshot(self) -> SnapshotId | None: ...

    def snapshot_size(self, snapshot: SnapshotId) -> int | None:
        """Return the size in bytes; None if there is no such snapshot."""
        ...

    def snapshot_bytes(self, snapshot: SnapshotId, position: int, max_bytes: int) -> Records: ...

    def snapshot_control_batches(self, snapshot: SnapshotId) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Yield its control batches, which are few; the others are not read."""
        ...

    def receive_snapshot(self, snapshot: SnapshotId) -> SnapshotDownload:
        """Begin to download a snapshot from the leader."""
        ...

    def truncate_to_snapshot(self) -> None:
        """Drop all batches and continue behind the latest snapshot."""
        ...


class SnapshotDownload(Protocol):
    """A snapshot that is being downloaded from the leader; the log has it only after `check` and `freeze`."""

    @property
    def size(self) -> int: ...

    def append(self, piece: bytes | memoryview) -> None: ...

    def check(self) -> bool:
        """Called in a thread: read the complete snapshot and put it on disk; return False if it is corrupt. Raise
        StorageFault."""
        ...

    def freeze(self) -> None:
        """Add the snapshot, which `check` found sound, to the log."""
        ...

    def abandon(self) -> None:
        """Remove what was downloaded; never while `check` runs."""
        ...


class QuorumStateStore(Protocol):
    """Survives a crash: the node must never forget an epoch in which it took part."""

    def read(self) -> QuorumState | None: ...

    def write(self, state: QuorumState) -> None: ...
