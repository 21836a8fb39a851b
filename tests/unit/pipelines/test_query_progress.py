"""The status of a query, computed from Spark's progress reports: rates, lag in records and in seconds, and totals in
which nothing is counted twice."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.base.ids import TopicPartition
from moldau.pipelines.running.progress import (
    SAMPLES_MAX,
    Gauge,
    LagClock,
    LogEnds,
    QueryStatus,
    RunStatus,
)
from moldau.spark.offsets import offsets_or_empty

T0 = 1_800_000_000.0
ONE = TopicPartition("t", 0)
TWO = TopicPartition("t", 1)


def report(
    batch: int = 0, at_s: float = 0.0, rows: int = 0, end: Any = None, latest: Any = None, ms: int = 500, **more: Any
) -> dict[str, Any]:
    """Return the progress report of a query over one source, as pyspark gives it: offsets are JSON inside JSON."""
    stamp = datetime.fromtimestamp(T0 + at_s, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    source = {"endOffset": json.dumps(end), "latestOffset": json.dumps(latest or end)}
    return {
        "runId": "r", "batchId": batch, "timestamp": stamp, "numInputRows": rows, "sources": [source],
        "durationMs": {"triggerExecution": ms, "addBatch": ms}, "sink": {"numOutputRows": -1}, "stateOperators": [],
        "eventTime": {},
    } | more  # fmt: skip


def gauge() -> Gauge:
    return Gauge(QueryStatus(name="q"))


def test_a_report_becomes_a_status() -> None:
    one = gauge()
    state = [{"numRowsTotal": 7, "memoryUsedBytes": 100}, {"numRowsTotal": 3, "memoryUsedBytes": 50}]
    batch_report = report(
        batch=4, rows=1000, end={"t": {"0": 10, "1": 5}}, latest={"t": {"0": 12, "1": 9}}, stateOperators=state,
        sink={"numOutputRows": 200}, eventTime={"watermark": "2026-11-15T11:00:00.000Z"},
    )  # fmt: skip
    one.add_reports([batch_report], T0 + 0.5)
    one.compare(LogEnds(T0 + 1, {ONE: 12, TWO: 9}), T0 + 1)
    status = one.status
    assert status.position == {"t": {"0": 10, "1": 5}}
    assert (status.state, status.batch_id, status.batch_ms) == ("running", 4, 500)
    assert (status.rows_in, status.rows_out, status.lag_records) == (1000, 200, 6)
    assert (status.rows_in_per_second, status.rows_out_per_second) == (2000.0, 400.0)
    assert (status.state_rows, status.state_bytes) == (10, 150)
    assert status.watermark == "2026-11-15T11:00:00.000Z"


def test_a_report_seen_again_is_not_counted_again() -> None:
    one = gauge()
    first, second = report(0, 0, rows=10), report(1, 1, rows=20)
    one.add_reports([first], T0 + 1)
    one.add_reports([first], T0 + 2)
    assert one.status.rows_in == 10
    one.add_reports([first, second], T0 + 3)
    one.add_reports([second], T0 + 4)
    assert one.status.rows_in == 30
    assert one.status.rows_out is None


def test_batches_between_two_polls_are_counted() -> None:
    one = gauge()
    reports = [report(number, number / 10, rows=5) for number in range(20)]
    one.add_reports(reports[:3], T0 + 1)
    one.add_reports(reports, T0 + 2)
    assert one.status.rows_in == 100
    assert one.status.batch_id == 19


def test_a_report_of_a_batch_that_did_not_run_keeps_the_last_batch() -> None:
    one = gauge()
    one.add_reports([report(3, 0, rows=5, ms=400, stateOperators=[{"numRowsTotal": 7}])], T0)
    one.add_reports([report(4, 10, durationMs={"latestOffset": 2, "triggerExecution": 2})], T0 + 10)
    assert (one.status.batch_id, one.status.batch_ms, one.status.state_rows) == (3, 400, 7)
    assert one.status.rows_in_per_second == 0


def test_a_restarted_query_continues_its_counts() -> None:
    one = gauge()
    one.add_reports([report(0, 0, rows=10)], T0)
    one.add_reports([report(1, 9, rows=10, runId="s")], T0 + 10)
    assert one.status.rows_in == 20


def test_the_rate_is_averaged_over_the_time_since_the_last_report() -> None:
    one = gauge()
    one.add_reports([report(0, 0, rows=100, ms=1000)], T0 + 1)
    one.add_reports([report(1, 1, rows=300, ms=500)], T0 + 3)
    assert one.status.rows_in_per_second == 150.0


def test_the_rate_falls_while_no_new_report_arrives() -> None:
    one = gauge()
    batch_report = report(0, 0, rows=1000, ms=1000)
    one.add_reports([batch_report], T0 + 1)
    rates = []
    for second in range(1, 6):
        one.add_reports([batch_report], T0 + 1 + second)
        rates.append(one.status.rows_in_per_second)
    assert rates == [1000.0, 500.0, pytest.approx(1000 / 3), 250.0, 200.0]
    assert one.status.rates == (1000.0, *rates)


def test_a_source_that_is_not_a_topic_has_no_lag() -> None:
    one = gauge()
    one.add_reports([report(0, rows=3, end={"logOffset": 4})], T0)
    one.compare(LogEnds(T0, {}), T0)
    assert (one.status.lag_records, one.status.lag_seconds) == (None, None)


def test_the_lag_of_a_topic_read_twice_is_the_larger_one() -> None:
    one = gauge()
    sources = [{"endOffset": {"t": {"0": 10}}}, {"endOffset": '{"t": {"0": 15}}'}]
    one.add_reports([report(0, sources=sources)], T0)
    one.compare(LogEnds(T0, {ONE: 21}), T0)
    assert one.status.lag_records == 11


def test_lag_grows_while_nothing_is_reported() -> None:
    one = gauge()
    one.add_reports([report(0, rows=3, end={"t": {"0": 3}}, latest={"t": {"0": 3}})], T0)
    for second, end in enumerate((3, 3, 1003)):
        one.compare(LogEnds(T0 + second, {ONE: end}), T0 + second)
    assert (one.status.lag_records, one.status.lag_seconds) == (1000, 1.0)


@pytest.mark.parametrize("ends", [None, LogEnds(T0 + 1, {}), LogEnds(T0 + 1, {ONE: 9})])
def test_lag_is_unknown_unless_all_log_ends_are_known(ends: LogEnds | None) -> None:
    one = gauge()
    one.add_reports([report(0, rows=3, end={"t": {"0": 3, "1": 4}})], T0)
    one.compare(LogEnds(T0, {ONE: 3, TWO: 4}), T0)
    assert one.status.lag_records == 0
    one.compare(ends, T0 + 1)
    assert (one.status.lag_records, one.status.lag_seconds) == (None, None)


def test_before_the_first_report_lag_is_counted_from_the_checkpoint() -> None:
    one = Gauge(QueryStatus(name="q"), {ONE: 5})
    one.compare(LogEnds(T0, {ONE: 40_000}), T0)
    assert one.status.lag_records == 39_995


@pytest.mark.parametrize("content", [None, "", "null", "12", "{", '{"a": 1}', {"a": {"b": 1}}, {"a": {"0": "x"}}, []])
def test_content_without_offsets_gives_no_offsets(content: Any) -> None:
    assert offsets_or_empty(content) == {}


def test_a_query_that_caught_up_has_no_lag() -> None:
    clock = LagClock()
    clock.add_sample(T0, {ONE: 10})
    assert clock.seconds(T0 + 100, {ONE: 10}) == 0.0


def test_the_age_of_a_backlog_older_than_all_samples_is_unknown() -> None:
    clock = LagClock()
    clock.add_sample(T0, {ONE: 10})
    assert clock.seconds(T0 + 1, {ONE: 3}) is None


def test_lag_is_that_of_the_partition_furthest_behind() -> None:
    clock = LagClock()
    for second in range(11):
        clock.add_sample(T0 + second, {ONE: second * 10, TWO: second})
    assert clock.seconds(T0 + 10, {ONE: 85, TWO: 4}) == pytest.approx(6.0)


def test_the_lag_of_a_partition_that_was_added_later() -> None:
    clock = LagClock()
    clock.add_sample(T0, {ONE: 10})
    clock.add_sample(T0 + 1, {ONE: 10, TWO: 4})
    assert clock.seconds(T0 + 1, {ONE: 10, TWO: 4}) == 0.0
    assert clock.seconds(T0 + 1, {ONE: 10, TWO: 2}) is None


steps = st.lists(
    st.tuples(st.floats(0.1, 30), st.integers(0, 1000)), min_size=2, max_size=40
)  # seconds and records from report to report


@given(steps, st.data())
def test_lag_is_the_time_since_the_end_passed_the_position(moves: list[tuple[float, int]], data: st.DataObject) -> None:
    """Compared with the definition: the last moment at which an evenly moving end was not beyond the position."""
    clock, path = LagClock(), [(T0, 0)]
    clock.add_sample(T0, {ONE: 0})
    for seconds, records in moves:
        at, end = path[-1][0] + seconds, path[-1][1] + records
        path.append((at, end))
        clock.add_sample(at, {ONE: end})
    position = data.draw(st.integers(0, path[-1][1]))
    now_s = path[-1][0] + 1
    lag_s = clock.seconds(now_s, {ONE: position})
    if position == path[-1][1]:
        assert lag_s == 0.0
        return
    before = max(index for index, (_, end) in enumerate(path) if end <= position)
    (from_s, low), (to_s, high) = path[before], path[before + 1]
    assert lag_s == pytest.approx(now_s - (from_s + (to_s - from_s) * (position - low) / (high - low)))


@given(st.integers(1, 1000), st.floats(0.5, 300), st.integers(2 * SAMPLES_MAX, 5 * SAMPLES_MAX))
def test_lag_is_right_although_old_samples_are_thinned_out(per_second: int, behind_s: float, seconds: int) -> None:
    clock = LagClock()
    for second in range(seconds + 1):
        clock.add_sample(T0 + second, {ONE: second * per_second})
    assert len(clock.samples) <= SAMPLES_MAX
    behind_s = min(behind_s, seconds / 2)
    position = int((seconds - behind_s) * per_second)
    lag_s = clock.seconds(T0 + seconds, {ONE: position})
    assert lag_s == pytest.approx(seconds - position / per_second, abs=1e-6)


def test_a_status_is_unchanged_after_a_json_round_trip() -> None:
    one = gauge()
    one.add_reports([report(0, 0, rows=100)], T0 + 1)
    run = RunStatus(
        pipeline="p",
        mode="continuous",
        state="running",
        pid=1,
        host="h",
        started="a",
        updated="b",
        queries=(one.status,),
    )
    assert RunStatus.from_json(json.loads(json.dumps(run.to_json()))) == run
    with pytest.raises(ValueError, match="not a status of this version"):
        RunStatus.from_json({"pipeline": "p", "queries": []})
