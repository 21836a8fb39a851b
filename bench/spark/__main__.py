"""Spark with our connector beside Spark's own Kafka connector: the same topics, the same work, in turns.

The broker and both Sparks share this machine's cores; the one whose turn it is not is idle. Spark's own connector is a
jar from Maven for one version of Spark, so it runs in a Python of its own:

    python -m bench.spark
    python -m bench.spark --official-python other/bin/python --official-jars a.jar,b.jar
    python -m bench.spark --bootstrap 127.0.0.1:9092              on a broker that runs (topics need 4 partitions)
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple, Self

from bench.brokers.servers import SOURCES, MoldauProcess, NotStarted
from bench.measuring import options
from bench.measuring.plot import plot_ratios
from bench.measuring.progress import Progress
from bench.measuring.report import Table, middle, show, show_bars, with_spread, write_json, write_markdown
from bench.measuring.results import Quantity, Result, Samples

OURS, OFFICIAL = "moldau", "kafka"
ROWS = 4_000_000
AHEAD = "times faster than Spark's own Kafka connector: above 1.0 ours is ahead"


class Workload(NamedTuple):
    method: str
    quantity: Quantity


WORKLOADS = [
    Workload("topic_to_nothing", Quantity("topic → no-op", "k rows/s")),
    Workload("topic_to_counts", Quantity("topic → count by key", "k rows/s")),
    Workload("rows_to_topic", Quantity("rows → topic", "k rows/s")),
    Workload("topic_to_topic", Quantity("topic → topic", "k rows/s")),
    Workload("stream_to_nothing", Quantity("stream, available now → no-op", "k rows/s")),
    Workload("small_batches", Quantity("micro-batch of 1,000 rows", "ms", higher_is_better=False)),
]


class Worker:
    """A Spark in a process of its own."""

    def __init__(self, name: str, python: str, arguments: list[str]) -> None:
        self.name = name
        path = os.pathsep.join(filter(None, [str(SOURCES), os.environ.get("PYTHONPATH")]))
        script = str(Path(__file__).with_name("worker.py"))
        self._process = subprocess.Popen(
            [python, script, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=os.environ | {"PYTHONPATH": path, "PYSPARK_PYTHON": python},
        )
        self.version = self._answer()["ready"]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(60)

    def do(self, method: str) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(method + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        while line := self._process.stdout.readline():
            if line.startswith("{"):
                answer: dict[str, Any] = json.loads(line)
                return answer
        raise NotStarted(f"the Spark of {self.name} ended with status {self._process.wait()}")


def main() -> None:
    arguments = _arguments()
    chosen = [work for work in WORKLOADS if options.is_wanted(work.quantity.name, arguments.only)]
    results, versions = _measure(arguments, chosen)
    table = _table(results, versions)
    show(table)
    ratios = {result.quantity.name: _ratio(result) for result in results}
    show_bars(f"ratio: {AHEAD}", ratios)
    if arguments.markdown:
        write_markdown(arguments.markdown, [table])
    if arguments.json:
        write_json(arguments.json, {"spark": (results, OFFICIAL)})
    if arguments.plot:
        series = {"rows/s or time": list(ratios.values())}
        plot_ratios(arguments.plot, "Moldau's connector beside Spark's own", list(ratios), series, AHEAD)


def _arguments() -> argparse.Namespace:
    parser = options.parser(__doc__ or "", rounds=3)
    parser.add_argument("--bootstrap", metavar="HOST:PORT", help="a broker that runs; else one of ours is started")
    parser.add_argument("--official-python", metavar="PATH", help="a Python with the pyspark of the official connector")
    parser.add_argument("--official-jars", metavar="JARS", help="the official connector's jars, with commas")
    parser.add_argument(
        "--rows", type=options.positive, default=ROWS, help=f"in the topic that is read (default {ROWS:,})"
    )
    arguments = parser.parse_args()
    if bool(arguments.official_python) != bool(arguments.official_jars):
        parser.error("--official-python and --official-jars go together")
    return arguments


def _measure(arguments: argparse.Namespace, chosen: list[Workload]) -> tuple[list[Result], dict[str, str]]:
    rows = max(1, int(arguments.rows * arguments.scale))
    with ExitStack() as house:
        address = arguments.bootstrap
        if not address:
            address = house.enter_context(MoldauProcess(settings={"num.partitions": "4"})).start().address
        topic = f"bench-{time.time_ns()}"
        common = [address, topic, str(rows)]
        workers = [house.enter_context(Worker(OURS, sys.executable, ["moldau", *common]))]
        if arguments.official_python:
            official = ["kafka", *common, arguments.official_jars]
            workers.append(house.enter_context(Worker(OFFICIAL, arguments.official_python, official)))
        progress = house.enter_context(Progress(len(chosen) * len(workers) * (arguments.rounds + 1)))
        progress.say("filling the topics")
        workers[0].do("fill")
        workers[0].do("fill_small")
        results = [_rounds(work, workers, arguments.rounds, rows, progress) for work in chosen]
        return results, {worker.name: worker.version for worker in workers}


def _rounds(work: Workload, workers: list[Worker], rounds: int, rows: int, progress: Progress) -> Result:
    """The first round warms up and is not counted; who begins changes from round to round."""
    result = Result(work.quantity, {worker.name: Samples() for worker in workers})
    for number in range(rounds + 1):
        for worker in workers if number % 2 else reversed(workers):
            progress.say(f"{work.quantity.name}: {f'round {number}' if number else 'warm-up'}, {worker.name}")
            answer = worker.do(work.method)
            if number:
                value = rows / answer["seconds"] / 1e3 if answer["own_value"] is None else answer["own_value"]
                result.samples[worker.name].values.append(value)
            progress.step()
    found = ", ".join(f"{name} {middle(result.value(name))}" for name in result.samples)
    progress.tell(f"{result.quantity.name}: {found} {result.quantity.unit}")
    return result


def _table(results: list[Result], versions: dict[str, str]) -> Table:
    headers = ["work", "unit", f"moldau (Spark {versions[OURS]})"]
    if OFFICIAL in versions:
        headers += [f"Spark's own connector (Spark {versions[OFFICIAL]})", "ratio"]
    rows = []
    for result in results:
        row = [result.quantity.name, result.quantity.unit, with_spread(result.value(OURS))]
        if OFFICIAL in versions:
            row += [with_spread(result.value(OFFICIAL)), with_spread(result.ratio(OURS, OFFICIAL))]
        rows.append(row)
    note = f"; ratio: {AHEAD}" if OFFICIAL in versions else ""
    return Table(f"median [lowest–highest]{note}", headers, rows)


def _ratio(result: Result) -> float | None:
    found = result.ratio(OURS, OFFICIAL) if OFFICIAL in result.samples else None
    return found.median if found else None


if __name__ == "__main__":
    options.run(main)
