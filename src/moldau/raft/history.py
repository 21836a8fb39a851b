"""The sets of voters and the offsets from which they count, from the control records of the log and its snapshot.

A set counts as soon as its record is in the log, committed or not; truncating the log removes it. A set from a snapshot
counts from the snapshot's last offset. While there is no record, the static voters count.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Generic, TypeVar

from moldau.raft.control_records import read_kraft_version, read_voters
from moldau.raft.ports import RaftLog
from moldau.raft.voters import VoterSet
from moldau.wire.batch import BatchHeader
from moldau.wire.records import ControlType, control_type, decode_records

T = TypeVar("T")


class _ByOffset(Generic[T]):
    """Values, each valid from its offset on."""

    def __init__(self) -> None:
        self.entries: list[tuple[int, T]] = []

    def add(self, offset: int, value: T) -> None:
        self.truncate(offset)
        self.entries.append((offset, value))

    def at(self, offset: int) -> T | None:
        above = bisect_right(self.entries, offset, key=lambda entry: entry[0])
        return self.entries[above - 1][1] if above else None

    def truncate(self, end_offset: int) -> None:
        while self.entries and self.entries[-1][0] >= end_offset:
            self.entries.pop()


class VoterHistory:
    def __init__(self, static: VoterSet) -> None:
        self._static = static
        self._voters: _ByOffset[VoterSet] = _ByOffset()
        self._versions: _ByOffset[int] = _ByOffset()

    @property
    def voters(self) -> VoterSet:
        return self._voters.entries[-1][1] if self._voters.entries else self._static

    @property
    def voters_offset(self) -> int | None:
        """The offset of the voters' record; None if they are the static ones, -1 if from the bootstrap snapshot."""
        return self._voters.entries[-1][0] if self._voters.entries else None

    @property
    def voters_before(self) -> VoterSet | None:
        """The set that the latest record of voters replaced."""
        return self._voters.entries[-2][1] if len(self._voters.entries) > 1 else None

    @property
    def kraft_version(self) -> int:
        return self._versions.entries[-1][1] if self._versions.entries else 0

    @property
    def can_change(self) -> bool:
        """Whether voters may be added and removed: from `kraft.version` 1 on (KIP-853)."""
        return self.kraft_version >= 1

    def voters_at(self, offset: int) -> VoterSet | None:
        return self._voters.at(offset)

    def kraft_version_at(self, offset: int) -> int:
        return self._versions.at(offset) or 0

    def load(self, log: RaftLog) -> None:
        """Read all control records of the snapshot and the log: at the start, and after a snapshot was received."""
        self._voters, self._versions = _ByOffset(), _ByOffset()
        snapshot = log.latest_snapshot()
        from_offset = log.start_offset
        if snapshot is not None:
            for header, batch in log.snapshot_control_batches(snapshot):
                self.read_batch(header, batch, at=snapshot.end_offset - 1)
            from_offset = max(from_offset, snapshot.end_offset)
        for header, batch in log.batches(from_offset, log.end_offset):
            self.read_batch(header, batch)

    def read_batch(self, header: BatchHeader, batch: memoryview, at: int | None = None) -> None:
        """Take over the voters and versions of a control batch; `at` replaces the offsets of its records."""
        if not header.is_control:
            return
        for record in decode_records(batch, header):
            offset = record.offset if at is None else at
            kind = control_type(record)
            if kind == ControlType.KRAFT_VOTERS:
                self._voters.add(offset, read_voters(record))
            elif kind == ControlType.KRAFT_VERSION:
                self._versions.add(offset, read_kraft_version(record))

    def truncate(self, end_offset: int) -> None:
        self._voters.truncate(end_offset)
        self._versions.truncate(end_offset)
