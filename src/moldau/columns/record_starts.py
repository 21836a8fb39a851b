"""Finds the start of each record in a batch. Only this is sequential: a record's length gives the start of the next.

The result is a guess until it is verified: callers check for all rows at once that each record ends where the next
begins. If that holds, with the first and the last in their places, every guess was right.

Records often come in runs of one size. Then the length bytes repeat at a constant distance, which one strided
comparison detects for the whole run. Only where sizes vary are the lengths walked one by one.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from moldau.columns.varints import Bytes, Numbers

STRETCH: Final = 16
"""Records walked to see whether a run starts."""
MISSES_MAX: Final = 2
"""After this many stretches without a run, the rest of the batch is walked."""
RUN_HOPED_FOR: Final = 512
"""With fewer records left, a walk takes no longer than the search for a run."""
RUN_MIN: Final = 256
"""Records of one size for which a run is worth more than walking the batch together with others."""
WALK_MAX: Final = 1 << 16
"""Records walked at once; their positions are Python integers for a moment."""
LENGTH_BYTES_MAX: Final = 5


def record_starts(body: Bytes, records: int) -> Numbers:
    """Return the position of each record's length in a batch of `records`. IndexError if they do not fit into the
    body."""
    if records <= 1:  # frequent from producers that do not linger
        return np.zeros(records, np.int64)
    parts: list[Numbers] = []
    position, left, misses = 0, records, 0
    while left:
        is_run_likely = left > RUN_HOPED_FOR and misses < MISSES_MAX
        walked = _walk(body, position, min(left, STRETCH if is_run_likely else WALK_MAX))
        parts.append(walked[:-1])
        left -= walked.size - 1
        position = int(walked[-1])
        run = _run(body, int(walked[-2]), position, left) if is_run_likely and _is_even(walked) else 0
        if run:
            size = position - int(walked[-2])
            parts.append(np.arange(position, position + run * size, size))
            left -= run
            position += run * size
        # Short runs are misses too: looking for them takes longer than walking.
        misses = 0 if run >= RUN_MIN else misses + 1
    return np.concatenate(parts)


def begins_with_run(body: Bytes) -> bool:
    """Whether many of the first records are of one size, in a batch of more than RUN_HOPED_FOR. IndexError if they do
    not fit into the body."""
    walked = _walk(body, 0, STRETCH)
    return _is_even(walked) and _run(body, int(walked[-2]), int(walked[-1]), RUN_MIN) == RUN_MIN


def _is_even(positions: Numbers) -> bool:
    return bool((np.diff(positions, 2) == 0).all())


def _run(body: Bytes, previous: int, position: int, count_max: int) -> int:
    """Return how many records from `position` on have the same length bytes as the one before, at `previous`.

    They are compared in chunks, each twice as long as the one before it: a short run costs little, however many records
    are left.
    """
    size = position - previous
    count = max(0, min(count_max, (body.size - position) // size))
    found, chunk = 0, RUN_MIN
    while found < count:
        compared = min(chunk, count - found)
        alike = _alike(body, previous, position + found * size, size, compared)
        found += alike
        if alike < compared:
            break
        chunk *= 2
    return found


def _alike(body: Bytes, previous: int, position: int, size: int, count: int) -> int:
    """Compare `count` records of `size` bytes from `position` on with the one at `previous`. Return how many have its
    length bytes, up to the first that differs."""
    alike = np.ones(count, np.bool_)
    for index in range(min(LENGTH_BYTES_MAX, size)):
        byte = body[previous + index]
        alike &= body[position + index :: size][:count] == byte
        if byte < 0x80:
            break
    return count if alike.all() else int(alike.argmin())


def _walk(body: Bytes, position: int, count: int) -> Numbers:
    """Return the starts of `count` records and the position behind them. IndexError if the bytes end first."""
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
    """Return the positions behind `count` records, if no length takes more than two bytes (up to 8191).

    This is the only Python code that runs per record, hence one expression: a loop takes 1.5 times as long.
    """
    return [
        position := position
        + (1 + (low >> 1) if (low := body[position]) < 0x80 else (low >> 1) + (body[position + 1] << 6) - 62)
        for _ in range(count)
    ]


def walk_long(body: bytes | bytearray | memoryview, position: int, count: int) -> list[int]:
    """Do the same for any length."""
    ends = []
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
        ends.append(position)
    return ends
