"""The cost of TLS: producing and fetching over an encrypted connection, against the same over a plaintext one.

One broker has both listeners, and both have their turn in every round. The client is this process, on another core; it
encrypts with the same OpenSSL, so that rates tell what one connection gets, and the CPU ratio what the broker pays.

    python -m bench.tls
    python -m bench.tls --only fetch --rounds 5 --json numbers.json --markdown tls.md
"""

from __future__ import annotations

import socket
import ssl
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import trustme

from bench import options, versus
from bench.connection import BrokerRefused, Connection, Fetching, Producing
from bench.frames import fetch_frame, produce_frame, record_batch
from bench.progress import Progress
from bench.raw_workloads import FILLED_RECORDS, FILLED_VALUE_BYTES, GIB, IN_FLIGHT, KIB, MIB, fill, seconds_of
from bench.report import show, write_json, write_markdown
from bench.results import Quantity
from bench.rounds import Measured, Turn
from bench.servers import MoldauProcess, Server
from bench.topics import new_topic
from bench.versus import WITH, WITHOUT, Versus, compare

ROUNDS = 5
HOST = "127.0.0.1"
FILLED_BATCHES = 2_400


class TlsConnection(Connection):
    """The raw client with TLS."""

    def __init__(self, address: str, context: ssl.SSLContext, buffer_bytes: int = 64 * KIB) -> None:
        super().__init__(address, buffer_bytes)
        self.socket = context.wrap_socket(self.socket, server_hostname=HOST)

    def receive_exactly(self, size: int) -> None:
        received = 0
        while received < size:
            count = self.socket.recv_into(self.buffer[received:size])
            if not count:
                raise BrokerRefused(f"{self.address} closed the connection")
            received += count


Connect = Callable[[int], Connection]
"""Opens a connection with a buffer of that size."""


class Sides:
    """The two listeners of the broker and how to connect to them."""

    def __init__(self, directory: Path) -> None:
        authority = trustme.CA()
        leaf = authority.issue_cert(HOST, "localhost")
        key = directory / "node.pem"
        key.write_bytes(leaf.private_key_pem.bytes() + b"".join(pem.bytes() for pem in leaf.cert_chain_pems))
        self._context = ssl.create_default_context(cadata=authority.cert_pem.bytes().decode())
        self.plain, self.encrypted = (f"{HOST}:{port}" for port in _free_ports())
        self.settings = {
            "listeners": f"PLAINTEXT://{self.plain},SSL://{self.encrypted}",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(key),
        }

    @property
    def connects(self) -> tuple[Connect, Connect]:
        return (
            lambda size: Connection(self.plain, size),
            lambda size: TlsConnection(self.encrypted, self._context, size),
        )


def workloads(sides: Sides, scale: float) -> Iterator[Versus]:
    yield produce(sides, 100, 100, max(10, int(10_000 * scale)), 0.7)
    yield produce(sides, 100, KIB, max(10, int(4_000 * scale)), 0.5)
    yield fetch(sides, MIB, int(2 * GIB * scale), 0.2)


def produce(sides: Sides, records: int, value_bytes: int, requests: int, wanted: float) -> Versus:
    batch = record_batch(records, value_bytes)
    size = f"{value_bytes // KIB}KiB" if value_bytes >= KIB else f"{value_bytes}B"

    def prepare(server: Server, cleanup: ExitStack) -> tuple[Turn, Turn]:
        def turn_of(connect: Connect) -> Turn:
            topic = new_topic(server.address, 1, cleanup)
            connection = cleanup.enter_context(connect(64 * KIB))
            producer = Producing(connection, produce_frame(topic, 0, batch), IN_FLIGHT)
            producer.wait_until_writable()

            def turn() -> Measured:
                elapsed = seconds_of(lambda: producer.run(requests))
                return Measured((requests * len(batch) / 1e6 / elapsed,), requests)

            return turn

        without, with_tls = map(turn_of, sides.connects)
        return without, with_tls

    return Versus(Quantity(f"produce {records}x{size}", "MB/s"), prepare, wanted)


def fetch(sides: Sides, partition_bytes: int, total_bytes: int, wanted: float) -> Versus:
    batch = record_batch(FILLED_RECORDS, FILLED_VALUE_BYTES)

    def prepare(server: Server, cleanup: ExitStack) -> tuple[Turn, Turn]:
        topic = new_topic(server.address, 1, cleanup)
        fill(server, topic, 0, batch, FILLED_BATCHES)

        def turn_of(connect: Connect) -> Turn:
            connection = cleanup.enter_context(connect(partition_bytes + MIB))
            frame = fetch_frame({topic: range(1)}, partition_bytes)
            fetching = Fetching(connection, frame, topic, (FILLED_RECORDS, len(batch)))

            def turn() -> Measured:
                began = time.perf_counter()
                megabytes = fetching.fetch_bytes(total_bytes) / 1e6
                return Measured((megabytes / (time.perf_counter() - began),), megabytes)

            return turn

        without, with_tls = map(turn_of, sides.connects)
        return without, with_tls

    return Versus(Quantity(f"fetch {partition_bytes // MIB} MiB", "MB/s", work_unit="MB"), prepare, wanted)


def main() -> None:
    arguments = options.parser(__doc__ or "", rounds=ROUNDS).parse_args()
    with ExitStack() as cleanup:
        sides = Sides(Path(cleanup.enter_context(tempfile.TemporaryDirectory(prefix="moldau-bench-"))))
        chosen = [
            each for each in workloads(sides, arguments.scale) if options.is_wanted(each.quantity.name, arguments.only)
        ]
        progress = cleanup.enter_context(Progress(2 * len(chosen) * (arguments.rounds + 1)))
        server = cleanup.enter_context(MoldauProcess(settings=sides.settings, listen=None)).start()
        compared = [found for each in chosen for found in compare(each, [server], arguments.rounds, progress)]
    table = versus.table(compared)
    show(table)
    if arguments.markdown:
        write_markdown(arguments.markdown, [table])
    if arguments.json:
        write_json(arguments.json, {f"{WITH} against {WITHOUT}": ([each.result for each in compared], WITHOUT)})


def _free_ports() -> list[int]:
    with socket.create_server((HOST, 0)) as one, socket.create_server((HOST, 0)) as other:
        return [each.getsockname()[1] for each in (one, other)]


if __name__ == "__main__":
    options.run(main)
