"""The loop that keeps the queries of a run going, tested with scripted queries: restarts, ends, stops, messages."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from harness.patience import PATIENCE_S

from moldau.base.ids import TopicPartition
from moldau.pipelines.running import run as running
from moldau.pipelines.running.bad_records import BadRecords, Rule
from moldau.pipelines.running.progress import Gauge, LogEnds, Offsets, QueryStatus, RunStatus
from moldau.pipelines.running.run import Job, Run
from moldau.pipelines.running.silence import Silence
from moldau.pipelines.running.state_directory import StateDirectory
from moldau.pipelines.running.stop_request import Stop


class ScriptedQuery:
    """A query that the test controls: it runs until it is stopped."""

    def __init__(self, error: Exception | None = None, active: bool = True, writing: bool = False) -> None:
        self.error, self.active, self.writing = error, active, writing
        self.message = "Processing new data" if writing else "Waiting"
        self.stopped = threading.Event()
        self.reports: list[dict[str, Any]] = []

    def batch(self, number: int, rows: int = 10) -> ScriptedQuery:
        offsets = {"endOffset": {"t": {"0": number}}, "latestOffset": {"t": {"0": number}}}
        stamp = f"2026-11-15T11:00:{number:02}.000Z"
        took = {"triggerExecution": 5, "addBatch": 5}
        self.reports.append(
            {"batchId": number, "timestamp": stamp, "numInputRows": rows, "sources": [offsets], "durationMs": took}
        )
        return self

    @property
    def isActive(self) -> bool:
        return self.active

    @property
    def status(self) -> Mapping[str, Any]:
        return {"isTriggerActive": self.writing, "message": self.message}

    @property
    def lastProgress(self) -> Mapping[str, Any] | None:
        return self.reports[-1] if self.reports else None

    @property
    def recentProgress(self) -> Sequence[Mapping[str, Any]]:
        return list(self.reports)

    def exception(self) -> Exception | None:
        return self.error

    def stop(self) -> None:
        self.active = False
        self.stopped.set()


class RecordingDisplay(Silence):
    """A display that records what it gets, and calls `on_show` for each status."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.shown: list[RunStatus] = []
        self.on_show: Callable[[RunStatus], None] = lambda status: None

    def show(self, status: RunStatus) -> None:
        self.shown.append(status)
        self.on_show(status)

    def say(self, text: str) -> None:
        self.lines.append(text)


@pytest.fixture(autouse=True)
def short_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "LOOK_EVERY_S", 0.005)
    monkeypatch.setattr(running, "STATUS_EVERY_S", 0.005)
    monkeypatch.setattr(running, "STOP_LOOK_EVERY_S", 0.005)
    monkeypatch.setattr("moldau.pipelines.running.restarting.FIRST_PAUSE_S", 0.01)


@pytest.fixture
def directory(tmp_path: Path) -> StateDirectory:
    return StateDirectory(tmp_path)


@pytest.fixture
def display() -> RecordingDisplay:
    return RecordingDisplay()


def make_run(
    directory: StateDirectory, display: RecordingDisplay, stop: Stop | None = None, **queries: list[ScriptedQuery]
) -> Run:
    """Each job takes its scripts one after the other, as often as it is started."""

    def starter(scripts: list[ScriptedQuery]) -> Callable[[], ScriptedQuery]:
        return lambda: scripts.pop(0)

    status = RunStatus(pipeline="p", mode="continuous", state="starting", pid=1, host="h", started="a", updated="b")
    jobs = [Job(name, starter(scripts)) for name, scripts in queries.items()]
    return Run(jobs, directory, display, stop or Stop(), status, lambda: 0.5)


def ended(*batches: int, error: Exception | None = None) -> ScriptedQuery:
    script = ScriptedQuery(error, active=False)
    for number in batches:
        script.batch(number)
    return script


def test_finished_queries_end_the_run(directory: StateDirectory, display: RecordingDisplay) -> None:
    status = make_run(directory, display, one=[ended(0, 1, 2)], two=[ended()]).to_the_end()
    assert status.state == "finished"
    assert [(query.name, query.state, query.rows_in) for query in status.queries] == [
        ("one", "finished", 30),
        ("two", "finished", 0),
    ]
    content = directory.read_status()
    assert content is not None
    assert RunStatus.from_json(content) == status


def test_no_password_is_in_messages_and_files(directory: StateDirectory, display: RecordingDisplay) -> None:
    error = ValueError("SASL_AUTHENTICATION_FAILED with pl4nted")
    run = make_run(directory, display, one=[ended(error=error)])
    run.masked = lambda text: text.replace("pl4nted", "***")
    run.debug = True
    status = run.to_the_end()
    assert status.state == "failed"
    assert "SASL_AUTHENTICATION_FAILED with ***" in str(status.message)
    written = "".join(path.read_text() for path in directory.path.iterdir() if path.is_file())
    assert "with ***" in written
    assert "pl4nted" not in f"{status} {vars(display)} {written}"


def test_queries_that_a_run_leaves_out_are_shown_with_their_lag(
    directory: StateDirectory, display: RecordingDisplay
) -> None:
    class Ends(running.NoBroker):
        cluster_id = "the-cluster"

        def exchange(self, positions: Mapping[str, Offsets]) -> LogEnds | None:
            assert positions["two"] == {TopicPartition("t", 0): 3}
            return LogEnds(0.0, {TopicPartition("t", 0): 10})

        last_exchange = exchange

    run = make_run(directory, display, one=[ended(0, 9)])
    run.broker = Ends()
    run.left_out = [Gauge(QueryStatus(name="two", state="not running"), {TopicPartition("t", 0): 3})]
    status = run.to_the_end()
    assert status.cluster_id == "the-cluster"
    assert status.state == "finished", "a query that is left out does not keep the run from finishing"
    assert [(query.name, query.state, query.lag_records) for query in status.queries] == [
        ("one", "finished", 1),
        ("two", "not running", 7),
    ]


def test_only_a_few_queries_start_at_the_same_time(directory: StateDirectory, display: RecordingDisplay) -> None:
    scripts = [ScriptedQuery() for _ in range(5)]
    for script in scripts:
        script.message = "Initializing sources"
    waiting = {str(index): [script] for index, script in enumerate(scripts)}
    most, stop = 0, Stop()

    def on_show(_: RunStatus) -> None:
        nonlocal most
        started = [script for script, still in zip(scripts, waiting.values(), strict=True) if not still]
        starting = [script for script in started if script.message.startswith("Initializing")]
        most = max(most, len(starting))
        if len(starting) == running.STARTING_MAX or (starting and len(started) == len(scripts)):
            starting[0].message = "Waiting for data to arrive"
        if len(started) == len(scripts) and not starting:
            stop.request("all have started")

    display.on_show = on_show
    make_run(directory, display, stop, **waiting).to_the_end()
    assert most == running.STARTING_MAX


def test_a_query_with_a_retriable_failure_is_restarted(directory: StateDirectory, display: RecordingDisplay) -> None:
    away = ConnectionError("No broker answers: 127.0.0.1:9092: Connection refused")
    status = make_run(directory, display, one=[ended(0, error=away), ended(error=away), ended(1)]).to_the_end()
    (query,) = status.queries
    assert (status.state, query.state, query.restarts, query.rows_in) == ("finished", "finished", 2, 20)
    assert query.last_error is not None
    assert "No broker answers" in query.last_error
    assert len(display.lines) == 2
    assert display.lines[0].startswith("one: ConnectionError: No broker answers")
    assert "starting it again in" in display.lines[0]


@pytest.mark.parametrize(
    ("error", "replans"),
    [(RuntimeError("Task not serializable"), 1), (ConnectionError("No broker answers"), 0), (None, 0)],
)
def test_a_query_that_failed_for_an_unknown_reason_is_replanned(
    directory: StateDirectory, display: RecordingDisplay, error: Exception | None, replans: int
) -> None:
    run = make_run(directory, display, one=[ended(0, error=error), ended(1)])
    replanned: list[str] = []
    run.jobs = [Job(job.name, job.start, discard_plan=partial(replanned.append, job.name)) for job in run.jobs]
    assert run.to_the_end().state == "finished"
    assert replanned == ["one"] * replans


@pytest.mark.parametrize(("rows", "state"), [(None, "stopped"), (7, "finished")])
def test_a_batch_write_that_ended_before_it_could_be_cancelled_has_finished(
    directory: StateDirectory, display: RecordingDisplay, rows: int | None, state: str
) -> None:
    class Write(ScriptedQuery):
        def stop(self) -> None:
            super().stop()
            if rows is not None:
                self.batch(0, rows)

    stop = Stop()

    def on_show(status: RunStatus) -> None:
        if status.queries[0].state == "running":
            stop.request("stopped")
            stop.request("stopped at once")

    display.on_show = on_show
    run = make_run(directory, display, stop, one=[Write(writing=True)])
    run.status = replace(run.status, mode="batch")
    status = run.to_the_end()
    assert [query.state for query in status.queries] == [state]
    assert status.state == state


def test_a_query_has_started_once_it_submitted_a_job(
    directory: StateDirectory, display: RecordingDisplay, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = ScriptedQuery(writing=True), ScriptedQuery()
    stop, has_submitted = Stop(), False
    waiting = {"first": [first], "second": [second]}

    def on_show(status: RunStatus) -> None:
        nonlocal has_submitted
        if not has_submitted and len(display.shown) > 5:
            assert [query.state for query in status.queries] == ["starting", "starting"]
            assert waiting["second"], "only one is started"
            has_submitted = True
        if not waiting["second"]:
            stop.request("both have started")

    display.on_show = on_show
    run = make_run(directory, display, stop, **waiting)
    run.jobs = [Job(job.name, job.start, lambda query: has_submitted) for job in run.jobs]
    monkeypatch.setattr(running, "LAST_BATCH_S", 0.1)
    assert run.to_the_end().state == "stopped"


def test_a_query_that_only_gets_offsets_has_started(directory: StateDirectory, display: RecordingDisplay) -> None:
    first, second, stop = ScriptedQuery(), ScriptedQuery(), Stop()
    first.message = "Getting offsets from a topic"
    stop_when(
        display,
        lambda status: all(query.state == "running" for query in status.queries),
        lambda: _request_stop_once(stop),
    )
    assert make_run(directory, display, stop, first=[first], second=[second]).to_the_end().state == "stopped"


def test_slowness_is_reported_once_if_spark_gives_up_on_a_worker(
    directory: StateDirectory, display: RecordingDisplay
) -> None:
    late = RuntimeError("org.apache.spark.SparkException: Python worker failed to connect back.")
    status = make_run(directory, display, one=[ended(error=late), ended(error=late), ended(0)]).to_the_end()
    assert status.state == "finished"
    assert display.lines.count(running.SLOW) == 1


def test_more_bad_records_than_fail_above_fail_the_run(directory: StateDirectory, display: RecordingDisplay) -> None:
    script = ScriptedQuery().batch(0)
    script.reports[0]["observedMetrics"] = {"orders.parsed": {"records": 1000, "bad": 400}}
    run = make_run(directory, display, one=[script])
    run.bad_records = BadRecords([Rule("orders", "they are left out", fail_above=10.0)], set())
    status = run.to_the_end()
    warning = "source orders: 400 of 1,000 records read by one in this run (40 %) are bad"
    assert (status.state, status.message) == ("failed", f"{warning}, more than fail_above: 10%; they are left out")
    assert display.lines == [f"{warning}; they are left out"]
    assert script.stopped.is_set()


def test_a_finished_run_reports_that_all_its_records_were_bad(
    directory: StateDirectory, display: RecordingDisplay
) -> None:
    script = ended(0)
    script.reports[0]["observedMetrics"] = {"orders.parsed": {"records": 6, "bad": 6}}
    run = make_run(directory, display, one=[script])
    run.bad_records = BadRecords([Rule("orders", "they are left out")], set())
    status = run.to_the_end()
    warning = "source orders: 6 of 6 records read by one in this run (100 %) are bad; they are left out"
    assert (status.state, status.message, display.lines) == ("finished", warning, [])


def test_a_run_that_fails_at_its_end_keeps_its_other_messages(
    directory: StateDirectory, display: RecordingDisplay
) -> None:
    script = ended(0)
    script.reports[0] |= {
        "observedMetrics": {"orders.parsed": {"records": 6, "bad": 6}},
        "stateOperators": [{"numRowsDroppedByWatermark": 50}],
    }
    run = make_run(directory, display, windows=[script])
    run.bad_records = BadRecords([Rule("orders", "they are left out", fail_above=10.0)], set())
    status = run.to_the_end()
    assert status.state == "failed"
    assert str(status.message).splitlines() == [
        "source orders: 6 of 6 records read by windows in this run (100 %) are bad, more than fail_above: 10%;"
        " they are left out",
        "rows that came later than the watermark allows were left out: windows at least 50",
    ]


def test_late_rows_are_reported_at_the_end(directory: StateDirectory, display: RecordingDisplay) -> None:
    script = ended(0, 1)
    for report in script.reports:
        report["stateOperators"] = [{"numRowsDroppedByWatermark": 50}, {"numRowsDroppedByWatermark": 3}]
    status = make_run(directory, display, windows=[script]).to_the_end()
    assert status.message == "rows that came later than the watermark allows were left out: windows at least 106"


def test_every_failure_is_written_to_a_file_in_full(directory: StateDirectory, display: RecordingDisplay) -> None:
    error = RuntimeError("[STREAM_FAILED] terminated with exception: Task not serializable\n\tat org.apache.spark")
    make_run(directory, display, one=[ended(0, error=error), ended(1)]).to_the_end()
    assert "== " in (text := directory.failures.read_text())
    assert "Task not serializable\n\tat org.apache.spark" in text


def test_a_lasting_failure_ends_the_run_and_stops_the_others(
    directory: StateDirectory, display: RecordingDisplay
) -> None:
    other = ScriptedQuery()
    lost = RuntimeError("DataLoss: t-0: offsets 3 to 8 are gone")
    status = make_run(directory, display, other=[other], one=[ended(error=lost)]).to_the_end()
    assert status.state == "failed"
    assert status.message is not None
    assert status.message.startswith("one: ")
    assert "offsets 3 to 8 are gone" in status.message
    assert [query.state for query in status.queries] == ["stopped", "failed"]
    assert other.stopped.is_set()


def test_an_unknown_failure_of_the_same_batch_ends_the_run(
    directory: StateDirectory, display: RecordingDisplay
) -> None:
    scripts = [ended(3, error=RuntimeError("odd")) for _ in range(9)]
    status = make_run(directory, display, one=scripts).to_the_end()
    assert status.state == "failed"
    assert len(scripts) == 6


def test_a_query_that_cannot_be_started_fails_like_one_that_ends(
    directory: StateDirectory, display: RecordingDisplay
) -> None:
    def start() -> ScriptedQuery:
        raise ValueError("[UNRESOLVED_COLUMN] no column x")

    run = make_run(directory, display)
    run.jobs = [Job("one", start)]
    status = run.to_the_end()
    assert status.state == "failed"
    assert status.message is not None
    assert "no column x" in status.message


def stop_when(display: RecordingDisplay, condition: Callable[[RunStatus], bool], act: Callable[[], None]) -> None:
    def look(status: RunStatus) -> None:
        if condition(status):
            act()

    display.on_show = look


def test_the_stop_file_ends_the_run(directory: StateDirectory, display: RecordingDisplay) -> None:
    query = ScriptedQuery().batch(0)
    stop_when(display, lambda status: bool(status.queries) and status.queries[0].rows_in == 10, directory.request_stop)
    status = make_run(directory, display, one=[query]).to_the_end()
    assert status.state == "stopped"
    assert status.message == "stopped by `moldau pipeline stop`"
    assert query.stopped.is_set()


def test_a_stop_lets_the_running_batch_finish(directory: StateDirectory, display: RecordingDisplay) -> None:
    stop, query = Stop(), ScriptedQuery(writing=True).batch(0)
    looks = 0

    def look(status: RunStatus) -> None:
        nonlocal looks
        if status.state == "running" and status.queries and status.queries[0].rows_in:
            stop.request("Ctrl-C")
        if status.state == "stopping":
            looks += 1
            assert looks > 5 or not query.stopped.is_set()
            assert looks > 5 or status.message == "waiting for one to finish its batch; Ctrl-C again does not wait"
            if looks == 5:
                query.batch(1)

    display.on_show = look
    status = make_run(directory, display, stop, one=[query]).to_the_end()
    assert looks >= 5
    assert (status.state, status.message, status.queries[0].rows_in) == ("stopped", "Ctrl-C", 20)


def end_during_stop(display: RecordingDisplay, stop: Stop, query: ScriptedQuery, error: Exception | None) -> None:
    """Request a stop while the query writes; then let it end by itself."""

    def look(status: RunStatus) -> None:
        if status.state == "running" and status.queries and status.queries[0].rows_in:
            _request_stop_once(stop)
        if status.state == "stopping" and query.active:
            query.active, query.error = False, error

    display.on_show = look


def test_a_batch_that_fails_during_a_stop_fails_the_run(directory: StateDirectory, display: RecordingDisplay) -> None:
    stop, query = Stop(), ScriptedQuery(writing=True).batch(0)
    end_during_stop(display, stop, query, RuntimeError("the sink is full"))
    status = make_run(directory, display, stop, one=[query]).to_the_end()
    assert (status.state, status.message) == ("failed", "one: RuntimeError: the sink is full")
    assert [(each.state, each.last_error) for each in status.queries] == [("failed", "RuntimeError: the sink is full")]
    assert "the sink is full" in directory.failures.read_text()


@pytest.mark.parametrize(
    ("mode", "state"), [("batch", "finished"), ("until caught up", "finished"), ("continuous", "stopped")]
)
def test_the_state_of_a_query_that_ends_by_itself_during_a_stop(
    directory: StateDirectory, display: RecordingDisplay, mode: str, state: str
) -> None:
    stop, query = Stop(), ScriptedQuery(writing=True).batch(0)
    end_during_stop(display, stop, query, None)
    run = make_run(directory, display, stop, one=[query])
    run.status = replace(run.status, mode=mode)
    status = run.to_the_end()
    assert (status.state, status.queries[0].state, status.message) == (state, state, "SIGTERM")


class QueryWithoutJvm(ScriptedQuery):
    """A query whose JVM has died once `lost` is set."""

    lost = False

    @property
    def isActive(self) -> bool:
        if self.lost:
            raise ConnectionError("the JVM is gone")
        return super().isActive

    @property
    def lastProgress(self) -> Mapping[str, Any] | None:
        if self.lost:
            raise ConnectionError("the JVM is gone")
        return super().lastProgress


def test_a_run_whose_jvm_died_ends_as_failed(directory: StateDirectory, display: RecordingDisplay) -> None:
    queries = [QueryWithoutJvm().batch(0), QueryWithoutJvm().batch(0)]

    def look(status: RunStatus) -> None:
        if status.queries and all(query.rows_in for query in status.queries):
            for query in queries:
                query.lost = True

    display.on_show = look
    run = make_run(directory, display, one=[queries[0]], two=[queries[1]])
    with pytest.raises(ConnectionError, match="the JVM is gone"):
        run.to_the_end()
    content = directory.read_status()
    assert content is not None
    status = RunStatus.from_json(content)
    assert (status.state, [query.state for query in status.queries]) == ("failed", ["failed", "failed"])
    assert status.message is not None
    assert "two does not stop: ConnectionError: the JVM is gone" in status.message


def test_a_second_stop_request_does_not_wait(
    directory: StateDirectory, display: RecordingDisplay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "LAST_BATCH_S", 3600.0)
    stop, query = Stop(), ScriptedQuery(writing=True).batch(0)

    def look(status: RunStatus) -> None:
        if not stop.at_once and status.queries and status.queries[0].rows_in:
            stop.request("Ctrl-C")

    display.on_show = look
    run = make_run(directory, display, stop, one=[query])
    done = threading.Thread(target=run.to_the_end, daemon=True)
    done.start()
    done.join(PATIENCE_S)
    assert not done.is_alive()
    assert run.status.state == "stopped"


def test_a_stop_waits_no_longer_than_its_limit(
    directory: StateDirectory, display: RecordingDisplay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "LAST_BATCH_S", 0.1)
    stop = Stop()
    run = make_run(directory, display, stop, one=[ScriptedQuery(writing=True).batch(0)])
    stop_when(
        display, lambda status: bool(status.queries) and status.queries[0].rows_in > 0, lambda: _request_stop_once(stop)
    )
    done = threading.Thread(target=run.to_the_end)
    done.start()
    done.join(PATIENCE_S)
    assert not done.is_alive()
    assert run.status.state == "stopped"
    assert not stop.at_once


def test_a_stop_waits_for_a_batch_that_makes_progress(
    directory: StateDirectory, display: RecordingDisplay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "LAST_BATCH_S", 2.0)
    stop, query = Stop(), ScriptedQuery(writing=True).batch(0)
    beats: list[float] = []

    def pulse() -> int:
        beats.append(time.monotonic())
        if len(query.reports) == 1 and beats[-1] - beats[0] > 2 * running.LAST_BATCH_S:
            query.batch(1)
        return len(beats)

    stop_when(
        display, lambda status: bool(status.queries) and status.queries[0].rows_in > 0, lambda: _request_stop_once(stop)
    )
    run = make_run(directory, display, stop, one=[query])
    run.pulse = pulse
    assert run.to_the_end().queries[0].rows_in == 20


def _request_stop_once(stop: Stop) -> None:
    if stop.reason is None:
        stop.request("SIGTERM")


def test_a_stop_ends_the_pause_before_a_restart(directory: StateDirectory, display: RecordingDisplay) -> None:
    stop = Stop()
    stop_when(
        display,
        lambda status: bool(status.queries) and status.queries[0].state == "restarting",
        lambda: _request_stop_once(stop),
    )
    run = make_run(directory, display, stop, one=[ended(error=ConnectionError("away"))])
    run.chance = lambda: 1e6
    status = run.to_the_end()
    assert (status.state, status.queries[0].state) == ("stopped", "stopped")


def test_a_query_that_did_not_start_because_of_a_stop_is_stopped(
    directory: StateDirectory, display: RecordingDisplay
) -> None:
    stop = Stop()
    stop.request("SIGTERM")
    status = make_run(directory, display, stop, one=[ended()]).to_the_end()
    assert (status.state, status.queries[0].state) == ("stopped", "stopped")


def test_a_status_that_cannot_be_written_is_reported_once(tmp_path: Path, display: RecordingDisplay) -> None:
    (tmp_path / "file").write_text("")
    blocked = StateDirectory(tmp_path / "file" / "state")
    assert make_run(blocked, display, one=[ended(0)]).to_the_end().state == "finished"
    assert len(display.lines) == 1
    assert "status" in display.lines[0]


def test_a_batch_run_reports_its_dead_letters(directory: StateDirectory, display: RecordingDisplay) -> None:
    script = ended(0)
    script.reports[0]["sink"] = {"numOutputRows": 1452}
    run = make_run(directory, display, **{"rides.dead-letters": [script], "out": [ended(0)]})
    run.status = replace(run.status, mode="batch")
    assert run.to_the_end().message == "source rides: 1,452 records are bad; they are the rows of rides.dead-letters"


def test_a_query_that_waits_for_a_backend_says_so_and_does_not_hold_up_a_stop(
    directory: StateDirectory, display: RecordingDisplay
) -> None:
    stop, writing = Stop(), ScriptedQuery(writing=True)
    run = make_run(directory, display, stop, mails=[writing])
    reasons: list[str | None] = [None]
    run.jobs = [replace(job, waiting=lambda: reasons[0]) for job in run.jobs]
    run.masked = lambda text: text.replace("pl4nted", "***")
    seen: list[str | None] = []

    def on_show(status: RunStatus) -> None:
        waiting = status.queries[0].waiting
        if not seen or seen[-1] != waiting:
            seen.append(waiting)
        if seen == [None]:
            reasons[0] = "away since 08:00: pl4nted"
        elif len(seen) == 2:
            reasons[0] = None
        elif len(seen) == 3:
            reasons[0] = "away again"
        else:
            stop.request("stopped by the test")

    display.on_show = on_show
    status = run.to_the_end()
    assert status.state == "stopped"
    assert writing.stopped.is_set()
    assert seen[:4] == [None, "away since 08:00: ***", None, "away again"]
    assert display.lines[:3] == [
        "mails: away since 08:00: ***",
        "mails: the backend takes rows again",
        "mails: away again",
    ]
