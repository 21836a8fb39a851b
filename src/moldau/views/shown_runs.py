"""The results of a view that a broker keeps: for each partition the runs of offsets that are evaluated, within a budget
of bytes for all views together. What is evicted is evaluated again when somebody asks for it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final, NamedTuple

from moldau.views.jobs import Evaluated
from moldau.views.markers import marker
from moldau.wire.batch import LENGTH_PREFIX
from moldau.wire.codec import size_of
from moldau.wire.schema import Records

RUN_OVERHEAD_BYTES: Final = 512
"""What a run costs besides its bytes."""


class Cut(NamedTuple):
    """The part of a run that a reader gets."""

    batches: memoryview
    behind: int
    """Nothing else is shown below this offset."""
    is_full: bool
    """Whether `bytes_max` left out batches of the run that the reader may have."""


class ShownRun:
    """What a view shows of the offsets from `begin` up to `end`."""

    __slots__ = ("batches", "begin", "end", "is_read", "last_offsets", "positions", "shows_nothing")

    def __init__(self, begin: int, result: Evaluated) -> None:
        self.begin = begin
        self.end = result.next_offset
        self.batches = result.batches
        self.positions = result.positions
        self.last_offsets = result.last_offsets
        self.shows_nothing = not result.holds_batches
        self.is_read = False
        """Whether somebody has asked for it since it was evaluated."""

    @property
    def cost(self) -> int:
        return len(self.batches) + 72 * len(self.positions) + RUN_OVERHEAD_BYTES

    def absorb(self, later: ShownRun) -> None:
        """Add a run that follows, of which nothing is shown either."""
        self.end, self.batches, self.last_offsets = later.end, later.batches, later.last_offsets

    def cut(self, offset: int, up_to: int, bytes_max: int, at_least_one: bool) -> Cut:
        """Return the batches from the one that ends at or behind `offset` up to the last one that ends below `up_to`,
        as many as `bytes_max` allows."""
        first = bisect_left(self.last_offsets, offset)
        last = readable = bisect_left(self.last_offsets, up_to)  # the batches before it end below up_to
        begin = self._end_of(first)
        if self._end_of(readable) - begin > bytes_max:
            fitting = bisect_right(self.positions, begin + bytes_max) - 1
            last = max(min(readable, fitting), first + 1 if at_least_one else first)
        batches = memoryview(self.batches)[begin : self._end_of(last)]
        if last < readable:
            return Cut(batches, self.last_offsets[last - 1] + 1 if last > first else offset, True)
        return Cut(batches, max(offset, min(up_to, self._base_offset(last))), False)

    def _base_offset(self, index: int) -> int:
        """Where the batch of this index begins, or the offset behind the run."""
        if index == len(self.positions):
            return self.end
        base_offset, _ = LENGTH_PREFIX.unpack_from(self.batches, self.positions[index])
        return int(base_offset)

    def _end_of(self, count: int) -> int:
        """Where the first `count` batches end."""
        return self.positions[count] if count < len(self.positions) else len(self.batches)


class ShownPartition:
    """The evaluated runs of one partition of a view, by their first offset."""

    __slots__ = ("_begins", "_budget", "runs")

    def __init__(self, budget: ResultBudget) -> None:
        self.runs: dict[int, ShownRun] = {}
        self._begins: list[int] = []
        self._budget = budget

    def find(self, offset: int) -> ShownRun | None:
        """The run that contains the offset."""
        place = bisect_right(self._begins, offset) - 1
        if place < 0:
            return None
        run = self.runs[self._begins[place]]
        if offset >= run.end:
            return None
        self._budget.use(self, run)
        return run

    def has_room_ahead(self, size: int) -> bool:
        return self._budget.has_room_ahead(size)

    def add(self, begin: int, result: Evaluated) -> None:
        if self.find(begin) is not None:
            return
        run = ShownRun(begin, result)
        place = bisect_right(self._begins, begin) - 1
        before = self.runs[self._begins[place]] if place >= 0 else None
        if before is not None and before.end == begin and before.shows_nothing and run.shows_nothing:
            before.absorb(run)
            return
        self.runs[begin] = run
        insort(self._begins, begin)
        self._budget.add(self, run)

    def drop(self, run: ShownRun) -> None:
        del self.runs[run.begin]
        del self._begins[bisect_left(self._begins, run.begin)]

    def clear(self) -> None:
        for run in self.runs.values():
            self._budget.remove(self, run)
        self.runs.clear()
        self._begins.clear()


class ResultBudget:
    """The bytes of all kept results, least recently used first."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._used: OrderedDict[tuple[ShownPartition, int], ShownRun] = OrderedDict()
        self.bytes = 0
        self.unread_bytes = 0
        """Of results that nobody has asked for yet."""

    def has_room_ahead(self, size: int) -> bool:
        """Whether a result of this size, for which nobody waits yet, would push out no other such result."""
        return self.unread_bytes + size <= self._bytes_max

    def add(self, partition: ShownPartition, run: ShownRun) -> None:
        self._used[partition, run.begin] = run
        self.bytes += run.cost
        self.unread_bytes += run.cost
        while self.bytes > self._bytes_max and len(self._used) > 1:
            (owner, _), oldest = self._used.popitem(last=False)
            self._forget(oldest)
            owner.drop(oldest)

    def use(self, partition: ShownPartition, run: ShownRun) -> None:
        self._used.move_to_end((partition, run.begin))
        if not run.is_read:
            run.is_read = True
            self.unread_bytes -= run.cost

    def remove(self, partition: ShownPartition, run: ShownRun) -> None:
        if self._used.pop((partition, run.begin), None) is not None:
            self._forget(run)

    def _forget(self, run: ShownRun) -> None:
        self.bytes -= run.cost
        if not run.is_read:
            self.unread_bytes -= run.cost


class ShownRecords(bytes):
    """Batches of a view for a response."""

    length: int
    """How much a waiting fetch may count: 0 for a marker, which is no reason to answer sooner."""
    end_offset: int
    """The offset behind them."""

    @classmethod
    def of(cls, parts: Sequence[bytes | memoryview], end_offset: int, length: int) -> ShownRecords:
        records = cls(parts[0]) if len(parts) == 1 else cls(b"".join(parts))
        records.length, records.end_offset = length, end_offset
        return records

    @classmethod
    def nothing_up_to(cls, offset: int, leader_epoch: int) -> ShownRecords:
        """A marker that moves a consumer to this offset."""
        return cls.of([marker(offset - 1, leader_epoch)], offset, 0)


def counted_size(records: Records) -> int:
    """How many bytes a fetch has counted for these records."""
    return records.length if isinstance(records, ShownRecords) else size_of(records)
