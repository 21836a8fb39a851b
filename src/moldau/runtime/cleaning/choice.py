"""Finds out whether a log must be cleaned: it is dirty enough, or has dirty records that are too old.

It only computes over segments, by Kafka's rules, and changes nothing. Segments are cleaned as a whole or not at all.
"""

from __future__ import annotations

from itertools import islice
from typing import NamedTuple

from moldau.base.limits import INT64_MAX
from moldau.base.steps import Steps, finish
from moldau.log.log import Log
from moldau.log.segment import Segment
from moldau.replica.partition import Partition


class DirtyLog(NamedTuple):
    """A log as the cleaner sees it: clean, then dirty from `first_dirty_offset`, then not cleanable from `up_to`."""

    partition: Partition
    first_dirty_offset: int
    up_to: int
    """The base offset of the first segment that is not cleaned."""
    clean_bytes: int
    dirty_bytes: int
    is_overdue: bool
    """It has a dirty record that is older than `max.compaction.lag.ms`."""

    @property
    def dirty_ratio(self) -> float:
        return self.dirty_bytes / max(self.clean_bytes + self.dirty_bytes, 1)

    @property
    def are_all_in_sync(self) -> bool:
        """Whether all replicas are in sync: then all have everything that is committed, and only that is cleaned."""
        state = self.partition.state
        return len(state.isr) == len(state.replicas)

    @property
    def is_due(self) -> bool:
        is_dirty_enough = self.dirty_ratio > self.partition.log.config.min_cleanable_dirty_ratio
        return self.dirty_bytes > 0 and (is_dirty_enough or self.is_overdue)


def dirty_log(partition: Partition, now_ms: int) -> DirtyLog:
    """Return how dirty a log is. Raise StorageFault, MalformedData or KafkaError if it cannot be read."""
    return finish(_dirty_log(partition, now_ms))


def read_some(partition: Partition, now_ms: int, count: int) -> int:
    """Read at most so many of the segments that `dirty_log` must read, and return how many. They need not be read
    again. After fewer than `count`, none is left. Raise like `dirty_log`."""
    return sum(1 for _ in islice(_dirty_log(partition, now_ms), count))


def _dirty_log(partition: Partition, now_ms: int) -> Steps[DirtyLog]:
    """A step ends after each segment that was read. Do not go on with it later: the log may have changed."""
    log = partition.log
    first_dirty_offset = _first_dirty_offset(log)
    segments = list(log.segments)
    dirty_from = log.segments.floor(first_dirty_offset)
    # Below this offset all records are committed, belong to no open transaction, and are flushed.
    stable_offset = min(partition.last_stable_offset, log.recovery_point)
    min_lag_ms, max_lag_ms = log.config.min_compaction_lag_ms, log.config.max_compaction_lag_ms
    dirty_to = yield from _first_uncleanable(segments, dirty_from, stable_offset, min_lag_ms, now_ms)
    is_overdue = yield from _is_overdue(segments[dirty_from:dirty_to], max_lag_ms, now_ms)
    return DirtyLog(
        partition,
        first_dirty_offset,
        segments[dirty_to].base_offset,
        clean_bytes=sum(segment.size for segment in segments[:dirty_from]),
        dirty_bytes=sum(segment.size for segment in segments[dirty_from:dirty_to]),
        is_overdue=is_overdue,
    )


def _first_dirty_offset(log: Log) -> int:
    """Return where the dirty part begins. If the clean part was deleted or lost, everything is dirty, also segments
    below the log start offset. If expired tombstones were removed but those segments kept, a crash that loses the log
    start offset would bring the deleted records back."""
    first = log.segments.first.base_offset
    return log.cleaned_up_to if first <= log.cleaned_up_to <= log.end_offset else first


def _first_uncleanable(
    segments: list[Segment], dirty_from: int, stable_offset: int, min_lag_ms: int, now_ms: int
) -> Steps[int]:
    """Return the position of the first segment that is active, ends above `stable_offset`, or has too young records."""
    for position in range(dirty_from, len(segments) - 1):
        segment = segments[position]
        if segments[position + 1].base_offset > stable_offset:
            return position
        if min_lag_ms > 0:
            if segment.load_largest_timestamp():
                yield
            if segment.largest_timestamp.timestamp > now_ms - min_lag_ms:
                return position
    return len(segments) - 1


def _is_overdue(dirty: list[Segment], max_lag_ms: int, now_ms: int) -> Steps[bool]:
    for segment in dirty if max_lag_ms < INT64_MAX else ():
        if segment.load_first_timestamp():
            segment.release()  # do not keep the file open only for this
            yield
        if 0 < segment.first_timestamp < now_ms - max_lag_ms:
            return True
    return False
