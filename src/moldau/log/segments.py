"""The segments of one log in the order of their base offsets; the last one is active, the only one written to."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import Final

from moldau.log.segment import Segment

AWAKE_MAX: Final = 2
"""Older segments of one log that keep their file and indexes open at a time: readers of old data are few."""


class Segments:
    __slots__ = ("_awake", "_bases", "_list", "active")

    def __init__(self, segments: Iterable[Segment]) -> None:
        self._list = list(segments)
        assert self._list, "a log has at least one segment"
        self._bases = [segment.base_offset for segment in self._list]
        self._awake: list[Segment] = []
        self.active = self._list[-1]

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._list)

    def __len__(self) -> int:
        return len(self._list)

    @property
    def first(self) -> Segment:
        return self._list[0]

    def floor(self, offset: int) -> int:
        """The place of the segment whose range holds `offset`; 0 for offsets before the first."""
        return max(0, bisect_right(self._bases, offset) - 1)

    def at(self, place: int) -> Segment:
        """For reading: keeps the few last asked for awake, and lets the others rest."""
        segment = self._list[place]
        awake = self._awake
        if segment is not self.active and (not awake or awake[-1] is not segment):
            if segment in awake:
                awake.remove(segment)
            awake.append(segment)
            if len(awake) > AWAKE_MAX:
                awake.pop(0).rest()
        return segment

    def next_base(self, place: int) -> int | None:
        return self._bases[place + 1] if place + 1 < len(self._bases) else None

    def add(self, segment: Segment) -> None:
        assert segment.base_offset > self.active.base_offset, "segments grow upwards"
        self._list.append(segment)
        self._bases.append(segment.base_offset)
        self._rest_if_old(self.active)
        self.active = segment

    def replace_all(self, segment: Segment) -> list[Segment]:
        """Starts anew with one segment; returns the ones let go."""
        old = self._list
        self._list, self._bases, self._awake = [segment], [segment.base_offset], []
        self.active = segment
        return old

    def swap(self, place: int, count: int, segment: Segment) -> list[Segment]:
        """Puts one segment in the place of some older ones; returns those."""
        assert place + count < len(self._list), "the active segment stays"
        old = self._list[place : place + count]
        self._list[place : place + count] = [segment]
        self._bases[place : place + count] = [segment.base_offset]
        self._awake = [each for each in self._awake if each not in old]
        return old

    def drop_first(self, count: int) -> list[Segment]:
        """Takes the oldest ones out. The active one never goes."""
        assert count < len(self._list), "the active segment stays"
        dropped = self._list[:count]
        del self._list[:count], self._bases[:count]
        self._awake = [segment for segment in self._awake if segment not in dropped]
        return dropped

    def drop_last(self) -> Segment:
        assert len(self._list) > 1, "the only segment stays"
        self._bases.pop()
        dropped = self._list.pop()
        self.active = self._list[-1]
        self._awake = [segment for segment in self._awake if segment is not self.active]
        return dropped

    def _rest_if_old(self, segment: Segment) -> None:
        """The segment that was active is likely to be read for a while: it joins those awake."""
        self._awake.append(segment)
        if len(self._awake) > AWAKE_MAX:
            self._awake.pop(0).rest()
