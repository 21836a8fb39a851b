"""`moldau.testing` with `secure=True`: users, passwords and ACLs in a test."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from harness.patience import PATIENCE_S

from moldau.cli.kafka import topics
from moldau.testing import TestBroker, TestCluster, broker, cluster

pytestmark = pytest.mark.moldau_only


@pytest.fixture(scope="module", autouse=True)
def broker_answers() -> None:
    """These tests do not use the shared broker of this directory."""


def check_users_and_acls(kafka: TestBroker | TestCluster) -> None:
    """Check that ann can write and bob can read one topic, and that ann cannot write another."""
    admin = AdminClient({**kafka.client_config(), "log_level": "0"})
    for topic in ("orders", "secrets"):
        admin.create_topics([NewTopic(topic, 1)])[topic].result(PATIENCE_S)
    assert len(kafka.add_user("ann")) == 24
    assert kafka.add_user("bob", "bob's own") == "bob's own"
    kafka.allow("ann", "write", topic="orders")
    kafka.allow("bob", "read", topic="ord", group="rea", prefix=True)
    outcomes: dict[str, Any] = {}
    producer = Producer({**kafka.client_config("ann"), "log_level": "0"})
    for topic in ("orders", "secrets"):
        producer.produce(topic, b"one", on_delivery=lambda error, m: outcomes.update({m.topic(): error}))
    assert producer.flush(PATIENCE_S) == 0
    assert outcomes["orders"] is None
    assert outcomes["secrets"].name() == "TOPIC_AUTHORIZATION_FAILED"
    reader = Consumer(
        {**kafka.client_config("bob"), "group.id": "readers", "auto.offset.reset": "earliest", "log_level": "0"}
    )
    reader.subscribe(["orders"])
    message = reader.poll(PATIENCE_S)
    assert message is not None
    assert message.value() == b"one"
    reader.close()


def test_users_and_acls_of_a_secured_broker(moldau_secure_broker: TestBroker) -> None:
    check_users_and_acls(moldau_secure_broker)
    words = ["--list", "--bootstrap-server", moldau_secure_broker.bootstrap_servers]
    assert topics.main([*words, "--command-config", str(moldau_secure_broker.command_config("ann"))]) == 0
    assert moldau_secure_broker.authority_file.exists()


def test_users_and_acls_of_a_secured_cluster() -> None:
    with cluster(secure=True) as kafka:
        check_users_and_acls(kafka)
        leader = kafka.wait_for_leader("orders", 0)
        kafka.kill(leader)
        kafka.wait_for_leader("orders", 0, other_than=leader)
        producer = Producer({**kafka.client_config("ann"), "log_level": "0"})
        producer.produce("orders", b"two")
        assert producer.flush(PATIENCE_S) == 0


def test_a_secured_directory_is_reused(tmp_path: Path) -> None:
    with broker(tmp_path, secure=True) as kafka:
        admin = AdminClient(kafka.client_config())
        admin.create_topics([NewTopic("kept", 1)])["kept"].result(PATIENCE_S)
    with broker(tmp_path, secure=True) as kafka:
        assert "kept" in AdminClient(kafka.client_config()).list_topics(timeout=PATIENCE_S).topics


def test_without_security_clients_need_only_the_address() -> None:
    with broker() as kafka:
        assert kafka.client_config() == {"bootstrap.servers": kafka.bootstrap_servers}
        with pytest.raises(ValueError, match="start it with `secure=True`"):
            kafka.add_user("ann")


def test_the_admin_password_is_returned(moldau_secure_broker: TestBroker) -> None:
    config = moldau_secure_broker.client_config()
    assert moldau_secure_broker.password("admin") == config["sasl.password"]


def test_a_misspelt_operation_is_reported(moldau_secure_broker: TestBroker) -> None:
    with pytest.raises(ValueError, match="'wirte' is not an operation; expected some of all, read, write"):
        moldau_secure_broker.allow("ann", "wirte", topic="orders")


def test_an_unknown_user_is_reported(moldau_secure_broker: TestBroker) -> None:
    with pytest.raises(ValueError, match="no user 'eve' was added here"):
        moldau_secure_broker.client_config("eve")
    unauthenticated = AdminClient({"bootstrap.servers": moldau_secure_broker.bootstrap_servers, "log_level": 0})
    with pytest.raises(KafkaException):
        unauthenticated.list_topics(timeout=1)


def test_produce_reports_the_missing_permission(moldau_secure_broker: TestBroker) -> None:
    """librdkafka raises a fatal error out of `flush`, because the user does not even get a producer id."""
    admin = AdminClient(moldau_secure_broker.client_config())
    admin.create_topics([NewTopic("homework", 1)])["homework"].result(PATIENCE_S)
    moldau_secure_broker.add_user("bob")
    moldau_secure_broker.allow("bob", "describe", topic="homework")
    config = str(moldau_secure_broker.command_config("bob"))
    words = ["produce", "homework", "-b", moldau_secure_broker.bootstrap_servers, "--command-config", config]
    ran = subprocess.run(
        [sys.executable, "-m", "moldau", *words], input=b"x\n", capture_output=True, timeout=PATIENCE_S
    )
    assert ran.returncode == 1
    assert b"this user may not write to homework; `moldau acl allow USER --role producer" in ran.stderr
    assert b"Traceback" not in ran.stderr


def test_consume_without_a_group_needs_no_group_permission(moldau_secure_broker: TestBroker) -> None:
    admin = Producer(moldau_secure_broker.client_config())
    admin.produce("lessons", b"one")
    assert admin.flush(PATIENCE_S) == 0
    moldau_secure_broker.add_user("eve")
    moldau_secure_broker.allow("eve", "read", topic="lessons")
    config = str(moldau_secure_broker.command_config("eve"))
    words = [
        "consume",
        "lessons",
        "-o",
        ":end",
        "-b",
        moldau_secure_broker.bootstrap_servers,
        "--command-config",
        config,
    ]
    ran = subprocess.run([sys.executable, "-m", "moldau", *words], capture_output=True, timeout=PATIENCE_S)
    assert (ran.returncode, ran.stdout) == (0, b"one\n"), ran.stderr


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"sasl.password": "wrong"}, "invalid credentials"),
        ({"ssl.ca.pem": None}, "certificate verify failed"),
        ({"sasl.mechanism": "PLAIN"}, "SCRAM-SHA-512"),
        ({"security.protocol": "SASL_PLAINTEXT"}, "does not answer as a Kafka broker"),
    ],
)
def test_a_command_reports_why_the_broker_refuses_it(
    moldau_secure_broker: TestBroker, changes: dict[str, str | None], reason: str
) -> None:
    settings = {**moldau_secure_broker.client_config(), **changes}
    words = [f"-X{key}={value}" for key, value in settings.items() if value is not None and key != "bootstrap.servers"]
    command = [sys.executable, "-m", "moldau", "topic", "list", "-b", moldau_secure_broker.bootstrap_servers, *words]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
    assert ran.returncode == 1
    assert reason in ran.stderr
