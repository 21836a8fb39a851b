"""Which of a log's oldest segments may go: by age of their records, by size of the log, by a start moved up.

Only arithmetic over segments; the log does the deed.
"""

from __future__ import annotations

from collections.abc import Callable

from moldau.log.config import LogConfig
from moldau.log.segment import Segment
from moldau.log.segments import Segments


def expired_count(
    segments: Segments, config: LogConfig, now_ms: int, *, start_offset: int, end_offset: int, high_watermark: int
) -> int:
    """How many segments, counted from the oldest, have outlived their use. May be all: the active one counts too.

    Nothing at or above the high watermark goes, so the start of a log never overtakes what is committed.
    """
    bound = min(high_watermark, end_offset)

    def below_start(_: Segment, next_base: int) -> bool:
        return next_base <= start_offset

    count = _leading(segments, end_offset, bound, below_start)
    if not config.deletes_by_retention:
        return count
    if config.retention_bytes >= 0:
        excess = sum(segment.size for segment in segments) - config.retention_bytes
        count = max(count, _leading(segments, end_offset, bound, _Shrink(excess)))
    if config.retention_ms >= 0:
        oldest_ms = now_ms - config.retention_ms
        count = max(count, _leading(segments, end_offset, bound, lambda segment, _: age_timestamp(segment) < oldest_ms))
    return count


def age_timestamp(segment: Segment) -> int:
    """The youngest record's timestamp; when the segment was made, for records without any."""
    largest = segment.largest_timestamp.timestamp
    return largest if largest >= 0 else segment.created_ms


class _Shrink:
    """Segments go while the log stays at least as large as `retention.bytes` without them."""

    def __init__(self, excess: int) -> None:
        self._excess = excess

    def __call__(self, segment: Segment, next_base: int) -> bool:
        self._excess -= segment.size
        return self._excess >= 0


def _leading(segments: Segments, end_offset: int, bound: int, goes: Callable[[Segment, int], bool]) -> int:
    """How many of the oldest segments, whole below `bound`, go one after the other. An empty active one never does."""
    count = 0
    for place, segment in enumerate(segments):
        next_base = segments.next_base(place)
        if next_base is None:
            if not segment.size:
                break
            next_base = end_offset
        if next_base > bound or not goes(segment, next_base):
            break
        count += 1
    return count
