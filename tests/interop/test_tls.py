"""TLS with real clients: confluent-kafka, kafka-python and aiokafka on one broker, and TLS between cluster nodes."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import kafka
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType
from harness.certificates import Vault
from harness.patience import PATIENCE_S, wait_until

from moldau.client.channel import Channel
from moldau.client.properties import security
from moldau.runtime import node_tls
from moldau.testing import broker, cluster
from moldau.wire.apis import ApiKey
from moldau.wire.frames import request_frame
from moldau.wire.messages.api_versions import ApiVersionsRequest
from moldau.wire.messages.metadata import MetadataRequest, MetadataResponse

pytestmark = pytest.mark.moldau_only

RECORD_BYTES = 250_000
RECORDS = 40
FETCH_BYTES = 1 << 20
VALUES = [bytes((number,)) * RECORD_BYTES for number in range(RECORDS)]
RULES = "RULE:^CN=(.*?),OU=tests,O=Moldau$/$1/"


class Keys:
    """The files of a client."""

    def __init__(self, vault: Vault, user: str | None) -> None:
        self.trusted = vault.trusted
        self.key = None if user is None else vault.issue(user, user=user)

    @property
    def context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self.trusted)
        if self.key is not None:
            context.load_cert_chain(self.key)
        return context

    def confluent(self, bootstrap: str, **more: Any) -> dict[str, Any]:
        files = {"ssl.certificate.location": self.key, "ssl.key.location": self.key} if self.key else {}
        common = {"bootstrap.servers": bootstrap, "security.protocol": "ssl", "ssl.ca.location": self.trusted}
        return {**common, **files, "log_level": 0, **{name.replace("_", "."): value for name, value in more.items()}}

    def java(self) -> dict[str, str]:
        files = {"ssl.keystore.type": "PEM", "ssl.keystore.location": self.key} if self.key else {}
        trust = {"ssl.truststore.type": "PEM", "ssl.truststore.location": self.trusted}
        return {"security.protocol": "SSL", **trust, **files}


def confluent_round_trip(bootstrap: str, topic: str, keys: Keys) -> list[bytes]:
    producer = Producer(keys.confluent(bootstrap, linger_ms=0, message_max_bytes=2_000_000))
    for value in VALUES:
        producer.produce(topic, value, partition=0)
    assert producer.flush(PATIENCE_S) == 0
    consumer = Consumer(
        keys.confluent(bootstrap, group_id="unused", enable_auto_commit=False, fetch_message_max_bytes=FETCH_BYTES)
    )
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    try:
        return read_confluent(consumer, RECORDS)
    finally:
        consumer.close()


def read_confluent(consumer: Consumer, count: int) -> list[bytes]:
    values: list[bytes] = []
    while len(values) < count:
        message = consumer.poll(PATIENCE_S)
        assert message is not None
        assert message.error() is None, message.error()
        values.append(message.value() or b"")
    return values


def kafka_python_round_trip(bootstrap: str, topic: str, keys: Keys) -> list[bytes]:
    common: dict[str, Any] = {
        "bootstrap_servers": bootstrap,
        "security_protocol": "SSL",
        "ssl_cafile": keys.trusted,
        "ssl_certfile": keys.key,
        "ssl_keyfile": keys.key,
    }
    producer = kafka.KafkaProducer(**common, max_request_size=2_000_000)
    for future in [producer.send(topic, value, partition=0) for value in VALUES]:
        future.get(PATIENCE_S)
    producer.close()
    consumer = kafka.KafkaConsumer(
        **common, max_partition_fetch_bytes=FETCH_BYTES, consumer_timeout_ms=int(PATIENCE_S * 1000)
    )
    place = kafka.TopicPartition(topic, 0)
    consumer.assign([place])
    consumer.seek_to_beginning(place)
    try:
        return [next(consumer).value for _ in range(RECORDS)]
    finally:
        consumer.close()


def aiokafka_round_trip(bootstrap: str, topic: str, keys: Keys) -> list[bytes]:
    async def talk() -> list[bytes]:
        common: dict[str, Any] = {
            "bootstrap_servers": bootstrap,
            "security_protocol": "SSL",
            "ssl_context": keys.context,
        }
        async with AIOKafkaProducer(**common, max_request_size=2_000_000) as producer:
            for value in VALUES:
                await producer.send_and_wait(topic, value, partition=0)
        consumer = AIOKafkaConsumer(
            topic, **common, auto_offset_reset="earliest", max_partition_fetch_bytes=FETCH_BYTES
        )
        async with consumer:
            return [(await consumer.getone()).value for _ in range(RECORDS)]

    return asyncio.run(asyncio.wait_for(talk(), PATIENCE_S))


ROUND_TRIPS = {
    "confluent": confluent_round_trip,
    "kafka-python": kafka_python_round_trip,
    "aiokafka": aiokafka_round_trip,
}
RoundTrip = Callable[[str, str, Keys], list[bytes]]


@pytest.fixture(scope="module")
def vault(tmp_path_factory: pytest.TempPathFactory) -> Vault:
    return Vault(tmp_path_factory.mktemp("keys"))


@pytest.fixture(scope="module")
def tls_broker(vault: Vault) -> Iterator[str]:
    with broker(**{"listeners": "SSL://127.0.0.1:0", **vault.server()}) as running:
        yield running.bootstrap_servers


@pytest.fixture(scope="module")
def mutual_broker(vault: Vault) -> Iterator[str]:
    """A broker that requires client certificates; only alice has permissions."""
    properties = {
        "listeners": "SSL://127.0.0.1:0",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:alice",
        **vault.server(client_auth="required", principal_mapping_rules=RULES),
    }
    with broker(**properties) as running:
        yield running.bootstrap_servers


@pytest.mark.parametrize("client", ROUND_TRIPS)
def test_records_are_produced_and_consumed_over_tls(tls_broker: str, vault: Vault, client: str) -> None:
    assert ROUND_TRIPS[client](tls_broker, f"tls-{client}", Keys(vault, None)) == VALUES


@pytest.mark.parametrize("client", ROUND_TRIPS)
def test_a_client_with_a_certificate_is_the_mapped_user(mutual_broker: str, vault: Vault, client: str) -> None:
    assert ROUND_TRIPS[client](mutual_broker, f"mutual-{client}", Keys(vault, "alice")) == VALUES


def test_a_client_with_another_certificate_is_not_authorized(mutual_broker: str, vault: Vault) -> None:
    topic = "not-for-bob"
    admin = AdminClient(Keys(vault, "alice").confluent(mutual_broker))
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(PATIENCE_S)
    errors: list[KafkaError | None] = []
    producer = Producer(Keys(vault, "bob").confluent(mutual_broker))
    producer.produce(topic, b"x", on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(PATIENCE_S) == 0
    (error,) = errors
    assert error is not None
    assert error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


def test_our_channel_accepts_java_properties(mutual_broker: str, vault: Vault) -> None:
    host, _, port = mutual_broker.rpartition(":")
    with Channel(host, int(port), security(Keys(vault, "alice").java())) as channel:
        answered = channel.ask(ApiKey.METADATA, MetadataRequest(topics=[]), MetadataResponse)
    assert [node.port for node in answered.brokers] == [int(port)]


def check_refused(config: dict[str, Any]) -> None:
    """Check that a client gets no metadata, and reports an error."""
    errors: list[KafkaError] = []
    client = AdminClient({**config, "error_cb": errors.append, "reconnect.backoff.ms": 1000})
    with pytest.raises(KafkaException):
        client.list_topics(timeout=2)
    wait_until(lambda: (client.poll(0.1), errors)[1], "the client reports an error")


@pytest.mark.parametrize("case", ["wrong-authority", "no-certificate", "plaintext", "expired"])
def test_an_unacceptable_client_is_refused_with_a_warning(
    mutual_broker: str, vault: Vault, tmp_path: Path, case: str, caplog: pytest.LogCaptureFixture
) -> None:
    config = Keys(vault, None).confluent(mutual_broker)
    line = "peer did not return a certificate"
    if case == "wrong-authority":
        config, line = Keys(Vault(tmp_path), "eve").confluent(mutual_broker), "closed: TLS handshake failed"
    elif case == "expired":
        key = vault.issue("expired", user="alice", expired=True)
        config |= {"ssl.certificate.location": key, "ssl.key.location": key}
        line = "certificate has expired"
    elif case == "plaintext":
        config, line = {"bootstrap.servers": mutual_broker, "log_level": 0}, "it does not use TLS; this listener does"
    check_refused(config)
    server_lines = [record for record in caplog.records if record.name == "moldau.server"]
    assert {record.levelno for record in server_lines} == {logging.WARNING}
    messages = [record.getMessage() for record in server_lines]
    assert any(line in each for each in messages), messages
    # A client that is closed during another attempt ends the handshake itself.
    assert [each for each in messages if line not in each and "it ended the TLS handshake" not in each] == []
    AdminClient(Keys(vault, "alice").confluent(mutual_broker)).list_topics(timeout=PATIENCE_S)


def test_a_tls_client_on_a_plaintext_port_is_refused(vault: Vault) -> None:
    with broker() as running:
        check_refused(Keys(vault, None).confluent(running.bootstrap_servers))
        AdminClient({"bootstrap.servers": running.bootstrap_servers}).list_topics(timeout=PATIENCE_S)


def test_certificates_are_renewed_while_clients_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(node_tls, "CHECK_INTERVAL_S", 0.05)
    vault = Vault(tmp_path)
    errors: list[KafkaError] = []
    with broker(**{"listeners": "SSL://127.0.0.1:0", **vault.server()}) as running:
        keys = Keys(vault, None)
        producer = Producer(keys.confluent(running.bootstrap_servers, linger_ms=0))

        def produce(count: int) -> None:
            for _ in range(count):
                producer.produce("renewed", b"x", on_delivery=lambda error, _: errors.append(error) if error else None)
            assert producer.flush(PATIENCE_S) == 0

        produce(10)
        first = certificate_serial(running.bootstrap_servers, keys)
        vault.spoil("node")
        wait_until(lambda: "the old certificates stay in use" in caplog.text, "the bad file is logged")
        assert certificate_serial(running.bootstrap_servers, keys) == first
        produce(10)
        vault.issue("node")
        wait_until(lambda: certificate_serial(running.bootstrap_servers, keys) != first, "the renewed certificate")
        produce(10)
        consumer = Consumer(keys.confluent(running.bootstrap_servers, group_id="unused"))
        consumer.assign([TopicPartition("renewed", 0, OFFSET_BEGINNING)])
        assert len(read_confluent(consumer, 30)) == 30
        consumer.close()
    assert errors == []


def certificate_serial(bootstrap: str, keys: Keys) -> str:
    """Return the serial number of the broker's certificate."""
    host, _, port = bootstrap.rpartition(":")
    plain = socket.create_connection((host, int(port)))
    with keys.context.wrap_socket(plain, server_hostname=host) as tls:
        certificate = tls.getpeercert()
    assert certificate is not None
    return str(certificate["serialNumber"])


NOT_TRUSTED = "this node's certificate is not accepted with the trust store in use"


def change_listener(admin: AdminClient, node: int, key: str, path: str) -> None:
    entry = ConfigEntry(f"listener.name.plaintext.ssl.{key}", path, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.BROKER, str(node), incremental_configs=[entry])

    def is_accepted() -> bool:
        try:
            admin.incremental_alter_configs([resource])[resource].result(PATIENCE_S)
        except KafkaException as refused:
            if NOT_TRUSTED not in str(refused):
                raise
            return False
        return True

    # A broker may answer before it knows of the last change itself.
    wait_until(is_accepted, f"node {node} accepts {key}")


def test_a_cluster_uses_tls_among_its_nodes(vault: Vault, tmp_path: Path) -> None:
    """Brokers and controllers authenticate each other by certificates; a killed leader is replaced. Meanwhile the
    brokers get certificates of another authority, by dynamic configs."""
    other = Vault(tmp_path)
    both = tmp_path / "both.pem"
    both.write_text(vault.authority.pem + other.authority.pem)
    properties = {
        "listener.security.protocol.map": "PLAINTEXT:SSL,CONTROLLER:SSL",
        **vault.server(client_auth="required"),
    }
    topic, keys = "replicated", Keys(vault, "alice")
    keys.trusted = str(both)
    with cluster(3, **properties) as running:
        admin = AdminClient(keys.confluent(running.bootstrap_servers))
        admin.create_topics([NewTopic(topic, 1, 3)])[topic].result(PATIENCE_S)
        running.wait_for_isr(topic, 0, {1, 2, 3})
        producer = Producer(keys.confluent(running.bootstrap_servers, linger_ms=0, acks="all"))
        values = [b"%d" % number for number in range(200)]
        for value in values[:100]:
            producer.produce(topic, value, partition=0)
        assert producer.flush(PATIENCE_S) == 0
        for node in running.nodes.values():
            for port in (int(node.address.rpartition(":")[2]), node.settings.controller_listeners[0].port):
                assert plaintext_answer(port) == b""
        for key, path in (("truststore.location", str(both)), ("keystore.location", other.node)):
            for node_id in running.nodes:
                change_listener(admin, node_id, key, path)
        leader = running.leader_of(topic, 0)
        assert leader is not None
        running.kill(leader)
        for value in values[100:]:
            producer.produce(topic, value, partition=0)
        assert producer.flush(PATIENCE_S) == 0
        running.restart(leader)
        running.wait_for_isr(topic, 0, {1, 2, 3})
        consumer = Consumer(keys.confluent(running.bootstrap_servers, group_id="g", auto_offset_reset="earliest"))
        consumer.subscribe([topic])
        assert read_confluent(consumer, 200) == values
        consumer.close()


def plaintext_answer(port: int) -> bytes:
    """Return what a node answers to a request without TLS."""
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as plain:
        plain.sendall(request_frame(ApiKey.API_VERSIONS, 0, 1, "c", ApiVersionsRequest()))
        try:
            return plain.recv(100)
        except ConnectionError:
            return b""
