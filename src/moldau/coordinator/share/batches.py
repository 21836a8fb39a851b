"""State batches: ranges of offsets whose records have the same delivery state and count."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from heapq import heappop, heappush
from itertools import pairwise
from operator import attrgetter
from typing import Final, NamedTuple

NO_START_OFFSET: Final = -1
"""Of a partition that nobody has read yet; in a write, it leaves the start offset as it is."""
_first_offset: Final = attrgetter("first_offset")
_last_offset: Final = attrgetter("last_offset")


class Batch(NamedTuple):
    first_offset: int
    last_offset: int
    delivery_state: int
    """0 available, 2 acknowledged, 4 archived."""
    delivery_count: int


def merge(current: Sequence[Batch], changes: Iterable[Batch], start_offset: int) -> tuple[Batch, ...]:
    """Return the batches after `changes`, in the order of their offsets and without those below `start_offset`.
    `current` is the result of an earlier call.

    Of two states of an offset, the one with the higher delivery count wins, then the one with the higher delivery
    state: a record's state only ever goes that way, so a change that is late, or comes twice, does no harm."""
    kept = current[bisect_left(current, start_offset, key=_last_offset) :]
    kept = (*_from_offset(kept[:1], start_offset), *kept[1:])  # only the first one can begin below
    added = _combined(_from_offset(changes, start_offset))
    if not added:
        return kept
    low = bisect_left(kept, added[0].first_offset - 1, key=_last_offset)
    high = bisect_right(kept, added[-1].last_offset + 1, key=_first_offset)
    return (*kept[:low], *_combined([*kept[low:high], *added]), *kept[high:])


def _from_offset(batches: Iterable[Batch], start_offset: int) -> Iterator[Batch]:
    """Yield the batches without the offsets below `start_offset`; all of them for NO_START_OFFSET."""
    for batch in batches:
        if start_offset == NO_START_OFFSET or batch.first_offset >= start_offset:
            yield batch
        elif batch.last_offset >= start_offset:
            yield batch._replace(first_offset=start_offset)


def _combined(batches: Iterable[Batch]) -> list[Batch]:
    """Return batches, in any order, as batches that do not overlap, each as long as possible. An empty one is
    skipped."""
    ordered = sorted([batch for batch in batches if batch.first_offset <= batch.last_offset], key=_first_offset)
    if all(_are_apart(*each) for each in pairwise(ordered)):
        return ordered  # as nearly always: leaders of partitions send them like that
    combined: list[Batch] = []
    open_batches: list[tuple[int, int, int]] = []
    """Those that may reach to `offset`: the one that wins first."""
    place = 0
    while place < len(ordered) or open_batches:
        if not open_batches:
            offset = ordered[place].first_offset
        while place < len(ordered) and ordered[place].first_offset <= offset:
            _, last_offset, state, count = ordered[place]
            heappush(open_batches, (-count, -state, last_offset))
            place += 1
        count, state, last_offset = open_batches[0]
        if last_offset < offset:
            heappop(open_batches)
            continue
        if place < len(ordered):
            last_offset = min(last_offset, ordered[place].first_offset - 1)
        _join(combined, Batch(offset, last_offset, -state, -count))
        offset = last_offset + 1
    return combined


def _are_apart(batch: Batch, following: Batch) -> bool:
    """Whether two batches neither overlap nor could be one."""
    distance = following.first_offset - batch.last_offset
    return distance > 1 or (distance == 1 and batch[2:] != following[2:])


def _join(batches: list[Batch], following: Batch) -> None:
    """Append a batch that follows all others, or lengthen the last one if it touches that and has its state."""
    if batches:
        last = batches[-1]
        if not _are_apart(last, following):
            batches[-1] = last._replace(last_offset=following.last_offset)
            return
    batches.append(following)
