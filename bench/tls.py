"""The cost of TLS: producing and fetching over an encrypted connection, against the same over a plaintext one, and
against Apache Kafka's TLS.

A broker has both listeners, and both have their turn in every round, as has Apache Kafka with `--kafka-libs`. The
client is this process, on another core; it encrypts with the same OpenSSL, so that rates tell what one connection gets,
and the CPU ratio what the broker pays.

    python -m bench.tls
    python -m bench.tls --only fetch --rounds 5 --json numbers.json --markdown tls.md
    python -m bench.tls --kafka-libs DIRECTORY-OF-JARS
"""

from __future__ import annotations

import ssl
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from bench.brokers.connection import BrokerRefused, Connection, Fetching, Producing
from bench.brokers.frames import fetch_frame, produce_frame, record_batch
from bench.brokers.kafka_process import KafkaProcess
from bench.brokers.raw_workloads import FILLED_RECORDS, FILLED_VALUE_BYTES, GIB, IN_FLIGHT, KIB, MIB, fill, seconds_of
from bench.brokers.secured_listeners import PLAINTEXT, SSL, SecuredListeners
from bench.brokers.servers import KAFKA, MOLDAU, MoldauProcess, Server
from bench.brokers.topics import new_topic
from bench.measuring import beside, options, versus
from bench.measuring.progress import Progress
from bench.measuring.report import show, write_json, write_markdown
from bench.measuring.results import Quantity, Result
from bench.measuring.rounds import Measured, Turn
from bench.measuring.versus import WITH, WITHOUT, Compared, Versus, compare

ROUNDS = 5
FILLED_BATCHES = 2_400


class TlsConnection(Connection):
    """The raw client with TLS."""

    def __init__(self, address: str, context: ssl.SSLContext, buffer_bytes: int = 64 * KIB) -> None:
        super().__init__(address, buffer_bytes)
        self.socket = context.wrap_socket(self.socket, server_hostname="127.0.0.1")

    def receive_exactly(self, size: int) -> None:
        received = 0
        while received < size:
            count = self.socket.recv_into(self.buffer[received:size])
            if not count:
                raise BrokerRefused(f"{self.address} closed the connection")
            received += count


Connect = Callable[[int], Connection]
"""Opens a connection with a buffer of that size."""


ListenersByServer = Mapping[str, SecuredListeners]
"""By the name of the server."""


def connects(listeners: SecuredListeners) -> tuple[Connect, Connect]:
    """Without and with TLS."""
    return (
        lambda size: Connection(listeners.addresses[PLAINTEXT], size),
        lambda size: TlsConnection(listeners.addresses[SSL], listeners.context, size),
    )


def workloads(listeners: ListenersByServer, scale: float) -> Iterator[Versus]:
    yield produce(listeners, 100, 100, max(10, int(10_000 * scale)), 0.7)
    yield produce(listeners, 100, KIB, max(10, int(4_000 * scale)), 0.5)
    yield fetch(listeners, MIB, max(MIB, int(2 * GIB * scale)), 0.2)


def produce(listeners: ListenersByServer, records: int, value_bytes: int, requests: int, wanted: float) -> Versus:
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

        without, with_tls = map(turn_of, connects(listeners[server.name]))
        return without, with_tls

    return Versus(Quantity(f"produce {records}x{size}", "MB/s"), prepare, wanted)


def fetch(listeners: ListenersByServer, partition_bytes: int, total_bytes: int, wanted: float) -> Versus:
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

        without, with_tls = map(turn_of, connects(listeners[server.name]))
        return without, with_tls

    return Versus(Quantity(f"fetch {partition_bytes // MIB} MiB", "MB/s", work_unit="MB"), prepare, wanted)


def encrypted(compared: Sequence[Compared]) -> list[Result]:
    """The turns with TLS of both systems, side by side."""
    by_workload: dict[Quantity, Result] = {}
    for each in compared:
        result = by_workload.setdefault(each.result.quantity, Result(each.result.quantity, {}))
        result.samples[each.system] = each.result.samples[WITH]
    return list(by_workload.values())


def json_parts(compared: Sequence[Compared]) -> dict[str, tuple[list[Result], str]]:
    """The parts of the numbers as JSON, each with what it is compared with."""
    by_system: dict[str, list[Result]] = {}
    for each in compared:
        by_system.setdefault(each.system, []).append(each.result)
    sides = {f"{WITH} against {WITHOUT}, {system}": (results, WITHOUT) for system, results in by_system.items()}
    return {**sides, "with TLS": (encrypted(compared), KAFKA)}


def main() -> None:
    parser = options.parser(__doc__ or "", rounds=ROUNDS)
    parser.add_argument("--kafka-libs", type=Path, metavar="DIR", help="Apache Kafka's jars, to measure it beside ours")
    arguments = parser.parse_args()
    libs: Path | None = arguments.kafka_libs
    if arguments.plot and not libs:
        parser.error("--plot draws ratios to Kafka: give its jars with --kafka-libs")
    with ExitStack() as cleanup:
        directory = Path(cleanup.enter_context(tempfile.TemporaryDirectory(prefix="moldau-bench-")))
        listeners = {name: SecuredListeners(directory) for name in (MOLDAU, *([KAFKA] if libs else []))}
        chosen = [
            each
            for each in workloads(listeners, arguments.scale)
            if options.is_wanted(each.quantity.name, arguments.only)
        ]
        ours = cleanup.enter_context(MoldauProcess(settings=listeners[MOLDAU].settings, listen=None)).start()
        servers = [Server(MOLDAU, listeners[MOLDAU].addresses[PLAINTEXT], ours.pid)]
        if libs:
            servers.append(cleanup.enter_context(KafkaProcess(libs, listeners[KAFKA].settings)).start())
        progress = cleanup.enter_context(Progress(2 * len(servers) * len(chosen) * (arguments.rounds + 1)))
        compared = [found for each in chosen for found in compare(each, servers, arguments.rounds, progress)]
    tables = [versus.table(compared)]
    if libs:
        tables.append(beside.table(encrypted(compared)))
    for table in tables:
        show(table)
    if arguments.markdown:
        write_markdown(arguments.markdown, tables)
    if arguments.json:
        write_json(arguments.json, json_parts(compared))
    if arguments.plot:
        beside.plot(arguments.plot, "TLS in Moldau beside Apache Kafka", encrypted(compared))


if __name__ == "__main__":
    options.run(main)
