"""Delegation tokens in a cluster of three nodes with SASL and ACLs: with the tool, our own channel, kafka-python
with `tokenauth=true` added to its first message (no Python client has it), and Java's tools if they are installed.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import subprocess
import time
from base64 import b64decode
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import kafka
import pytest
from harness.patience import PATIENCE_S, wait_until
from kafka.net.sasl import scram as kafka_python_scram
from kafka_tools import Outcome

from moldau.base.errors import ErrorCode, KafkaError
from moldau.cli.kafka import acls, delegation_tokens
from moldau.client.channel import Channel
from moldau.client.cluster import Cluster
from moldau.client.properties import security
from moldau.metadata.image import MetadataImage
from moldau.security.authorizer_settings import STANDARD_AUTHORIZER
from moldau.testing.broker import TestBroker
from moldau.testing.cluster import TestCluster
from moldau.wire.apis import ApiKey
from moldau.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from moldau.wire.messages.metadata import MetadataRequest, MetadataResponse

pytestmark = pytest.mark.moldau_only
KAFKA_LIBS = os.environ.get("MOLDAU_TEST_KAFKA_LIBS")
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
SECRET_KEY = "k3y-0f-all-nodes"
USERS = {"node": "n0de", "admin": "r00t", "ann": "pw-ann", "bob": "pw-bob", "eve": "pw-eve"}
JAAS = f'{PLAIN_MODULE} required username="node" password="n0de" ' + " ".join(
    f'user_{name}="{password}"' for name, password in USERS.items()
)
SETTINGS = {
    "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "sasl.mechanism.controller.protocol": "PLAIN",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.plaintext.plain.sasl.jaas.config": f"{JAAS};",
    "listener.name.controller.plain.sasl.jaas.config": f"{JAAS};",
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "super.users": "User:node;User:admin",
    "delegation.token.secret.key": SECRET_KEY,
    "delegation.token.expiry.check.interval.ms": "200",
}


class TokenCluster:
    """A cluster, and its users with their files."""

    def __init__(self, cluster: TestCluster, directory: Path, capsys: pytest.CaptureFixture[str] | None = None) -> None:
        self.cluster, self.directory, self.capsys = cluster, directory, capsys

    @property
    def followers(self) -> str:
        """The nodes that forward requests to the controller."""
        leader = wait_until(self.cluster.controller, "a controller")
        return ",".join(node.address for number, node in self.cluster.nodes.items() if number != leader)

    def file(self, user: str) -> str:
        file = self.directory / f"{user}.properties"
        jaas = f'{PLAIN_MODULE} required username="{user}" password="{USERS[user]}";'
        file.write_text(f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config={jaas}\n")
        return str(file)

    def token_properties(self, token: Token, mechanism: str = "SCRAM-SHA-256") -> dict[str, str]:
        user = f'username="{token.id}" password="{token.hmac}"'
        return {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.jaas.config": f"{SCRAM_MODULE} required {user} tokenauth=true;",
        }

    def token_file(self, token: Token) -> str:
        file = self.directory / f"{token.id}.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in self.token_properties(token).items()))
        return str(file)

    def tool(self, user: str, *words: str, config: str | None = None) -> Outcome:
        assert self.capsys is not None
        self.capsys.readouterr()
        config = config or self.file(user)
        status = delegation_tokens.main([*words, "--bootstrap-server", self.followers, "--command-config", config])
        return Outcome(status, *self.capsys.readouterr())

    def create(self, user: str, *words: str) -> Token:
        created = self.tool(user, "--create", "--max-life-time-period", "-1", *words)
        assert created.status == 0, created.err
        return Token(created.lines[-1])

    def images(self) -> list[MetadataImage]:
        return [
            node.node.assembly.current.image  # type: ignore[union-attr]
            for node in self.cluster.nodes.values()
            if node.node is not None
        ]


class Token:
    def __init__(self, line: str) -> None:
        self.id, self.hmac, self.owner, self.requester, *rest = line.split()
        self.issued, self.expires, self.max = rest[-3:]
        self.renewers = " ".join(rest[:-3])


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestCluster]:
    running = TestCluster(tmp_path_factory.mktemp("tokens"), 3, SETTINGS).start()
    yield running
    running.stop_all()


@pytest.fixture
def token_cluster(cluster: TestCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> TokenCluster:
    return TokenCluster(cluster, tmp_path, capsys)


def can_log_in(address: str, properties: dict[str, str]) -> bool:
    host, _, port = address.rpartition(":")
    try:
        Channel(host, int(port), security(properties)).close()
    except KafkaError as refused:
        if refused.code is not ErrorCode.SASL_AUTHENTICATION_FAILED:
            raise
        return False
    return True


def logins(token_cluster: TokenCluster, token: Token, mechanism: str = "SCRAM-SHA-256") -> list[bool]:
    """Return for each node whether a client can log in with the token."""
    nodes = token_cluster.cluster.nodes.values()
    return [can_log_in(node.address, token_cluster.token_properties(token, mechanism)) for node in nodes]


def test_a_token_is_created_described_renewed_and_expired(
    token_cluster: TokenCluster, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    token = token_cluster.create("ann", "--renewer-principal", "User:bob")
    assert (token.owner, token.requester, token.renewers) == ("User:ann", "User:ann", "[User:bob]")
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        wait_until(
            lambda mechanism=mechanism: all(logins(token_cluster, token, mechanism)), f"{mechanism} on all nodes"
        )
    wrong = Token(" ".join((token.id, "AAAA", *["x"] * 6)))
    assert logins(token_cluster, wrong) == [False] * 3

    described = token_cluster.tool("bob", "--describe", "--owner-principal", "User:ann")
    assert described.out.startswith(
        "Calling describe token operation for owners: [User:ann]\nTotal number of tokens : 1\n"
    )
    assert Token(described.lines[-1]).hmac == token.hmac
    assert "Total number of tokens : 0" in token_cluster.tool("eve", "--describe").out

    renewed = token_cluster.tool("bob", "--renew", "--renew-time-period", "3600000", "--hmac", token.hmac)
    assert (renewed.status, renewed.err) == (0, "")
    assert re.fullmatch(r"Completed renew operation\. New expiry date : \d{4}-\d\d-\d\dT\d\d:\d\d", renewed.lines[-1])
    refused = token_cluster.tool("eve", "--expire", "--expiry-time-period", "-1", "--hmac", token.hmac)
    assert refused.status == 1
    expected = "DelegationTokenOwnerMismatchException: Specified Principal is not valid Owner/Renewer."
    assert expected in refused.err
    bearer = token_cluster.tool("", "--create", "--max-life-time-period", "-1", config=token_cluster.token_file(token))
    assert "UnsupportedByAuthenticationException" in bearer.err

    expired = token_cluster.tool("ann", "--expire", "--expiry-time-period", "-1", "--hmac", token.hmac)
    assert "Completed expire operation." in expired.out
    wait_until(lambda: not any(logins(token_cluster, token)), "no login with the expired token")
    gone = token_cluster.tool("ann", "--renew", "--renew-time-period", "-1", "--hmac", token.hmac)
    assert "DelegationTokenNotFoundException" in gone.err
    assert SECRET_KEY not in caplog.text
    assert token.hmac not in caplog.text
    assert b64decode(token.hmac).hex() not in caplog.text
    assert repr(b64decode(token.hmac)) not in caplog.text


def test_a_token_has_the_permissions_of_its_owner(token_cluster: TokenCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """An independent client: kafka-python, with the extension of SCRAM added to its first message."""
    with closing(Cluster(token_cluster.cluster.bootstrap_servers, _properties(token_cluster.file("admin")))) as admin:
        for topic in ("orders", "secrets"):
            assert admin.create_topic(topic, 1, 3)
    config = [
        "--bootstrap-server",
        token_cluster.cluster.bootstrap_servers,
        "--command-config",
        token_cluster.file("admin"),
    ]
    words = [
        "--add",
        "--allow-principal",
        "User:ann",
        "--operation",
        "Read",
        "--operation",
        "Write",
        "--topic",
        "orders",
    ]
    assert acls.main([*words, *config]) == 0
    token = token_cluster.create("ann")
    wait_until(lambda: all(logins(token_cluster, token)), "the token on all nodes")
    wait_until(lambda: all(_acls(image, "User:ann") == 2 for image in token_cluster.images()), "the ACLs on all nodes")

    def first_message(self: Any) -> bytes:
        bare: bytes = b"n=" + self.user + b",r=" + self.nonce + b",tokenauth=true"
        self.auth_message += bare
        return b"n,," + bare

    monkeypatch.setattr(kafka_python_scram.ScramClient, "first_message", first_message)
    settings = {
        "bootstrap_servers": token_cluster.cluster.bootstrap_servers,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": token.id,
        "sasl_plain_password": token.hmac,
    }
    producer = kafka.KafkaProducer(**settings, acks="all")
    producer.send("orders", b"by token").get(PATIENCE_S)
    with pytest.raises(kafka.errors.TopicAuthorizationFailedError):
        producer.send("secrets", b"by token").get(PATIENCE_S)
    producer.close()
    consumer = kafka.KafkaConsumer(**settings, auto_offset_reset="earliest")
    consumer.assign([kafka.TopicPartition("orders", 0)])
    assert next(consumer).value == b"by token"
    consumer.close()


def _acls(image: MetadataImage, principal: str) -> int:
    return sum(acl.principal == principal for acl in image.acls.values())


def test_a_token_for_another_user_needs_create_tokens(token_cluster: TokenCluster) -> None:
    words = ["--create", "--max-life-time-period", "-1", "--owner-principal", "User:bob"]
    assert "DelegationTokenAuthorizationException" in token_cluster.tool("eve", *words).err
    config = [
        "--bootstrap-server",
        token_cluster.cluster.bootstrap_servers,
        "--command-config",
        token_cluster.file("admin"),
    ]
    allow = ["--add", "--allow-principal", "User:eve", "--operation", "CreateTokens", "--user-principal", "User:bob"]
    assert acls.main([*allow, *config]) == 0
    token = Token(wait_until(lambda: _created(token_cluster.tool("eve", *words)), "the permission of eve"))
    assert (token.owner, token.requester) == ("User:bob", "User:eve")
    assert (
        "OwnerMismatch" in token_cluster.tool("eve", "--renew", "--renew-time-period", "-1", "--hmac", token.hmac).err
    )


def _created(outcome: Outcome) -> str:
    return outcome.lines[-1] if outcome.status == 0 else ""


def _short_session(token_cluster: TokenCluster) -> tuple[Token, Channel]:
    """Return a token that ends soon, and a session with it. On a busy machine the first ones may end too soon."""
    address = token_cluster.cluster.nodes[1].address
    host, _, port = address.rpartition(":")
    for lifetime_ms in (2_000, 8_000, 32_000, 128_000):
        token = Token(token_cluster.tool("ann", "--create", "--max-life-time-period", str(lifetime_ms)).lines[-1])
        login, too_late_s = token_cluster.token_properties(token), time.monotonic() + lifetime_ms / 1000
        while not can_log_in(address, login) and time.monotonic() < too_late_s:
            pass  # the node has not read the token yet
        try:
            return token, Channel(host, int(port), security(login))
        except KafkaError:
            continue
    raise AssertionError("no login within two minutes")


def test_a_session_ends_with_its_token_and_the_controller_removes_it(token_cluster: TokenCluster) -> None:
    token, channel = _short_session(token_cluster)
    with channel:
        channel._renew_at = None  # a client that does not authenticate again

        def is_served() -> bool:
            try:
                channel.ask(ApiKey.METADATA, MetadataRequest(topics=[]), MetadataResponse)
            except ConnectionError:
                return False
            return True

        wait_until(lambda: not is_served(), "the session has ended")
    assert not any(logins(token_cluster, token))
    wait_until(
        lambda: all(token.id not in image.delegation_tokens for image in token_cluster.images()),
        "the token is removed from all nodes",
    )


def test_the_secret_key_is_not_described(token_cluster: TokenCluster) -> None:
    with closing(Cluster(token_cluster.cluster.bootstrap_servers, _properties(token_cluster.file("admin")))) as cluster:
        request = DescribeConfigsRequest([DescribeConfigsResource(4, "1", None)], True, True)
        cluster.nodes()
        response = cluster.channel(1).ask(ApiKey.DESCRIBE_CONFIGS, request, DescribeConfigsResponse)
    (result,) = response.results
    entries = {each.name: each for each in result.configs}
    assert entries["delegation.token.secret.key"].is_sensitive
    assert SECRET_KEY not in repr(response)


def test_tokens_survive_a_controller_failover(token_cluster: TokenCluster) -> None:
    token = token_cluster.create("ann")
    wait_until(lambda: all(logins(token_cluster, token)), "the token on all nodes")
    leader = token_cluster.cluster.controller()
    assert leader is not None
    token_cluster.cluster.kill(leader)
    wait_until(lambda: token_cluster.cluster.controller() not in (None, leader), "a new controller")
    alive = [node.address for number, node in token_cluster.cluster.nodes.items() if number != leader]
    assert all(can_log_in(each, token_cluster.token_properties(token)) for each in alive)
    renewed = token_cluster.tool("ann", "--renew", "--renew-time-period", "-1", "--hmac", token.hmac)
    assert renewed.status == 0, renewed.err
    another = token_cluster.create("bob")
    token_cluster.cluster.restart(leader)
    wait_until(
        lambda: all(logins(token_cluster, token)) and all(logins(token_cluster, another)), "both tokens on all nodes"
    )
    assert token_cluster.tool("ann", "--expire", "--expiry-time-period", "-1", "--hmac", token.hmac).status == 0
    wait_until(lambda: not any(logins(token_cluster, token)), "no login with the expired token")


def test_a_client_without_authentication_gets_no_token(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broker = TestBroker(tmp_path / "data", {"delegation.token.secret.key": SECRET_KEY}).start()
    try:
        config = tmp_path / "none.properties"
        config.write_text("")
        words = ["--bootstrap-server", broker.bootstrap_servers, "--command-config", str(config)]
        assert delegation_tokens.main(["--create", "--max-life-time-period", "-1", *words]) == 1
        assert "UnsupportedByAuthenticationException" in capsys.readouterr().err
    finally:
        broker.stop()


def _properties(file: str) -> dict[str, str]:
    pairs = (line.partition("=") for line in Path(file).read_text().splitlines())
    return {key: value for key, _, value in pairs}


@pytest.mark.skipif(not KAFKA_LIBS, reason="MOLDAU_TEST_KAFKA_LIBS names no directory of Apache Kafka's jars")
@pytest.mark.skipif(not shutil.which("java"), reason="no java on the PATH")
def test_java_tools_and_clients_use_our_tokens(token_cluster: TokenCluster) -> None:
    def java(name: str, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        command = ["java", "-Xmx256M", "-cp", f"{KAFKA_LIBS}/*", f"org.apache.kafka.tools.{name}", *words]
        return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=PATIENCE_S, check=False)

    def tokens(*words: str) -> subprocess.CompletedProcess[str]:
        config = ["--bootstrap-server", token_cluster.followers, "--command-config", token_cluster.file("admin")]
        return java("DelegationTokenCommand", *words, *config)

    created = tokens("--create", "--max-life-time-period", "-1", "--renewer-principal", "User:bob")
    assert created.returncode == 0, created.stderr
    token = Token(created.stdout.splitlines()[-1])
    wait_until(lambda: all(logins(token_cluster, token)), "the token on all nodes")
    ours = token_cluster.tool("admin", "--describe", "--owner-principal", "User:admin")
    assert ours.out == tokens("--describe", "--owner-principal", "User:admin").stdout

    topic = ["--topic", "java", "--bootstrap-server", token_cluster.cluster.bootstrap_servers]
    config = token_cluster.token_file(token)
    sent = java("ConsoleProducer", *topic, "--command-config", config, stdin="by a token\n")
    assert sent.returncode == 0, sent.stderr
    flags = ["--from-beginning", "--max-messages", "1", "--command-config", config]
    read = java("consumer.ConsoleConsumer", *topic, *flags)
    assert read.stdout == "by a token\n", read.stderr
    expired = tokens("--expire", "--expiry-time-period", "-1", "--hmac", token.hmac)
    assert expired.returncode == 0, expired.stderr
    wait_until(lambda: not any(logins(token_cluster, token)), "no login with the expired token")
    refused = java("ConsoleProducer", *topic, "--command-config", config, stdin="too late\n")
    assert "SaslAuthenticationException" in refused.stderr
