"""Where a read begins and ends: resolves the options to offsets, and tracks the moving end of a stream.

Planning runs in a Python process beside the driver. It asks the cluster for offsets only; tasks read the records.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Final

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, ReadMinRows

from moldau.base.errors import ErrorCode, KafkaError, MalformedData
from moldau.base.ids import TopicPartition
from moldau.client.cluster import EARLIEST, LATEST, RETRIABLE, Cluster, Offsets
from moldau.spark.fetching import report_loss
from moldau.spark.offsets import Range, described, limited_ends
from moldau.spark.options import Place, ReadOptions
from moldau.spark.subscribed import subscribed_partitions
from moldau.spark.watching import Watch

RETRIABLE_EXCEPT_MISSING: Final = RETRIABLE - {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
"""When a read begins, a missing topic is an error at once: waiting for it would look like hanging."""
IDLE_SECONDS: Final = 0.4
"""How long an idle stream waits for new records in one call; Spark cannot stop a query during it."""


def batch_ranges(cluster: Cluster, options: ReadOptions) -> list[Range]:
    partitions = subscribed(cluster, options)
    starts = resolve(cluster, options, options.start, partitions, "startingOffsets")
    ends = resolve(cluster, options, options.end, partitions, "endingOffsets")
    return [Range(partition, starts[partition], ends[partition]) for partition in partitions]


def subscribed(cluster: Cluster, options: ReadOptions) -> list[TopicPartition]:
    return cluster.retry(
        lambda: subscribed_partitions(cluster, options.subscription),
        options.offset_timeout_ms,
        RETRIABLE_EXCEPT_MISSING,
    )


def resolve(
    cluster: Cluster, options: ReadOptions, place: Place, partitions: Sequence[TopicPartition], option: str
) -> Offsets:
    """Return an offset for every partition.

    Raises ValueError if the option lacks a partition, or if a partition has no record as late as the option's time.
    """
    if place.everywhere is not None:
        return _list_offsets(cluster, options, dict.fromkeys(partitions, place.everywhere))
    if place.timestamp is not None or place.timestamps is not None:
        return _by_time(cluster, options, place, partitions, option)
    offsets = place.offsets or {}
    _check_covers(offsets, partitions, option)
    symbolic = {partition: offset for partition, offset in offsets.items() if offset < 0}
    return offsets | (_list_offsets(cluster, options, symbolic) if symbolic else {})


def _by_time(
    cluster: Cluster, options: ReadOptions, place: Place, partitions: Sequence[TopicPartition], option: str
) -> Offsets:
    times = place.timestamps
    if times is None:
        assert place.timestamp is not None
        times = dict.fromkeys(partitions, place.timestamp)
    _check_covers(times, partitions, option + "ByTimestamp")
    offsets = _list_offsets(cluster, options, times)
    without_record = [partition for partition, offset in offsets.items() if offset < 0]
    if not without_record:
        return offsets
    is_start = option.startswith("starting")
    if is_start and not options.latest_if_no_later_record:
        raise ValueError(
            f"No record in {described(without_record)} has the timestamp {times[min(without_record)]} or a later one;"
            " to begin at the end of such partitions, set startingOffsetsByTimestampStrategy=latest"
        )
    return offsets | _list_offsets(cluster, options, dict.fromkeys(without_record, LATEST))


def _list_offsets(cluster: Cluster, options: ReadOptions, timestamps: Offsets) -> Offsets:
    return cluster.retry(lambda: cluster.list_offsets(timestamps, options.read_committed), options.offset_timeout_ms)


def _check_covers(option_offsets: Offsets, partitions: Iterable[TopicPartition], option: str) -> None:
    expected = set(partitions)
    if missing := expected - option_offsets.keys():
        raise ValueError(f"{option} lacks {described(missing)}; name every partition (-2 earliest, -1 latest)")
    if unknown := option_offsets.keys() - expected:
        raise ValueError(f"{option} names {described(unknown)}, which is not subscribed")


class Stream:
    """The end offsets of one streaming query. Spark keeps the position; this says how far the next batch may go."""

    def __init__(self, cluster: Cluster, options: ReadOptions) -> None:
        self._cluster = cluster
        self._options = options
        self._watch = Watch(options)
        self._target: Offsets | None = None
        self._target_begins: Offsets = {}
        """The earliest offsets of the target's partitions when it was fixed."""
        self._unreachable_since: float | None = None
        self._moved_at = time.monotonic()
        self.seen: Offsets = {}
        """The partitions' end offsets of the last request, from which the lag is computed."""

    def initial(self) -> Offsets:
        partitions = subscribed(self._cluster, self._options)
        return resolve(self._cluster, self._options, self._options.start, partitions, "startingOffsets")

    def default_limit(self) -> ReadLimit:
        if self._options.offsets_max is not None:
            return ReadMaxRows(self._options.offsets_max)
        if self._options.offsets_min is not None:
            return ReadMinRows(self._options.offsets_min)
        return ReadAllAvailable()

    def fix_target(self) -> None:
        """Fix the end of the stream at the present end offsets, for Trigger.AvailableNow."""
        partitions = subscribed(self._cluster, self._options)
        self._target_begins = _list_offsets(self._cluster, self._options, dict.fromkeys(partitions, EARLIEST))
        self._target = _list_offsets(self._cluster, self._options, dict.fromkeys(partitions, LATEST))

    def next_end(self, start: Offsets, limit: ReadLimit) -> Offsets:
        """Return the end offsets of the next batch. Wait a moment for new records; tolerate an unreachable cluster."""
        try:
            latest = self._latest(start)
            if self._target is None and not _has_new_records(start, latest) and self._watch.wait(latest, IDLE_SECONDS):
                latest = self._latest(start)
            begins = self._begins(start, latest)
            self._unreachable_since = None
        except (OSError, MalformedData, KafkaError) as error:
            self._tolerate(error)
            if self._target is None:
                return start
            # An unchanged offset would end a stream that runs until it has caught up. Its target is known; the read
            # will wait for the cluster.
            latest, begins = self._target, self._target_begins | start
        end = self._limit_end(start, begins, latest, limit)
        if _has_new_records(start, end):
            self._moved_at = time.monotonic()
        return end

    def ranges(self, start: Offsets, end: Offsets) -> list[Range]:
        """Return the ranges of a batch. A partition that is new since the last batch is read from its beginning. The
        range of one whose log has shrunk ends before its start: nothing is read, and the next batch starts there."""
        begins = self._begins(start, end)
        return [Range(partition, begins[partition], end[partition]) for partition in sorted(end)]

    def _begins(self, start: Offsets, end: Offsets) -> Offsets:
        """Return where each partition of a batch begins: a new one at its earliest offset."""
        new = [partition for partition in end if partition not in start]
        return start | (_list_offsets(self._cluster, self._options, dict.fromkeys(new, EARLIEST)) if new else {})

    def close(self) -> None:
        self._watch.close()
        self._cluster.close()

    def _latest(self, start: Offsets) -> Offsets:
        partitions = subscribed_partitions(self._cluster, self._options.subscription)
        latest = self._cluster.latest(partitions, self._options.read_committed)
        self.seen = latest
        if gone := start.keys() - latest.keys():
            report_loss(
                self._options, f"{described(gone)}: the stream has read it before, but it does not exist any more"
            )
        if shrunk := [partition for partition, offset in latest.items() if offset < start.get(partition, 0)]:
            partition = min(shrunk)
            report_loss(
                self._options,
                f"{partition}: the log ends at {latest[partition]}, but the stream was already at {start[partition]}",
            )
        return latest

    def _tolerate(self, error: Exception) -> None:
        """Treat an unreachable cluster as one without new records, for at most kafkaConsumer.pollTimeoutMs."""
        self._cluster.close()
        self._watch.close()
        now = time.monotonic()
        self._unreachable_since = self._unreachable_since or now
        is_final = isinstance(error, KafkaError) and error.code not in RETRIABLE
        if is_final or (now - self._unreachable_since) * 1000 > self._options.poll_timeout_ms:
            raise error

    def _limit_end(self, start: Offsets, begins: Offsets, latest: Offsets, limit: ReadLimit) -> Offsets:
        if self._target is not None:
            latest = {partition: min(latest.get(partition, end), end) for partition, end in self._target.items()}
        elif self._is_too_little(begins, latest, limit):
            return start
        if isinstance(limit, ReadMaxRows):
            return limited_ends(begins, latest, limit.max_rows)
        return latest

    def _is_too_little(self, begins: Offsets, latest: Offsets, limit: ReadLimit) -> bool:
        rows_min = self._options.offsets_min
        if rows_min is None or isinstance(limit, ReadAllAvailable):
            return False
        waiting = sum(max(0, offset - begins.get(partition, 0)) for partition, offset in latest.items())
        waited_ms = (time.monotonic() - self._moved_at) * 1000
        return waiting < rows_min and waited_ms < self._options.trigger_delay_ms_max


def _has_new_records(start: Offsets, latest: Offsets) -> bool:
    return any(offset != start.get(partition, 0) for partition, offset in latest.items())
