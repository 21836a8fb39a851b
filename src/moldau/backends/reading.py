"""Reads a source that is a class of the user by ranges of positions, as a stream of micro-batches needs it.

A stream plans a micro-batch by the positions where it ends, and may read the same range again after a failure. The
source has only `read(partition, start)`: the end is found by reading ahead, and a range is read again up to its end.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from moldau.backends.interface import BackendSource

Positions = Mapping[str, Any]
"""By partition: the position of the last row that is read. A partition without one is read from its beginning."""
PARTITIONS_MAX: Final = 10_000
ROWS_MAX: Final = 100_000
"""Rows in one micro-batch, unless the source says otherwise."""


class LostRows(Exception):
    """A source does not yield the rows any more that it yielded before."""


def next_ends(source: BackendSource, start: Positions, rows_max: int, target: Positions | None = None) -> Positions:
    """Return where a micro-batch from `start` ends: after at most `rows_max` rows of all partitions together, about as
    many of each, and not after `target`."""
    partitions = _partitions(source)
    share = max(1, rows_max // max(1, len(partitions)))
    ends = dict(start)
    for partition in partitions:
        last = start.get(partition)
        if target is not None and (partition not in target or last == target[partition]):
            continue
        for count, position in enumerate(_positions(source, partition, last), 1):
            ends[partition] = position
            if count == share or (target is not None and position == target[partition]):
                break
    return ends


def all_ends(source: BackendSource, start: Positions) -> Positions:
    """Return the positions of the last rows that there are now."""
    ends = dict(start)
    for partition in _partitions(source):
        for position in _positions(source, partition, start.get(partition)):
            ends[partition] = position
    return ends


def rows_of_range(source: BackendSource, partition: str, start: Any, end: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the rows after `start` up to that of the position `end`; None: all that there are."""
    before = start
    for row, position in source.read(partition, start):
        if position is None:
            raise ValueError(f"read() of partition {partition} gave the position None after {before!r}")
        before = position
        yield row
        if position == end:
            return
    if end is not None:
        raise LostRows(f"partition {partition} ends before position {end!r}, up to which it was read before")


def _partitions(source: BackendSource) -> list[str]:
    partitions = list(dict.fromkeys(source.partitions()))
    if len(partitions) > PARTITIONS_MAX or not all(isinstance(each, str) for each in partitions):
        raise ValueError(f"partitions() must return texts, at most {PARTITIONS_MAX}")
    return partitions


def _positions(source: BackendSource, partition: str, start: Any) -> Iterator[Any]:
    before = start
    for _, position in source.read(partition, start):
        if position is None or position == before:
            raise ValueError(f"read() of partition {partition} gave the position {position!r} after {before!r}")
        before = position
        yield position
