"""SASL as clients see it: three libraries and Kafka's tools, against one broker and a cluster, on real sockets."""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import kafka
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioTopicPartition
from clients import produce_or_raise
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from harness.depth import sample
from harness.patience import PATIENCE_S, wait_until

from moldau.cli.kafka import configs, storage
from moldau.security.sasl.exchange import Phase, SaslExchange
from moldau.testing.broker import TestBroker
from moldau.testing.cluster import TestCluster

pytestmark = pytest.mark.moldau_only

PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
USER, PASSWORD = "ann", "s3cr3t=pass, word"
USERS = f'{PLAIN_MODULE} required username="node" password="n0de" user_node="n0de" user_{USER}="{PASSWORD}";'
SETTINGS = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
    "sasl.enabled.mechanisms": ",".join(MECHANISMS),
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": USERS,
    "num.partitions": "1",
}


def client_file(directory: Path, mechanism: str, user: str = USER, password: str = PASSWORD) -> str:
    """Write the properties of a client of Kafka's tools."""
    module = PLAIN_MODULE if mechanism == "PLAIN" else SCRAM_MODULE
    file = directory / f"{mechanism}-{user}.properties"
    file.write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\n"
        f'sasl.jaas.config={module} required username="{user}" password="{password}";\n'
    )
    return str(file)


def add_user(bootstrap: str, config: str, user: str, password: str, mechanism: str) -> None:
    change = f"{mechanism}=[iterations=4096,password={password}]"
    arguments = ["--alter", "--entity-type", "users", "--entity-name", user, "--add-config", change]
    assert configs.main(["--bootstrap-server", bootstrap, "--command-config", config, *arguments]) == 0


@pytest.fixture(scope="module")
def sasl_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestBroker]:
    directory = tmp_path_factory.mktemp("sasl")
    running = TestBroker(directory / "data", SETTINGS).start()
    admin_file = client_file(directory, "PLAIN")
    for mechanism in MECHANISMS[1:]:
        add_user(running.bootstrap_servers, admin_file, USER, PASSWORD, mechanism)
    yield running
    running.stop()


def confluent(bootstrap: str, mechanism: str, password: str, user: str = USER) -> dict[str, Any]:
    return {
        "bootstrap.servers": bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": password,
    }


def round_trip_confluent(bootstrap: str, mechanism: str, password: str, topic: str) -> bytes:
    settings = confluent(bootstrap, mechanism, password)
    produce_or_raise({**settings, "log_level": 0}, topic, b"hello")
    consumer = Consumer({**settings, "group.id": f"g-{topic}", "auto.offset.reset": "earliest"})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        message = consumer.poll(PATIENCE_S)
        assert message is not None
        assert message.error() is None
        value = message.value()
        assert isinstance(value, bytes)
        return value
    finally:
        consumer.close()


def check_kafka_python_login(settings: dict[str, Any]) -> None:
    """Raise PermissionError if kafka-python cannot log in. Its own process, because it leaves sockets open."""
    script = "import json, sys, kafka; kafka.KafkaProducer(**json.loads(sys.argv[1]))"
    ran = subprocess.run([sys.executable, "-c", script, json.dumps(settings)], capture_output=True, text=True)
    if ran.returncode:
        assert "Unable to bootstrap" in ran.stderr, ran.stderr
        raise PermissionError


def round_trip_kafka_python(bootstrap: str, mechanism: str, password: str, topic: str) -> bytes:
    settings = {
        "bootstrap_servers": bootstrap,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": USER,
        "sasl_plain_password": password,
        "bootstrap_timeout_ms": 3000 if password != PASSWORD else 60_000,
    }
    if password != PASSWORD:
        check_kafka_python_login(settings)
    producer = kafka.KafkaProducer(**settings)
    try:
        producer.send(topic, b"hello", partition=0).get(PATIENCE_S)
    finally:
        producer.close()
    consumer = kafka.KafkaConsumer(
        **settings, group_id=None, auto_offset_reset="earliest", consumer_timeout_ms=int(PATIENCE_S * 1000)
    )
    try:
        consumer.assign([kafka.TopicPartition(topic, 0)])
        return bytes(next(consumer).value)
    finally:
        consumer.close()


def round_trip_aiokafka(bootstrap: str, mechanism: str, password: str, topic: str) -> bytes:
    settings = {
        "bootstrap_servers": bootstrap,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": USER,
        "sasl_plain_password": password,
    }

    async def talk() -> bytes:
        producer = AIOKafkaProducer(**settings)
        try:
            await producer.start()
        except Exception as error:
            await producer.stop()
            raise PermissionError(repr(error)) from error
        await producer.send_and_wait(topic, b"hello", partition=0)
        await producer.stop()
        consumer = AIOKafkaConsumer(**settings, group_id=None, auto_offset_reset="earliest")
        await consumer.start()
        try:
            consumer.assign([AioTopicPartition(topic, 0)])
            record = await asyncio.wait_for(consumer.getone(), PATIENCE_S)
            return bytes(record.value)
        finally:
            await consumer.stop()

    return asyncio.run(talk())


RoundTrip = Callable[[str, str, str, str], bytes]
LIBRARIES: dict[str, RoundTrip] = {
    "confluent": round_trip_confluent,
    "kafka-python": round_trip_kafka_python,
    "aiokafka": round_trip_aiokafka,
}
EVERY_LIBRARY = pytest.mark.parametrize("library", LIBRARIES)
EVERY_MECHANISM = pytest.mark.parametrize("mechanism", MECHANISMS)


def create(bootstrap: str, name: str, replicas: int = 1, **login: str) -> None:
    admin = AdminClient(confluent(bootstrap, "PLAIN", PASSWORD, **login))
    admin.create_topics([NewTopic(name, 1, replicas)])[name].result(PATIENCE_S)


@EVERY_LIBRARY
@EVERY_MECHANISM
def test_a_client_logs_in_with_the_right_password(sasl_broker: TestBroker, library: str, mechanism: str) -> None:
    topic = f"right-{library}-{mechanism}".lower()
    create(sasl_broker.bootstrap_servers, topic)
    assert LIBRARIES[library](sasl_broker.bootstrap_servers, mechanism, PASSWORD, topic) == b"hello"


def broker_lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name.startswith("moldau")]


@pytest.mark.parametrize(("library", "mechanism"), sample(itertools.product(LIBRARIES, MECHANISMS), 2))
def test_a_wrong_password_is_refused_and_logged(
    sasl_broker: TestBroker, library: str, mechanism: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, logger="moldau"):
        with pytest.raises(PermissionError):
            LIBRARIES[library](sasl_broker.bootstrap_servers, mechanism, "wr0ng-planted", "nothing")
        # The broker logs the line after it has answered, in its own thread.
        lines = wait_until(
            lambda: [*broker_lines(caplog)] if any(line.startswith("login ") for line in broker_lines(caplog)) else [],
            "the broker logs the login",
        )
    assert any("authentication failed" in line for line in lines)
    assert any(f" mechanism={mechanism} user={USER} result=FAILED " in line for line in lines)
    assert not [line for line in lines if "wr0ng-planted" in line or PASSWORD in line]


def test_users_are_added_changed_and_removed_at_run_time(
    sasl_broker: TestBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bootstrap, admin_file = sasl_broker.bootstrap_servers, client_file(tmp_path, "PLAIN")

    def can_log_in(password: str) -> bool:
        errors: list[Any] = []
        settings = confluent(bootstrap, "SCRAM-SHA-512", password, "eve")
        admin = AdminClient({**settings, "log_level": 0, "error_cb": errors.append})
        topics: list[Any] = []

        def has_outcome() -> bool:
            try:
                topics.append(admin.list_topics(timeout=1))
            except KafkaException:
                admin.poll(0)
            return bool(topics or errors)

        wait_until(has_outcome, "the broker accepts or refuses the login")
        return bool(topics)

    def tool(*arguments: str) -> str:
        entity = ["--entity-type", "users", "--entity-name", "eve"]
        common = ["--bootstrap-server", bootstrap, "--command-config", admin_file]
        assert configs.main([*common, *arguments, *entity]) == 0
        return capsys.readouterr().out

    assert not can_log_in("first")
    add_user(bootstrap, admin_file, "eve", "first", "SCRAM-SHA-512")
    assert capsys.readouterr().out == "Completed updating config for user eve.\n"
    assert can_log_in("first")
    described = tool("--describe")
    assert described == "SCRAM credential configs for user-principal 'eve' are SCRAM-SHA-512=iterations=4096\n"
    add_user(bootstrap, admin_file, "eve", "second", "SCRAM-SHA-512")
    assert can_log_in("second")
    assert not can_log_in("first")
    capsys.readouterr()
    tool("--alter", "--delete-config", "SCRAM-SHA-512")
    assert not can_log_in("second")
    assert tool("--describe") == ""


def test_passwords_are_not_in_described_configs(sasl_broker: TestBroker) -> None:
    from confluent_kafka.admin import ConfigResource

    admin = AdminClient(confluent(sasl_broker.bootstrap_servers, "PLAIN", PASSWORD))
    (described,) = admin.describe_configs([ConfigResource(ConfigResource.Type.BROKER, "1")]).values()
    found = described.result(PATIENCE_S)
    assert "sasl.enabled.mechanisms" in found
    assert not [entry for entry in found.values() if PASSWORD in str(entry.value) or "n0de" in str(entry.value)]


# --- hostile clients --------------------------------------------------------------------------------------------


def connect(broker: TestBroker) -> socket.socket:
    host, _, port = broker.bootstrap_servers.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=PATIENCE_S)


def request(key: int, version: int, body: bytes) -> bytes:
    data = struct.pack(">hhih", key, version, 1, -1) + body
    return struct.pack(">i", len(data)) + data


def handshake(mechanism: bytes, version: int = 1) -> bytes:
    return request(17, version, struct.pack(">h", len(mechanism)) + mechanism)


def token(data: bytes) -> bytes:
    return request(36, 0, struct.pack(">i", len(data)) + data)


HOSTILE = {
    "metadata": request(3, 0, struct.pack(">i", 0)),
    "produce": request(0, 3, bytes(50)),
    "HTTP": b"GET / HTTP/1.1\r\n\r\n",
    "TLS": bytes.fromhex("1603010200010001fc0303") + bytes(500),
    "a token first": token(b"\0ann\0x"),
    "a huge frame": struct.pack(">i", 100_000_000),
    "a negative frame": struct.pack(">i", -1),
    "garbage tokens": handshake(b"PLAIN") + token(bytes(range(256)) * 4),
    "garbage for SCRAM": handshake(b"SCRAM-SHA-256") + token(b"n,,n=" + b"\xff" * 500),
    "raw garbage": handshake(b"PLAIN", 0) + struct.pack(">i", 900) + b"\xfe" * 900,
    "an endless token": handshake(b"PLAIN") + token(b"\0" + b"a" * 500_000),
    "a truncated token": handshake(b"PLAIN") + request(36, 0, struct.pack(">i", 1 << 30) + b"x"),
    "metadata in between": handshake(b"PLAIN") + request(3, 0, struct.pack(">i", 0)),
    "an unknown mechanism": handshake(b"\xf0\x9f\x90\x8d"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_bytes_close_only_their_connection(sasl_broker: TestBroker, name: str) -> None:
    with connect(sasl_broker) as attacker:
        attacker.sendall(HOSTILE[name])
        received = b""
        try:
            while piece := attacker.recv(65_536):
                received += piece
        except ConnectionResetError:
            pass
        assert len(received) < 1000
    assert AdminClient(confluent(sasl_broker.bootstrap_servers, "PLAIN", PASSWORD)).list_topics(timeout=PATIENCE_S)


def test_a_slow_client_does_not_block_others(sasl_broker: TestBroker) -> None:
    with connect(sasl_broker) as slow:
        for byte in handshake(b"PLAIN")[:6]:
            slow.sendall(bytes([byte]))
            admin = AdminClient(confluent(sasl_broker.bootstrap_servers, "PLAIN", PASSWORD))
            assert admin.list_topics(timeout=PATIENCE_S)


def test_the_response_to_a_wrong_password_is_delayed(tmp_path: Path) -> None:
    delayed = {**SETTINGS, "connection.failed.authentication.delay.ms": "3000"}
    broker = TestBroker(tmp_path / "data", delayed).start()
    try:
        with connect(broker) as attacker:
            attacker.sendall(handshake(b"PLAIN") + token(b"\0ann\0wrong"))
            began = time.monotonic()
            admin = AdminClient(confluent(broker.bootstrap_servers, "PLAIN", PASSWORD))
            assert admin.list_topics(timeout=PATIENCE_S)
            received = b""
            while piece := attacker.recv(65_536):
                received += piece
            assert time.monotonic() - began >= 2.9
            assert b"Authentication failed: Invalid username or password" in received
    finally:
        broker.stop()


def test_librdkafka_reauthenticates_before_its_session_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """librdkafka authenticates again in time, on the same connection."""
    monkeypatch.setattr("moldau.security.sasl.exchange.REAUTHENTICATION_INTERVAL_MS_MIN", 0)  # the client may be late
    lifetime_s = 5  # librdkafka authenticates again when a tenth of it is left
    settings = {**SETTINGS, "connections.max.reauth.ms": str(lifetime_s * 1000)}
    broker = TestBroker(tmp_path / "data", settings).start()
    try:
        create(broker.bootstrap_servers, "t")
        errors: list[Any] = []
        producer = Producer(
            {**confluent(broker.bootstrap_servers, "PLAIN", PASSWORD), "error_cb": errors.append, "acks": "all"}
        )
        delivered: list[Any] = []
        began = time.monotonic()
        while time.monotonic() < began + lifetime_s + 1:
            producer.produce("t", b"x", on_delivery=lambda error, _: delivered.append(error))
            producer.flush(PATIENCE_S)
            producer.poll(0.1)
        assert set(delivered) == {None}
        assert not errors
    finally:
        broker.stop()


# --- storage and clusters ---------------------------------------------------------------------------------------


def test_a_user_of_kafka_storage_format_can_log_in(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    properties = {**SETTINGS, "log.dirs": str(tmp_path / "data"), "node.id": "1"}
    file = tmp_path / "server.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    user = "SCRAM-SHA-256=[name=ann,password=f1rst]"
    arguments = ["format", "-t", "MkU3OEVBNTcwNTJENDM2Qg", "-c", str(file), "--add-scram", user]
    assert storage.main(arguments) == 0
    printed = capsys.readouterr()
    assert "f1rst" not in printed.out + printed.err
    for _ in range(2):
        broker = TestBroker(tmp_path / "data", {**SETTINGS, "node.id": "1"}).start()
        try:
            admin = AdminClient(confluent(broker.bootstrap_servers, "SCRAM-SHA-256", "f1rst"))
            assert admin.list_topics(timeout=PATIENCE_S)
        finally:
            broker.stop()


CLUSTER = {
    "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    "sasl.mechanism.controller.protocol": "PLAIN",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.plaintext.plain.sasl.jaas.config": USERS,
    "listener.name.controller.plain.sasl.jaas.config": USERS,
    "connections.max.reauth.ms": "3000",
}


def test_a_cluster_uses_sasl_among_its_nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reauthenticated: list[str] = []
    handshake = SaslExchange.handshake

    def recording_handshake(exchange: SaslExchange, *arguments: Any) -> Any:
        if exchange.phase is Phase.AUTHENTICATED:
            reauthenticated.append(str(exchange.principal))
        return handshake(exchange, *arguments)

    monkeypatch.setattr(SaslExchange, "handshake", recording_handshake)
    cluster = TestCluster(tmp_path, 3, CLUSTER).start()
    try:
        create(cluster.bootstrap_servers, "replicated", 3)
        add_user(cluster.bootstrap_servers, client_file(tmp_path, "PLAIN"), USER, PASSWORD, "SCRAM-SHA-256")
        settings = confluent(cluster.bootstrap_servers, "SCRAM-SHA-256", PASSWORD)
        producer = Producer({**settings, "acks": "all"})
        delivered: list[Any] = []

        def produce(count: int) -> None:
            for _ in range(count):
                producer.produce("replicated", b"x", on_delivery=lambda error, _: delivered.append(error))
            producer.flush(PATIENCE_S)

        produce(10)
        wait_until(lambda: reauthenticated.count("User:node") >= 3, "the nodes authenticate to each other again")
        leader = cluster.leader_of("replicated", 0)
        assert leader is not None
        produce(10)
        cluster.kill(leader)
        produce(10)
        cluster.restart(leader)
        produce(10)
        assert delivered == [None] * 40
        consumer = Consumer({**settings, "group.id": "g", "auto.offset.reset": "earliest"})
        consumer.subscribe(["replicated"])
        messages = []
        deadline = time.monotonic() + PATIENCE_S
        while len(messages) < 40 and time.monotonic() < deadline:
            message = consumer.poll(1)
            if message is not None and message.error() is None:
                messages.append(message.value())
        consumer.close()
        assert messages == [b"x"] * 40
    finally:
        cluster.kill_all()
