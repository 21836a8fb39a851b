"""SASL, TLS and ACLs together: a cluster of three nodes, and users with different permissions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from harness.certificates import Vault
from harness.patience import PATIENCE_S, wait_until

from moldau.cli.kafka import acls, configs
from moldau.security.authorizer_settings import STANDARD_AUTHORIZER
from moldau.testing.cluster import TestCluster

pytestmark = pytest.mark.moldau_only
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
NODES = f'{PLAIN_MODULE} required username="node" password="n0de" user_node="n0de" user_admin="r00t";'


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[TestCluster, Path]]:
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
    cluster = TestCluster(directory / "data", 3, settings).start()
    (directory / "trusted").write_text(vault.trusted)
    yield cluster, directory
    cluster.stop_all()


def client(secured: tuple[TestCluster, Path], user: str, password: str, mechanism: str = "PLAIN") -> dict[str, Any]:
    cluster, directory = secured
    return {
        "bootstrap.servers": cluster.bootstrap_servers,
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": (directory / "trusted").read_text(),
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": password,
        "log_level": 0,
    }


def client_file(secured: tuple[TestCluster, Path]) -> str:
    _, directory = secured
    file = directory / "admin.properties"
    file.write_text(
        "security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nssl.truststore.type=PEM\n"
        f"ssl.truststore.location={(directory / 'trusted').read_text()}\n"
        f'sasl.jaas.config={PLAIN_MODULE} required username="admin" password="r00t";\n'
    )
    return str(file)


def test_users_can_do_only_what_their_acls_allow(secured: tuple[TestCluster, Path]) -> None:
    cluster, _ = secured
    config = ["--bootstrap-server", cluster.bootstrap_servers, "--command-config", client_file(secured)]
    admin = AdminClient(client(secured, "admin", "r00t"))
    for topic in ("orders", "secrets"):
        admin.create_topics([NewTopic(topic, 2, 3)])[topic].result(PATIENCE_S)
    for user, mechanism in (("ann", "SCRAM-SHA-256"), ("bob", "SCRAM-SHA-512")):
        change = f"{mechanism}=[iterations=4096,password=pw-of-{user}]"
        words = ["--alter", "--entity-type", "users", "--entity-name", user, "--add-config", change]
        assert configs.main([*words, *config]) == 0
    assert acls.main(["--add", "--allow-principal", "User:ann", "--producer", "--topic", "orders", *config]) == 0
    words = ["--add", "--allow-principal", "User:bob", "--consumer", "--topic", "orders", "--group", "readers"]
    assert acls.main([*words, *config]) == 0

    ann = client(secured, "ann", "pw-of-ann", "SCRAM-SHA-256")
    errors: list[str] = []
    wait_until(lambda: _may_produce(ann), "every node knows the ACLs of ann")
    producer = Producer({**ann, "acks": "all"})
    for number in range(100):
        producer.produce("orders", b"%d" % number)
    assert producer.flush(PATIENCE_S) == 0
    producer.produce("secrets", b"x", on_delivery=lambda error, _: errors.append(str(error)))
    producer.flush(PATIENCE_S)
    assert "TOPIC_AUTHORIZATION_FAILED" in errors[0]

    bob = client(secured, "bob", "pw-of-bob", "SCRAM-SHA-512")
    consumer = Consumer({**bob, "group.id": "readers", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    values = set()
    while len(values) < 100:
        message = consumer.poll(PATIENCE_S)
        assert message is not None
        if message.error() is None:
            values.add(message.value())
    consumer.close()
    admin_of_bob = AdminClient(bob)
    assert "secrets" not in admin_of_bob.list_topics(timeout=PATIENCE_S).topics
    with pytest.raises(KafkaException, match="TOPIC_AUTHORIZATION_FAILED"):
        admin_of_bob.delete_topics(["orders"])["orders"].result(PATIENCE_S)


def _may_produce(config: dict[str, Any]) -> bool:
    outcomes: list[Any] = []
    producer = Producer({**config, "message.timeout.ms": 5000})
    for partition in range(2):
        producer.produce("orders", b"first", partition=partition, on_delivery=lambda error, _: outcomes.append(error))
    producer.flush(PATIENCE_S)
    return outcomes == [None, None]


def test_a_producer_survives_a_killed_leader(secured: tuple[TestCluster, Path]) -> None:
    cluster, _ = secured
    admin = client(secured, "admin", "r00t")
    creator = AdminClient(admin)
    creator.create_topics([NewTopic("survives", 1, 3)])["survives"].result(PATIENCE_S)
    cluster.wait_for_isr("survives", 0, {1, 2, 3})
    producer = Producer({**admin, "acks": "all"})
    outcomes: list[Any] = []
    for _ in range(50):
        producer.produce("survives", b"x", on_delivery=lambda error, _: outcomes.append(error))
    leader = cluster.leader_of("survives", 0)
    assert leader is not None
    cluster.kill(leader)
    for _ in range(50):
        producer.produce("survives", b"x", on_delivery=lambda error, _: outcomes.append(error))
    assert producer.flush(PATIENCE_S) == 0
    assert outcomes == [None] * 100
    cluster.restart(leader)
    cluster.wait_for_isr("survives", 0, {1, 2, 3})


@pytest.mark.parametrize(("user", "mechanism"), [("admin", "PLAIN"), ("nobody", "SCRAM-SHA-256")])
def test_wrong_passwords_are_refused(secured: tuple[TestCluster, Path], user: str, mechanism: str) -> None:
    errors: list[str] = []
    wrong = {**client(secured, user, "wrong", mechanism), "error_cb": lambda error: errors.append(error.name())}
    refused = AdminClient(wrong)
    wait_until(lambda: refused.poll(0.1) or "_AUTHENTICATION" in errors, f"_AUTHENTICATION among {errors}")


@pytest.mark.parametrize(
    ("protocol", "reason"),
    [
        ("SASL_PLAINTEXT", "it does not use TLS; this listener does"),
        ("SSL", "Metadata before authentication; is the client's security.protocol right?"),
    ],
)
def test_a_client_with_another_protocol_is_refused_and_the_reason_is_logged(
    secured: tuple[TestCluster, Path], protocol: str, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    refused = AdminClient({**client(secured, "admin", "r00t"), "security.protocol": protocol})
    wait_until(lambda: refused.poll(0.1) or reason in caplog.text, f"the log has: {reason}")
