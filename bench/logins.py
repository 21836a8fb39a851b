"""TLS handshakes and SCRAM logins a second, and what a login costs the broker; and how long somebody else's requests
take meanwhile, which shows how long the event loop is held up.

    python -m bench.logins
    python -m bench.logins --only scram --rounds 5 --markdown logins.md
    python -m bench.logins --kafka-libs DIRECTORY-OF-JARS
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import trustme

from bench.brokers.connection import Producing
from bench.brokers.frames import record_batch
from bench.brokers.kafka_process import KafkaProcess
from bench.brokers.raw_workloads import producing
from bench.brokers.secured_listeners import (
    MECHANISMS,
    PASSWORD,
    PLAINTEXT,
    SASL_PLAINTEXT,
    SASL_SSL,
    SSL,
    USER,
    SecuredListeners,
)
from bench.brokers.servers import KAFKA, MOLDAU, MoldauProcess, Server
from bench.brokers.topics import new_topic
from bench.login_clients import Crowd, Login
from bench.measuring import beside, options
from bench.measuring.progress import Progress
from bench.measuring.report import show, write_json, write_markdown
from bench.measuring.results import Quantity
from bench.measuring.rounds import Measured, Turn, Workload, run_rounds

ROUNDS = 5
SECONDS = 4.0
ASK_EVERY_S = 0.005
LOGIN = "login"

Listeners = Mapping[str, SecuredListeners]
"""By the name of the server."""


class Bystander:
    """A producer that sends a small request every few milliseconds in a thread of its own."""

    def __init__(self, producer: Producing) -> None:
        self._producer = producer
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._latencies_ms: list[float] = []

    def __enter__(self) -> Bystander:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def percentile(self, percent: float) -> float:
        ordered = sorted(self._latencies_ms)
        return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]

    def _run(self) -> None:
        while not self._is_over.wait(ASK_EVERY_S):
            began = time.perf_counter()
            self._producer.run(1)
            self._latencies_ms.append((time.perf_counter() - began) * 1000)


def workloads(crowd: Crowd, listeners: Listeners, scale: float) -> Iterator[Workload]:
    kinds = [("TLS handshakes", SSL, None)]
    kinds += [(f"{mechanism} logins", SASL_PLAINTEXT, mechanism) for mechanism in MECHANISMS]
    kinds += [(f"{MECHANISMS[1]} logins over TLS", SASL_SSL, MECHANISMS[1])]
    for name, protocol, mechanism in kinds:
        yield _workload(name, protocol, mechanism, crowd, listeners, SECONDS * scale)


def _workload(
    name: str, protocol: str, mechanism: str | None, crowd: Crowd, listeners: Listeners, seconds: float
) -> Workload:
    quantities = (
        Quantity(name, "1/s", work_unit=LOGIN),
        Quantity(f"others' p99 beside {name}", "ms", higher_is_better=False, work_unit=LOGIN),
        Quantity(f"others' longest beside {name}", "ms", higher_is_better=False, work_unit=LOGIN),
    )

    def prepare(server: Server, cleanup: ExitStack) -> Turn:
        of_server = listeners[server.name]
        authority = of_server.authority if "SSL" in protocol else None
        login = Login(of_server.addresses[protocol], authority, mechanism, USER, PASSWORD)
        topic = new_topic(server.address, 1, cleanup)
        producer = producing(server, topic, 0, record_batch(1, 100), cleanup)

        def turn() -> Measured:
            with Bystander(producer) as bystander:
                done = crowd.log_in(login, seconds)
            waits = bystander.percentile(99), bystander.percentile(100)
            return Measured((done.logins / done.seconds, *waits), done.logins)

        return turn

    return Workload(quantities, prepare)


def start(
    directory: Path, key_type: trustme.KeyType, libs: Path | None, house: ExitStack
) -> tuple[list[Server], dict[str, SecuredListeners]]:
    names = [MOLDAU, *([KAFKA] if libs else [])]
    listeners = {name: SecuredListeners(directory, key_type) for name in names}
    ours = house.enter_context(MoldauProcess(settings=listeners[MOLDAU].settings, listen=None))
    servers = [Server(MOLDAU, listeners[MOLDAU].addresses[PLAINTEXT], ours.start().pid)]
    if libs:
        servers.append(house.enter_context(KafkaProcess(libs, listeners[KAFKA].settings)).start())
    for each in listeners.values():
        each.add_user()
    return servers, listeners


def main() -> None:
    parser = options.parser(__doc__ or "", rounds=ROUNDS)
    parser.add_argument("--kafka-libs", type=Path, metavar="DIR", help="Apache Kafka's jars, to measure it beside ours")
    parser.add_argument("--ecdsa", action="store_true", help="a certificate with a P-256 key instead of RSA 2048")
    arguments = parser.parse_args()
    key_type = trustme.KeyType.ECDSA if arguments.ecdsa else trustme.KeyType.RSA
    with ExitStack() as house:
        directory = Path(house.enter_context(tempfile.TemporaryDirectory(prefix="moldau-bench-")))
        crowd = house.enter_context(Crowd())
        servers, listeners = start(directory, key_type, arguments.kafka_libs, house)
        chosen = options.wanted(list(workloads(crowd, listeners, arguments.scale)), arguments.only)
        progress = house.enter_context(Progress(len(servers) * len(chosen) * (arguments.rounds + 1)))
        results = [result for each in chosen for result in run_rounds(each, servers, arguments.rounds, progress)]
    table = beside.table(results)
    show(table)
    if arguments.markdown:
        write_markdown(arguments.markdown, [table])
    if arguments.json:
        write_json(arguments.json, {"logins": (results, KAFKA)})


if __name__ == "__main__":
    options.run(main)
