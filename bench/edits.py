"""The cost of an edit of a pipeline until its effect is visible: `validate` and `test` of the template, one case of ten
records; with their own Spark, with an archive of Spark's classes, and with the Spark of a running `dev`.

    python -m bench.edits                        # the table of docs/benchmarks.md
    python -m bench.edits --rounds 1

Seconds and CPU seconds of all processes together. With `dev` those of its Spark are included, as far as the processes
still run. See bench.startup for the loop of fixed work that measures the machine.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.brokers import procfs
from bench.brokers.process_tree import cost_of
from bench.startup import MOLDAU, prepared_environment, yardstick_s

COMMANDS = ("validate", "test")
RECORDS = 10
WAYS = ("alone", "alone, archive", "beside dev")

Spent = tuple[float, float]
"""Seconds, and CPU seconds."""


def write_template(folder: Path) -> Path:
    """Return the project that `init` writes, except for the number of records: the expected files are of this
    version."""
    subprocess.run([*MOLDAU, "pipeline", "init", str(folder)], check=True, capture_output=True)
    order = '{{"order_id": "{0}", "item": "book", "amount": {0}, "ts": "2026-01-31T08:00:0{0}Z"}}\n'
    records = "".join(order.format(number) for number in range(RECORDS))
    (folder / "tests" / "first-orders" / "input" / "orders.txt").write_text(records)
    return folder / "pipeline.yaml"


def cpu_of_tree(pid: int) -> float:
    total, waiting = 0.0, [pid]
    while waiting:
        pid = waiting.pop()
        try:
            total += procfs.cpu_seconds(pid)
            waiting += procfs.children(pid)
        except (FileNotFoundError, ProcessLookupError):
            continue
    return total


def spent(command: str, file: Path, environment: dict[str, str], dev: int | None = None) -> Spent:
    """Write the expected files once before, by --update, so that the measured run passes."""
    before, began_s = cpu_of_tree(dev) if dev else 0.0, time.monotonic()
    cost = cost_of([*MOLDAU, "pipeline", command, str(file)], environment)
    return time.monotonic() - began_s, cost.cpu_s + (cpu_of_tree(dev) - before if dev else 0.0)


@contextmanager
def dev_of(file: Path, environment: dict[str, str]) -> Iterator[int]:
    """Start `dev` and wait for its first check."""
    command = [*MOLDAU, "pipeline", "dev", str(file)]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        is_ready = threading.Event()

        def listen(lines: Iterator[str]) -> None:
            for line in lines:
                if line.startswith("waiting"):
                    is_ready.set()

        listener = threading.Thread(target=listen, args=[process.stdout])
        listener.start()
        is_ready.wait()
        try:
            yield process.pid
        finally:
            process.send_signal(signal.SIGINT)
            listener.join()


def measure(rounds: int) -> dict[tuple[str, str], list[Spent]]:
    results: dict[tuple[str, str], list[Spent]] = {}
    with tempfile.TemporaryDirectory(prefix="moldau-bench-") as name:
        file = write_template(Path(name) / "shop")
        environments = {way: prepared_environment(way, Path(name)) for way in WAYS}
        update = [*MOLDAU, "pipeline", "test", str(file), "--update"]
        subprocess.run(update, env=environments["alone"], check=True, capture_output=True)
        for way in WAYS[:2]:
            for _ in range(rounds):
                for command in COMMANDS:
                    results.setdefault((command, way), []).append(
                        _measure_and_print(command, way, file, environments[way], None)
                    )
        with dev_of(file, environments["beside dev"]) as dev:
            for _ in range(rounds + 2):
                for command in COMMANDS:
                    now = _measure_and_print(command, "beside dev", file, environments["beside dev"], dev)
                    results.setdefault((command, "beside dev"), []).append(now)
    return results


def _measure_and_print(command: str, way: str, file: Path, environment: dict[str, str], dev: int | None) -> Spent:
    yardstick = yardstick_s()
    now = spent(command, file, environment, dev)
    print(
        f"{command}, {way}: {now[0]:.1f} s, {now[1]:.1f} CPU s; the yardstick took {yardstick:.2f} s", file=sys.stderr
    )
    return now


def main() -> None:
    parser = argparse.ArgumentParser(description="What an edit of a pipeline costs until its effect is seen.")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    os.environ.pop("MOLDAU_BOOTSTRAP", None)
    results = measure(args.rounds)
    print("| command | Spark | seconds | CPU s |\n|---|---|--:|--:|")
    for (command, way), all_spent in results.items():
        seconds, cpu_s = (statistics.median(each) for each in zip(*all_spent, strict=True))
        print(f"| {command} | {way} | {seconds:.1f} | {cpu_s:.1f} |")


if __name__ == "__main__":
    main()
