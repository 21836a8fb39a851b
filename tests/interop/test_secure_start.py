"""`moldau start --secure`: the password is shown once; clients with it are accepted, and others are refused."""

from __future__ import annotations

import json
import os
import re
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from harness.patience import PATIENCE_MS, PATIENCE_S, wait_until
from kafka import KafkaConsumer, KafkaProducer
from kafka_tools import Tools
from secured_broker import SecuredBroker

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.properties import parse
from moldau.cli.main import main
from moldau.client.channel import Channel, Security
from moldau.client.properties import for_librdkafka, security
from moldau.secure_setup.authority import hosts_of
from moldau.wire.apis import ApiKey
from moldau.wire.messages.metadata import MetadataRequest, MetadataResponse

pytestmark = pytest.mark.moldau_only
KAFKA_LIBS = os.environ.get("MOLDAU_TEST_KAFKA_LIBS")
LISTEN = ("--listen", "127.0.0.1:0")


@pytest.fixture(scope="module", autouse=True)
def broker_answers() -> None:
    """These tests do not use the shared broker of this directory."""


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    with SecuredBroker(tmp_path_factory.mktemp("secure") / "data", *LISTEN, on_terminal=True) as broker:
        yield broker.await_ready()
        broker.stop()


@pytest.fixture(scope="module")
def password(secured: SecuredBroker) -> str:
    shown = re.search(r"User: admin, password: (\S+) \(not shown again\)", secured.printed)
    assert shown, secured.printed
    return shown[1]


def config(secured: SecuredBroker) -> dict[str, str]:
    return {"bootstrap.servers": secured.address, "log_level": "0", **for_librdkafka(secured.properties)}


def channel(secured: SecuredBroker, how: Security | None) -> Channel:
    host, _, port = secured.address.rpartition(":")
    return Channel(host, int(port), how)


def moldau(secured: SecuredBroker, *words: str, status: int = 0) -> Result:
    variables = {"MOLDAU_BOOTSTRAP": secured.address, "MOLDAU_COMMAND_CONFIG": str(secured.client_file)}
    result = CliRunner(env=variables).invoke(main, list(words))
    assert result.exit_code == status, result.output
    return result


def test_the_password_is_on_the_terminal_and_in_one_file(secured: SecuredBroker, password: str) -> None:
    assert secured.printed.count(password) == 1
    files = [path for path in secured.data_dir.rglob("*") if path.is_file()]
    assert [path.name for path in files if password.encode() in path.read_bytes()] == ["client.properties"]
    assert secured.client_file.stat().st_mode & 0o777 == 0o600
    assert secured.data_dir.stat().st_mode & 0o777 == 0o700
    assert password not in secured.log_file.read_text()
    listed = subprocess.run(["ps", "-axww", "-o", "args"], capture_output=True, text=True, check=True).stdout
    assert str(secured.data_dir) in listed
    assert password not in listed


def test_confluent_kafka_and_kafka_python_read_each_others_records(secured: SecuredBroker, password: str) -> None:
    producer = Producer(config(secured))
    producer.produce("orders", b"one")
    assert producer.flush(PATIENCE_S) == 0
    settings = {
        "bootstrap_servers": secured.address,
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-256",
        "sasl_plain_username": "admin",
        "sasl_plain_password": password,
        "ssl_cafile": str(secured.data_dir / "authority.pem"),
    }
    reading = {"auto_offset_reset": "earliest", "consumer_timeout_ms": int(PATIENCE_MS)}
    consumer = KafkaConsumer("orders", group_id="readers", **reading, **settings)
    assert next(consumer).value == b"one"
    consumer.close()
    writer = KafkaProducer(**settings)
    writer.send("orders", b"two").get(PATIENCE_S)
    writer.close()
    reader = Consumer({**config(secured), "group.id": "others", "auto.offset.reset": "earliest"})
    reader.subscribe(["orders"])
    values: list[bytes] = []
    wait_until(lambda: _poll(reader, values) or values == [b"one", b"two"], lambda: f"two records, not {values}")
    reader.close()


def _poll(consumer: Consumer, values: list[bytes]) -> None:
    message = consumer.poll(1.0)
    if message is not None and message.error() is None:
        values.append(message.value())


def test_clients_without_the_password_are_refused(secured: SecuredBroker) -> None:
    trusted = {key: value for key, value in secured.properties.items() if not key.startswith("sasl")}
    with pytest.raises(OSError, match=r"closed the connection|reset"):
        channel(secured, None)
    opened = channel(secured, security({**trusted, "security.protocol": "SSL"}))  # TLS without a login
    with opened, pytest.raises(OSError, match="closed the connection"):
        opened.ask(ApiKey.METADATA, MetadataRequest(), MetadataResponse)
    with pytest.raises(OSError, match="certificate verify failed"):  # a client that trusts the system's authorities
        channel(secured, security({"security.protocol": "SSL"}))
    for user, guess in (("admin", "wrong"), ("nobody", "wrong")):
        jaas = f'x.ScramLoginModule required username="{user}" password="{guess}";'
        with pytest.raises(KafkaError) as refused:
            channel(secured, security({**secured.properties, "sasl.jaas.config": jaas}))
        assert refused.value.code is ErrorCode.SASL_AUTHENTICATION_FAILED


def test_our_kafka_tools_accept_the_client_file(
    secured: SecuredBroker, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tools = Tools(secured.address, capsys, monkeypatch)
    command_config = ("--command-config", str(secured.client_file))
    assert tools("topics", "--create", "--topic", "by-tool", *command_config).status == 0
    assert "by-tool" in tools("topics", "--list", *command_config).lines
    assert tools("console_producer", "--topic", "by-tool", *command_config, stdin="hello\n").status == 0
    words = ("--topic", "by-tool", "--from-beginning", "--max-messages", "1", *command_config)
    assert tools("console_consumer", *words).out == "hello\n"
    assert "CurrentVoters" in tools("metadata_quorum", *command_config, "describe", "--status").out
    created = tools("delegation_tokens", "--create", "--max-life-time-period", "-1", *command_config)
    assert "Created delegation token with tokenId" in created.out, created.err


@pytest.mark.skipif(not KAFKA_LIBS, reason="MOLDAU_TEST_KAFKA_LIBS names no directory of Apache Kafka's jars")
def test_apache_kafkas_tools_accept_the_client_file(secured: SecuredBroker) -> None:
    command = [
        "java",
        "-cp",
        f"{KAFKA_LIBS}/*",
        "org.apache.kafka.tools.TopicCommand",
        "--create",
        "--topic",
        "by-java",
    ]
    words = ["--bootstrap-server", secured.address, "--command-config", str(secured.client_file)]
    ran = subprocess.run([*command, *words], capture_output=True, text=True, timeout=PATIENCE_S)
    assert ran.stdout == "Created topic by-java.\n", ran.stderr


def test_a_new_user_may_do_only_what_its_acl_allows(secured: SecuredBroker, tmp_path: Path) -> None:
    admin = AdminClient(config(secured))
    for topic in ("homework", "exam"):
        admin.create_topics([NewTopic(topic, 1)])[topic].result(PATIENCE_S)
    added = moldau(secured, "user", "add", "ann", "--save", str(tmp_path / "ann.properties"))
    assert added.stdout == f"added ann; client settings in {tmp_path / 'ann.properties'}\n"
    assert (tmp_path / "ann.properties").stat().st_mode & 0o777 == 0o600
    moldau(secured, "acl", "allow", "ann", "--role", "producer", "--topic", "homework")
    properties = {each.key: each.value for each in parse((tmp_path / "ann.properties").read_text())}
    producer = Producer({**config(secured), **for_librdkafka(properties)})
    outcomes: dict[str, str] = {}
    for topic in ("homework", "exam"):
        producer.produce(topic, b"x", on_delivery=lambda error, m: outcomes.update({m.topic(): str(error)}))
    assert producer.flush(PATIENCE_S) == 0
    assert outcomes["homework"] == "None"
    assert "TOPIC_AUTHORIZATION_FAILED" in outcomes["exam"]
    command_config_of_ann = ("--command-config", str(tmp_path / "ann.properties"))
    (listed,) = json.loads(moldau(secured, "topic", "list", "--format", "json", *command_config_of_ann).stdout)
    assert (listed["name"], listed["size"]) == ("homework", None)  # sizes need DESCRIBE on the cluster
    sizes = {
        each["name"]: each["size"] for each in json.loads(moldau(secured, "topic", "list", "--format", "json").stdout)
    }
    assert sizes["homework"] > 0


@pytest.fixture(scope="module")
def reader(secured: SecuredBroker) -> str:
    """A user who may see one topic."""
    moldau(secured, "topic", "create", "shelf")
    moldau(secured, "user", "add", "cid")
    moldau(secured, "acl", "allow", "cid", "--role", "consumer", "--topic", "shelf", "--group", "cid")
    return "cid"


def test_a_saved_file_has_the_addresses_and_is_a_command_config(
    secured: SecuredBroker, reader: str, tmp_path: Path
) -> None:
    file = tmp_path / "cid.properties"
    moldau(secured, "user", "password", reader, "--save", str(file))
    assert [path.name for path in tmp_path.iterdir()] == [file.name]
    assert {each.key: each.value for each in parse(file.read_text())}["bootstrap.servers"] == secured.address
    listed = CliRunner().invoke(main, ["topic", "list", "--format", "json", "--command-config", str(file)])
    assert [each["name"] for each in json.loads(listed.stdout)] == ["shelf"]
    if KAFKA_LIBS:
        command = ["java", "-cp", f"{KAFKA_LIBS}/*", "org.apache.kafka.tools.TopicCommand", "--list"]
        words = ["--bootstrap-server", secured.address, "--command-config", str(file)]
        ran = subprocess.run([*command, *words], capture_output=True, text=True, timeout=PATIENCE_S)
        assert ran.stdout == "shelf\n", ran.stderr


def test_librdkafka_takes_its_saved_settings(secured: SecuredBroker, reader: str, tmp_path: Path) -> None:
    file = tmp_path / "cid.conf"
    changed = moldau(secured, "user", "password", reader, "--save", str(file), "--format", "librdkafka")
    assert changed.stdout.endswith(f"client settings in {file}, the authority's certificate in {tmp_path}/cid.ca.pem\n")
    lines = [line for line in file.read_text().splitlines() if not line.startswith("#")]
    settings = dict(line.split("=", 1) for line in lines)
    assert settings["ssl.ca.location"] == str(tmp_path / "cid.ca.pem")
    assert settings.keys() & {"ssl.ca.pem", "sasl.jaas.config"} == set()
    assert set(AdminClient(settings).list_topics(timeout=PATIENCE_S).topics) == {"shelf"}
    _check_modes(file, tmp_path / "cid.ca.pem")


@pytest.mark.parametrize("file_format", ["python", "kafka-python"])
def test_saved_python_runs_with_its_client(
    secured: SecuredBroker, reader: str, file_format: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "cid.py"
    words = () if file_format == "python" else ("--format", file_format)
    moldau(secured, "user", "password", reader, "--save", str(file), *words)
    runpy.run_path(str(file), run_name="__main__")
    assert capsys.readouterr().out == "shelf\n"
    _check_modes(file, *([tmp_path / "cid.ca.pem"] if file_format == "kafka-python" else []))


def _check_modes(private: Path, *public: Path) -> None:
    assert {path: path.stat().st_mode & 0o777 for path in private.parent.iterdir()} == {
        private: 0o600,
        **dict.fromkeys(public, 0o644),
    }


def test_users_are_listed_changed_and_removed(secured: SecuredBroker) -> None:
    moldau(secured, "user", "add", "bob")
    assert "there is a user bob already" in moldau(secured, "user", "add", "bob", status=1).stderr
    changed = moldau(secured, "user", "password", "bob")
    new = re.fullmatch(r"bob has a new password; password: (\S+)\n", changed.stdout)
    assert new
    jaas = f'x.ScramLoginModule required username="bob" password="{new[1]}";'
    channel(secured, security({**secured.properties, "sasl.jaas.config": jaas})).close()
    assert "bob" in moldau(secured, "user", "list").stdout
    assert "removed bob" in moldau(secured, "user", "remove", "bob", "--yes").stdout
    assert "bob" not in moldau(secured, "user", "list").stdout
    assert "no user bob" in moldau(secured, "user", "remove", "bob", "--yes", status=1).stderr
    assert "no user bob" in moldau(secured, "user", "password", "bob", status=1).stderr


def test_a_user_without_permissions_gets_a_one_line_error(secured: SecuredBroker, tmp_path: Path) -> None:
    moldau(secured, "user", "add", "eve", "--save", str(tmp_path / "eve.properties"))
    refused = moldau(secured, "user", "list", "--command-config", str(tmp_path / "eve.properties"), status=1)
    assert refused.stderr.count("\n") == 1
    assert "ask for an ACL on the cluster" in refused.stderr


def test_later_starts_reuse_the_passwords_and_certificates(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    with SecuredBroker(data_dir, *LISTEN) as first:
        properties = first.await_ready().properties
        first.stop()
    secret = re.search(r'password="([^"]+)"', properties["sasl.jaas.config"])
    assert secret
    assert secret[1] not in first.printed + first.log_file.read_text()  # this output is not a terminal

    words = ("--secure-name", "kafka.example.com")
    with SecuredBroker(data_dir, *LISTEN, *words, on_terminal=True) as second:
        second.await_ready()
        assert secret[1] not in second.printed
        assert "moldau user password admin --save" in second.printed
        assert second.properties == properties
        assert "kafka.example.com" in hosts_of((data_dir / "node.pem").read_text())
        channel(second, security(properties)).close()
        moldau(second, "user", "password", "admin", "--save", str(second.client_file))
        assert second.properties.keys() == {"bootstrap.servers", *properties}
        with pytest.raises(KafkaError, match="Authentication failed"):
            channel(second, security(properties))
        channel(second, security(second.properties)).close()
        second.stop()

    lost = second.properties
    second.client_file.unlink()
    with SecuredBroker(data_dir, *LISTEN, on_terminal=True) as third:
        third.await_ready()
        assert "User: admin, password: " in third.printed
        assert third.properties["ssl.truststore.certificates"] == lost["ssl.truststore.certificates"]
        with pytest.raises(KafkaError, match="Authentication failed"):
            channel(third, security(lost))
        channel(third, security(third.properties)).close()
        third.stop()

    plain = [sys.executable, "-m", "moldau", "start", "-d", str(data_dir), *LISTEN]
    refused = subprocess.run(plain, capture_output=True, text=True, timeout=PATIENCE_S)
    assert refused.returncode == 1
    assert "was secured by `moldau start --secure`" in refused.stderr


def test_secure_refuses_a_directory_with_unsecured_data(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text("version=1\ncluster.id=x\nnode.id=1\n")
    words = [sys.executable, "-m", "moldau", "start", "--secure", "-d", str(tmp_path), *LISTEN]
    refused = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_S)
    assert refused.returncode == 1
    assert refused.stderr.startswith(f"moldau: --secure: {tmp_path} holds the data of a broker without --secure")
    assert refused.stderr.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["meta.properties"]
