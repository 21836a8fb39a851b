"""How many requests and records a second the gateway takes over HTTP from devices, and how long a request takes,
beside the same HTTP server without anything behind it.

    python -m bench.gateway
    python -m bench.gateway --only array --rounds 1 --seconds 2    # does it work at all?

Broker, gateway and devices are processes of their own. "Of a core" divides by the CPU seconds of the gateway: on a
machine where all three share two cores, requests per second say more of the machine. Each round does all workloads in
turns; the table has the middle of the rounds.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from bench.brokers.kafka_process import free_ports
from bench.brokers.procfs import cpu_seconds, resident_mib
from bench.brokers.servers import MoldauProcess, is_open
from bench.brokers.topics import create_topics
from bench.measuring.options import is_wanted, plain_parser
from bench.measuring.report import Table, number, show, write_markdown

PARTITIONS = 6
PORT_POLL_S = 0.01


class Load(NamedTuple):
    name: str
    connections: int
    records: int = 1
    per_second: float = 0.0
    is_bare: bool = False


LOADS = (
    Load("one record a request, 64 devices", 64),
    Load("the same, nothing behind the server", 64, is_bare=True),
    Load("one record a request, 1,000 devices", 1_000),
    Load("arrays of 1,000 records, 8 devices", 8, 1_000),
    Load("1,000 requests a second, 100 devices", 100, 1, 1_000.0),
)
HEADERS = ("", "requests/s", "records/s", "requests of a core", "records of a core", "p50 ms", "p99 ms", "MiB")


class Outcome(NamedTuple):
    requests_s: float
    records_s: float
    requests_core: float
    records_core: float
    p50_ms: float
    p99_ms: float
    mib: float


def measure(load: Load, port: int, pid: int, seconds: float) -> Outcome:
    before = cpu_seconds(pid)
    command = [sys.executable, "-m", "bench.gateway.http_devices"]
    numbers = map(str, (port, load.connections, seconds, load.records, load.per_second))
    found: dict[str, Any] = json.loads(subprocess.run([*command, *numbers], stdout=subprocess.PIPE, check=True).stdout)
    cost = cpu_seconds(pid) - before
    requests, spent = found["requests"], found["seconds"]
    return Outcome(
        requests / spent,
        requests * load.records / spent,
        requests / cost,
        requests * load.records / cost,
        found["p50"],
        found["p99"],
        resident_mib(pid),
    )


@contextmanager
def serving(command: Callable[[int], list[str]]) -> Iterator[tuple[int, int]]:
    """Start a server that gets its port; yield the port and its process id."""
    (port,) = free_ports(1)
    process = subprocess.Popen(command(port), stderr=subprocess.DEVNULL)
    try:
        while not is_open(f"localhost:{port}"):
            assert process.poll() is None, "the server ended"
            time.sleep(PORT_POLL_S)
        yield port, process.pid
    finally:
        process.terminate()
        process.wait()


def main(rounds: int, seconds: float, only: list[str] | None, markdown: Path | None) -> None:
    with ExitStack() as house:
        broker = house.enter_context(MoldauProcess()).start()
        create_topics(broker.address, {"bench": PARTITIONS})
        gateway = house.enter_context(serving(lambda port: _gateway(broker.address, port)))
        bare = house.enter_context(serving(lambda port: [sys.executable, "-m", "bench.gateway.bare", str(port)]))
        outcomes: dict[str, list[Outcome]] = {}
        for _ in range(rounds):
            for load in [load for load in LOADS if is_wanted(load.name, only)]:
                outcome = measure(load, *(bare if load.is_bare else gateway), seconds)
                outcomes.setdefault(load.name, []).append(outcome)
                print(load.name, *map(number, outcome), file=sys.stderr)
    rows = [
        [name, *[number(statistics.median(column)) for column in zip(*each, strict=True)]]
        for name, each in outcomes.items()
    ]
    table = Table("HTTP devices", HEADERS, rows)
    show(table)
    if markdown is not None:
        write_markdown(markdown, [table])


def _gateway(address: str, port: int) -> list[str]:
    return [sys.executable, "-m", "moldau", "gateway", "-b", address, "--http", f"localhost:{port}"]


if __name__ == "__main__":
    parser = plain_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each workload in a round (default 5)")
    parser.add_argument("--only", action="append", metavar="TEXT", help="workloads whose name has this; repeatable")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the table there too")
    given = parser.parse_args()
    main(given.rounds, given.seconds, given.only, given.markdown)
