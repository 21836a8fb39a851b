"""What a start costs, in CPU seconds of all processes together: a pipeline of one query, of five, of one query for five
sinks, and the demo.

    python -m bench.startup                      # the table of docs/benchmarks.md
    python -m bench.startup --rounds 1 --only one-query

Wall time is other people's: how long a start takes depends on who else is on the machine. Each scenario runs, in turns,
with Spark's own way of starting Python processes, with those forked from one, and with an archive of Spark's classes
(`moldau pipeline prepare`) as well.

On a shared machine a CPU second is not always the same: a loop of fixed work is timed before each run, and what it took
stands beside the figures. Compare within one run.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from bench.brokers.process_tree import Cost, cost_of

KINDS = {
    "SparkSubmit": "Java",
    "java": "Java",
    "python_streaming_source_runner": "Spark's Python",
    "pyspark.daemon": "Spark's Python",
    "fork_server": "Spark's Python",
    "pipeline run": "driver",
    "moldau start": "broker",
    "demo.py": "demo",
}
START_MODES = ("Spark's own", "forked", "forked, archive")
RECORDS = 1000
ROOT = Path(__file__).parent.parent
MOLDAU = [sys.executable, "-m", "moldau"]


def pipeline_of(count: int, address: str, *, in_one_query: bool) -> str:
    company = ", with: s0" if in_one_query else ""
    sinks = "\n".join(
        f"  - {{name: s{n}, from: good, topic: out{n}, key: id{company if n else ''}}}" for n in range(count)
    )
    return (
        f"name: start\nbootstrap: {address}\nsources:\n"
        '  orders: {topic: orders, schema: "id string, item string, amount double", dead_letter: drop}\n'
        'steps:\n  - {name: good, sql: "select id, upper(item) as item, amount from orders where amount > 0"}\n'
        f"sinks:\n{sinks}\n"
    )


@contextmanager
def broker(folder: Path) -> Iterator[str]:
    """A broker of its own, not counted, with a topic of some records."""
    command = [*MOLDAU, "start", "--listen", "localhost:0", "--data-dir", str(folder / "data")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            address = process.stdout.readline().split(" is ready: ")[1].split()[0]
            lines = "".join(f'{{"id": "{n}", "item": "book", "amount": {n}}}\n' for n in range(RECORDS))
            for topic in ("orders", *(f"out{n}" for n in range(5))):
                subprocess.run([*MOLDAU, "topic", "create", topic, "-b", address], check=True, capture_output=True)
            produce = [*MOLDAU, "produce", "orders", "-b", address]
            subprocess.run(produce, input=lines, text=True, check=True, capture_output=True)
            yield address
        finally:
            process.terminate()


def prepared_environment(start_mode: str, folder: Path) -> dict[str, str]:
    """`python3` beside `python` is the same program under another name: one that was chosen is not forked."""
    chosen = {"XDG_CACHE_HOME": str(folder / ("cache-with-archive" if "archive" in start_mode else "cache"))}
    if start_mode == "Spark's own":
        chosen["PYSPARK_PYTHON"] = str(Path(sys.executable).with_name("python3"))
    given = {**os.environ, **chosen}
    if "archive" in start_mode:
        subprocess.run([*MOLDAU, "pipeline", "prepare"], env=given, check=True, capture_output=True)
    return given


def pipeline(sinks: int, start_mode: str, *, in_one_query: bool = False) -> Cost:
    with tempfile.TemporaryDirectory(prefix="moldau-bench-") as name, broker(Path(name)) as address:
        folder = Path(name)
        (folder / "pipeline.yaml").write_text(pipeline_of(sinks, address, in_one_query=in_one_query))
        command = [*MOLDAU, "pipeline", "run", str(folder / "pipeline.yaml"), "--until-caught-up"]
        return cost_of(command, prepared_environment(start_mode, folder))


def demo(start_mode: str) -> Cost:
    with tempfile.TemporaryDirectory(prefix="moldau-bench-") as name:
        folder = Path(name)
        command = [sys.executable, str(ROOT / "examples/bookstore/demo.py"), "--folder", str(folder / "demo")]
        return cost_of(command, prepared_environment(start_mode, folder))


SCENARIOS = {
    "one-query": lambda start_mode: pipeline(1, start_mode),
    "five-queries": lambda start_mode: pipeline(5, start_mode),
    "five-sinks-in-one-query": lambda start_mode: pipeline(5, start_mode, in_one_query=True),
    "demo": demo,
}


def yardstick_s() -> float:
    """The CPU time of a fixed piece of work: about 0.12 s on an idle core of 2026."""
    before, total = time.process_time(), 0
    for number in range(2_000_000):
        total += number
    return time.process_time() - before


def row(scenario: str, start_mode: str, costs: list[Cost]) -> str:
    kinds = [cost.by_kind(KINDS) for cost in costs]
    total = statistics.median(cost.cpu_s for cost in costs)
    cells = [f"{statistics.median(kind.get(name, (0, 0.0))[1] for kind in kinds):.1f}" for name in COLUMNS]
    started = round(statistics.median(kind.get("Spark's Python", (0, 0.0))[0] for kind in kinds))
    return f"| {scenario} | {start_mode} | **{total:.1f}** | {' | '.join(cells)} | {started} |"


COLUMNS = ("Java", "Spark's Python", "driver", "demo", "broker")


def measure(scenarios: list[str], rounds: int) -> Mapping[tuple[str, str], list[Cost]]:
    found: dict[tuple[str, str], list[Cost]] = {}
    for _ in range(rounds):
        for scenario in scenarios:
            for start_mode in START_MODES:
                yardstick = yardstick_s()
                cost = SCENARIOS[scenario](start_mode)
                told = f"{cost.cpu_s:.1f} CPU s; the yardstick took {yardstick:.2f} s before, {yardstick_s():.2f} after"
                print(f"{scenario}, {start_mode}: {told}", file=sys.stderr)
                found.setdefault((scenario, start_mode), []).append(cost)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="What a start of Spark costs, in CPU seconds.")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", action="append", choices=list(SCENARIOS), help="one scenario; repeatable")
    args = parser.parse_args()
    found = measure(args.only or list(SCENARIOS), args.rounds)
    print(f"| scenario | start | CPU s | {' | '.join(COLUMNS)} | Python processes of Spark |")
    print(f"|---|---|--:|{'--:|' * (len(COLUMNS) + 1)}")
    for (scenario, start_mode), costs in found.items():
        print(row(scenario, start_mode, costs))


if __name__ == "__main__":
    main()
