"""Previews of steps, pipelines in a notebook, and `moldau pipeline dev` with the commands that use its Spark."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Producer
from harness.patience import SPARK_PATIENCE_S
from spark_waits import wait_for_spark

import moldau.pipelines
from moldau.cli.main import main
from moldau.client.cluster import Cluster
from moldau.pipelines.cases.files import find_cases
from moldau.pipelines.problems import InvalidPipeline, PipelineError
from moldau.pipelines.reading.loading import load

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PIPELINE = """\
name: shop
bootstrap: {bootstrap}
vars: {{least: 0}}
sources:
  events:
    topic: {topic}
    schema: user string not null, amount int
    dead_letter: drop
steps:
  - name: large
    sql: select user, amount from events where amount > ${{least}}
  - name: per_user
    python: totals:per_user
    inputs: [large]
sinks:
  - {{name: out, from: large, topic: {topic}.out, key: user, partitions: 1}}
"""
TOTALS = """\
from helping import total

def per_user(large):
    return large.groupBy("user").agg(total().alias("total"))
"""
HELPING = """\
from pyspark.sql import functions as F

def total():
    return F.sum("amount")
"""


@pytest.fixture
def write(tmp_path: Path, bootstrap: str, topic: Callable[[], str]) -> Callable[..., Path]:
    def written(address: str = bootstrap) -> Path:
        file, name = tmp_path / "pipeline.yaml", topic()
        file.write_text(PIPELINE.format(bootstrap=address, topic=name))
        (tmp_path / "totals.py").write_text(TOTALS)
        (tmp_path / "helping.py").write_text(HELPING)
        case = tmp_path / "tests" / "one"
        for folder in ("input", "expected"):
            (case / folder).mkdir(parents=True)
        (case / "input" / "events.jsonl").write_text('{"user": "ann", "amount": 3}\n{"user": "bob", "amount": -1}\n')
        (case / "expected" / "out.jsonl").write_text('{"key": "ann", "value": {"user": "ann", "amount": 3}}\n')
        return file

    return written


def feed(bootstrap: str, topic: str, count: int) -> None:
    cluster = Cluster(bootstrap, {})
    cluster.create_topic(topic, 2)
    cluster.close()
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(count):
        producer.produce(topic, json.dumps({"user": f"u{number % 3}", "amount": 1}).encode(), partition=number % 2)
    assert producer.flush(SPARK_PATIENCE_S) == 0


def test_previews_show_the_rows_of_each_step(spark: SparkSession, write: Callable[..., Path], bootstrap: str) -> None:
    from moldau.pipelines.workbench.previewing import RECORDS_MAX, Sampled

    file = write()
    pipeline = load(file)
    with pytest.raises(PipelineError, match="there is no topic"):
        Sampled(pipeline, spark)
    with Sampled(pipeline, spark, find_cases(file)[0]) as sampled:
        events, large, per_user = sampled.previews()
        with pytest.raises(PipelineError, match="no source or step larg, did you mean"):
            sampled.frame("larg")
    assert [row[:2] for row in events.rows] == [("ann", "3"), ("bob", "-1")]
    assert (large.columns, large.rows) == (("user", "amount"), (("ann", "3"),))
    assert per_user.rows == (("ann", "3"),)

    source = next(iter(pipeline.sources.values()))
    feed(bootstrap, source.topics[0], 3000)  # type: ignore[union-attr]
    with Sampled(pipeline, spark) as sampled:
        (rows,) = sampled.previews(["LARGE"], rows=2)
        assert (len(rows.rows), rows.has_more) == (2, True)
        assert sampled.frame("events").count() == RECORDS_MAX


def test_a_pipeline_in_a_notebook(spark: SparkSession, write: Callable[..., Path]) -> None:
    """Each call reads the files again, also modules that a step's own module imports."""
    file = write()
    loaded = moldau.pipelines.load(file, least="-5")
    assert repr(loaded) == "<pipeline shop: events, large, per_user>"
    loaded.check()
    totals = loaded.preview("per_user", case="one")
    assert sorted(map(tuple, totals.collect())) == [("ann", 3), ("bob", -1)]
    (file.parent / "helping.py").write_text(HELPING.replace("F.sum", "F.count"))
    assert sorted(map(tuple, loaded.preview("per_user", case="one").collect())) == [("ann", 1), ("bob", 1)]
    file.write_text(file.read_text().replace("where amount", "where amounts"))
    with pytest.raises(InvalidPipeline, match="there is no column `amounts`"):
        loaded.check()


@contextmanager
def dev(file: Path) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    command = [sys.executable, "-m", "moldau", "pipeline", "dev", str(file)]
    output: list[str] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        listening = threading.Thread(target=lambda lines: output.extend(lines), args=[process.stdout])
        listening.start()
        try:
            yield process, output
        finally:
            process.kill()
            listening.join()


def output_after(
    output: list[str], process: subprocess.Popen[str], begin: int, until: str = "waiting for a change"
) -> str:
    """The output from line `begin` on, once it has a line that starts with `until`."""

    def is_complete() -> bool:
        assert process.poll() is None, "".join(output)
        return any(line.startswith(until) for line in output[begin:])

    wait_for_spark(is_complete, lambda: f"a line that starts with {until!r}: {''.join(output)}")
    return "".join(output[begin:])


def test_dev_shows_the_result_of_each_save_and_other_commands_use_its_spark(
    write: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path_factory: pytest.TempPathFactory,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
    file = write("127.0.0.1:1")
    with dev(file) as (process, output):
        first = output_after(output, process, 0)
        assert "✔ checked in" in first
        assert "rows of case one, as there are none of the topics" in first
        assert "large: 1 row" in first
        assert "one   passed" in first

        begin = len(output)
        file.write_text(file.read_text().replace("where amount", "where amounts"))
        assert "there is no column `amounts`" in output_after(output, process, begin)
        refused = command("validate", file)
        assert (refused.exit_code, "there is no column `amounts`" in refused.stderr) == (1, True)

        begin = len(output)
        file.write_text(file.read_text().replace("where amounts > ${least}", "where amount < 9"))
        failed = output_after(output, process, begin)
        assert '+ {"key": "bob", "value": {"user": "bob", "amount": -1}}' in failed
        tested = command("test", file)
        assert (tested.exit_code, "FAILED" in tested.stdout) == (1, True)
        validated = command("validate", file)
        assert validated.stdout.endswith("shop is fine\n")
        previewed = command("preview", file, "large", "--case", "one", "-n", "1")
        assert previewed.stdout.splitlines()[1:3] == ["  user  amount", "  ann   3"]
        phases = capfd.readouterr().err
        assert phases.count("waiting for the Spark of `moldau pipeline dev`") == 4
        assert "starting Java" not in phases
        second = command("dev", file)
        assert (second.exit_code, "is already running" in second.stderr) == (1, True)

        begin = len(output)
        file.write_text(file.read_text().replace("amount < 9", "amount < 10"))
        output_after(output, process, begin, "large: ")  # the test case is next: Ctrl-C comes while Spark works
        process.send_signal(signal.SIGINT)
        assert process.wait(SPARK_PATIENCE_S) == 0
    assert output[-1] == "ended\n"
    assert not [line for line in output[begin:] if "Traceback" in line or "Spark:" in line], "".join(output[begin:])
    assert not list(Path(os.environ["XDG_CACHE_HOME"]).rglob("*.sock"))


def command(name: str, file: Path, *words: str) -> Result:
    return CliRunner().invoke(main, ["pipeline", name, str(file), *words])
