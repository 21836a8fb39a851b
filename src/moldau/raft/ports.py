"""What the quorum needs of the world: a log to write to, and a place to remember its epoch and vote."""

from __future__ import annotations

from typing import Protocol

from moldau.raft.states import QuorumState


class RaftLog(Protocol):
    @property
    def end_offset(self) -> int: ...

    @property
    def flushed_offset(self) -> int:
        """Everything below is on disk."""
        ...

    @property
    def last_epoch(self) -> int:
        """Of the newest batch there is; below 0 if there is none."""
        ...

    def append(self, batch: bytearray, epoch: int, now_ms: int) -> None: ...


class QuorumStateStore(Protocol):
    """Survives a crash: an epoch that was taken part in is never forgotten."""

    def read(self) -> QuorumState | None: ...

    def write(self, state: QuorumState) -> None: ...
