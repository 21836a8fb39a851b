"""A producer beside readers of views: how much longer do its requests take?

One broker with a topic of JSON records of about 1 KiB. In every round there are four turns: the producer alone, beside
a consumer of the topic, and beside a consumer of one new view after the other, which show 1 % of the records, or all.
The consumer (`bench.view_reader`) is a process of its own. The producer sends a small request every few milliseconds
and waits for the answer. Linux only.

    python -m bench.beside_views
    python -m bench.beside_views --records 20000 --seconds 2 --rounds 1    # does it work at all?
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bench.brokers import procfs
from bench.brokers.connection import BrokerRefused
from bench.brokers.servers import MoldauProcess, Server
from bench.brokers.steady_producer import SteadyProducer, percentile
from bench.measuring import options
from bench.views import create, fill, worker_seconds

SOURCE = "source"
PADDING = 930
TURNS: Mapping[str, tuple[str, ...] | None] = {
    "nobody": None,
    "a reader of the topic": (),
    "a reader of views that show 1 %": ("amount = 7",),
    "a reader of views that show all": ("amount >= 0",),
}
"""Who is beside the producer: the condition of its views, if it reads views."""


@dataclass
class Turn:
    """What was measured in all rounds of one kind of turn."""

    latencies_ms: list[float] = field(default_factory=list)
    broker_percent: list[float] = field(default_factory=list)
    workers_percent: list[float] = field(default_factory=list)

    def percentile(self, percent: float) -> float:
        return percentile(self.latencies_ms, percent)


@contextmanager
def reader(server: Server, records: int, condition: tuple[str, ...] | None) -> Iterator[None]:
    """Run the consumer; it has read everything once before this begins."""
    if condition is None:
        yield
        return
    command = [sys.executable, "-m", "bench.view_reader", server.address, SOURCE, str(records), *condition]
    client = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert client.stdout is not None
    try:
        if not client.stdout.readline():
            raise BrokerRefused("the consumer ended before it had read anything")
        yield
    finally:
        client.kill()
        client.wait()
        client.stdout.close()


def measure(turn: Turn, server: Server, producer: SteadyProducer, given: argparse.Namespace) -> None:
    broker_s, workers_s, begun = procfs.cpu_seconds(server.pid), worker_seconds(server), time.perf_counter()
    turn.latencies_ms += producer.run(given.seconds, given.every_ms / 1000)
    elapsed_s = time.perf_counter() - begun
    turn.broker_percent.append(100 * (procfs.cpu_seconds(server.pid) - broker_s) / elapsed_s)
    turn.workers_percent.append(100 * (worker_seconds(server) - workers_s) / elapsed_s)


def table(turns: Mapping[str, Turn]) -> str:
    lines = [
        "| beside the producer | requests | p50 ms | p99 ms | p99.9 ms | max ms | broker's CPU | workers' CPU |",
        "|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for name, turn in turns.items():
        cells = [f"{turn.percentile(each):.2f}" for each in (50, 99, 99.9, 100)]
        cpu = [f"{sum(each) / len(each):.0f} %" for each in (turn.broker_percent, turn.workers_percent)]
        lines.append(f"| {name} | {len(turn.latencies_ms)} | {' | '.join([*cells, *cpu])} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=100_000, help="in the topic (default 100000)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each turn (default 10)")
    parser.add_argument("--every-ms", type=float, default=5.0, help="between two requests (default 5)")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the table there too")
    given = parser.parse_args()
    turns = {name: Turn() for name in TURNS}
    with ExitStack() as cleanup:
        server = cleanup.enter_context(MoldauProcess()).start()
        create(server, SOURCE)
        fill(server, SOURCE, given.records, PADDING)
        producer = SteadyProducer(server.address, cleanup)
        producer.run(2.0, given.every_ms / 1000)
        for number in range(given.rounds):
            for name, condition in TURNS.items():
                with reader(server, given.records, condition):
                    measure(turns[name], server, producer, given)
                print(f"round {number + 1}, {name}: p99 {turns[name].percentile(99):.2f} ms", file=sys.stderr)
    text = table(turns)
    print(text)
    if given.markdown is not None:
        given.markdown.write_text(text + "\n")


if __name__ == "__main__":
    options.run(main)
