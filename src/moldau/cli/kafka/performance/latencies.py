"""The report of kafka-producer-perf-test: records, rates, latencies, in Kafka's two kinds of lines.

    1000 records sent, 100.0 records/sec (0.01 MB/sec), 4.7 ms avg latency, 12.0 ms max latency.
    1000 records sent, 100.000000 records/sec (0.01 MB/sec), 4.70 ms avg latency, 12.00 ms max latency, 4 ms 50th, ...

Latencies are appended to a list, which `fold` turns into counts per millisecond every FOLD_RECORDS: so a run of any
length needs little memory, and a record costs one append. The time is passed in.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

MEGABYTE: Final = 1024 * 1024
PERCENTILES: Final = (0.5, 0.95, 0.99, 0.999)
FOLD_RECORDS: Final = 1 << 16


class Latencies:
    """Latencies of a run, and of the part of it since the last report. Append seconds to `fresh`."""

    def __init__(self, now: float, steady: bool = False) -> None:
        self.fresh: list[float] = []
        self._title = "steady state records sent" if steady else "records sent"
        self._start = self._window_start = now
        self._by_ms: Counter[int] = Counter()
        self._count = self._window_count = 0
        self._sum = self._window_sum = 0.0
        self._max = self._window_max = 0.0

    def fold(self) -> None:
        """Count the fresh latencies if there are many. To be called every now and then."""
        if len(self.fresh) >= FOLD_RECORDS:
            self._count_fresh()

    def window_line(self, now: float, record_bytes: float) -> str | None:
        """Return the line about the time since the last report, or None if no record was acknowledged in it."""
        self._count_fresh()
        elapsed = now - self._window_start
        count, total, longest = self._window_count, self._window_sum, self._window_max
        self._window_start, self._window_count, self._window_sum, self._window_max = now, 0, 0.0, 0.0
        if not count or elapsed <= 0:
            return None
        rate = count / elapsed
        return (
            f"{count} records sent, {rate:.1f} records/sec ({rate * record_bytes / MEGABYTE:.2f} MB/sec),"
            f" {total / count * 1000:.1f} ms avg latency, {longest * 1000:.1f} ms max latency."
        )

    def total_line(self, now: float, record_bytes: float) -> str:
        self._count_fresh()
        elapsed = max(now - self._start, 1e-9)
        rate = self._count / elapsed
        average = self._sum / self._count * 1000 if self._count else 0.0
        half, high, higher, highest = self.percentiles()
        return (
            f"{self._count} {self._title}, {rate:f} records/sec ({rate * record_bytes / MEGABYTE:.2f} MB/sec),"
            f" {average:.2f} ms avg latency, {self._max * 1000:.2f} ms max latency,"
            f" {half} ms 50th, {high} ms 95th, {higher} ms 99th, {highest} ms 99.9th."
        )

    def percentiles(self) -> list[int]:
        """Return the latencies in whole milliseconds below which each share of the records stayed."""
        self._count_fresh()
        if not self._count:
            return [0] * len(PERCENTILES)
        ranks = [min(self._count - 1, int(share * self._count)) for share in PERCENTILES]
        latencies: list[int] = []
        seen = 0
        for latency_ms in sorted(self._by_ms):
            seen += self._by_ms[latency_ms]
            while len(latencies) < len(ranks) and seen > ranks[len(latencies)]:
                latencies.append(latency_ms)
        return latencies

    def _count_fresh(self) -> None:
        if not self.fresh:
            return
        fresh, self.fresh[:] = self.fresh[:], []
        count, total, longest = len(fresh), sum(fresh), max(fresh)
        self._by_ms.update([int(seconds * 1000) for seconds in fresh])
        self._count += count
        self._window_count += count
        self._sum += total
        self._window_sum += total
        self._max = max(self._max, longest)
        self._window_max = max(self._window_max, longest)
