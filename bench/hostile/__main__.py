"""A well-behaved producer beside idle and hostile clients: how much longer do its requests take?

One broker, with SASL and with TLS. In every round there are three turns: the producer alone, beside idle clients, and
beside idle and hostile ones (`bench.hostile.clients`, in a process of their own: half requests, garbage, floods, half
handshakes, a byte a second). The producer sends a small request every few milliseconds and waits for the answer.

    python -m bench.hostile
    python -m bench.hostile --idle 500 --hostile 50 --seconds 5 --rounds 2
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import trustme
from harness.hostile_clients import BAD_USER, SOURCE, sasl_frames

from bench.brokers import procfs
from bench.brokers.connection import BrokerRefused
from bench.brokers.servers import SOURCES, MoldauProcess, Server
from bench.brokers.steady_producer import SteadyProducer, percentile
from bench.measuring import options

GOOD = ("good", "good-secret")
HOST = "127.0.0.1"
SPARE_FILES = 2_000
"""Of the broker and of the clients, besides the connections."""
LOGIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
TURNS = ("alone", "idle", "idle and hostile")
BAD_USER_PERCENTAGE = 1


@dataclass
class Turn:
    """What was measured in all rounds of one kind of turn."""

    latencies_ms: list[float] = field(default_factory=list)
    cpu_percent: list[float] = field(default_factory=list)
    resident_mib: float = 0.0
    disconnects: Counter[str] = field(default_factory=Counter)

    def percentile(self, percent: float) -> float:
        return percentile(self.latencies_ms, percent)


def settings(directory: Path, ports: tuple[int, int]) -> dict[str, str]:
    leaf = trustme.CA().issue_cert(HOST)
    key = directory / "node.pem"
    key.write_bytes(leaf.private_key_pem.bytes() + b"".join(pem.bytes() for pem in leaf.cert_chain_pems))
    users = " ".join(f'user_{name}="{password}"' for name, password in (GOOD, BAD_USER))
    return {
        "listeners": f"SASL_PLAINTEXT://{HOST}:{ports[0]},SSL://{HOST}:{ports[1]}",
        "inter.broker.listener.name": "SSL",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": f"{LOGIN_MODULE} required {users};",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(key),
    }


def set_limits(directory: Path, address: str, connections_per_second: int) -> None:
    """Give the hostile user a quota of request time, and the address of hostile clients one of new connections."""
    login = f'{LOGIN_MODULE} required username="{GOOD[0]}" password="{GOOD[1]}";'
    properties = directory / "admin.properties"
    properties.write_text(f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config={login}\n")
    environment = os.environ | {"PYTHONPATH": str(SOURCES)}
    tool = [sys.executable, "-m", "moldau.cli.kafka.configs", "--bootstrap-server", address, "--alter"]
    for entity, name, quota in (
        ("users", BAD_USER[0], f"request_percentage={BAD_USER_PERCENTAGE}"),
        ("ips", SOURCE, f"connection_creation_rate={connections_per_second}"),
    ):
        words = ["--command-config", str(properties), "--entity-type", entity, "--entity-name", name]
        subprocess.run([*tool, *words, "--add-config", quota], check=True, stdout=subprocess.DEVNULL, env=environment)


@contextmanager
def crowd(sasl: str, tls: str, idle: int, hostile: int, given: argparse.Namespace) -> Iterator[Counter[str]]:
    """Run idle and hostile clients. The counter is filled at the end."""
    disconnects: Counter[str] = Counter()
    if not idle and not hostile:
        yield disconnects
        return
    words = ["--sasl", sasl, "--tls", tls, "--idle", str(idle), "--hostile", str(hostile), "--login", ":".join(GOOD)]
    words += ["--equal-priority"] if given.equal_priority else []
    command = [sys.executable, "-m", "bench.hostile.clients", "--only", given.only, *words]
    clients = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert clients.stdout is not None
    try:
        if clients.stdout.readline().strip() != "ready":
            raise BrokerRefused("the idle clients could not connect; is the limit of open files too low?")
        yield disconnects
        clients.send_signal(signal.SIGTERM)
        disconnects.update(json.loads(clients.stdout.readline()))
    finally:
        clients.kill()
        clients.wait()
        clients.stdout.close()


def measure(turn: Turn, server: Server, producing: SteadyProducer, given: argparse.Namespace) -> None:
    cpu_s, begun = procfs.cpu_seconds(server.pid), time.perf_counter()
    turn.latencies_ms += producing.run(given.seconds, given.every_ms / 1000)
    elapsed_s = time.perf_counter() - begun
    turn.cpu_percent.append(100 * (procfs.cpu_seconds(server.pid) - cpu_s) / elapsed_s)
    turn.resident_mib = max(turn.resident_mib, procfs.resident_mib(server.pid))


def table(turns: Mapping[str, Turn], given: argparse.Namespace) -> str:
    lines = [
        f"{given.idle} idle and {given.hostile} hostile clients, {given.rounds} rounds of {given.seconds:g} s each,"
        f" a request every {given.every_ms:g} ms{', all with the same priority' if given.equal_priority else ''}",
        "",
        "| beside the producer | requests | p50 ms | p99 ms | p99.9 ms | max ms | broker's CPU | broker's memory |",
        "|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for name, turn in turns.items():
        cells = [f"{turn.percentile(each):.2f}" for each in (50, 99, 99.9, 100)]
        cpu = sum(turn.cpu_percent) / len(turn.cpu_percent)
        lines.append(
            f"| {name} | {len(turn.latencies_ms)} | {' | '.join(cells)} | {cpu:.0f} % | {turn.resident_mib:.0f} MiB |"
        )
    counts = ", ".join(f"{kind} {count}" for kind, count in sorted(turns[TURNS[2]].disconnects.items()))
    return "\n".join([*lines, "", f"Disconnected, or had finished: {counts or 'none'}."])


def main() -> None:
    parser = options.plain_parser(__doc__)
    parser.add_argument("--idle", type=int, default=5_000, help="idle clients (default 5000)")
    parser.add_argument("--hostile", type=int, default=200, help="hostile clients (default 200)")
    parser.add_argument("--only", default="", metavar="TEXT", help="only hostile clients with this in their name")
    parser.add_argument(
        "--equal-priority",
        action="store_true",
        help="hostile clients with the priority of the others; otherwise they give way, as if on other machines",
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=20.0, help="of each turn (default 20)")
    parser.add_argument("--every-ms", type=float, default=5.0, help="between two requests (default 5)")
    parser.add_argument("--rate", type=int, default=20, help="new connections per second of the hostile address")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the table there too")
    given = parser.parse_args()
    check_files(given)
    turns = {name: Turn() for name in TURNS}
    with ExitStack() as cleanup:
        directory = Path(cleanup.enter_context(tempfile.TemporaryDirectory(prefix="moldau-bench-")))
        ports = free_ports()
        sasl, tls = (f"{HOST}:{port}" for port in ports)
        process = cleanup.enter_context(MoldauProcess(settings=settings(directory, ports), listen=None))
        server = process.start()
        set_limits(directory, sasl, given.rate)
        producing = SteadyProducer(sasl, cleanup, sasl_frames(*GOOD))
        producing.run(2.0, 0.005)
        for number in range(given.rounds):
            for name, idle, hostile in zip(TURNS, (0, given.idle, given.idle), (0, 0, given.hostile), strict=True):
                with crowd(sasl, tls, idle, hostile, given) as disconnects:
                    time.sleep(1.0)  # the first burst of hostile clients is over
                    measure(turns[name], server, producing, given)
                turns[name].disconnects += disconnects
                print(f"round {number + 1}, {name}: p99 {turns[name].percentile(99):.2f} ms", file=sys.stderr)
    text = table(turns, given)
    print(text)
    if given.markdown is not None:
        given.markdown.write_text(text + "\n")


def check_files(given: argparse.Namespace) -> None:
    """Each side needs a file for each connection, and connections get half of the broker's files."""
    needed = 2 * (given.idle + 2 * given.hostile) + SPARE_FILES
    options.allow_files(needed)
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if allowed != resource.RLIM_INFINITY and allowed < needed:
        sys.exit(
            f"{needed} open files are needed, {allowed} are allowed: raise `ulimit -n`, or use --idle and --hostile"
        )


def free_ports() -> tuple[int, int]:
    with socket.socket() as first, socket.socket() as second:
        for each in (first, second):
            each.bind((HOST, 0))
        return first.getsockname()[1], second.getsockname()[1]


if __name__ == "__main__":
    options.run(main)
