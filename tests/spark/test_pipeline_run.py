"""Runs of a pipeline on real Spark: until caught up, resumed, two at once, a broker restart, stopping, test cases."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner, Result
from committed_records import committed_records
from confluent_kafka import Producer
from harness.patience import SPARK_PATIENCE_S
from harness.restartable_broker import RestartableBroker
from spark_waits import wait_for_spark

from moldau.cli.main import main
from moldau.client.admin.group_values import CommittedOffsets
from moldau.client.admin.groups import Groups
from moldau.client.cluster import Cluster
from moldau.pipelines.cases.files import find_cases
from moldau.pipelines.problems import InvalidPipeline, PipelineError
from moldau.pipelines.reading.loading import load
from moldau.pipelines.running.display import Display
from moldau.pipelines.running.identity import WrongCheckpoint
from moldau.pipelines.running.progress import RunStatus
from moldau.pipelines.running.silence import Silence
from moldau.pipelines.running.state_directory import StateDirectory, default_directory
from moldau.pipelines.running.stop_request import Stop
from moldau.pipelines.running.topics import missing_topics
from moldau.pipelines.spec import Pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PIPELINE = """\
name: shop
bootstrap: @BOOTSTRAP@
sources:
  events:
    topic: @IN@
    schema: user string not null, amount int
    dead_letter: drop
steps:
  - name: purchases
    sql: select user, amount from events
  - name: counted
    sql: select user, count(*) as n, sum(amount) as total from events group by user
sinks:
  - name: plain
    from: purchases
    topic: @OUT@
    key: user
    partitions: 1
"""
COUNTS = """\
  - name: counts
    from: counted
    topic: @OUT@.counts
    mode: update
"""


@pytest.fixture
def write(tmp_path: Path, bootstrap: str, topic: Callable[[], str]) -> Callable[..., Pipeline]:
    """Writes a pipeline with new topics to a file and loads it. The topic that it reads exists."""

    def written(text: str = PIPELINE, address: str = bootstrap) -> Pipeline:
        names = {"@BOOTSTRAP@": address, "@IN@": topic(), "@OUT@": topic()}
        for placeholder, name in names.items():
            text = text.replace(placeholder, name)
        file = tmp_path / "pipeline.yaml"
        file.write_text(text)
        create(address, names["@IN@"])
        return load(file)

    return written


def create(bootstrap: str, name: str) -> None:
    cluster = Cluster(bootstrap, {})
    cluster.create_topic(name, 1)
    cluster.close()


def topics(pipeline: Pipeline) -> tuple[str, str]:
    text = pipeline.file.read_text()
    return re.findall(r"topic: (\S+)", text)[0], re.findall(r"topic: (\S+)", text)[1]


def produce(pipeline: Pipeline, *users: str) -> None:
    assert pipeline.bootstrap is not None
    producer = Producer({"bootstrap.servers": pipeline.bootstrap})
    for user in users:
        producer.produce(topics(pipeline)[0], json.dumps({"user": user, "amount": 1}).encode())
    assert producer.flush(SPARK_PATIENCE_S) == 0


def written(pipeline: Pipeline, name: str | None = None) -> list[dict[str, Any]]:
    """The records in the output topic."""
    assert pipeline.bootstrap is not None
    found = committed_records(pipeline.bootstrap, name or topics(pipeline)[1])
    return [json.loads(message.value() or b"") for message in found]


def run(
    pipeline: Pipeline,
    spark: SparkSession | None,
    stop: Stop | None = None,
    display: Display | None = None,
    **options: Any,
) -> RunStatus:
    from moldau.pipelines.planning.compiling import Mode
    from moldau.pipelines.running.launching import RunOptions, launch

    def session(on_phase: Callable[[str], None]) -> SparkSession:
        assert spark is not None, "Spark is not to be started for this"
        return spark

    directory = default_directory(pipeline.file, pipeline.name)
    run_options = RunOptions(**{"mode": Mode.UNTIL_CAUGHT_UP} | options)
    return launch(pipeline, directory, run_options, session, display or Silence(), stop or Stop())


def command(name: str, pipeline: Pipeline, *words: str) -> Result:
    """Run `moldau pipeline NAME` in this process."""
    return CliRunner().invoke(main, ["pipeline", name, str(pipeline.file), *words])


def positions(pipeline: Pipeline) -> dict[str, CommittedOffsets]:
    """The positions that the pipeline committed as consumer groups."""
    with closing(Cluster(pipeline.bootstrap or "", {})) as cluster:
        return Groups(cluster, 10_000).committed(["shop.plain", "shop.counts"])


def test_a_run_until_caught_up_is_resumed_by_the_next(spark: SparkSession, write: Callable[..., Pipeline]) -> None:
    pipeline = write(PIPELINE + COUNTS)
    produce(pipeline, "ann", "bob", "ann")
    status = run(pipeline, spark)
    assert status.state == "finished", status.message
    by_name = {query.name: query for query in status.queries}
    assert [(query.rows_in, query.lag_records) for query in by_name.values()] == [(3, 0), (3, 0)]
    assert by_name["counts"].state_rows == 2
    assert sorted(row["user"] for row in written(pipeline)) == ["ann", "ann", "bob"]

    produce(pipeline, "ann", "cid")
    assert run(pipeline, spark).state == "finished"
    assert sorted(row["user"] for row in written(pipeline)) == ["ann", "ann", "ann", "bob", "cid"]
    assert {group: sum(each.offset for each in of.values()) for group, of in positions(pipeline).items()} == {
        "shop.plain": 5,
        "shop.counts": 5,
    }
    last = {row["user"]: row["n"] for row in written(pipeline, f"{topics(pipeline)[1]}.counts")}
    assert last == {"ann": 3, "bob": 1, "cid": 1}

    changed = pipeline.file.read_text().replace("count(*) as n", "max(amount) as n")
    pipeline.file.write_text(changed)
    with pytest.raises(WrongCheckpoint, match="sink counts: its checkpoint holds state, and step counted changed"):
        run(load(pipeline.file), None)
    with pytest.raises(WrongCheckpoint, match="sink counts: "):
        run(load(pipeline.file), None, fresh=["plain"])
    assert {"plain", "counts"} == set(default_directory(pipeline.file, "shop").queries()), (
        "a refused run keeps the checkpoints"
    )
    another = replace(pipeline, name="another")
    directory = StateDirectory(default_directory(pipeline.file, "shop").path)
    from moldau.pipelines.cases.case import Mode
    from moldau.pipelines.running.launching import RunOptions, launch

    with pytest.raises(WrongCheckpoint, match="checkpoints of pipeline shop, not of another"):
        launch(another, directory, RunOptions(mode=Mode.UNTIL_CAUGHT_UP), lambda on_phase: spark, Silence(), Stop())


WINDOWS = """\
name: shop
bootstrap: @BOOTSTRAP@
spark: {spark.sql.streaming.noDataMicroBatches.enabled: "false"}
sources:
  events:
    topic: @IN@
    schema: ts timestamp not null
    watermark: {column: ts, delay: 1 second}
    dead_letter: drop
steps:
  - {name: minutes, sql: "select window.start as minute, count(*) as n from events group by window(ts, '1 minute')"}
sinks:
  - name: windows
    from: minutes
    topic: @OUT@
    partitions: 1
"""


def produce_times(pipeline: Pipeline, *times: str) -> None:
    assert pipeline.bootstrap is not None
    producer = Producer({"bootstrap.servers": pipeline.bootstrap})
    for time_of_day in times:
        producer.produce(topics(pipeline)[0], json.dumps({"ts": f"2026-01-01T{time_of_day}Z"}).encode())
    assert producer.flush(SPARK_PATIENCE_S) == 0


def test_closed_windows_are_written_after_a_restart(spark: SparkSession, write: Callable[..., Pipeline]) -> None:
    """The first run ends as if stopped after its batch: a setting keeps Spark from running the empty batch after it."""
    pipeline = write(WINDOWS)
    produce_times(pipeline, "08:00:00", "08:00:30", "08:01:00", "08:09:00")
    assert run(pipeline, spark).state == "finished"
    assert written(pipeline) == []
    again = replace(pipeline, spark={})
    status = run(again, spark)
    assert (status.state, status.queries[0].lag_records) == ("finished", 0)
    assert sorted(row["n"] for row in written(pipeline)) == [1, 2]
    assert run(again, spark).state == "finished"
    assert len(written(pipeline)) == 2


@pytest.mark.parametrize("fate", ["drop", "@OUT@.dead"])
def test_a_schema_that_fits_no_record_is_reported(
    spark: SparkSession, write: Callable[..., Pipeline], fate: str
) -> None:
    text = PIPELINE.replace("dead_letter: drop", f"dead_letter: {fate}")
    pipeline = write(text.replace("amount int", "amount int, nobody string not null"))
    produce(pipeline, "ann", "bob", "cid")
    status = run(pipeline, spark)
    assert status.state == "finished"
    query = status.queries[0].name
    assert f"source events: 3 of 3 records read by {query} in this run (100 %) are bad" in (status.message or "")
    strict = pipeline.file.read_text().replace("dead_letter: ", "fail_above: 50%\n    dead_letter: ")
    pipeline.file.write_text(strict)
    produce(pipeline, "dan")
    failed = run(load(pipeline.file), spark)
    assert failed.state == "failed"
    assert f"1 of 1 records read by {query} in this run (100 %) are bad, more than" in (failed.message or "")


class StopAfterABatch(Silence):
    def __init__(self, stop: Stop) -> None:
        self._stop = stop

    def show(self, status: RunStatus) -> None:
        if any(query.batch_id is not None for query in status.queries) and self._stop.reason is None:
            self._stop.request("enough")


def test_a_stopped_run_has_the_lag_of_the_broker(spark: SparkSession, write: Callable[..., Pipeline]) -> None:
    """Spark's own report does not count what a query limited by max_per_trigger has not asked for yet."""
    from moldau.pipelines.planning.compiling import Mode

    pipeline = write(PIPELINE.replace("dead_letter: drop", "dead_letter: drop\n    max_per_trigger: 5"))
    produce(pipeline, *"x" * 2000)  # of 400 batches, a fast machine makes some before the first look
    stop = Stop()
    status = run(pipeline, spark, stop, StopAfterABatch(stop), mode=Mode.CONTINUOUS)
    (query,) = status.queries
    assert query.lag_records == 2000 - query.rows_in > 0, status
    produce(pipeline, "y")
    seen = json.loads(command("status", pipeline, "--format", "json").stdout)
    assert seen["queries"][0]["lag_records"] == 2001 - query.rows_in


SHARED = """\
  - name: lake
    from: purchases
    with: plain
    table: ./lake
    format: delta
"""


def test_sinks_that_share_a_query_get_every_batch_once(
    spark: SparkSession, write: Callable[..., Pipeline], tmp_path: Path
) -> None:
    """Also where the second fails after the first has been written, and the batch is written again."""
    from deltalake import DeltaTable

    from moldau.pipelines.planning.compiling import Mode

    lake = tmp_path / "lake"
    lake.write_text("in the way")
    pipeline = write(PIPELINE + SHARED)
    produce(pipeline, "ann", "bob")
    failed = run(pipeline, spark)
    assert (failed.state, [query.name for query in failed.queries]) == ("failed", ["lake+plain"])
    assert failed.queries[0].restarts > 0
    lake.unlink()
    produce(pipeline, "cid")
    assert run(pipeline, spark).state == "finished"
    assert sorted(row["user"] for row in written(pipeline)) == ["ann", "bob", "cid"]
    assert sorted(DeltaTable(lake).to_pyarrow_table()["user"].to_pylist()) == ["ann", "bob", "cid"]
    apart = pipeline.file.read_text().replace("    with: plain\n", "")
    pipeline.file.write_text(apart)
    with pytest.raises(WrongCheckpoint, match=r"sink plain: it ran as a query of lake and plain before, .* of its own"):
        run(load(pipeline.file), None)
    status = run(load(pipeline.file), spark, mode=Mode.BATCH)
    assert [query.name for query in status.queries] == ["plain", "lake"]


BROKEN_ONCE = """\
from pathlib import Path

from pyspark.sql.functions import udf

PLANS = Path(__file__).with_suffix(".plans")


def broken(user):
    raise ValueError("planned badly")


def step(events):
    with PLANS.open("a") as file:
        file.write("x")
    is_first = PLANS.read_text() == "x"
    return events.where(udf(broken, "boolean", useArrow=False)("user")) if is_first else events
"""


def test_a_broken_plan_is_compiled_again(spark: SparkSession, write: Callable[..., Pipeline], tmp_path: Path) -> None:
    (tmp_path / "broken_once.py").write_text(BROKEN_ONCE)
    sql = "sql: select user, amount from events"
    pipeline = write(PIPELINE.replace(sql, "python: broken_once:step\n    inputs: [events]"))
    produce(pipeline, "ann")
    status = run(pipeline, spark)
    assert (status.state, status.queries[0].restarts) == ("finished", 1)
    assert written(pipeline) == [{"user": "ann", "amount": 1}]


def test_a_missing_topic_is_reported_before_spark_starts(write: Callable[..., Pipeline]) -> None:
    pipeline = write()
    assert missing_topics(pipeline) == []
    missing = pipeline.file.read_text().replace(topics(pipeline)[0], "no.such.topic")
    pipeline.file.write_text(missing)
    (warning,) = missing_topics(load(pipeline.file))
    assert str(warning).startswith(f"{pipeline.file}:5:12: warning: source 'events' reads topic 'no.such.topic', which")
    with pytest.raises(InvalidPipeline, match=r"pipeline.yaml:5:12: source 'events' reads topic 'no.such.topic'"):
        run(load(pipeline.file), None)
    status = default_directory(pipeline.file, "shop").read_status()
    assert status is not None
    assert status["state"] == "failed"


def test_a_batch_run_over_a_range_of_offsets(spark: SparkSession, write: Callable[..., Pipeline]) -> None:
    from moldau.pipelines.planning.compiling import Mode, Range

    pipeline = write()
    produce(pipeline, *"abcdef")
    over = Range(start={topics(pipeline)[0]: {0: 1}}, end={topics(pipeline)[0]: {0: 4}})
    display = RecordingDisplay()
    status = run(pipeline, spark, mode=Mode.BATCH, over=over, display=display)
    assert status.state == "finished", status.message
    assert [query.rows_out for query in status.queries] == [3]
    assert sorted(row["user"] for row in written(pipeline)) == ["b", "c", "d"]
    assert default_directory(pipeline.file, "shop").queries() == []
    out = topics(pipeline)[1]
    assert display.lines == [f"made topic {out}"]
    run(pipeline, spark, mode=Mode.BATCH, over=over, display=display)
    assert display.lines[1:] == [f"topic {out} already holds something: a batch adds to it"]
    assert len(written(pipeline)) == 6


class RecordingDisplay(Silence):
    """A display that records the lines of a run."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, text: str) -> None:
        self.lines.append(text)


def test_a_renamed_sink_asks_before_it_writes_everything_again(
    spark: SparkSession, write: Callable[..., Pipeline]
) -> None:
    pipeline = write()
    produce(pipeline, "ann", "bob")
    assert run(pipeline, spark).state == "finished"
    pipeline.file.write_text(pipeline.file.read_text().replace("name: plain", "name: simple"))
    renamed = load(pipeline.file)
    with pytest.raises(WrongCheckpoint, match=r"sink plain, no longer in the file, wrote to topic .*--fresh plain"):
        run(renamed, None)
    with pytest.raises(PipelineError, match="would hold everything twice"):
        run(renamed, None, fresh=["plain"])
    display = RecordingDisplay()
    assert run(renamed, spark, fresh=["plain"], decide=lambda found: "clear", display=display).state == "finished"
    assert display.lines == [f"emptied topic {topics(pipeline)[1]}"]
    assert sorted(row["user"] for row in written(renamed)) == ["ann", "bob"]


def test_a_run_loses_no_records_when_the_broker_is_restarted(
    spark: SparkSession, write: Callable[..., Pipeline], tmp_path: Path
) -> None:
    """The run is in a thread of this process."""
    from moldau.pipelines.planning.compiling import Mode

    broker = RestartableBroker(tmp_path / "data")
    ended: list[RunStatus] = []
    with broker.running() as bootstrap:
        pipeline = write(address=bootstrap)
        produce(pipeline, "before")
        display = RecordingDisplay()
        runner = threading.Thread(
            target=lambda: ended.append(run(pipeline, spark, display=display, mode=Mode.CONTINUOUS))
        )
        runner.start()
        wait_for_spark(lambda: rows_in(pipeline) == 1, "the record before the outage")
    wait_for_spark(lambda: any("does not answer" in line for line in display.lines), "the run reports the outage")
    with broker.running():
        produce(pipeline, "after", "later")
        wait_for_spark(lambda: rows_in(pipeline) == 3, "the records after the outage")
        stopped = command("stop", pipeline)
        assert stopped.stdout == "shop stopped\n", stopped.stderr
        runner.join(SPARK_PATIENCE_S)
        assert {row["user"] for row in written(pipeline)} == {"before", "after", "later"}
    (status,) = ended
    assert (status.state, status.message) == ("stopped", "stopped by `moldau pipeline stop`")


def rows_in(pipeline: Pipeline) -> int:
    status = default_directory(pipeline.file, "shop").read_status()
    return sum(query["rows_in"] for query in status["queries"]) if status else 0


def test_moldau_pipeline_run_from_start_to_ctrl_c(write: Callable[..., Pipeline]) -> None:
    pipeline = write()
    produce(pipeline, "ann")
    quick = ["--conf", "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"]
    running = [sys.executable, "-m", "moldau", "pipeline", "run", str(pipeline.file), "--master", "local[2]", *quick]
    environment = os.environ | {"MOLDAU_BOOTSTRAP": str(pipeline.bootstrap)}
    # A session of its own, so that Ctrl-C can be sent as a terminal does: to the JVM and its workers too.
    with subprocess.Popen(
        running, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True
    ) as process:
        try:
            wait_for_spark(lambda: rows_in(pipeline) == 1 or process.poll() is not None, "the first record")
            second = command("run", pipeline)
            assert second.exit_code == 1
            assert f"shop is being run already by process {process.pid} on" in second.stderr
            seen = json.loads(command("status", pipeline, "--format", "json").stdout)
            assert (seen["state"], seen["pid"]) == ("running", process.pid)
            os.killpg(process.pid, signal.SIGINT)
            out, err = process.communicate(timeout=SPARK_PATIENCE_S)
        finally:
            process.kill()
    lines = [re.sub(r"^\d\d:\d\d:\d\d (.*?)(?: …)?$", r"\1", line) for line in err.splitlines()]
    phases = ["looking at the topics", "starting Java", "starting Spark", "compiling 1 query"]
    assert (process.returncode, lines) == (0, [*phases, f"made topic {topics(pipeline)[1]}", "stopped by Ctrl-C"])
    assert re.search(r"^plain +stopped +1 +1 ", out, re.MULTILINE), out
    assert [row["user"] for row in written(pipeline)] == ["ann"]


def test_a_test_case_passes_or_shows_the_difference(spark: SparkSession, tmp_path: Path) -> None:
    from moldau.pipelines.cases.case import run_case
    from moldau.pipelines.cases.result import update
    from moldau.testing import broker as broker_in_a_thread

    file = tmp_path / "pipeline.yaml"
    text = PIPELINE.replace("@IN@", "in").replace("@OUT@", "out").replace("dead_letter: drop", "dead_letter: dead")
    tables = """\
  - {name: rows, from: purchases, table: lake/purchases, format: parquet}
  - {name: whole-rows, from: events, table: lake/events, format: parquet}
"""
    file.write_text(text.replace("@BOOTSTRAP@", "localhost:9") + tables)
    case = tmp_path / "tests" / "one"
    (case / "input").mkdir(parents=True)
    (case / "expected").mkdir()
    (case / "input" / "events.jsonl").write_text('{"value": {"user": "ann", "amount": 2}}\n{"value": "bad"}\n')
    (case / "expected" / "plain.jsonl").write_text('{"key": "ann", "value": {"user": "ann", "amount": 3}}\n')
    (case / "expected" / "rows.jsonl").write_text('{"amount": 2, "user": "ann"}\n')
    with broker_in_a_thread() as running:
        pipeline = load(file, bootstrap=running.bootstrap_servers)
        result = run_case(find_cases(file)[0], pipeline, spark)
    assert result.error is None
    assert not result.has_passed
    plain, rows = result.differences
    assert not rows
    assert (plain.sink, plain.missing) == ("plain", ({"key": "ann", "value": {"user": "ann", "amount": 3}},))
    assert plain.unexpected == ({"key": "ann", "value": {"user": "ann", "amount": 2}},)
    assert not (tmp_path / "lake").exists()
    assert sorted(update(result, pipeline)) == ["events.dead-letters", "plain", "rows", "whole-rows"]
    assert (case / "expected" / "plain.jsonl").read_text() == '{"key": "ann", "value": {"user": "ann", "amount": 2}}\n'
    dead = json.loads((case / "expected" / "events.dead-letters.jsonl").read_text())
    assert (dead["value"], dead["headers"]["moldau.offset"]) == ("bad", "1")
    with broker_in_a_thread() as running:
        updated = run_case(find_cases(file)[0], load(file, bootstrap=running.bootstrap_servers), spark)
    assert (updated.error, [*filter(None, updated.differences)]) == (None, []), "the output of every run is the same"
    assert updated.has_passed
    shutil.rmtree(case / "expected")
    unexpected = replace(updated, case=find_cases(file)[0], differences=())
    assert not unexpected.has_passed, "a case without expected records does not pass"


def test_a_case_closes_its_windows_and_a_failed_one_has_the_java_stack_trace(
    spark: SparkSession, tmp_path: Path
) -> None:
    from moldau.pipelines.cases.case import run_case
    from moldau.testing import broker as broker_in_a_thread

    file = tmp_path / "pipeline.yaml"
    file.write_text(WINDOWS.replace("@IN@", "in").replace("@OUT@", "out").replace("@BOOTSTRAP@", "localhost:9"))
    case = tmp_path / "tests" / "one"
    (case / "input").mkdir(parents=True)
    (case / "expected").mkdir()
    (case / "input" / "events.txt").write_text('{"ts": "2026-01-01T08:00:00Z"}\n{"ts": "2026-01-01T08:00:01Z"}\n')
    (case / "expected" / "windows.jsonl").write_text('{"minute": "2026-01-01T08:00:00.000000Z", "n": 2}\n')
    with broker_in_a_thread() as running:
        result = run_case(find_cases(file)[0], load(file, bootstrap=running.bootstrap_servers), spark)
    assert (result.error, result.differences[0].unexpected, result.closed) == (None, (), ("windows",))
    assert result.has_passed
    file.write_text(file.read_text().replace("count(*) as n", "max(raise_error('no such luck')) as n"))
    with broker_in_a_thread() as running:
        failed = run_case(find_cases(file)[0], load(file, bootstrap=running.bootstrap_servers), spark)
    assert "no such luck" in (failed.error or "")
    assert "\tat org.apache.spark" in (failed.story or "")
