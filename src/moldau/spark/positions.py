"""Where a read begins and ends: places given by options made into offsets, and the moving end of a stream.

Planning runs in the driver's helper process. It speaks to the cluster about offsets only; records pass elsewhere.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Final

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, ReadMinRows

from moldau.base.errors import ErrorCode, KafkaError, MalformedData
from moldau.base.ids import TopicPartition
from moldau.client.cluster import EARLIEST, LATEST, RETRIABLE, Cluster, Offsets
from moldau.spark.fetching import tell_loss
from moldau.spark.offsets import Range, described, limited
from moldau.spark.options import Place, ReadOptions
from moldau.spark.subscribed import subscribed_partitions
from moldau.spark.watching import Watch

RETRIABLE_BUT_MISSING: Final = RETRIABLE - {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
"""A topic that does not exist is told at once: waiting for it would look like hanging."""
IDLE_SECONDS: Final = 0.4
"""How long an idle stream waits for news in one call; Spark cannot stop a query during it."""


def batch_ranges(cluster: Cluster, options: ReadOptions) -> list[Range]:
    partitions = subscribed(cluster, options)
    starts = resolve(cluster, options, options.start, partitions, "startingOffsets")
    ends = resolve(cluster, options, options.end, partitions, "endingOffsets")
    return [Range(where, starts[where], ends[where]) for where in partitions]


def subscribed(cluster: Cluster, options: ReadOptions) -> list[TopicPartition]:
    return cluster.retry(
        lambda: subscribed_partitions(cluster, options.subscription), options.offset_timeout_ms, RETRIABLE_BUT_MISSING
    )


def resolve(
    cluster: Cluster, options: ReadOptions, place: Place, partitions: Sequence[TopicPartition], option: str
) -> Offsets:
    """An offset for every partition. ValueError if the option does not say one, or no record is that young."""
    if place.everywhere is not None:
        return _listed(cluster, options, dict.fromkeys(partitions, place.everywhere))
    if place.timestamp is not None or place.timestamps is not None:
        return _by_time(cluster, options, place, partitions, option)
    given = place.offsets or {}
    _must_cover(given, partitions, option)
    symbolic = {where: offset for where, offset in given.items() if offset < 0}
    return given | (_listed(cluster, options, symbolic) if symbolic else {})


def _by_time(
    cluster: Cluster, options: ReadOptions, place: Place, partitions: Sequence[TopicPartition], option: str
) -> Offsets:
    times = place.timestamps
    if times is None:
        assert place.timestamp is not None
        times = dict.fromkeys(partitions, place.timestamp)
    _must_cover(times, partitions, option + "ByTimestamp")
    found = _listed(cluster, options, times)
    after_all = [where for where, offset in found.items() if offset < 0]
    if not after_all:
        return found
    is_start = option.startswith("starting")
    if is_start and not options.latest_if_no_later_record:
        raise ValueError(
            f"No record in {described(after_all)} is as young as {times[min(after_all)]}; to begin at the end there,"
            " set startingOffsetsByTimestampStrategy=latest"
        )
    return found | _listed(cluster, options, dict.fromkeys(after_all, LATEST))


def _listed(cluster: Cluster, options: ReadOptions, at: Offsets) -> Offsets:
    return cluster.retry(lambda: cluster.list_offsets(at, options.read_committed), options.offset_timeout_ms)


def _must_cover(given: Offsets, partitions: Iterable[TopicPartition], option: str) -> None:
    wanted = set(partitions)
    if missing := wanted - given.keys():
        raise ValueError(
            f"{option} says nothing about {described(missing)}; name every partition (-2 earliest, -1 latest)"
        )
    if unknown := given.keys() - wanted:
        raise ValueError(f"{option} names {described(unknown)}, which is not subscribed")


class Stream:
    """The position of one streaming query. Spark remembers where it is; here is what it may go on to."""

    def __init__(self, cluster: Cluster, options: ReadOptions) -> None:
        self._cluster = cluster
        self._options = options
        self._watch = Watch(options)
        self._target: Offsets | None = None
        self._away_since: float | None = None
        self._moved_at = time.monotonic()
        self.seen: Offsets = {}
        """The ends of the partitions when they were last asked for: what lag is measured against."""

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
        """From now on the stream ends where it ends now."""
        partitions = subscribed(self._cluster, self._options)
        self._target = _listed(self._cluster, self._options, dict.fromkeys(partitions, LATEST))

    def next_end(self, start: Offsets, limit: ReadLimit) -> Offsets:
        """How far the next batch may read. An idle stream waits a moment for news; an absent cluster is waited for."""
        try:
            latest = self._latest(start)
            if self._target is None and not _has_news(start, latest) and self._watch.wait(latest, IDLE_SECONDS):
                latest = self._latest(start)
            self._away_since = None
        except (OSError, MalformedData, KafkaError) as error:
            self._bear(error)
            if self._target is None:
                return start
            # No news would end a stream that runs until it has caught up. What is left is known; reading it can wait.
            latest = self._target
        end = self._admitted(start, latest, limit)
        if _has_news(start, end):
            self._moved_at = time.monotonic()
        return end

    def ranges(self, start: Offsets, end: Offsets) -> list[Range]:
        """What a batch reads. A partition that is new since the last batch is read from its beginning."""
        new = [where for where in end if where not in start]
        begins = start | (_listed(self._cluster, self._options, dict.fromkeys(new, EARLIEST)) if new else {})
        return [Range(where, begins[where], end[where]) for where in sorted(end)]

    def close(self) -> None:
        self._watch.close()
        self._cluster.close()

    def _latest(self, start: Offsets) -> Offsets:
        partitions = subscribed_partitions(self._cluster, self._options.subscription)
        latest = self._cluster.latest(partitions, self._options.read_committed)
        self.seen = latest
        if gone := start.keys() - latest.keys():
            tell_loss(self._options, f"{described(gone)} had records to read and is gone")
        if shrunk := [where for where, offset in latest.items() if offset < start.get(where, 0)]:
            where = min(shrunk)
            tell_loss(self._options, f"{where} ends at {latest[where]}, where {start[where]} was reached before")
        return latest

    def _bear(self, error: Exception) -> None:
        """A cluster that cannot be asked has no news; for how long that is believed is kafkaConsumer.pollTimeoutMs."""
        self._cluster.close()
        self._watch.close()
        now = time.monotonic()
        self._away_since = self._away_since or now
        is_hopeless = isinstance(error, KafkaError) and error.code not in RETRIABLE
        if is_hopeless or (now - self._away_since) * 1000 > self._options.poll_timeout_ms:
            raise error

    def _admitted(self, start: Offsets, latest: Offsets, limit: ReadLimit) -> Offsets:
        if self._target is not None:
            latest = {where: min(latest.get(where, end), end) for where, end in self._target.items()}
        elif self._is_too_little(start, latest, limit):
            return start
        if isinstance(limit, ReadMaxRows):
            return limited(start, latest, limit.max_rows)
        return latest

    def _is_too_little(self, start: Offsets, latest: Offsets, limit: ReadLimit) -> bool:
        rows_min = self._options.offsets_min
        if rows_min is None or isinstance(limit, ReadAllAvailable):
            return False
        waiting = sum(max(0, offset - start.get(where, 0)) for where, offset in latest.items())
        has_waited_ms = (time.monotonic() - self._moved_at) * 1000
        return waiting < rows_min and has_waited_ms < self._options.trigger_delay_ms_max


def _has_news(start: Offsets, latest: Offsets) -> bool:
    return any(offset != start.get(where, 0) for where, offset in latest.items())
