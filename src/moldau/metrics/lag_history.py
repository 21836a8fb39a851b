"""How old the first record is that a group has not read: the time when the partition ended there.

Each scrape notes how far the partitions reach. Between two notes the offsets are interpolated, so nothing is read from
disk. A lag that began before the first note is reported as its least possible age.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Mapping
from typing import Final, TypeAlias

from moldau.base.clock import MonotonicMs
from moldau.base.steps import Steps, finish
from moldau.base.turns import CHANGES_A_TURN

UNKNOWN_OFFSET: Final = -1
"""The end of a partition whose leader did not answer."""
NOTES_MAX: Final = 64
"""Notes of one partition. When it has more, every second one is dropped: old lags are told less exactly."""
Place = tuple[str, int]
"""Topic and partition."""
_Notes: TypeAlias = "tuple[array[int], array[int]]"
"""End offsets of a partition, and the times when it ended there."""


class LagHistory:
    def __init__(self) -> None:
        self._notes: dict[Place, _Notes] = {}
        self.notes_max = NOTES_MAX
        """Who has very many partitions sets it lower."""

    def note(self, ends: Mapping[Place, int], now_ms: MonotonicMs) -> None:
        """Note the end offsets of all partitions that groups read, -1 if one is unknown now; others are forgotten.
        `now_ms` is when they began to be read."""
        finish(self.note_in_steps(ends, now_ms))

    def note_in_steps(self, ends: Mapping[Place, int], now_ms: MonotonicMs) -> Steps[None]:
        """Like `note`, some hundred partitions in each step. `ends` must not change meanwhile."""
        notes = {}
        for number, (place, end) in enumerate(ends.items(), 1):
            noted = self._notes.get(place)
            if end != UNKNOWN_OFFSET:
                noted = self._with_note(noted, end, now_ms)
            if noted is not None:
                notes[place] = noted
            if not number % CHANGES_A_TURN:
                yield
        self._notes = notes

    def _with_note(self, noted: _Notes | None, end: int, now_ms: MonotonicMs) -> _Notes:
        offsets, times = noted or (array("q"), array("q"))
        if times and now_ms < times[-1]:
            return offsets, times  # another scrape began later and was done sooner
        if offsets and end < offsets[-1]:
            offsets, times = array("q"), array("q")  # another topic of the same name
        if len(offsets) >= self.notes_max:
            offsets, times = offsets[::2], times[::2]
        if len(offsets) > 1 and offsets[-2] == offsets[-1] == end:
            times[-1] = now_ms  # nothing was appended: the last two notes span the whole pause
        else:
            times.append(now_ms)  # first: who reads at the same time looks for an offset, then for its time
            offsets.append(end)
        return offsets, times

    def age_ms(self, place: Place, committed: int, now_ms: MonotonicMs) -> tuple[int, bool]:
        """Return the age of the record at offset `committed`, 0 if there is none yet; and whether it is only the least
        possible age, because the lag began before the first note."""
        noted = self._notes.get(place)
        if noted is None:
            return 0, True
        offsets, times = noted
        if committed >= offsets[-1]:
            return 0, False
        after = bisect_right(offsets, committed)
        if not after:
            return now_ms - times[0], True
        first, last = offsets[after - 1], offsets[after]
        share = (committed - first) / (last - first)
        return now_ms - times[after - 1] - int(share * (times[after] - times[after - 1])), False
