"""The start offset of each leader epoch, by which replicas find where their logs diverge (KIP-101, KIP-279).

Stored in `leader-epoch-checkpoint`, in the format of checkpoints.py, a line for each epoch: `<epoch> <start offset>`.
Epochs and offsets both increase.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import pairwise
from typing import NamedTuple

from moldau.base.errors import MalformedData
from moldau.log.checkpoints import decode_entries, encode_entries

UNDEFINED_EPOCH = -1
UNDEFINED_OFFSET = -1


class EpochEntry(NamedTuple):
    epoch: int
    start_offset: int


class LeaderEpochs:
    __slots__ = ("_entries", "is_dirty", "latest_epoch")

    def __init__(self, entries: list[EpochEntry] | None = None) -> None:
        self._entries = entries or []
        self.is_dirty = False
        """Changed since the file was last written."""
        self.latest_epoch = self._entries[-1].epoch if self._entries else UNDEFINED_EPOCH

    @property
    def entries(self) -> tuple[EpochEntry, ...]:
        return tuple(self._entries)

    def assign(self, epoch: int, start_offset: int) -> None:
        """Add an epoch. Entries that contradict it are removed: their records were truncated."""
        if epoch == self.latest_epoch or epoch < 0:
            return
        while self._entries and (self._entries[-1].epoch >= epoch or self._entries[-1].start_offset >= start_offset):
            self._entries.pop()
        self._entries.append(EpochEntry(epoch, start_offset))
        self._changed()

    def end_offset_for(self, epoch: int, log_end: int) -> tuple[int, int]:
        """Return (the largest known epoch that is not above `epoch`, the offset where that epoch ends). If all known
        epochs are larger, return `epoch` and the start of the first one. Both are undefined (-1) if no epoch is known
        or `epoch` is above the latest one."""
        if epoch == UNDEFINED_EPOCH or not self._entries or epoch > self.latest_epoch:
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        if epoch == self.latest_epoch:
            return epoch, log_end
        above = bisect_right(self._entries, epoch, key=lambda entry: entry.epoch)
        floor_epoch = self._entries[above - 1].epoch if above else epoch
        return floor_epoch, self._entries[above].start_offset

    def epoch_for_offset(self, offset: int) -> int:
        """Return the leader epoch of the record at `offset`, -1 if it is unknown."""
        above = bisect_right(self._entries, offset, key=lambda entry: entry.start_offset)
        return self._entries[above - 1].epoch if above else UNDEFINED_EPOCH

    def truncate_from_end(self, end_offset: int) -> None:
        """Remove epochs that begin at `end_offset` or above."""
        kept = [entry for entry in self._entries if entry.start_offset < end_offset]
        if len(kept) < len(self._entries):
            self._entries = kept
            self._changed()

    def truncate_from_start(self, start_offset: int) -> None:
        """Remove epochs that end at or below `start_offset`; the epoch of the new first record begins there."""
        above = bisect_right(self._entries, start_offset, key=lambda entry: entry.start_offset)
        if not above:
            return
        kept = [EpochEntry(self._entries[above - 1].epoch, start_offset), *self._entries[above:]]
        if kept != self._entries:
            self._entries = kept
            self._changed()

    def encode(self) -> bytes:
        return encode_entries(self._entries)

    @classmethod
    def decode(cls, content: bytes) -> LeaderEpochs:
        try:
            entries = [EpochEntry(int(epoch), int(start)) for epoch, start in decode_entries(content, fields=2)]
        except ValueError as error:
            raise MalformedData("leader epochs: an epoch or offset is not a number") from error
        for before, after in pairwise(entries):
            if before.epoch >= after.epoch or before.start_offset >= after.start_offset:
                raise MalformedData("leader epochs: epochs and start offsets must increase")
        return cls(entries)

    def _changed(self) -> None:
        self.latest_epoch = self._entries[-1].epoch if self._entries else UNDEFINED_EPOCH
        self.is_dirty = True
