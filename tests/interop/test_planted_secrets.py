"""No secret is shown: planted passwords are searched in logs, errors, command lines, responses and dumps."""

from __future__ import annotations

import re
import socket
import ssl
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic
from harness.certificates import Authority
from harness.patience import PATIENCE_S, wait_until

from moldau.base.errors import KafkaError
from moldau.cli.kafka import acls, configs, dump_log, storage, topics
from moldau.client.channel import Channel, Security
from moldau.client.cluster import Cluster
from moldau.client.properties import security
from moldau.security.sasl.jaas import PLAIN_MODULE, SCRAM_MODULE
from moldau.testing.broker import TestBroker

pytestmark = pytest.mark.moldau_only

PLANTED = "pl4nted"
"""A part of every secret here, and of nothing else."""
JAAS = f'{PLAIN_MODULE} required username="node" password="{PLANTED}-node" user_node="{PLANTED}-node"'
ADMIN = f"{PLANTED}-admin"
LISTENER = "listener.name.sasl_ssl."


@pytest.fixture(scope="module", autouse=True)
def broker_answers() -> None:
    """These tests do not use the shared broker of this directory."""


@dataclass
class Server:
    process: subprocess.Popen[str]
    bootstrap: str
    directory: Path
    log: Path

    @property
    def client(self) -> dict[str, str]:
        return {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.directory / "ca.pem"),
            "sasl.jaas.config": f'{PLAIN_MODULE} required username="admin" password="{ADMIN}";',
        }

    def file(self, **changed: str) -> str:
        """Write the properties of a client, as the tools take them."""
        properties = {**self.client, **{name.replace("_", "."): value for name, value in changed.items()}}
        path = self.directory / f"client-{abs(hash(str(changed)))}.properties"
        path.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
        return str(path)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("planted")
    authority = Authority()
    authority.write(directory / "ca.pem")
    (directory / "node.p12").write_bytes(authority.issue().pkcs12(authority, f"{PLANTED}-keystore"))
    settings = {
        "node.id": "1",
        "log.dirs": str(directory / "data"),
        "listeners": "SASL_SSL://127.0.0.1:0",
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": str(directory / "node.p12"),
        "ssl.keystore.password": f"{PLANTED}-keystore",
        "ssl.key.password": f"{PLANTED}-keystore",
        "ssl.keystore.pasword": f"{PLANTED}-misspelt",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
        f"{LISTENER}plain.sasl.jaas.config": f'{JAAS} user_admin="{ADMIN}";',
        f"{LISTENER}scram-sha-512.sasl.jaas.config": f'{SCRAM_MODULE} required password="{PLANTED}-scram-node";',
        "delegation.token.secret.key": f"{PLANTED}-delegation",
        "sasl.oauthbearer.client.credentials.client.secret": f"{PLANTED}-oauth",
        "super.users": "User:admin",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    }
    (directory / "server.properties").write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    log = directory / "log"
    command = [sys.executable, "-m", "moldau", "start", "-c", str(directory / "server.properties")]
    with log.open("w") as stderr:
        process = subprocess.Popen([*command, "--log-level", "debug"], stdout=subprocess.PIPE, stderr=stderr, text=True)
    try:
        assert process.stdout is not None
        announced = re.search(r"ready: (\S+)", process.stdout.readline())
        assert announced, log.read_text()
        yield Server(process, announced[1], directory, log)
    finally:
        process.terminate()
        process.communicate(timeout=PATIENCE_S)


@dataclass
class Seen:
    """Everything that the tools printed and logged."""

    capsys: pytest.CaptureFixture[str]
    caplog: pytest.LogCaptureFixture
    texts: list[str] = field(default_factory=list)

    def run(self, tool: Callable[[list[str]], int], *words: str) -> int:
        status = tool(list(words))
        captured = self.capsys.readouterr()
        self.texts += [captured.out, captured.err]
        return status

    def check(self, *more: str) -> None:
        lines = "\n".join([*self.texts, self.caplog.text, *more]).splitlines()
        assert [line for line in lines if PLANTED in line] == []


@pytest.fixture
def seen(capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> Seen:
    caplog.set_level("DEBUG")
    return Seen(capsys, caplog)


def command_line_of(pid: int) -> str:
    cmdline = Path(f"/proc/{pid}/cmdline")
    return cmdline.read_text() if cmdline.exists() else ""


def test_the_server_log_and_command_line_show_no_secret(server: Server, seen: Seen) -> None:
    log = server.log.read_text()
    assert "ssl.keystore.pasword" in log, "the misspelt setting is reported"
    seen.check(log, command_line_of(server.process.pid))


USER = ("--entity-type", "users", "--entity-name", "ann")
BROKER = ("--entity-type", "brokers", "--entity-name", "1")


def add_secrets(server: Server, seen: Seen) -> tuple[str, ...]:
    """Add a user and passwords of a broker, and try to add others; return the words that every call needs."""
    at = ("--bootstrap-server", server.bootstrap, "--command-config", server.file())
    scram = f"SCRAM-SHA-512=[iterations=4096,password={PLANTED}-ann]"
    assert seen.run(configs.main, *at, "--alter", *USER, "--add-config", scram) == 0
    for change, is_accepted in {
        f"ssl.keystore.password=dyn {PLANTED}": False,
        f"sasl.jaas.config=dyn {PLANTED}": False,
        f"{LISTENER}ssl.keystore.password=dyn {PLANTED}": False,
        f"{LISTENER}ssl.keystore.key=dyn {PLANTED}": False,
        f'{LISTENER}plain.sasl.jaas.config={PLANTED} required "{PLANTED}': False,
        f"{LISTENER}ssl.key.password=dyn {PLANTED}": True,
        f'{LISTENER}plain.sasl.jaas.config=[{JAAS} user_admin="{ADMIN}" user_eve="{PLANTED}-eve";]': True,
    }.items():
        assert (seen.run(configs.main, *at, "--alter", *BROKER, "--add-config", change) == 0) == is_accepted, change
        default = ("--entity-type", "brokers", "--entity-default")
        assert seen.run(configs.main, *at, "--alter", *default, "--add-config", change) != 0
    return at


def test_tool_output_and_described_configs_show_no_secret(server: Server, seen: Seen) -> None:
    at = add_secrets(server, seen)
    assert seen.run(configs.main, *at, "--describe", *USER) == 0
    assert seen.run(configs.main, *at, "--describe", *BROKER) == 0
    assert seen.run(configs.main, *at, "--describe", *BROKER, "--all") == 0
    assert "ssl.keystore.password=null" in "".join(seen.texts).replace(" ", "")
    assert f"{LISTENER}plain.sasl.jaas.config=null" in "".join(seen.texts)
    assert seen.run(topics.main, *at, "--create", "--topic", "t", "--partitions", "1") == 0
    for change in (
        f"SCRAM-SHA-512=[iterations=1,password={PLANTED}-few]",
        f"SCRAM-SHA-512=[password={PLANTED}-open",
        f"SCRAM-SHA-1=[password={PLANTED}-other]",
        f"no.such.setting={PLANTED}-x",
    ):
        assert seen.run(configs.main, *at, "--alter", *USER, "--add-config", change) != 0
    admin = AdminClient(_librdkafka(server))
    (future,) = admin.describe_configs([ConfigResource("broker", "1")]).values()
    answer = future.result(PATIENCE_S)
    assert answer["delegation.token.secret.key"].value is None
    assert answer["delegation.token.secret.key"].is_sensitive
    seen.check(str([(entry.name, entry.value) for entry in answer.values()]), server.log.read_text())


def _librdkafka(server: Server, **changed: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": server.bootstrap,
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(server.directory / "ca.pem"),
        "sasl.mechanism": "PLAIN",
        "sasl.username": "admin",
        "sasl.password": ADMIN,
        "log_level": 0,
        **{name.replace("_", "."): value for name, value in changed.items()},
    }


def test_dumped_metadata_logs_show_no_secret(server: Server, seen: Seen) -> None:
    add_secrets(server, seen)
    for file in (server.directory / "data").glob("__cluster_metadata-0/*.log"):
        assert seen.run(dump_log.main, "--cluster-metadata-decoder", "--files", str(file)) == 0
    shown = "".join(seen.texts)
    assert "USER_SCRAM_CREDENTIAL" in shown
    assert f'"name":"{LISTENER}ssl.key.password","value":"[hidden]"' in shown
    assert '"name":"moldau.scram.secret","value":"[hidden]"' in shown
    seen.check()
    for file in (server.directory / "data").rglob("*"):
        assert not file.is_file() or f"{PLANTED}-ann".encode() not in file.read_bytes(), file


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_failed_logins_show_no_secret(server: Server, seen: Seen, mechanism: str) -> None:
    wrong = f'{PLAIN_MODULE} required username="{mechanism}" password="{PLANTED}-wrong";'
    refused = server.file(sasl_mechanism=mechanism, sasl_jaas_config=wrong)
    assert seen.run(acls.main, "--bootstrap-server", server.bootstrap, "--command-config", refused, "--list") != 0
    with pytest.raises(KafkaError) as raised:
        Cluster(server.bootstrap, {**server.client, "sasl.mechanism": mechanism, "sasl.jaas.config": wrong}).topics()
    errors: list[str] = []
    config = _librdkafka(server, sasl_mechanism=mechanism, sasl_password=f"{PLANTED}-wrong")
    client = AdminClient({**config, "error_cb": lambda error: errors.append(str(error))})
    wait_until(lambda: client.poll(0.1) or errors, "librdkafka's error")
    log = wait_until(lambda: (text := server.log.read_text()).count("uthentication failed") >= 3 and text, "the log")
    seen.check(str(raised.value), *errors, str(log))


class _MalformedLogin:
    """A login whose first token is malformed."""

    def __init__(self, mechanism: str, token: bytes) -> None:
        self.mechanism, self._token = mechanism, token

    def begin(self, nonce: str) -> _MalformedLogin:
        return self

    def first(self) -> bytes:
        return self._token


TOKENS = [
    ("PLAIN", b"admin-" + ADMIN.encode()),
    ("PLAIN", b"\0" + ADMIN.encode()),
    ("PLAIN", b"x\0admin\0\xff" + ADMIN.encode()),
    ("SCRAM-SHA-512", b"n,,n=" + ADMIN.encode()),
    ("SCRAM-SHA-512", ADMIN.encode()),
    (ADMIN, b"x"),
]


@pytest.mark.parametrize(("mechanism", "token"), TOKENS)
def test_no_byte_of_a_refused_token_is_shown(server: Server, seen: Seen, mechanism: str, token: bytes) -> None:
    host, port = server.bootstrap.split(":")
    malformed_login: Any = _MalformedLogin(mechanism, token)
    with pytest.raises((KafkaError, ConnectionError)) as raised:
        Channel(host, int(port), Security(security(server.client).tls, malformed_login))
    seen.check(str(raised.value), server.log.read_text())


@pytest.mark.parametrize("sent", [f"GET /{ADMIN} HTTP/1.1\r\n\r\n".encode(), b"\0\0\0\x20" + ADMIN.encode() * 3])
@pytest.mark.parametrize("is_encrypted", [False, True])
def test_no_byte_of_a_refused_request_is_shown(server: Server, seen: Seen, sent: bytes, is_encrypted: bool) -> None:
    host, port = server.bootstrap.split(":")
    context = ssl.create_default_context(cafile=server.client["ssl.truststore.location"])
    connection = socket.create_connection((host, int(port)), PATIENCE_S)
    connection = context.wrap_socket(connection, server_hostname=host) if is_encrypted else connection
    with connection:
        connection.sendall(sent)
        while _received(connection):
            pass
    seen.check(server.log.read_text())


def _received(connection: socket.socket) -> bytes:
    try:
        return connection.recv(1024)
    except ConnectionError:
        return b""


NOT_PEM = f"-----BEGIN PRIVATE KEY-----\n{PLANTED}\n-----END PRIVATE KEY-----"
BAD_SETTINGS = [
    {"ssl.keystore.password": f"{PLANTED}-not-it"},
    {"ssl.keystore.location": "", "ssl.keystore.key": f"{PLANTED}-key", "ssl.keystore.certificate.chain": "x"},
    {"ssl.keystore.location": "", "ssl.keystore.key": NOT_PEM, "ssl.keystore.certificate.chain": NOT_PEM},
    {f"{LISTENER}plain.sasl.jaas.config": f'{PLANTED} required "{PLANTED}'},
    {f"{LISTENER}plain.sasl.jaas.config": f'{JAAS}'},
    {f"{LISTENER}plain.sasl.jaas.config": f'{SCRAM_MODULE} required password={PLANTED}-x user_a;'},
    {f"{LISTENER}plain.sasl.jaas.config": f'{JAAS}; {JAAS};'},
    {"sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512", "delegation.token.expiry.time.ms": "-1"},
]  # fmt: skip


@pytest.mark.parametrize("bad", BAD_SETTINGS, ids=range(len(BAD_SETTINGS)))
def test_errors_of_bad_server_settings_show_no_secret(
    server: Server, seen: Seen, tmp_path: Path, bad: dict[str, str]
) -> None:
    lines = (server.directory / "server.properties").read_text().splitlines()
    good = dict(line.split("=", 1) for line in lines if not line.startswith("ssl.keystore.pasword"))
    with pytest.raises(Exception) as raised, warnings.catch_warnings(record=True) as warned:
        TestBroker(tmp_path / "data", {**good, "log.dirs": str(tmp_path / "data"), **bad}).start()
    seen.check(str(raised.value), repr(raised.value), *(str(warning.message) for warning in warned))


BAD_CLIENTS = [
    {"sasl_jaas_config": f'{PLANTED} required "{PLANTED}'},
    {"sasl_jaas_config": f'{PLAIN_MODULE} required password={PLANTED}-x'},
    {"sasl_mechanism": "GSSAPI", "sasl_password": f"{PLANTED}-x"},
    {"ssl_keystore_location": "/nonexistent", "ssl_keystore_password": f"{PLANTED}-x"},
    {"ssl_keystore_type": "PEM", "ssl_keystore_key": f"{PLANTED}-key", "ssl_keystore_certificate_chain": PLANTED},
    {"ssl_key_pasword": f"{PLANTED}-x", "sasl_mechanism": "OTHER"},
]  # fmt: skip


@pytest.mark.parametrize("bad", BAD_CLIENTS, ids=range(len(BAD_CLIENTS)))
def test_errors_of_bad_client_settings_show_no_secret(server: Server, seen: Seen, bad: dict[str, str]) -> None:
    file = server.file(**bad)
    assert seen.run(topics.main, "--bootstrap-server", server.bootstrap, "--command-config", file, "--list") != 0
    assert seen.run(acls.main, "--bootstrap-server", server.bootstrap, "--command-config", file, "--list") != 0
    seen.check()


def test_errors_of_kafka_storage_format_show_no_secret(seen: Seen, tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(f"node.id=1\nlog.dirs={tmp_path}/data\nprocess.roles=broker,controller\n")
    for user in (
        f"SCRAM-SHA-256=[name=ann,iterations=1,password={PLANTED}]",
        f"SCRAM-SHA-256=[nam=ann,password={PLANTED}]",
        f"SCRAM-SHA-256={PLANTED}",
    ):
        words = ("format", "--standalone", "-t", "MkU3OEVBNTcwNTJENDM2Qk", "-c", str(file), "--add-scram", user)
        assert seen.run(storage.main, *words) != 0
    seen.check()


def test_a_secret_given_as_a_topic_config_is_not_shown(server: Server, seen: Seen) -> None:
    admin = AdminClient(_librdkafka(server))
    with pytest.raises(Exception) as raised:
        admin.create_topics([NewTopic("u", 1, 1, config={"sasl.password": f"{PLANTED}-x"})])["u"].result(PATIENCE_S)
    seen.check(str(raised.value), server.log.read_text())
