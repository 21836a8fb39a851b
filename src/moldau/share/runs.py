"""Runs of offsets of one state, and the batches that they make up.

Apache Kafka keeps a state for each offset once a batch is acknowledged in parts. Runs say the same in less: a batch of
five hundred records of which every second is released has as many runs as offsets, all others have a few.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from operator import attrgetter
from typing import Final, TypeVar


class RecordState(IntEnum):
    """The numbers are those of `__share_group_state`. Records that are acquired are not written there."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVING = 3
    """Given up; its dead letter is not written yet."""
    ARCHIVED = 4


T = TypeVar("T")
_FIRST_OFFSET: Final = attrgetter("first")
_DONE: Final = (RecordState.ACKNOWLEDGED, RecordState.ARCHIVED)


class Change:
    """What a member asked for, while it is written. Its runs keep their state until then, and nobody may have them."""

    __slots__ = ("ranges",)

    def __init__(self) -> None:
        self.ranges: list[tuple[int, int]] = []
        """First and last offsets."""

    def add(self, first: int, last: int) -> None:
        if self.ranges and self.ranges[-1][1] + 1 == first:
            first, _ = self.ranges.pop()
        self.ranges.append((first, last))


@dataclass(slots=True)
class Run:
    first: int
    last: int
    state: RecordState
    delivery_count: int
    member_id: str = ""
    """Who has acquired the records."""
    lock_ends_ms: int = 0
    """When they become available again, by the monotonic clock."""
    change: Change | None = None
    """What is being written about them."""
    becomes: RecordState | None = None
    """The state that the change gives them."""
    is_rejected: bool = False
    """Whether a member has rejected them: then they are not given up for being delivered too often."""

    def __len__(self) -> int:
        return self.last - self.first + 1

    @property
    def is_available(self) -> bool:
        return self.state is RecordState.AVAILABLE

    @property
    def is_done(self) -> bool:
        """Whether the records are never delivered again."""
        return self.state in _DONE

    @property
    def will_be_done(self) -> bool:
        """Whether they are done, or are when the change is written."""
        return (self.becomes or self.state) in _DONE

    def rest_from(self, offset: int) -> Run:
        """Return a run like it that begins there."""
        return Run(
            offset,
            self.last,
            self.state,
            self.delivery_count,
            self.member_id,
            self.lock_ends_ms,
            self.change,
            self.becomes,
            self.is_rejected,
        )

    def equals(self, other: Run) -> bool:
        """Whether it differs only in its offsets."""
        return (
            self.state is other.state
            and self.delivery_count == other.delivery_count
            and self.member_id == other.member_id
            and self.lock_ends_ms == other.lock_ends_ms
            and self.change is other.change
            and self.becomes is other.becomes
            and self.is_rejected is other.is_rejected
        )


class Batch:
    """Offsets that were acquired together for the first time. Its runs follow each other without a gap."""

    __slots__ = ("first", "runs", "size", "was_acquired")

    def __init__(self, run: Run, *, was_acquired: bool = True) -> None:
        self.first = run.first
        self.runs = [run]
        self.size = len(run)
        """How many records it had when it was acquired. It forgets those at its beginning that are done."""
        self.was_acquired = was_acquired
        """If not, nothing is known of its only run: either it is available, like new records, or not in the log."""

    @property
    def last(self) -> int:
        return self.runs[-1].last

    @property
    def is_missing(self) -> bool:
        """Whether its offsets are not in the log, and were not when they might have been acquired."""
        return not self.was_acquired and self.runs[0].is_done

    def __len__(self) -> int:
        return self.last - self.first + 1

    def overlapping(self, first: int, last: int) -> Iterator[Run]:
        """Yield the runs with offsets in first..last."""
        runs = self.runs
        for place in range(self._place(first), len(runs)):
            if runs[place].first > last:
                break
            yield runs[place]

    def cut_out(self, first: int, last: int) -> list[Run]:
        """Return the runs that are exactly first..last, as far as the batch has these offsets: it is divided there."""
        begin = self._divide(first)
        end = self._divide(last + 1)
        return self.runs[begin:end]

    def cut_out_parts(self, parts: Sequence[tuple[int, int, T]]) -> list[tuple[Run, T]]:
        """Return the runs that are exactly these parts, which follow each other, with what belongs to each."""
        begin, end = self._divide(parts[0][0]), self._divide(parts[-1][1] + 1)
        found: list[tuple[Run, T]] = []
        runs = iter(self.runs[begin:end])
        run = next(runs)
        for _, last, what in parts:
            while run.last < last:
                found.append((run, what))
                run = next(runs)
            rest = run.rest_from(last + 1) if run.last > last else next(runs, run)
            run.last = last
            found.append((run, what))
            run = rest
        self.runs[begin:end] = [each for each, _ in found]
        return found

    def join_runs(self) -> None:
        """Make one run of neighbours that do not differ."""
        joined = self.runs[:1]
        for run in self.runs[1:]:
            if run.equals(joined[-1]):
                joined[-1].last = run.last
            else:
                joined.append(run)
        self.runs = joined

    def drop_before(self, offset: int) -> None:
        """Forget the offsets below, which are not all."""
        del self.runs[: self._divide(offset)]
        self.first = self.runs[0].first

    def drop_from(self, offset: int) -> None:
        """Forget this offset, which is not the first, and all after it."""
        del self.runs[self._divide(offset) :]

    def _divide(self, offset: int) -> int:
        """Let a run begin at the offset, if it is within the batch. Return the place of the first one from there on."""
        if offset <= self.first:
            return 0
        place = self._place(offset)
        run = self.runs[place]
        if run.first == offset:
            return place
        if offset <= run.last:
            self.runs.insert(place + 1, run.rest_from(offset))
            run.last = offset - 1
        return place + 1

    def _place(self, offset: int) -> int:
        """Return the place of the last run that does not begin after the offset; of the first one if all do."""
        return max(0, bisect_right(self.runs, offset, key=_FIRST_OFFSET) - 1)
