"""Turns Spark's reports about a streaming query into a status for people: rates, lag, state, watermark.

Input: Spark's StreamingQueryProgress as a mapping, in the order of the batches, and the log end offsets of the broker.
Output: a frozen QueryStatus. The caller passes the time. This module uses no Spark and prints nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple

from moldau.backends.progress_files import Tally
from moldau.base.ids import TopicPartition
from moldau.pipelines.queries import PARSED, WRITTEN
from moldau.pipelines.running.ends import Ends, Meter, SinkStatus, SlotLag, SourceStatus
from moldau.spark.offsets import offsets_or_empty, to_json

QueryState = Literal["starting", "running", "restarting", "failed", "finished", "stopped", "not running"]
"""`restarting`: failed, and will be restarted after a pause. `not running`: left out of this run (--sink)."""

WHOLE_BATCH: Final = "triggerExecution"
"""Spark's name of the time of a whole batch, beside those of its phases."""
RATES_MAX: Final = 30
SAMPLES_MAX: Final = 256

Offsets = Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class LogEnds:
    """The log end offsets at the time `at_s`."""

    at_s: float
    offsets: Offsets


class Counted(NamedTuple):
    """How many records a query parsed, and how many of them were bad."""

    records: int
    bad: int

    def plus(self, other: Counted) -> Counted:
        return Counted(self.records + other.records, self.bad + other.bad)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryStatus:
    """One query at one moment. None means that a value is not known yet, or that the query has no such value."""

    name: str
    state: QueryState = "starting"
    rows_in_per_second: float = 0.0
    rows_out_per_second: float | None = None
    rows_in: int = 0
    """Since the run began; rows of a retried batch count once."""
    rows_out: int | None = None
    bad_records: Mapping[str, Counted] = field(default_factory=dict)
    """By source."""
    position: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """By topic and partition: the offset up to which records are processed and committed."""
    lag_records: int | None = None
    """Records between `position` and the current log end offsets."""
    lag_seconds: float | None = None
    batch_id: int | None = None
    batch_ms: int | None = None
    batches: int = 0
    """How many batches ran since the run began."""
    phases_ms: Mapping[str, int] = field(default_factory=dict)
    """How long all of them together took, by Spark's names of their phases: addBatch, walCommit, …"""
    rows_late: int = 0
    """Rows behind the watermark that windows, joins and deduplication left out. Spark counts them after it has merged
    rows of the same window, so there may be more."""
    state_rows: int | None = None
    state_bytes: int | None = None
    watermark: str | None = None
    restarts: int = 0
    last_error: str | None = None
    waiting: str | None = None
    """Since when and why its backend takes nothing."""
    rates: tuple[float, ...] = ()
    """Input rows per second of the last ticks, the newest last."""
    sources: Mapping[str, SourceStatus] = field(default_factory=dict)
    """The streams that it reads, by name."""
    sinks: Mapping[str, SinkStatus] = field(default_factory=dict)


RunState = Literal["starting", "running", "stopping", "finished", "stopped", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStatus:
    """A whole run at one moment: the content of status.json."""

    pipeline: str
    mode: str
    state: RunState
    pid: int
    host: str
    started: str
    updated: str
    """Both ISO 8601 in UTC."""
    file: str | None = None
    """The file of the pipeline."""
    bootstrap: str | None = None
    cluster_id: str | None = None
    """None until the broker has told it."""
    message: str | None = None
    """Why it failed or stops, and at its end what the user should know: one line each."""
    note: str | None = None
    """Why it makes no progress now."""
    queries: tuple[QueryStatus, ...] = ()

    @property
    def is_over(self) -> bool:
        return self.state in ("finished", "stopped", "failed")

    def to_json(self) -> dict[str, Any]:
        """Return the status as JSON would give it back: with lists instead of tuples."""
        return asdict(self) | {"queries": [_query_to_json(query) for query in self.queries]}

    @staticmethod
    def from_json(content: Mapping[str, Any]) -> RunStatus:
        """Return the status; raise ValueError if a run of another version wrote it."""
        try:
            return RunStatus(**{**content, "queries": tuple(map(_query_from_json, content["queries"]))})
        except (TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"not a status of this version ({error})") from error


def _query_to_json(query: QueryStatus) -> dict[str, Any]:
    counted = {source: counted._asdict() for source, counted in query.bad_records.items()}
    return asdict(query) | {"rates": list(query.rates), "bad_records": counted}


def _query_from_json(content: Mapping[str, Any]) -> QueryStatus:
    counted = {source: Counted(**counted) for source, counted in content.get("bad_records", {}).items()}
    sources = {name: SourceStatus(**source) for name, source in content.get("sources", {}).items()}
    sinks = {name: SinkStatus(**sink) for name, sink in content.get("sinks", {}).items()}
    values = {"rates": tuple(content["rates"]), "bad_records": counted, "sources": sources, "sinks": sinks}
    return QueryStatus(**{**content, **values})


@dataclass(slots=True)
class LagClock:
    """Estimates the age of the first record that is not processed yet, without reading that record.

    Each sample holds the log end offsets at one time. The time at which a log end passed an offset is interpolated
    between two samples. The lag is the time since the log end passed the position of the query. The age of a backlog
    from before the first sample is unknown until the query has processed it.

    If there are more than SAMPLES_MAX samples, every other one is dropped: a long run keeps a long but coarse history.
    """

    samples: list[tuple[float, dict[TopicPartition, int]]] = field(default_factory=list)

    def add_sample(self, now_s: float, latest: Offsets) -> None:
        if self.samples and self.samples[-1][0] >= now_s:
            return
        self.samples.append((now_s, dict(latest)))
        if len(self.samples) > SAMPLES_MAX:
            self.samples = self.samples[-1::-2][::-1]

    def seconds(self, now_s: float, position: Offsets) -> float | None:
        """Return the lag of the partition that is furthest behind; None if that is unknown."""
        worst = 0.0
        for partition, offset in position.items():
            lag_s = self._partition_lag_s(now_s, partition, offset)
            if lag_s is None:
                return None
            worst = max(worst, lag_s)
        return worst

    def _partition_lag_s(self, now_s: float, partition: TopicPartition, offset: int) -> float | None:
        later: tuple[float, int] | None = None
        for at_s, latest in reversed(self.samples):
            end = latest.get(partition)
            if end is None:
                break
            if end <= offset:
                return 0.0 if later is None else now_s - _time_passed((at_s, end), later, offset)
            later = at_s, end
        return None if later else 0.0


def _time_passed(before: tuple[float, int], after: tuple[float, int], offset: int) -> float:
    """Return when the log end passed the offset, by linear interpolation between two samples."""
    (from_s, from_offset), (to_s, to_offset) = before, after
    return from_s + (to_s - from_s) * (offset - from_offset) / (to_offset - from_offset)


@dataclass(slots=True)
class Gauge:
    """Builds the status of one query from Spark's reports."""

    status: QueryStatus
    position: dict[TopicPartition, int] = field(default_factory=dict)
    ends: Ends = field(default_factory=Ends)
    clock: LagClock = field(default_factory=LagClock)
    meter_in: Meter = field(default_factory=Meter)
    meter_out: Meter = field(default_factory=Meter)
    last_report: tuple[Any, ...] | None = None

    def add_reports(self, reports: Sequence[Mapping[str, Any]], now_s: float) -> None:
        """Add those of the reports that are new, oldest first. Each call adds one value to `rates`."""
        new = self._select_new(reports)
        batches_s = sum(_batch_ms(report) or 0 for report in new) / 1000
        if new:
            for report in new:
                self._add_report(report)
            self.meter_in.count(sum(int(report.get("numInputRows") or 0) for report in new), batches_s, now_s)
            self.meter_out.count(sum(_rows_out(report) or 0 for report in new), batches_s, now_s)
        rate = self.meter_in.rate(now_s)
        rate_out = None if self.status.rows_out is None else self.meter_out.rate(now_s)
        self.ends.add_reports(new, batches_s, now_s)
        self.ends.set_written(self.status.rows_out, rate_out)
        self.status = replace(
            self.status,
            rows_in_per_second=rate,
            rows_out_per_second=rate_out,
            rates=(*self.status.rates, rate)[-RATES_MAX:],
        )
        self._show_ends()

    def add_tallies(self, tallies: Mapping[str, Tally], now_s: float) -> None:
        """Set what tasks noted about the backends among the sinks."""
        if tallies:
            self.ends.set_tallies(tallies, now_s)
            self._show_ends()

    def compare(self, ends: LogEnds | None, now_s: float, slots: Mapping[str, SlotLag] = MappingProxyType({})) -> None:
        """Set the position and the lag. The lag is not known if the log end of one of the partitions is not."""
        self.status = replace(
            self.status, position=to_json(self.position), lag_records=behind(self.position, ends), lag_seconds=None
        )
        if ends is not None and self.status.lag_records is not None:
            self.clock.add_sample(ends.at_s, {partition: ends.offsets[partition] for partition in self.position})
            self.status = replace(self.status, lag_seconds=self.clock.seconds(now_s, self.position))
        self.ends.set_lag_of_topics(
            self.position, lambda own: behind(own, ends), lambda own: self.clock.seconds(now_s, own)
        )
        self.ends.set_lag_of_slots(slots)
        self._show_ends()

    def set_state(self, state: QueryState, **changes: Any) -> None:
        """Set the state and other fields of the status. A query that does not run has no rate."""
        if state != "running":
            changes = {"rows_in_per_second": 0.0, "rows_out_per_second": None, **changes}
            self.ends.end_rates()
        self.status = replace(self.status, state=state, **changes)
        self._show_ends()

    def set_waiting(self, waiting: str | None) -> None:
        self.status = replace(self.status, waiting=waiting)

    def _show_ends(self) -> None:
        self.status = replace(self.status, sources=dict(self.ends.sources), sinks=dict(self.ends.sinks))

    def _select_new(self, reports: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
        """Return the reports after the last one added. An idle query reports its next batch again and again, with other
        timestamps."""
        keys = [(report.get("runId"), report["batchId"], report.get("timestamp")) for report in reports]
        new = reports[keys.index(self.last_report) + 1 :] if self.last_report in keys else reports
        if keys:
            self.last_report = keys[-1]
        return new

    def _add_report(self, report: Mapping[str, Any]) -> None:
        self.position = _position(report.get("sources") or ()) or self.position
        old, out, states = self.status, _rows_out(report), report.get("stateOperators") or ()
        self.status = replace(
            old,
            state="running",
            rows_in=old.rows_in + int(report.get("numInputRows") or 0),
            rows_out=old.rows_out if out is None else (old.rows_out or 0) + out,
            bad_records=_sum(old.bad_records, _bad_records(report)),
            batch_id=int(report["batchId"]) if _has_run(report) else old.batch_id,
            batch_ms=_batch_ms(report) if _has_run(report) else old.batch_ms,
            batches=old.batches + _has_run(report),
            phases_ms=_add_phases(old.phases_ms, report) if _has_run(report) else old.phases_ms,
            rows_late=old.rows_late + sum(int(state.get("numRowsDroppedByWatermark") or 0) for state in states),
            state_rows=sum(int(state.get("numRowsTotal", 0)) for state in states) if states else old.state_rows,
            state_bytes=sum(int(state.get("memoryUsedBytes", 0)) for state in states) if states else old.state_bytes,
            watermark=(report.get("eventTime") or {}).get("watermark", old.watermark),
        )


def _has_run(report: Mapping[str, Any]) -> bool:
    """Return whether the batch has run. A query without new data reports too, with the id of its next batch."""
    return "addBatch" in (report.get("durationMs") or {})


def _batch_ms(report: Mapping[str, Any]) -> int | None:
    durations = report.get("durationMs") or {}
    batch_ms = durations.get(WHOLE_BATCH, report.get("batchDuration"))
    return None if batch_ms is None else int(batch_ms)


def _add_phases(before: Mapping[str, int], report: Mapping[str, Any]) -> Mapping[str, int]:
    phases = {name: int(ms) for name, ms in (report.get("durationMs") or {}).items() if name != WHOLE_BATCH}
    return {name: before.get(name, 0) + phases.get(name, 0) for name in sorted(before.keys() | phases.keys())}


def _rows_out(report: Mapping[str, Any]) -> int | None:
    """Return the rows written; None if nobody counts them: then Spark reports -1."""
    rows = (report.get("sink") or {}).get("numOutputRows")
    written = (report.get("observedMetrics") or {}).get(WRITTEN)
    if written is not None and (rows is None or int(rows) < 0):
        rows = written["rows"] or 0
    return None if rows is None or int(rows) < 0 else int(rows)


def _bad_records(report: Mapping[str, Any]) -> dict[str, Counted]:
    """Return the counts of parsed records by source. Their metric is called "<source>.parsed"."""
    observed = report.get("observedMetrics") or {}
    return {
        name.removesuffix(PARSED): Counted(int(counted["records"] or 0), int(counted["bad"] or 0))
        for name, counted in observed.items()
        if name.endswith(PARSED)
    }


def _sum(before: Mapping[str, Counted], more: Mapping[str, Counted]) -> Mapping[str, Counted]:
    none = Counted(0, 0)
    return {source: before.get(source, none).plus(more.get(source, none)) for source in before.keys() | more.keys()}


def _position(sources: Sequence[Mapping[str, Any]]) -> dict[TopicPartition, int]:
    """Return the position of the query over all its sources; of a partition that is read twice, the lower offset."""
    position: dict[TopicPartition, int] = {}
    for source in sources:
        for partition, offset in offsets_or_empty(source.get("endOffset")).items():
            position[partition] = min(offset, position.get(partition, offset))
    return position


def behind(position: Offsets, ends: LogEnds | None) -> int | None:
    """Return how many records are left; None if the log end of some partition is unknown."""
    if ends is None or not position or not position.keys() <= ends.offsets.keys():
        return None
    return sum(max(0, ends.offsets[partition] - offset) for partition, offset in position.items())
