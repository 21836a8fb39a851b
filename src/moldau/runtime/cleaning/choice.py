"""Which log to clean next: the dirtiest of those that are dirty enough, or hold something too old to stay uncleaned.

Only arithmetic over segments, by Kafka's rules; nothing is changed here. Segments are cleaned whole or not at all.
"""

from __future__ import annotations

from typing import NamedTuple

from moldau.log.config import LONG_MAX
from moldau.log.log import Log
from moldau.log.segment import Segment
from moldau.replica.partition import Partition


class DirtyLog(NamedTuple):
    """A log as it lies before the cleaner: clean, dirty, and, from `up_to` on, not to be cleaned yet."""

    partition: Partition
    first_dirty_offset: int
    up_to: int
    """Where the first segment begins that stays as it is."""
    clean_bytes: int
    dirty_bytes: int
    is_overdue: bool
    """It holds something dirty that is older than `max.compaction.lag.ms`."""

    @property
    def dirty_ratio(self) -> float:
        return self.dirty_bytes / max(self.clean_bytes + self.dirty_bytes, 1)

    @property
    def is_no_replica_away(self) -> bool:
        """Then all replicas have everything that is committed, and nothing else is cleaned."""
        state = self.partition.state
        return len(state.isr) == len(state.replicas)

    @property
    def is_due(self) -> bool:
        is_filthy = self.dirty_ratio > self.partition.log.config.min_cleanable_dirty_ratio
        return self.dirty_bytes > 0 and (is_filthy or self.is_overdue)


def dirty_log(partition: Partition, now_ms: int) -> DirtyLog:
    """StorageFault or MalformedData if the log cannot be looked at."""
    log = partition.log
    first_dirty_offset = _first_dirty_offset(log)
    segments = list(log.segments)
    dirty_from = log.segments.floor(first_dirty_offset)
    # Consumers may read it, no transaction is open in it, and no crash takes it away.
    settled = min(partition.last_stable_offset, log.recovery_point)
    dirty_to = _first_uncleanable(segments, dirty_from, settled, log.config.min_compaction_lag_ms, now_ms)
    return DirtyLog(
        partition,
        first_dirty_offset,
        segments[dirty_to].base_offset,
        clean_bytes=sum(segment.size for segment in segments[:dirty_from]),
        dirty_bytes=sum(segment.size for segment in segments[dirty_from:dirty_to]),
        is_overdue=_is_overdue(segments[dirty_from:dirty_to], log.config.max_compaction_lag_ms, now_ms),
    )


def _first_dirty_offset(log: Log) -> int:
    """What is known to be clean may have been deleted since, or lost: then everything counts as dirty, also what lies
    below the start and is still there. If that was left as it is but for tombstones whose time has come, a crash that
    forgets the start would bring back what they speak of."""
    first = log.segments.first.base_offset
    return log.cleaned_up_to if first <= log.cleaned_up_to <= log.end_offset else first


def _first_uncleanable(segments: list[Segment], dirty_from: int, settled: int, min_lag_ms: int, now_ms: int) -> int:
    """The place of the first segment that is active, not settled to its end, or has a record that is too young."""
    for place in range(dirty_from, len(segments) - 1):
        if segments[place + 1].base_offset > settled:
            return place
        if min_lag_ms > 0 and segments[place].largest_timestamp.timestamp > now_ms - min_lag_ms:
            return place
    return len(segments) - 1


def _is_overdue(dirty: list[Segment], max_lag_ms: int, now_ms: int) -> bool:
    if max_lag_ms >= LONG_MAX:
        return False
    return any(0 < _first_timestamp(segment) < now_ms - max_lag_ms for segment in dirty)


def _first_timestamp(segment: Segment) -> int:
    timestamp = segment.first_timestamp
    segment.release()  # for this alone no file is kept open
    return timestamp
