"""What the quorum needs of the world: a log with its snapshots, and a place to remember its epoch and vote."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

from moldau.raft.snapshots import SnapshotId
from moldau.raft.states import QuorumState
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
        """Everything below is on disk."""
        ...

    @property
    def last_epoch(self) -> int:
        """Of the newest batch there is; of the newest snapshot if there is no batch behind it."""
        ...

    def append(self, batch: bytearray, epoch: int, now_ms: int) -> None:
        """Gives one batch of our own its place at the end."""
        ...

    def append_from_leader(self, batches: memoryview, now_ms: int) -> None:
        """Takes a leader's batches as they are, a last one that is cut short left out. KafkaError for broken ones."""
        ...

    def truncate(self, offset: int) -> None:
        """Cuts off `offset` and all behind it."""
        ...

    def end_of_epoch(self, epoch: int) -> EpochEnd:
        """The largest epoch not above the asked one and where it ends; for an epoch above all, the end of the log."""
        ...

    def read(self, offset: int, max_bytes: int) -> Records | None:
        """Batches from `offset` on, the first one whole whatever `max_bytes` says; None at the end of the log."""
        ...

    def batches(self, from_offset: int, to_offset: int) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Every batch that begins within these offsets."""
        ...

    # --- snapshots ----------------------------------------------------------------------------------------------

    def earliest_snapshot(self) -> SnapshotId | None: ...

    def latest_snapshot(self) -> SnapshotId | None: ...

    def snapshot_size(self, snapshot: SnapshotId) -> int | None:
        """In bytes; None if there is no such snapshot."""
        ...

    def snapshot_bytes(self, snapshot: SnapshotId, position: int, max_bytes: int) -> Records: ...

    def snapshot_batches(self, snapshot: SnapshotId) -> Iterator[tuple[BatchHeader, memoryview]]: ...

    def receive_snapshot(self, snapshot: SnapshotId) -> SnapshotDownload:
        """Begins to take over a snapshot from the leader."""
        ...

    def truncate_to_snapshot(self) -> None:
        """Forgets all batches and goes on behind the latest snapshot."""
        ...


class SnapshotDownload(Protocol):
    """A snapshot on its way from the leader; it is one only after `freeze`."""

    @property
    def size(self) -> int: ...

    def append(self, piece: bytes | memoryview) -> None: ...

    def freeze(self) -> None:
        """All bytes are there: from now on the log has this snapshot, whatever happens. MalformedData if it has not."""
        ...

    def abandon(self) -> None: ...


class QuorumStateStore(Protocol):
    """Survives a crash: an epoch that was taken part in is never forgotten."""

    def read(self) -> QuorumState | None: ...

    def write(self, state: QuorumState) -> None: ...
