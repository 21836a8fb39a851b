"""A pipeline on three nodes with TLS among them, SCRAM and ACLs: exactly-once while a leader dies, no password shown.

The other tests of this directory use a broker that lets everybody in.
"""

from __future__ import annotations

import contextlib
import io
import os
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, pkcs12
from harness.certificates import PASSWORD, Vault
from harness.patience import PATIENCE_S, SPARK_PATIENCE_S
from nodes_process import ClusterProcess

from moldau.cli.kafka import acls, configs
from moldau.client.admin.groups import Groups
from moldau.client.cluster import Cluster
from moldau.pipelines.problems import PipelineError
from moldau.pipelines.reading.loading import load
from moldau.pipelines.running.silence import Silence
from moldau.pipelines.running.state_directory import StateDirectory
from moldau.security.authorizer_settings import STANDARD_AUTHORIZER
from moldau.security.sasl.jaas import PLAIN_MODULE, SCRAM_MODULE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from moldau.pipelines.running.progress import RunStatus

PLANTED = "pl4nted"
"""A part of every password here."""
NODES = (
    f'{PLAIN_MODULE} required username="node" password="{PLANTED}-n" user_node="{PLANTED}-n" user_admin="{PLANTED}";'
)
RECORDS = 300
BATCH_ROWS = 100
SPEC = """
name: secured
command_config: client.properties
kafka:
  sasl.jaas.config: '@MODULE@ required username="pipe" password="${env:PIPE_PASSWORD}";'
sources:
  numbers: {topic: numbers, schema: n int not null, dead_letter: numbers.dead, max_per_trigger: @ROWS@}
steps:
  - {name: kept, sql: select n * 2 as twice from numbers where n % 3 <> 0}
sinks:
  - {name: twice, from: kept, topic: twice, value: cast(twice as string)}
"""


@dataclass
class Secured:
    cluster: ClusterProcess
    vault: Vault

    def client(self, **more: Any) -> dict[str, Any]:
        """Return librdkafka's settings of the super user."""
        return {
            "bootstrap.servers": self.cluster.bootstrap_servers,
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": self.vault.trusted,
            "sasl.mechanism": "PLAIN",
            "sasl.username": "admin",
            "sasl.password": PLANTED,
            "log_level": 0,
            **{name.replace("_", "."): value for name, value in more.items()},
        }


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    directory = tmp_path_factory.mktemp("secured")
    vault = Vault(directory)
    settings = {
        "listener.security.protocol.map": "PLAINTEXT:SASL_SSL,CONTROLLER:SASL_SSL",
        **vault.server(),
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "sasl.mechanism.controller.protocol": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.plaintext.plain.sasl.jaas.config": NODES,
        "listener.name.controller.plain.sasl.jaas.config": NODES,
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": "User:node;User:admin",
    }
    cluster = ClusterProcess(directory / "data", settings)
    try:
        ready = Secured(cluster, vault)
        _add_users_and_topics(ready, directory)
        yield ready
    finally:
        cluster.stop()


def _add_users_and_topics(secured: Secured, directory: Path) -> None:
    admin = AdminClient(secured.client())
    names = ("numbers", "numbers.dead", "twice")
    for made in admin.create_topics([NewTopic(name, 2, 3) for name in names]).values():
        made.result(PATIENCE_S)
    file = directory / "admin.properties"
    file.write_text(
        f"security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nssl.truststore.type=PEM\n"
        f"ssl.truststore.location={secured.vault.trusted}\n"
        f'sasl.jaas.config={PLAIN_MODULE} required username="admin" password="{PLANTED}";\n'
    )
    at = ["--bootstrap-server", secured.cluster.bootstrap_servers, "--command-config", str(file)]
    user = ["--alter", "--entity-type", "users", "--entity-name", "pipe"]
    for bits in (256, 512):
        change = f"SCRAM-SHA-{bits}=[iterations=4096,password={PLANTED}-{bits}]"
        assert configs.main([*at, *user, "--add-config", change]) == 0
    for words in (
        ["--consumer", "--topic", "numbers", "--group", "none"],
        ["--producer", "--topic", "twice", "--topic", "numbers.dead"],
        ["--operation", "read", "--topic", "twice", "--topic", "numbers.dead"],
        ["--operation", "read", "--group", "secured.", "--resource-pattern-type", "prefixed"],
        ["--operation", "write", "--transactional-id", "secured.", "--resource-pattern-type", "prefixed"],
    ):
        assert acls.main(["--add", "--allow-principal", "User:pipe", *words, *at]) == 0


def run(file: Path, spark: SparkSession, password: str, view: Silence) -> RunStatus:
    from moldau.pipelines.planning.compiling import Mode
    from moldau.pipelines.running.launching import RunOptions, launch
    from moldau.pipelines.running.stop_request import Stop

    pipeline = load(file, environ={"PIPE_PASSWORD": password})
    options = RunOptions(mode=Mode.UNTIL_CAUGHT_UP, debug=True)
    return launch(pipeline, StateDirectory(file.parent / "state"), options, lambda on_phase: spark, view, Stop())


class RecordingDisplay(Silence):
    """A display that records the lines of a run."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, line: str) -> None:
        self.lines.append(line)


@pytest.fixture
def file(secured: Secured, tmp_path: Path) -> Path:
    (tmp_path / "client.properties").write_text(
        f"bootstrap.servers={secured.cluster.bootstrap_servers}\nsecurity.protocol=SASL_SSL\n"
        f"sasl.mechanism=SCRAM-SHA-512\nssl.truststore.type=PEM\nssl.truststore.location={secured.vault.trusted}\n"
    )
    path = tmp_path / "pipeline.yaml"
    path.write_text(SPEC.replace("@MODULE@", SCRAM_MODULE).replace("@ROWS@", str(BATCH_ROWS)))
    return path


def committed_values(secured: Secured, topic: str) -> list[bytes]:
    values: list[bytes] = []
    consumer = Consumer(
        secured.client(
            group_id="test", auto_offset_reset="earliest", isolation_level="read_committed", enable_partition_eof=True
        )
    )
    ended: set[int] = set()
    try:
        consumer.subscribe([topic])
        while len(ended) < 2:
            message = consumer.poll(PATIENCE_S)
            assert message is not None
            if message.error():
                ended.add(message.partition() or 0)
            else:
                values.append(message.value() or b"")
    finally:
        consumer.close()
    return values


def kill_a_leader_after_the_first_batch(secured: Secured, killed: list[int]) -> None:
    consumer = Consumer(
        secured.client(group_id="killer", auto_offset_reset="earliest", isolation_level="read_committed")
    )
    consumer.subscribe(["twice"])
    message = None
    while message is None or message.error():
        message = consumer.poll(SPARK_PATIENCE_S)
    consumer.close()
    killed.append(secured.cluster.kill_leader("twice"))


def test_a_pipeline_is_exactly_once_while_a_leader_dies(secured: Secured, spark: SparkSession, file: Path) -> None:
    producer = Producer(secured.client(acks="all"))
    for number in range(RECORDS):
        producer.produce("numbers", b'{"n": %d}' % number, partition=number % 2)
        if number % 50 == 0:
            producer.produce("numbers", b"not JSON %d" % number, partition=0)
    assert producer.flush(PATIENCE_S) == 0

    with pytest.raises(PipelineError, match=r"[Aa]uthentication") as refused:
        run(file, spark, f"{PLANTED}-wrong", RecordingDisplay())
    killed: list[int] = []
    killer = threading.Thread(target=kill_a_leader_after_the_first_batch, args=(secured, killed), daemon=True)
    killer.start()
    view = RecordingDisplay()
    status = run(file, spark, f"{PLANTED}-512", view)
    assert status.state == "finished", (status.message, view.lines)
    killer.join(PATIENCE_S)
    assert killed, "the leader died during the run"
    assert max(query.batch_id or 0 for query in status.queries) >= RECORDS // BATCH_ROWS - 1

    expected = Counter(b"%d" % (2 * number) for number in range(RECORDS) if number % 3)
    assert Counter(committed_values(secured, "twice")) == expected
    bad = Counter(b"not JSON %d" % number for number in range(0, RECORDS, 50))
    assert Counter(committed_values(secured, "numbers.dead")) == bad
    connection = load(file, environ={"PIPE_PASSWORD": f"{PLANTED}-512"}).kafka
    with closing(Cluster(secured.cluster.bootstrap_servers, connection)) as cluster:
        positions = Groups(cluster, 30_000).committed(["secured.twice", "secured.numbers.dead-letters"])
    assert [{where.topic for where in position} for position in positions.values()] == [{"numbers"}] * 2

    shown = [str(refused.value), *view.lines, repr(status), repr(load(file, environ={"PIPE_PASSWORD": PLANTED}))]
    assert [text for text in shown if PLANTED in text] == []
    state = [path for path in (file.parent / "state").rglob("*") if path.is_file()]
    assert any(path.parent.name == "offsets" for path in state)
    assert [path for path in state if PLANTED.encode() in path.read_bytes()] == []
    assert [line for line in command_lines() if PLANTED in line] == []
    secured.cluster.restart(killed[0])


def command_lines() -> list[str]:
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if path.parent.name != str(os.getpid()):
                lines.append(path.read_text(errors="replace"))
    return lines


def _logins(vault: Vault) -> Mapping[str, dict[str, str]]:
    """Return the ways to log in, as users of Spark write them."""
    trusted = pkcs12.serialize_key_and_certificates(
        b"trusted", None, None, [vault.authority.certificate], BestAvailableEncryption(PASSWORD.encode())
    )
    (vault.directory / "trusted.p12").write_bytes(trusted)
    pem = {"ssl.truststore.type": "PEM", "ssl.truststore.location": vault.trusted}
    store = str(vault.directory / "trusted.p12")
    own = vault.authority.issue(user="pipe")
    return {
        "PLAIN and a PEM file": {
            **pem,
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": f'{PLAIN_MODULE} required username="admin" password="{PLANTED}";',
        },
        "SCRAM and PKCS12": {
            "ssl.truststore.type": "PKCS12",
            "ssl.truststore.location": store,
            "ssl.truststore.password": PASSWORD,
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.jaas.config": f'{SCRAM_MODULE} required username="pipe" password="{PLANTED}-256";',
        },
        "librdkafka's names, and a key": {
            "ssl.ca.location": vault.trusted,
            "ssl.keystore.type": "PEM",
            "ssl.keystore.key": own.key,
            "ssl.keystore.certificate.chain": own.chain,
            "sasl.mechanisms": "SCRAM-SHA-512",
            "sasl.username": "pipe",
            "sasl.password": f"{PLANTED}-512",
        },
    }


def test_every_way_to_log_in_works_and_plans_show_no_secret(secured: Secured, spark: SparkSession) -> None:
    secrets = [PLANTED, PASSWORD]
    for name, login in _logins(secured.vault).items():
        options = {"kafka.bootstrap.servers": secured.cluster.bootstrap_servers, "kafka.security.protocol": "SASL_SSL"}
        options |= {f"kafka.{key}": value for key, value in login.items()}
        rows = spark.createDataFrame([(name,)], "value string")
        rows.write.format("moldau").options(**options, topic="twice").mode("append").save()
        batch = spark.read.format("moldau").options(**options, subscribe="twice").load()
        assert batch.where(batch.value == name.encode()).count() == 1, name
        stream = spark.readStream.format("moldau").options(**options, subscribe="twice").load()
        shown = io.StringIO()
        with contextlib.redirect_stdout(shown):
            batch.explain(True)
            stream.explain(True)
        assert "kafka.security.protocol=SASL_SSL" in shown.getvalue()
        secrets += [line for line in login.get("ssl.keystore.key", "").splitlines() if "-----" not in line]
        assert [secret for secret in secrets if secret in shown.getvalue()] == []
