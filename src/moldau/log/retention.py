"""Which of a log's oldest segments may be deleted: by record age, by log size, or because they are below the start.

This only counts; the log deletes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from itertools import islice

from moldau.log.config import LogConfig
from moldau.log.segment import Segment
from moldau.log.segments import Segments


def expired_count(
    segments: Segments,
    config: LogConfig,
    now_ms: int,
    *,
    start_offset: int,
    end_offset: int,
    high_watermark: int,
    at_most: int = sys.maxsize,
) -> int:
    """How many of the oldest segments may be deleted. May be all of them, the active one included.

    Nothing at or above the high watermark is deleted, so the log start offset never passes the high watermark.
    Only `at_most` so many segments are looked at: after a restart this reads the indexes of each.
    """
    count_leading = partial(_leading, segments, end_offset, min(high_watermark, end_offset), at_most)

    def below_start(_: Segment, next_base: int) -> bool:
        return next_base <= start_offset

    count = count_leading(below_start)
    if not config.deletes_by_retention:
        return count
    if config.retention_bytes >= 0:
        excess = sum(segment.size for segment in segments) - config.retention_bytes
        count = max(count, count_leading(_Shrink(excess)))
    if config.retention_ms >= 0:
        oldest_ms = now_ms - config.retention_ms
        count = max(count, count_leading(lambda segment, _: age_timestamp(segment) < oldest_ms))
    return count


def age_timestamp(segment: Segment) -> int:
    """The largest record timestamp; without any, the time when the segment was created."""
    largest = segment.largest_timestamp.timestamp
    return largest if largest >= 0 else segment.created_ms


class _Shrink:
    """True for segments without which the log still has at least `retention.bytes`."""

    def __init__(self, excess: int) -> None:
        self._excess = excess

    def __call__(self, segment: Segment, next_base: int) -> bool:
        self._excess -= segment.size
        return self._excess >= 0


def _leading(
    segments: Segments, end_offset: int, bound: int, at_most: int, is_deletable: Callable[[Segment, int], bool]
) -> int:
    """Count the oldest segments that lie below `bound` and are deletable. An empty active one never counts."""
    count = 0
    for place, segment in enumerate(islice(segments, at_most)):
        next_base = segments.next_base(place)
        if next_base is None:
            if not segment.size:
                break
            next_base = end_offset
        if next_base > bound or not is_deletable(segment, next_base):
            break
        count += 1
    return count
