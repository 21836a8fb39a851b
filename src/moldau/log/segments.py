"""The segments of one log in the order of their base offsets; the last one is active, the only one written to."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import Final

from moldau.log.segment import Segment

OPEN_OLD_SEGMENTS_MAX: Final = 2
"""How many older segments of a log keep their file and indexes open: few readers read old data."""


class Segments:
    __slots__ = ("_bases", "_list", "_open_old", "active", "replacements")

    def __init__(self, segments: Iterable[Segment]) -> None:
        self._list = list(segments)
        assert self._list, "a log has at least one segment"
        self._bases = [segment.base_offset for segment in self._list]
        self._open_old: list[Segment] = []
        self.active = self._list[-1]
        self.replacements = 0
        """How often compacted segments have replaced others: the records and the aborted transactions are fewer now."""

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._list)

    def __len__(self) -> int:
        return len(self._list)

    @property
    def first(self) -> Segment:
        return self._list[0]

    def floor(self, offset: int) -> int:
        """The index of the segment whose range holds `offset`; 0 for offsets before the first."""
        return max(0, bisect_right(self._bases, offset) - 1)

    def at(self, place: int) -> Segment:
        """Return a segment for reading. The last few that were read stay open, older ones are released."""
        segment = self._list[place]
        open_old = self._open_old
        if segment is not self.active and (not open_old or open_old[-1] is not segment):
            if segment in open_old:
                open_old.remove(segment)
            open_old.append(segment)
            if len(open_old) > OPEN_OLD_SEGMENTS_MAX:
                open_old.pop(0).release()
        return segment

    def next_base(self, place: int) -> int | None:
        return self._bases[place + 1] if place + 1 < len(self._bases) else None

    def add(self, segment: Segment) -> None:
        assert segment.base_offset > self.active.base_offset, "base offsets must increase"
        self._list.append(segment)
        self._bases.append(segment.base_offset)
        self._keep_open(self.active)
        self.active = segment

    def replace_all(self, segment: Segment) -> list[Segment]:
        """Replace all segments by one; return the old ones."""
        old = self._list
        self._list, self._bases, self._open_old = [segment], [segment.base_offset], []
        self.active = segment
        return old

    def swap(self, place: int, count: int, segment: Segment) -> list[Segment]:
        """Replace some older segments by one; return the old ones."""
        assert place + count < len(self._list), "the active segment stays"
        old = self._list[place : place + count]
        self._list[place : place + count] = [segment]
        self._bases[place : place + count] = [segment.base_offset]
        self._open_old = [each for each in self._open_old if each not in old]
        self.replacements += 1
        return old

    def drop_first(self, count: int) -> list[Segment]:
        """Remove the oldest `count` segments and return them; never the active one."""
        assert count < len(self._list), "the active segment stays"
        dropped = self._list[:count]
        del self._list[:count], self._bases[:count]
        self._open_old = [segment for segment in self._open_old if segment not in dropped]
        return dropped

    def drop_last(self) -> Segment:
        assert len(self._list) > 1, "the only segment stays"
        self._bases.pop()
        dropped = self._list.pop()
        self.active = self._list[-1]
        self._open_old = [segment for segment in self._open_old if segment is not self.active]
        return dropped

    def _keep_open(self, segment: Segment) -> None:
        """Keep a segment open that was active until now: it is likely to be read for a while."""
        self._open_old.append(segment)
        if len(self._open_old) > OPEN_OLD_SEGMENTS_MAX:
            self._open_old.pop(0).release()
