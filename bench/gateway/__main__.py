"""How many requests and records a second the gateway takes from devices over HTTP and MQTT, how long a request takes,
beside the same HTTP server without anything behind it, and what a quiet device costs.

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
    in_flight: int = 0
    """Over MQTT: messages of a device that are not acknowledged. 0: HTTP."""


LOADS = (
    Load("one record a request, 64 devices", 64),
    Load("the same, nothing behind the server", 64, is_bare=True),
    Load("one record a request, 1,000 devices", 1_000),
    Load("arrays of 1,000 records, 8 devices", 8, 1_000),
    Load("1,000 requests a second, 100 devices", 100, 1, 1_000.0),
    Load("MQTT, QoS 1, 64 devices, 10 in flight each", 64, in_flight=10),
    Load("MQTT, QoS 1, 1,000 devices, 1 in flight each", 1_000, in_flight=1),
)
QUIET = 5_000
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
    command = [sys.executable, "-m", f"bench.gateway.{'mqtt' if load.in_flight else 'http'}_devices"]
    about = (load.in_flight,) if load.in_flight else (load.records, load.per_second)
    numbers = map(str, (port, load.connections, seconds, *about))
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


def quiet_bytes(port: int, pid: int) -> float:
    """Return what each device costs that is connected and says nothing."""
    before = resident_mib(pid)
    command = [sys.executable, "-m", "bench.gateway.mqtt_devices", str(port), str(QUIET), "quiet"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as devices:
        assert devices.stdout is not None
        assert devices.stdout.readline() == b"connected\n"
        return (resident_mib(pid) - before) * (1 << 20) / QUIET


@contextmanager
def serving(command: Callable[[int], list[str]]) -> Iterator[tuple[int, int]]:
    """Start a server that gets its port; yield the port and its process id."""
    (port,) = free_ports(1)
    process = subprocess.Popen(command(port), stderr=subprocess.DEVNULL)
    try:
        _await(port, process)
        yield port, process.pid
    finally:
        process.terminate()
        process.wait()


def _await(port: int, process: subprocess.Popen[bytes] | None = None) -> None:
    while not is_open(f"localhost:{port}"):
        assert process is None or process.poll() is None, "the server ended"
        time.sleep(PORT_POLL_S)


def main(rounds: int, seconds: float, only: list[str] | None, markdown: Path | None) -> None:
    with ExitStack() as house:
        broker = house.enter_context(MoldauProcess()).start()
        create_topics(broker.address, {"bench": PARTITIONS})
        (mqtt,) = free_ports(1)
        http, pid = house.enter_context(serving(lambda port: _gateway(broker.address, port, mqtt)))
        _await(mqtt)
        bare = house.enter_context(serving(lambda port: [sys.executable, "-m", "bench.gateway.bare", str(port)]))
        quiet = quiet_bytes(mqtt, pid)  # first: later there is memory that was used before
        outcomes: dict[str, list[Outcome]] = {}
        for _ in range(rounds):
            for load in [load for load in LOADS if is_wanted(load.name, only)]:
                server = bare if load.is_bare else (mqtt if load.in_flight else http, pid)
                outcome = measure(load, *server, seconds)
                outcomes.setdefault(load.name, []).append(outcome)
                print(load.name, *map(number, outcome), file=sys.stderr)
    rows = [
        [name, *[number(statistics.median(column)) for column in zip(*each, strict=True)]]
        for name, each in outcomes.items()
    ]
    title = f"Devices; {QUIET:,} quiet ones over MQTT cost the gateway {quiet / 1024:.1f} KiB each"
    table = Table(title, HEADERS, rows)
    show(table)
    if markdown is not None:
        write_markdown(markdown, [table])


def _gateway(address: str, http: int, mqtt: int) -> list[str]:
    listen = ["--http", f"localhost:{http}", "--mqtt", f"localhost:{mqtt}"]
    return [sys.executable, "-m", "moldau", "gateway", "-b", address, *listen]


if __name__ == "__main__":
    parser = plain_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each workload in a round (default 5)")
    parser.add_argument("--only", action="append", metavar="TEXT", help="workloads whose name has this; repeatable")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the table there too")
    given = parser.parse_args()
    main(given.rounds, given.seconds, given.only, given.markdown)
