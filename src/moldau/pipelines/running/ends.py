"""The sources and the sinks of one query: their rates and lags, retries and dead letters, as parts of its status.

Input: Spark's reports, the log ends of topics, the slots of databases, what tasks noted about their backends. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from moldau.backends.progress_files import Tally
from moldau.base.ids import TopicPartition
from moldau.pipelines.queries import READ
from moldau.spark.offsets import offsets_or_empty

FILES: Final = "FileStreamSource["
"""How Spark describes a stream of files; its path follows."""
TALLY_S: Final = 1.0
"""How often tallies are read."""

ReadsTopic = Callable[[str], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceStatus:
    """A stream that a query reads. None means that a value is not known yet, or that such a source has none."""

    rows: int = 0
    """Since the run began."""
    rows_per_second: float = 0.0
    lag_records: int | None = None
    """Of topics: records between the position of the query and the log ends."""
    lag_seconds: float | None = None
    """Of topics: the age of the first record that is not processed."""
    lag_bytes: int | None = None
    """Of databases: of the database's log, between the position of the slot and its end."""
    last_change_ms: int | None = None
    """Of databases: when the last change that was read was committed, in milliseconds since 1970."""
    slot: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkStatus:
    """What a query writes to. None means that it is not counted there."""

    rows: int | None = None
    """Since the run began: written, or taken by the backend."""
    rows_per_second: float | None = None
    retries: int | None = None
    """Of backends: how often a row was not taken and tried again."""
    dead_letters: int | None = None
    """Of backends: rows that were given up."""
    last_error: str | None = None
    """Of backends: why it did not take a row the last time that it did not."""


class SlotLag(NamedTuple):
    """How far a slot is behind."""

    source: str
    bytes: int


@dataclass(slots=True)
class Meter:
    """Rows per second: the rows of the last reports, divided by the time since the reports before.

    While no report comes the rate falls, but only after a batch takes longer than the last one did.
    """

    rows: int = 0
    span_s: float = 0.0
    at_s: float | None = None

    def count(self, rows: int, batches_s: float, now_s: float) -> None:
        self.span_s = max(batches_s, 0.0 if self.at_s is None else now_s - self.at_s)
        self.rows, self.at_s = rows, now_s

    def rate(self, now_s: float) -> float:
        span_s = max(self.span_s, 0.0 if self.at_s is None else now_s - self.at_s)
        return self.rows / span_s if span_s > 0 else 0.0


@dataclass(slots=True)
class Ends:
    """Counts for the sources and sinks of one query."""

    reads: Mapping[str, ReadsTopic] = field(default_factory=dict)
    """By source: whether it reads a topic of this name."""
    files: Mapping[str, str] = field(default_factory=dict)
    """The paths of those sources that are files."""
    sink_names: Sequence[str] = ()
    sources: dict[str, SourceStatus] = field(init=False)
    sinks: dict[str, SinkStatus] = field(init=False)
    _slots: set[str] = field(default_factory=set)
    _meters: dict[str, Meter] = field(default_factory=dict)
    """By source."""
    _sink_meters: dict[str, Meter] = field(default_factory=dict)
    """By sink that is a backend."""

    def __post_init__(self) -> None:
        self.sources = {name: SourceStatus() for name in self.reads}
        self.sinks = {name: SinkStatus() for name in self.sink_names}

    def add_reports(self, reports: Sequence[Mapping[str, Any]], batches_s: float, now_s: float) -> None:
        """Add the rows that new reports say were read."""
        counted: dict[str, int] = dict.fromkeys(self.sources, 0) if reports else {}
        for report in reports:
            for name, rows, last_change_ms in _observed(report, self.sources):
                counted[name] += rows
                if last_change_ms is not None:
                    old = self.sources[name]
                    self.sources[name] = replace(old, last_change_ms=max(last_change_ms, old.last_change_ms or 0))
            for entry in report.get("sources") or ():
                self._slots |= _slots(entry)
                for name in self._sources_of(entry):
                    counted[name] += int(entry.get("numInputRows") or 0)
        for name, rows in counted.items():
            self.sources[name] = replace(self.sources[name], rows=self.sources[name].rows + rows)
            self._meters.setdefault(name, Meter()).count(rows, batches_s, now_s)
        for name, meter in self._meters.items():
            self.sources[name] = replace(self.sources[name], rows_per_second=meter.rate(now_s))

    def set_written(self, rows: int | None, rows_per_second: float | None) -> None:
        """Set what the query has written: all of its sinks got these rows."""
        for name, old in self.sinks.items():
            if name not in self._sink_meters:
                self.sinks[name] = replace(old, rows=rows, rows_per_second=rows_per_second)

    def set_tallies(self, tallies: Mapping[str, Tally], now_s: float) -> None:
        """Set what tasks noted about the backends among the sinks."""
        for name, tally in tallies.items():
            meter, old = self._sink_meters.setdefault(name, Meter()), self.sinks.get(name, SinkStatus())
            before = old.rows if old.retries is not None else None
            if (more := tally.delivered - (before or 0)) > 0:
                meter.count(more, TALLY_S, now_s)
            self.sinks[name] = SinkStatus(
                rows=tally.delivered,
                rows_per_second=meter.rate(now_s),
                retries=tally.retries,
                dead_letters=tally.dead_letters,
                last_error=tally.last_error,
            )

    def set_lag_of_topics(
        self,
        position: Mapping[TopicPartition, int],
        records: Callable[[Mapping[TopicPartition, int]], int | None],
        seconds: Callable[[Mapping[TopicPartition, int]], float | None],
    ) -> None:
        """Set the lags of topics; `records` and `seconds` return that of a position."""
        for name, reads in self.reads.items():
            own = {partition: offset for partition, offset in position.items() if reads(partition.topic)}
            lag = records(own) if own else None
            age_s = seconds(own) if lag is not None else None
            self.sources[name] = replace(self.sources[name], lag_records=lag, lag_seconds=age_s)

    def set_lag_of_slots(self, lags: Mapping[str, SlotLag]) -> None:
        """Set the lags of the slots of this query. While a database does not answer, they are not known."""
        own = {lag.source: (slot, lag.bytes) for slot, lag in lags.items() if slot in self._slots}
        for name, old in self.sources.items():
            slot, lag_bytes = own.get(name, (old.slot, None))
            self.sources[name] = replace(old, lag_bytes=lag_bytes, slot=slot)

    def end_rates(self) -> None:
        """Set all rates of a query that does not run."""
        self.sources, self.sinks = stopped_sources(self.sources), stopped_sinks(self.sinks)

    def _sources_of(self, entry: Mapping[str, Any]) -> Iterable[str]:
        """Return the source that a part of a report is about; none if that is neither of topics nor of files."""
        description = str(entry.get("description"))
        if description.startswith(FILES):
            matching = [name for name, path in self.files.items() if description.endswith(f"{path}]")]
            return matching[:1] or (self.files if len(self.files) == 1 else ())
        topics = {partition.topic for partition in offsets_or_empty(entry.get("endOffset"))}
        return [name for name, reads in self.reads.items() if topics and all(map(reads, topics))][:1]


def stopped_sources(sources: Mapping[str, SourceStatus]) -> dict[str, SourceStatus]:
    return {name: replace(source, rows_per_second=0.0) for name, source in sources.items()}


def stopped_sinks(sinks: Mapping[str, SinkStatus]) -> dict[str, SinkStatus]:
    return {name: replace(sink, rows_per_second=None) for name, sink in sinks.items()}


def _observed(report: Mapping[str, Any], sources: Container[str]) -> Iterator[tuple[str, int, int | None]]:
    """Yield what databases and classes counted: name, rows, and the time of the last change of a database."""
    for name, counted in (report.get("observedMetrics") or {}).items():
        if name.endswith(READ) and name.removesuffix(READ) in sources:
            last_ms = counted["last_change_ms"]
            yield name.removesuffix(READ), int(counted["rows"] or 0), None if last_ms is None else int(last_ms)


def _slots(entry: Mapping[str, Any]) -> set[str]:
    """Return the slot of a position in a database's log."""
    end = entry.get("endOffset")
    try:
        content = json.loads(end) if isinstance(end, str) else end
    except ValueError:
        return set()
    slot = content.get("slot") if isinstance(content, Mapping) else None
    return {slot} if isinstance(slot, str) else set()
