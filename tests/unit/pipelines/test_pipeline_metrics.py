"""The metrics of a run: every number of its status that Prometheus can draw, in a format that Prometheus reads."""

from __future__ import annotations

import socket
import urllib.request
from dataclasses import replace

import click
import pytest
from harness.patience import PATIENCE_S
from prometheus_client.parser import text_string_to_metric_families
from test_query_progress import T0, gauge, report
from test_run_loop import RecordingDisplay

from moldau.cli.connect import CommandFailed
from moldau.cli.pipeline.metrics import ServedDisplay
from moldau.pipelines.running.ends import SinkStatus, SourceStatus
from moldau.pipelines.running.metrics import STATES, collect
from moldau.pipelines.running.progress import Counted, QueryStatus, RunStatus

BUSY = QueryStatus(
    name='daily "sums"',
    state="running",
    rows_in=1000,
    rows_out=200,
    rows_late=3,
    batches=4,
    batch_ms=1500,
    phases_ms={"addBatch": 5000, "walCommit": 250},
    bad_records={"orders": Counted(1000, 7)},
    lag_records=12,
    lag_seconds=0.5,
    state_rows=10,
    state_bytes=150,
    watermark="2026-11-15T11:00:00.000Z",
    restarts=1,
    sources={
        "orders": SourceStatus(rows=1000, lag_records=12, lag_seconds=0.5),
        "customers": SourceStatus(rows=5, lag_bytes=4096, last_change_ms=1_794_740_400_000, slot="s"),
    },
    sinks={
        "hook": SinkStatus(rows=190, retries=6, dead_letters=2, last_error="503"),
        "lake": SinkStatus(rows=200),
        "other": SinkStatus(),
    },
)
NEW = QueryStatus(name="new", watermark="1970-01-01T00:00:00.000Z")


def run_status(*queries: QueryStatus) -> RunStatus:
    return RunStatus(
        pipeline="shop", mode="continuous", state="running", pid=1, host="h", started="", updated="", queries=queries
    )


def samples(*queries: QueryStatus) -> dict[tuple[str, str, str], float]:
    """Return the values by metric, query and the label that is left."""
    text = "".join(collect(run_status(*queries)))
    found: dict[tuple[str, str, str], float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            rest = {key: value for key, value in sample.labels.items() if key not in ("pipeline", "query", "mode")}
            assert sample.labels["pipeline"] == "shop"
            key = sample.name.removeprefix("moldau_pipeline_"), sample.labels.get("query", ""), "".join(rest.values())
            assert key not in found, "twice"
            found[key] = sample.value
    return found


def test_a_watermark_beyond_pythons_years_has_no_series() -> None:
    """A record whose microseconds were taken for milliseconds is in the year 11476."""
    names = {name for name, *_ in samples(replace(BUSY, watermark="+11476-08-14T05:20:00.000Z"))}
    assert "rows_in_total" in names
    assert "watermark_timestamp_seconds" not in names


def test_every_known_number_of_a_query_is_a_series() -> None:
    found = samples(BUSY)
    states = {key: found.pop(key) for key in list(found) if key[0] == "query_state"}
    assert {key[2] for key in states} == set(STATES)
    assert [key[2] for key, value in states.items() if value] == ["running"]
    name = BUSY.name
    assert found == {
        ("running", "", ""): 1,
        ("rows_in_total", name, ""): 1000,
        ("rows_out_total", name, ""): 200,
        ("rows_late_total", name, ""): 3,
        ("batches_total", name, ""): 4,
        ("last_batch_seconds", name, ""): 1.5,
        ("restarts_total", name, ""): 1,
        ("lag_records", name, ""): 12,
        ("lag_seconds", name, ""): 0.5,
        ("state_rows", name, ""): 10,
        ("state_bytes", name, ""): 150,
        ("watermark_timestamp_seconds", name, ""): 1_794_740_400,
        ("batch_phase_seconds_total", name, "addBatch"): 5,
        ("batch_phase_seconds_total", name, "walCommit"): 0.25,
        ("query_waiting", name, ""): 0,
        ("source_rows_total", name, "orders"): 1000,
        ("source_lag_records", name, "orders"): 12,
        ("source_lag_seconds", name, "orders"): 0.5,
        ("source_rows_total", name, "customers"): 5,
        ("source_lag_bytes", name, "customers"): 4096,
        ("source_last_change_timestamp_seconds", name, "customers"): 1_794_740_400,
        ("sink_rows_total", name, "hook"): 190,
        ("sink_retries_total", name, "hook"): 6,
        ("sink_dead_letters_total", name, "hook"): 2,
        ("sink_rows_total", name, "lake"): 200,
        ("parsed_records_total", name, "orders"): 1000,
        ("bad_records_total", name, "orders"): 7,
    }


def test_an_unknown_number_has_no_series() -> None:
    names = {metric for metric, query, _ in samples(BUSY, NEW) if query == "new"}
    assert names == {
        "query_state", "query_waiting", "rows_in_total", "rows_late_total", "batches_total", "restarts_total",
    }  # fmt: skip


def test_phases_are_summed_over_the_batches_that_ran() -> None:
    one = gauge()
    phases = {"triggerExecution": 600, "addBatch": 400, "walCommit": 100}
    one.add_reports([report(batch=0, durationMs=phases), report(batch=1, durationMs=phases)], T0)
    one.add_reports([report(batch=2, at_s=1, durationMs={"triggerExecution": 5, "latestOffset": 5})], T0 + 1)
    assert (one.status.batches, one.status.phases_ms) == (2, {"addBatch": 800, "walCommit": 200})


def test_a_run_serves_its_last_status() -> None:
    display = RecordingDisplay()
    with ServedDisplay(display, "127.0.0.1:0") as served:
        url = display.lines[0].removeprefix("metrics: ")
        with urllib.request.urlopen(url) as empty:
            assert empty.read() == b""
        served.show(run_status(NEW))
        served.show(run_status(BUSY))
        with urllib.request.urlopen(url) as answer:
            assert answer.read().decode() == "".join(collect(run_status(BUSY)))
    assert display.shown == [run_status(NEW), run_status(BUSY)]


def test_a_run_that_ends_at_once_prints_its_metrics_address() -> None:
    for _ in range(20):
        display = RecordingDisplay()
        with ServedDisplay(display, ":0"):
            pass
        assert display.lines[0].startswith("metrics: http://127.0.0.1:")


def test_a_scrape_while_spark_starts_is_answered() -> None:
    served = ServedDisplay(RecordingDisplay(), "127.0.0.1:0")
    with urllib.request.urlopen(f"http://{served.address}/metrics", timeout=PATIENCE_S) as answer:
        assert answer.read() == b""
    with served:
        pass


def test_an_unusable_metrics_address_is_refused_before_spark_starts() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(CommandFailed, match="Address already in use"):
        ServedDisplay(RecordingDisplay(), f"127.0.0.1:{taken.getsockname()[1]}")
    with pytest.raises(click.BadParameter, match="expected HOST:PORT"):
        ServedDisplay(RecordingDisplay(), "somewhere")
