"""Ten open pages of the web console: how much longer do a producer's requests take?

One broker, one console, and a producer that sends a small request every few milliseconds. In every round there are
four turns: without a console, with one that nobody looks at, with ten pages open, as a browser holds them: a live
stream each, and with ten of which two show the producer's records.

    python -m bench.open_pages
    python -m bench.open_pages --seconds 5 --rounds 2
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench.brokers import procfs
from bench.brokers.servers import MoldauProcess
from bench.brokers.steady_producer import TOPIC, SteadyProducer, percentile
from bench.measuring import options

NUMBERS = (
    *("/api/live/overview",) * 4,
    *("/api/live/cluster",) * 3,
    *(f"/api/live/topics/{TOPIC}",) * 3,
)
WITH_RECORDS = (*NUMBERS[:8], *(f"/api/live/records/{TOPIC}?from=end",) * 2)
TURNS: dict[str, Sequence[str] | None] = {
    "no console": None,
    "no page": (),
    "ten pages": NUMBERS,
    "ten pages, two with the producer's records": WITH_RECORDS,
}
EVERY_S = 0.005
SETTLE_S = 3.0
"""The console reads everything once when it starts."""
ADDRESS = re.compile(r"is at http://localhost:(\d+)/")
Turn = tuple[list[float], float]
"""The producer's latencies in milliseconds, and the console's share of a core in percent."""


@contextmanager
def console(bootstrap: str) -> Iterator[tuple[int, int]]:
    """Run a console; yield its process id and port."""
    with tempfile.NamedTemporaryFile("w+") as log:
        words = [sys.executable, "-m", "moldau", "console", "-b", bootstrap, "--listen", "localhost:0"]
        process = subprocess.Popen(words, stderr=log)
        try:
            while (found := ADDRESS.search(Path(log.name).read_text())) is None:
                if process.poll() is not None:
                    sys.exit(f"the console did not start:\n{Path(log.name).read_text()}")
                time.sleep(0.01)
            yield process.pid, int(found[1])
        finally:
            process.terminate()
            process.wait()


@contextmanager
def opened(port: int, paths: Sequence[str]) -> Iterator[None]:
    """Hold these pages open in another process."""
    if not paths:
        yield
        return
    words = [sys.executable, "-m", "bench.page_reader", str(port), *paths]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as reader:
        assert reader.stdout is not None
        if reader.stdout.readline() != "ready\n":
            sys.exit("the pages cannot be read")
        try:
            yield
        finally:
            assert reader.stdin is not None
            reader.stdin.close()


def measure(producing: SteadyProducer, bootstrap: str, paths: Sequence[str] | None, seconds: float) -> Turn:
    if paths is None:
        return producing.run(seconds, EVERY_S), 0.0
    with console(bootstrap) as (pid, port), opened(port, paths):
        producing.run(SETTLE_S, EVERY_S)
        cpu_s = procfs.cpu_seconds(pid)
        latencies = producing.run(seconds, EVERY_S)
        return latencies, 100 * (procfs.cpu_seconds(pid) - cpu_s) / seconds


def table(turns: dict[str, list[Turn]]) -> str:
    lines = [
        "| console | requests | p50 ms | p99 ms | p99.9 ms | p99 of each round | console's CPU |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for name, rounds in turns.items():
        latencies = [each for turn, _ in rounds for each in turn]
        cells = [f"{percentile(latencies, each):.2f}" for each in (50, 99, 99.9)]
        each_round = " ".join(f"{percentile(turn, 99):.2f}" for turn, _ in rounds)
        cpu = sum(percent for _, percent in rounds) / len(rounds)
        lines.append(f"| {name} | {len(latencies)} | {' | '.join(cells)} | {each_round} | {cpu:.0f} % |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each turn (default 10)")
    given = parser.parse_args()
    turns: dict[str, list[Turn]] = {name: [] for name in TURNS}
    with ExitStack() as cleanup:
        server = cleanup.enter_context(MoldauProcess()).start()
        producing = SteadyProducer(server.address, cleanup)
        producing.run(2.0, EVERY_S)
        for number in range(given.rounds):
            for name, paths in TURNS.items():
                turns[name].append(measure(producing, server.address, paths, given.seconds))
                print(f"round {number + 1}, {name}: p99 {percentile(turns[name][-1][0], 99):.2f} ms", file=sys.stderr)
    print(table(turns))


if __name__ == "__main__":
    options.run(main)
