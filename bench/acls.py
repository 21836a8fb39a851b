"""The cost of ACLs: small requests to brokers without an authorizer, with a few ACLs, and with ten thousand.

All brokers run side by side and have their turn in every round. The clients are nobody in particular
(`User:ANONYMOUS`), and an ACL allows them the topic. With `--kafka-libs` Apache Kafka's brokers, with and without its
StandardAuthorizer, do the same.

    python -m bench.acls
    python -m bench.acls --only produce --rounds 9 --markdown acls.md
    python -m bench.acls --kafka-libs DIRECTORY-OF-JARS
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from bench.brokers.connection import BrokerRefused, Connection
from bench.brokers.frames import METADATA, request
from bench.brokers.kafka_process import HOST, KafkaProcess, free_ports
from bench.brokers.raw_workloads import seconds_of
from bench.brokers.servers import MoldauProcess, Server
from bench.brokers.topics import create_topics
from bench.measuring import options
from bench.measuring.progress import Progress
from bench.measuring.report import Table, show, with_spread, write_json, write_markdown
from bench.measuring.results import Quantity, Result
from bench.measuring.rounds import Measured, Turn, Workload, run_rounds
from bench.scale.workloads import ACTIVE, fetch_one, produce_one

ROUNDS = 7
NO_AUTHORIZER, FEW, MANY = "no authorizer", "3 ACLs", "10,000 ACLs"
MANY_COUNT = 10_000
ACLS_A_REQUEST = 500
TIMEOUT_S = 60
AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
"""Resources without ACLs are everybody's, so that the broker itself and the creation of topics need none."""
OTHER_TOPICS = 50
"""Metadata of all topics asks the authorizer so many times, and once more."""


def workloads(scale: float) -> Iterator[Workload]:
    yield produce_one(max(10, int(25_000 * scale)))
    yield fetch_one(max(10, int(25_000 * scale)))
    yield metadata("metadata of one topic", [ACTIVE], max(10, int(25_000 * scale)))
    yield metadata(f"metadata of {OTHER_TOPICS + 1} topics", None, max(10, int(4_000 * scale)))


def metadata(name: str, topics: Sequence[str] | None, requests: int) -> Workload:
    if topics is None:
        frame = request(METADATA, 1, struct.pack(">i", -1))
    else:
        names = b"".join(struct.pack(">h", len(topic)) + topic.encode() for topic in topics)
        frame = request(METADATA, 1, struct.pack(">i", len(topics)) + names)

    def prepare(server: Server, cleanup: ExitStack) -> Turn:
        connection = cleanup.enter_context(Connection(server.address))
        expected = len(connection.ask(frame))

        def ask_all() -> None:
            for _ in range(requests):
                connection.socket.sendall(frame)
                if len(connection.receive_reply()) != expected:
                    raise BrokerRefused(f"{server.name}: another answer than before")

        return lambda: Measured((requests / seconds_of(ask_all),), requests)

    return Workload((Quantity(name, "req/s"),), prepare)


def prepare_topics(server: Server, acls: int) -> None:
    create_topics(server.address, {**{f"other-{number}": 1 for number in range(OTHER_TOPICS)}, ACTIVE: 1})
    if acls:
        _create_acls(server.address, list(_bindings(acls)))


def _bindings(count: int) -> Iterator[AclBinding]:
    """The ACLs that the clients need, and others: of many users, by name and by prefixes of many lengths."""
    literal, prefixed = ResourcePatternType.LITERAL, ResourcePatternType.PREFIXED
    yield _allow("User:ANONYMOUS", ACTIVE, literal, AclOperation.ALL)
    yield _allow("User:ANONYMOUS", "other-", prefixed, AclOperation.ALL)
    yield _allow("User:bob", ACTIVE, literal, AclOperation.READ)
    for number in range(count - 3):
        pattern = prefixed if number % 10 == 0 else literal
        name = f"{'x' * (number % 40)}-team-{number // 3}"
        yield _allow(f"User:user-{number % 500}", name, pattern, AclOperation.READ)


def _allow(principal: str, name: str, pattern: ResourcePatternType, operation: AclOperation) -> AclBinding:
    return AclBinding(ResourceType.TOPIC, name, pattern, principal, "*", operation, AclPermissionType.ALLOW)


def _create_acls(address: str, bindings: Sequence[AclBinding]) -> None:
    admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
    for first in range(0, len(bindings), ACLS_A_REQUEST):
        for created in admin.create_acls(bindings[first : first + ACLS_A_REQUEST]).values():
            created.result(TIMEOUT_S)


def table(results: Sequence[Result], baseline: str, title: str) -> Table:
    """Return CPU times and rates of the baseline, and the ratios of the others to them."""
    others = [name for name in results[0].samples if name != baseline]
    headers = ["workload", f"{baseline}, CPU µs", *(f"{name}, CPU ratio" for name in others)]
    headers += [f"{baseline}, req/s", *(f"{name}, ratio" for name in others)]
    rows = [
        [
            result.quantity.name,
            with_spread(result.cpu_us(baseline)),
            *(with_spread(result.cpu_ratio(name, baseline)) for name in others),
            with_spread(result.value(baseline)),
            *(with_spread(result.ratio(name, baseline)) for name in others),
        ]
        for result in results
    ]
    return Table(title, headers, rows)


def measure(servers: Sequence[Server], chosen: Sequence[Workload], rounds: int, progress: Progress) -> list[Result]:
    return [result for workload in chosen for result in run_rounds(workload, servers, rounds, progress)]


def ours(cleanup: ExitStack) -> list[Server]:
    kinds = {NO_AUTHORIZER: (0, {}), FEW: (3, AUTHORIZER), MANY: (MANY_COUNT, AUTHORIZER)}
    servers = []
    for name, (acls, settings) in kinds.items():
        server = cleanup.enter_context(MoldauProcess(name, settings)).start()
        prepare_topics(server, acls)
        servers.append(server)
    return servers


def apaches(libs: Path, cleanup: ExitStack) -> list[Server]:
    kinds = {NO_AUTHORIZER: (0, {}), MANY: (MANY_COUNT, AUTHORIZER)}
    servers = []
    for name, (acls, settings) in kinds.items():
        listener = {"listeners": f"PLAINTEXT://{HOST}:{free_ports(1)[0]}"}
        server = cleanup.enter_context(KafkaProcess(libs, listener | settings, name)).start()
        prepare_topics(server, acls)
        servers.append(server)
    return servers


def main() -> None:
    parser = options.parser(__doc__ or "", rounds=ROUNDS)
    parser.add_argument("--kafka-libs", type=Path, metavar="DIR", help="Apache Kafka's jars, to measure it too")
    arguments = parser.parse_args()
    chosen = options.wanted(list(workloads(arguments.scale)), arguments.only)
    found: dict[str, list[Result]] = {}
    steps = len(chosen) * (arguments.rounds + 1)
    with ExitStack() as cleanup:
        progress = cleanup.enter_context(Progress(steps * (5 if arguments.kafka_libs else 3)))
        with ExitStack() as brokers:
            found["moldau"] = measure(ours(brokers), chosen, arguments.rounds, progress)
        if arguments.kafka_libs:
            with ExitStack() as brokers:
                found["kafka"] = measure(apaches(arguments.kafka_libs, brokers), chosen, arguments.rounds, progress)
    ratios = "ratios against the broker without an authorizer; 0.97 is 3 % more"
    tables = [table(results, NO_AUTHORIZER, f"{name}: {ratios}") for name, results in found.items()]
    for each in tables:
        show(each)
    if arguments.markdown:
        write_markdown(arguments.markdown, tables)
    if arguments.json:
        write_json(arguments.json, {name: (results, NO_AUTHORIZER) for name, results in found.items()})


if __name__ == "__main__":
    options.run(main)
