"""The sources and sinks of a query: which numbers of Spark's reports are theirs, and how they are shown."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from test_query_progress import ONE, T0, TWO, report
from test_run_display import COUNTS, STATUS, drawn

from moldau.backends.progress_files import Tally
from moldau.base.ids import TopicPartition
from moldau.pipelines.running import display
from moldau.pipelines.running.ends import Ends, SinkStatus, SlotLag, SourceStatus
from moldau.pipelines.running.progress import Gauge, LogEnds, QueryStatus, RunStatus

CLICKS = TopicPartition("clicks", 0)
LSN = {"slot": "moldau_shop_customers_1", "lsn": "0/15"}


def gauge(*sinks: str) -> Gauge:
    """Of a query that reads two topics and the changes of a database."""
    reads = {"orders": lambda topic: topic == "t", "clicks": "clicks".__eq__, "customers": lambda topic: False}
    return Gauge(QueryStatus(name="q"), ends=Ends(reads, sink_names=sinks))


def entry(rows: int, end: Any) -> dict[str, Any]:
    return {"numInputRows": rows, "endOffset": json.dumps(end)}


def read(rows: int, last_change_ms: int | None = None) -> dict[str, Any]:
    return {"customers.read": {"rows": rows, "last_change_ms": last_change_ms}}


def test_rows_are_those_of_the_source_that_read_them() -> None:
    one = gauge()
    sources = [entry(30, {"t": {"0": 30, "1": 4}}), entry(5, {"clicks": {"0": 5}}), entry(7, LSN)]
    one.add_reports([report(0, 0, rows=42, ms=1000, sources=sources, observedMetrics=read(7, 1_000))], T0 + 1)
    one.add_reports(
        [report(1, 1, rows=3, ms=1000, sources=[entry(0, {"t": {"0": 30}})], observedMetrics=read(3))], T0 + 2
    )
    rows = {name: (source.rows, source.rows_per_second) for name, source in one.status.sources.items()}
    assert rows == {"orders": (30, 0.0), "clicks": (5, 0.0), "customers": (10, 3.0)}
    assert one.status.sources["customers"].last_change_ms == 1_000, "an earlier one than in the batch before"
    one.set_state("stopped")
    assert [source.rows_per_second for source in one.status.sources.values()] == [0.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("files", "read_by"),
    [
        ({"users": "/data/users"}, "users"),
        ({"users": "/data/users", "shops": "/data/shops*.csv"}, "shops"),
        ({"users": "/data/users", "shops": "/elsewhere"}, None),
        ({}, None),
    ],
)
def test_rows_of_files_are_those_of_their_path(files: dict[str, str], read_by: str | None) -> None:
    one = Gauge(QueryStatus(name="q"), ends=Ends({name: lambda topic: False for name in files}, files))
    source = entry(4, {"logOffset": 0}) | {"description": "FileStreamSource[file:/data/shops*.csv]"}
    one.add_reports([report(0, 0, rows=4, sources=[source])], T0 + 1)
    # A path that Spark writes in another way belongs to the only source of files.
    assert {name: source.rows for name, source in one.status.sources.items() if source.rows} == (
        {read_by: 4} if read_by else {}
    )


def test_metrics_of_the_users_own_are_not_those_of_a_source() -> None:
    one = gauge()
    one.add_reports([report(0, 0, rows=1, observedMetrics={"books.read": {"pages": 3}})], T0 + 1)
    assert set(one.status.sources) == {"orders", "clicks", "customers"}


def test_each_source_has_its_own_lag() -> None:
    one = gauge()
    sources = [entry(1, {"t": {"0": 10, "1": 5}}), entry(1, {"clicks": {"0": 5}}), entry(7, LSN)]
    one.add_reports([report(0, 0, rows=9, sources=sources)], T0 + 1)
    slots = {"moldau_shop_customers_1": SlotLag("customers", 4096), "moldau_shop_customers_2": SlotLag("customers", 1)}
    one.compare(LogEnds(T0 + 1, {ONE: 12, TWO: 9, CLICKS: 5}), T0 + 1, slots)
    orders, clicks, customers = one.status.sources.values()
    assert (orders.lag_records, clicks.lag_records, one.status.lag_records) == (6, 0, 6)
    assert clicks.lag_seconds == 0.0
    assert (customers.lag_records, customers.lag_bytes) == (None, 4096), "the other slot is that of another query"
    one.compare(LogEnds(T0 + 2, {ONE: 12, TWO: 9}), T0 + 2)
    assert one.status.sources["orders"].lag_records == 6
    assert one.status.sources["clicks"].lag_records is None, "its log end is not known"
    customers = one.status.sources["customers"]
    assert (customers.lag_bytes, customers.slot) == (None, "moldau_shop_customers_1"), "its database does not answer"


def test_every_sink_of_a_shared_query_gets_its_rows_and_a_backend_counts_itself() -> None:
    one = gauge("lake", "hook")
    written = {"moldau.written": {"rows": 100}}
    one.add_reports([report(0, 0, rows=100, ms=1000, observedMetrics=written)], T0 + 1)
    assert one.status.rows_out == 100, "Spark does not count what is written as a whole"
    tally = Tally(delivered=60, retries=3, dead_letters=1, last_error="503", last_error_at="2026-11-15T11:00:00Z")
    one.add_tallies({"hook": tally}, T0 + 1)
    one.add_tallies({"hook": replace(tally, delivered=80)}, T0 + 3)
    assert one.status.sinks == {
        "lake": SinkStatus(rows=100, rows_per_second=100.0),
        "hook": SinkStatus(rows=80, rows_per_second=10.0, retries=3, dead_letters=1, last_error="503"),
    }
    one.add_reports([report(1, 9, rows=0, observedMetrics={"moldau.written": {"rows": None}})], T0 + 10)
    assert one.status.sinks["hook"].rows == 80


SEEN = replace(
    COUNTS,
    bad_records={},
    sources={
        "orders": SourceStatus(rows=2_000_000, rows_per_second=12345.0, lag_records=1500, lag_seconds=2.25),
        "customers": SourceStatus(rows=7, lag_bytes=5 << 20, last_change_ms=1_794_740_405_000 - 130_000, slot="s"),
    },
    sinks={
        "hook": SinkStatus(rows=90, rows_per_second=3.0, retries=4, dead_letters=1, last_error="503: overloaded"),
        "lake": SinkStatus(rows=100, rows_per_second=9.0),
    },
)


def test_sources_and_sinks_are_shown_below_the_queries() -> None:
    status = replace(STATUS, queries=(SEEN,))
    lines = display.plain_table(status)
    assert [line.split() for line in lines[3:5]] == [
        ["SOURCE", "QUERY", "ROWS/S", "ROWS", "BAD", "LAG", "LAG", "S", "LAST", "CHANGE"],
        ["orders", "counts", "12.3k", "2,000,000", "-", "1,500", "2.2", "-"],
    ]
    assert lines[5].endswith("5 MiB of the log      -    2 min ago")
    assert [line.split() for line in lines[7:]] == [
        ["SINK", "ROWS/S", "ROWS", "RETRIES", "DEAD", "LETTERS", "LAST", "ERROR"],
        ["hook", "3", "90", "4", "1", "503:", "overloaded"],
        ["lake", "9", "100", "-", "-", "-"],
    ]
    for shown in (drawn(display.table(status, 200)), drawn(display.summary(replace(status, state="stopped")))):
        assert "5 MiB of the log" in shown
        assert "503: overloaded" in shown
    narrow = drawn(display.table(status, 60), 60).splitlines()
    assert all(len(line) <= 60 for line in narrow)


def test_the_error_of_a_sink_without_a_backend_is_that_of_its_query() -> None:
    status = replace(STATUS, queries=(replace(SEEN, last_error="no broker answers"),))
    assert [row[-1] for row in display.sink_rows(status)] == ["503: overloaded", "no broker answers"]


@pytest.mark.parametrize(
    ("seconds", "text"), [(-5, "0 s ago"), (3, "3 s ago"), (119, "119 s ago"), (120, "2 min ago"), (7_200, "2 h ago"),
                          (400_000, "4 d ago")],
)  # fmt: skip
def test_ages_are_short(seconds: int, text: str) -> None:
    at_ms = 1_794_740_405_000 - seconds * 1000
    old = replace(SEEN, sources={"customers": SourceStatus(last_change_ms=at_ms)})
    (row,) = display.source_rows(replace(STATUS, queries=(old,)))
    assert row[-1] == text


def test_a_status_is_the_same_after_it_was_a_file() -> None:
    status = replace(STATUS, queries=(SEEN,))
    assert RunStatus.from_json(json.loads(json.dumps(status.to_json()))) == replace(status, queries=(SEEN,))
