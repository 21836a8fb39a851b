"""Where each record of a batch begins. Only here is anything sequential: a record's length tells where the next one is.

What comes out is a guess until it is verified: that each record ends where the next begins can be checked for all rows
at once, and if that holds, with the first and the last in their places, every guess was right.

Records often come in runs of one size. Then the length bytes repeat at an even distance, which one strided comparison
tells for the whole run; only where sizes vary are the lengths walked one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from moldau.spark.varints import BadRow, Bytes, Numbers

RUN_MIN: Final = 16
"""Records a run should have for a comparison to be cheaper than a walk."""
MISSES_MAX: Final = 4
"""After so many comparisons in a row that found no run, the rest of the batch is walked."""
STRETCH: Final = 64
"""Records walked before a run is looked for again."""
WALK_MAX: Final = 1 << 16
"""Records walked at once: their positions are Python's integers for a moment."""


class Span(NamedTuple):
    """The records of one batch: so many, in these bytes."""

    start: int
    end: int
    records: int


def record_starts(data: Bytes, spans: Sequence[Span]) -> Numbers:
    """The position of every record's length, batch by batch."""
    body = data.data
    pieces: list[Numbers] = []
    rows = 0
    for span in spans:
        try:
            pieces += _starts_in(data, body, span)
        except IndexError:
            raise BadRow(rows, "a record ends beyond the batch") from None
        rows += span.records
    return np.concatenate(pieces) if pieces else np.empty(0, np.int64)


def _starts_in(data: Bytes, body: memoryview, span: Span) -> list[Numbers]:
    pieces: list[Numbers] = []
    position, left, misses = span.start, span.records, 0
    while left:
        if left >= RUN_MIN and misses < MISSES_MAX:
            run = _run(data, body, position, span.end, left)
            if run.size >= RUN_MIN:
                pieces.append(run)
                left -= run.size
                position = _next_start(body, int(run[-1]))
                misses = 0
                continue
            misses += 1
        walked, position = _walk(body, position, min(left, STRETCH if misses < MISSES_MAX else WALK_MAX))
        pieces.append(np.array(walked, np.int64))
        left -= len(walked)
    return pieces


def _run(data: Bytes, body: memoryview, position: int, end: int, count_max: int) -> Numbers:
    """The records from `position` on that have the length bytes of the first."""
    behind = _next_start(body, position)
    size = behind - position
    count = max(0, min(count_max, (end - position) // size))
    alike = np.ones(count, np.bool_)
    for index in range(min(5, size)):
        byte = body[position + index]
        alike &= data[position + index : end : size][:count] == byte
        if byte < 0x80:
            break
    if not alike.all():
        count = int(alike.argmin())
    return np.arange(position, position + count * size, size, dtype=np.int64)


def _next_start(body: memoryview, position: int) -> int:
    return _walk(body, position, 1)[1]


def _walk(body: memoryview, position: int, count: int) -> tuple[list[int], int]:
    """The starts of `count` records and the position behind them. IndexError where the bytes end first."""
    starts = []
    for _ in range(count):
        starts.append(position)
        byte = body[position]
        if byte < 0x80:
            position += 1 + (byte >> 1)
            continue
        second = body[position + 1]
        if second < 0x80:
            position += 2 + (byte >> 1 & 0x3F | second << 6)
            continue
        raw, shift = byte & 0x7F | (second & 0x7F) << 7, 14
        position += 2
        while True:
            byte = body[position]
            raw |= (byte & 0x7F) << shift
            position += 1
            shift += 7
            if byte < 0x80 or shift > 32:
                break
        position += raw >> 1
    return starts, position
