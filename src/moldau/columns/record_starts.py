"""Where each record of a batch begins. Only here is anything sequential: a record's length tells where the next one is.

What comes out is a guess until it is verified: that each record ends where the next begins can be checked for all rows
at once, and if that holds, with the first and the last in their places, every guess was right.

Records often come in runs of one size. Then the length bytes repeat at an even distance, which one strided comparison
tells for the whole run; only where sizes vary are the lengths walked one by one.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from moldau.columns.varints import Bytes, Numbers

STRETCH: Final = 16
"""Records walked to see whether a run begins."""
MISSES_MAX: Final = 2
"""After so many stretches that were no run, the rest of the batch is walked."""
RUN_HOPED_FOR: Final = 512
"""With fewer records left, a walk takes no longer than looking for a run."""
WALK_MAX: Final = 1 << 16
"""Records walked at once: their positions are Python's integers for a moment."""
LENGTH_BYTES_MAX: Final = 5


def record_starts(body: Bytes, records: int) -> Numbers:
    """The position of every record's length in a batch of so many. IndexError if they do not fit into the body."""
    if records <= 1:  # producers that do not wait send many of these: nothing to look at
        return np.zeros(records, np.int64)
    pieces: list[Numbers] = []
    position, left, misses = 0, records, 0
    while left:
        is_run_likely = left > RUN_HOPED_FOR and misses < MISSES_MAX
        walked = _walk(body, position, min(left, STRETCH if is_run_likely else WALK_MAX))
        pieces.append(walked[:-1])
        left -= walked.size - 1
        position = int(walked[-1])
        run = _run(body, int(walked[-2]), position, left) if is_run_likely and _is_even(walked) else 0
        if run:
            size = position - int(walked[-2])
            pieces.append(np.arange(position, position + run * size, size))
            left -= run
            position += run * size
        misses = 0 if run else misses + 1
    return np.concatenate(pieces)


def _is_even(positions: Numbers) -> bool:
    return bool((np.diff(positions, 2) == 0).all())


def _run(body: Bytes, pattern: int, position: int, count_max: int) -> int:
    """How many records from `position` on have the length bytes of the one before, at `pattern`."""
    size = position - pattern
    count = max(0, min(count_max, (body.size - position) // size))
    alike = np.ones(count, np.bool_)
    for index in range(min(LENGTH_BYTES_MAX, size)):
        byte = body[pattern + index]
        alike &= body[position + index :: size][:count] == byte
        if byte < 0x80:
            break
    return count if alike.all() else int(alike.argmin())


def _walk(body: Bytes, position: int, count: int) -> Numbers:
    """The starts of `count` records and the position behind them. IndexError where the bytes end first."""
    starts = np.empty(count + 1, np.int64)
    starts[0] = position
    try:
        starts[1:] = walk_short(body.data, position, count)
        is_long = body[starts[:-1]] >= 0x80
        is_long &= body.take(starts[:-1] + 1, mode="clip") >= 0x80
        is_walked = not is_long.any()
    except IndexError:
        is_walked = False
    if not is_walked:
        starts[1:] = walk_long(body.data, position, count)
    return starts


def walk_short(body: bytes | bytearray | memoryview, position: int, count: int) -> list[int]:
    """The positions behind `count` records, if none is longer than two bytes of length can tell (8191).

    This is the one thing done for each record in Python, hence one expression: a loop takes half as long again.
    """
    return [
        position := position
        + (1 + (low >> 1) if (low := body[position]) < 0x80 else (low >> 1) + (body[position + 1] << 6) - 62)
        for _ in range(count)
    ]


def walk_long(body: bytes | bytearray | memoryview, position: int, count: int) -> list[int]:
    """The same for any length."""
    behind = []
    for _ in range(count):
        raw = shift = 0
        while True:
            byte = body[position]
            raw |= (byte & 0x7F) << shift
            position += 1
            shift += 7
            if byte < 0x80 or shift == 7 * LENGTH_BYTES_MAX:
                break
        position += raw >> 1
        behind.append(position)
    return behind
