"""What Spark tells about a streaming query, turned into what a person wants to know: rates, lag, state, watermark.

In: Spark's StreamingQueryProgress as a mapping, in the order the batches ran, and where the broker says that the logs
end. Out: a frozen QueryStatus. Time comes from outside; no Spark and no drawing in here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, Literal, NamedTuple

from moldau.base.ids import TopicPartition
from moldau.pipelines.queries import PARSED
from moldau.spark.offsets import offsets_in, to_json

QueryState = Literal["starting", "running", "waiting", "failed", "finished", "stopped", "not running"]
"""`waiting`: failed, and due to be started again after a pause. `not running`: left out of this run (--sink)."""

RATES_MAX: Final = 30
SAMPLES_MAX: Final = 256

Offsets = Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class LogEnds:
    """Where the logs of a broker ended at a moment."""

    at_s: float
    offsets: Offsets


class Counted(NamedTuple):
    records: int
    bad: int

    def plus(self, other: Counted) -> Counted:
        return Counted(self.records + other.records, self.bad + other.bad)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryStatus:
    """One query at one moment. None means not known (yet), or that the query has no such thing."""

    name: str
    state: QueryState = "starting"
    rows_in_per_second: float = 0.0
    rows_out_per_second: float | None = None
    rows_in: int = 0
    """Since the run began; rows of a batch that was tried again count once."""
    rows_out: int | None = None
    bad_records: Mapping[str, Counted] = field(default_factory=dict)
    """By source: how many records this query parsed, and how many of them were bad."""
    position: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """By topic and partition: up to where records are processed and committed."""
    lag_records: int | None = None
    """From there to the ends of the logs, as the broker tells them now."""
    lag_seconds: float | None = None
    batch_id: int | None = None
    batch_ms: int | None = None
    rows_late: int = 0
    """Behind the watermark, and left out by windows, joins and deduplication. Spark counts them after it has put rows
    together that come to the same window, so there may be more."""
    state_rows: int | None = None
    state_bytes: int | None = None
    watermark: str | None = None
    restarts: int = 0
    last_error: str | None = None
    rates: tuple[float, ...] = ()
    """Rows per second in of the last ticks, the newest last."""


RunState = Literal["starting", "running", "stopping", "finished", "stopped", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStatus:
    """A whole run at one moment: what status.json holds."""

    pipeline: str
    mode: str
    state: RunState
    pid: int
    host: str
    started: str
    updated: str
    """Both ISO 8601 in UTC."""
    file: str | None = None
    """The pipeline's."""
    bootstrap: str | None = None
    message: str | None = None
    """Why it failed, or why it stops."""
    note: str | None = None
    """What holds it up now."""
    queries: tuple[QueryStatus, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Lists for tuples, as reading it back would give."""
        return asdict(self) | {"queries": [_query_to_json(query) for query in self.queries]}

    @staticmethod
    def from_json(told: Mapping[str, Any]) -> RunStatus:
        """ValueError if a run of another version wrote it."""
        try:
            return RunStatus(**{**told, "queries": tuple(map(_query_from_json, told["queries"]))})
        except (TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"not a status of this version ({error})") from error


def _query_to_json(query: QueryStatus) -> dict[str, Any]:
    counted = {source: counted._asdict() for source, counted in query.bad_records.items()}
    return asdict(query) | {"rates": list(query.rates), "bad_records": counted}


def _query_from_json(told: Mapping[str, Any]) -> QueryStatus:
    counted = {source: Counted(**counted) for source, counted in told.get("bad_records", {}).items()}
    return QueryStatus(**{**told, "rates": tuple(told["rates"]), "bad_records": counted})


@dataclass(slots=True)
class LagClock:
    """How old the first record is that has not been processed yet, without asking the log for it.

    The broker tells again and again where the logs end. So it is known, within the distance of two answers, when the
    end of a log passed any offset seen since: between two answers it is taken to have moved evenly. The position of the
    query is such an offset, and the lag is the time since the log's end passed it. A backlog that was there before the
    first answer has no known age until the query has worked through it.

    Of more than SAMPLES_MAX answers every other one is dropped, so a long run keeps a long but coarse memory.
    """

    samples: list[tuple[float, dict[TopicPartition, int]]] = field(default_factory=list)

    def add_sample(self, now_s: float, latest: Offsets) -> None:
        if self.samples and self.samples[-1][0] >= now_s:
            return
        self.samples.append((now_s, dict(latest)))
        if len(self.samples) > SAMPLES_MAX:
            self.samples = self.samples[-1::-2][::-1]

    def seconds(self, now_s: float, position: Offsets) -> float | None:
        """The lag of the partition that is furthest behind; None if that cannot be told."""
        worst = 0.0
        for partition, offset in position.items():
            behind = self._behind(now_s, partition, offset)
            if behind is None:
                return None
            worst = max(worst, behind)
        return worst

    def _behind(self, now_s: float, partition: TopicPartition, offset: int) -> float | None:
        later: tuple[float, int] | None = None
        for at, latest in reversed(self.samples):
            end = latest.get(partition)
            if end is None:
                break
            if end <= offset:
                return 0.0 if later is None else now_s - _passed((at, end), later, offset)
            later = at, end
        return None if later else 0.0


def _passed(before: tuple[float, int], after: tuple[float, int], offset: int) -> float:
    """When the end of the log, moving evenly from one answer to the next, was at the offset."""
    (from_s, from_offset), (to_s, to_offset) = before, after
    return from_s + (to_s - from_s) * (offset - from_offset) / (to_offset - from_offset)


@dataclass(slots=True)
class Meter:
    """Rows per second as they went by: those of the last reports over the time since the ones before.

    While no report comes the rate sinks, but a batch may take as long as the last one before it does.
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
class Gauge:
    """Watches one query: takes each report of Spark in, knows the status at any time."""

    status: QueryStatus
    position: dict[TopicPartition, int] = field(default_factory=dict)
    clock: LagClock = field(default_factory=LagClock)
    meter_in: Meter = field(default_factory=Meter)
    meter_out: Meter = field(default_factory=Meter)
    last_report: tuple[Any, ...] | None = None

    def add_reports(self, reports: Sequence[Mapping[str, Any]], now_s: float) -> None:
        """Takes in the reports that are new among these, oldest first; one call is one tick of `rates`."""
        fresh = self._select_new(reports)
        if fresh:
            for report in fresh:
                self._add_report(report)
            batches_s = sum(_batch_ms(report) or 0 for report in fresh) / 1000
            self.meter_in.count(sum(int(report.get("numInputRows") or 0) for report in fresh), batches_s, now_s)
            self.meter_out.count(sum(_rows_out(report) or 0 for report in fresh), batches_s, now_s)
        rate = self.meter_in.rate(now_s)
        self.status = replace(
            self.status,
            rows_in_per_second=rate,
            rows_out_per_second=None if self.status.rows_out is None else self.meter_out.rate(now_s),
            rates=(*self.status.rates, rate)[-RATES_MAX:],
        )

    def compare(self, ends: LogEnds | None, now_s: float) -> None:
        """The lag, by where the logs end; not known where the broker does not say it of every partition."""
        self.status = replace(
            self.status, position=to_json(self.position), lag_records=behind(self.position, ends), lag_seconds=None
        )
        if ends is not None and self.status.lag_records is not None:
            self.clock.add_sample(ends.at_s, {where: ends.offsets[where] for where in self.position})
            self.status = replace(self.status, lag_seconds=self.clock.seconds(now_s, self.position))

    def set_state(self, state: QueryState, **changes: Any) -> None:
        """Another state, and whatever else changed with it. A query that does not run has no rate."""
        if state != "running":
            changes = {"rows_in_per_second": 0.0, "rows_out_per_second": None, **changes}
        self.status = replace(self.status, state=state, **changes)

    def _select_new(self, reports: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
        """Those after the last one taken. An idle query reports the batch to come again and again, at other times."""
        keys = [(report.get("runId"), report["batchId"], report.get("timestamp")) for report in reports]
        fresh = reports[keys.index(self.last_report) + 1 :] if self.last_report in keys else reports
        if keys:
            self.last_report = keys[-1]
        return fresh

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
            rows_late=old.rows_late + sum(int(state.get("numRowsDroppedByWatermark") or 0) for state in states),
            state_rows=sum(int(state.get("numRowsTotal", 0)) for state in states) if states else old.state_rows,
            state_bytes=sum(int(state.get("memoryUsedBytes", 0)) for state in states) if states else old.state_bytes,
            watermark=(report.get("eventTime") or {}).get("watermark", old.watermark),
        )


def _has_run(report: Mapping[str, Any]) -> bool:
    """A query without news reports too, and names the batch that is yet to come."""
    return "addBatch" in (report.get("durationMs") or {})


def _batch_ms(report: Mapping[str, Any]) -> int | None:
    durations = report.get("durationMs") or {}
    found = durations.get("triggerExecution", report.get("batchDuration"))
    return None if found is None else int(found)


def _rows_out(report: Mapping[str, Any]) -> int | None:
    """Spark says -1 of a sink that does not count."""
    found = (report.get("sink") or {}).get("numOutputRows")
    return None if found is None or int(found) < 0 else int(found)


def _bad_records(report: Mapping[str, Any]) -> dict[str, Counted]:
    """Queries count what they parse under the name "<source>.parsed"."""
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
    """Where the query is, over all its sources; a topic read twice counts where it is behind."""
    position: dict[TopicPartition, int] = {}
    for source in sources:
        for partition, offset in offsets_in(source.get("endOffset")).items():
            position[partition] = min(offset, position.get(partition, offset))
    return position


def behind(position: Offsets, ends: LogEnds | None) -> int | None:
    """How many records are left; None if that is not known of every partition."""
    if ends is None or not position or not position.keys() <= ends.offsets.keys():
        return None
    return sum(max(0, ends.offsets[where] - offset) for where, offset in position.items())
