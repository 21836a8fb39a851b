"""SASL OAUTHBEARER as clients see it: three libraries and our own tools, with tokens of an identity provider, on real
sockets."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import kafka
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioTopicPartition
from aiokafka.abc import AbstractTokenProvider as AioTokenProvider
from aiokafka.helpers import create_ssl_context
from clients import produce_or_raise
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from harness.certificates import Vault
from harness.patience import PATIENCE_S, wait_until
from harness.tokens import AUDIENCE, ISSUER, Issuer, Provider, part, provider
from joserfc.jwk import ECKey, RSAKey
from kafka.net.sasl.oauth import AbstractTokenProvider

from moldau.base.setting_sources import SettingsError
from moldau.cli.kafka import acls, console_consumer, console_producer, topics
from moldau.cli.main import main as moldau
from moldau.security.authorizer_settings import STANDARD_AUTHORIZER
from moldau.testing.broker import TestBroker
from moldau.testing.cluster import TestCluster

pytestmark = pytest.mark.moldau_only
MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
HANDLERS = "org.apache.kafka.common.security.oauthbearer."


class OAuthBroker(NamedTuple):
    """A broker, the identity provider that it trusts, and how clients connect to it."""

    broker: TestBroker
    provider: Provider
    directory: Path
    trusted: str | None = None
    """The file with the certificate that clients trust, if the broker uses TLS."""

    @property
    def bootstrap(self) -> str:
        return self.broker.bootstrap_servers

    @property
    def protocol(self) -> str:
        return "SASL_PLAINTEXT" if self.trusted is None else "SASL_SSL"


def one_listener(url: str, **more: str) -> dict[str, str]:
    return {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "sasl.oauthbearer.expected.issuer": ISSUER,
        "sasl.oauthbearer.jwks.endpoint.url": url,
        "num.partitions": "1",
        **{f"sasl.oauthbearer.jwks.endpoint.{key.replace('_', '.')}": value for key, value in more.items()},
    }


@pytest.fixture(scope="module")
def oauth_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OAuthBroker]:
    """The broker reads the keys by HTTP, and has ACLs."""
    directory = tmp_path_factory.mktemp("oauth")
    with provider(Issuer()) as running:
        mechanism = "listener.name.sasl_plaintext.oauthbearer."
        settings = {
            **one_listener(f"{running.url}/jwks"),
            f"{mechanism}sasl.jaas.config": f"{MODULE};",
            f"{mechanism}sasl.server.callback.handler.class": f"{HANDLERS}OAuthBearerValidatorCallbackHandler",
            "authorizer.class.name": STANDARD_AUTHORIZER,
            "super.users": "User:admin;User:ANONYMOUS",
        }
        broker = TestBroker(directory / "data", settings).start()
        found = OAuthBroker(broker, running, directory)
        create(found, "open")
        for words in (["--producer"], ["--operation", "Read"]):
            allow(found, "ann", *words, "--topic", "open")
        allow(found, "ann", "--operation", "All", "--group", "*")
        yield found
        broker.stop()


@pytest.fixture(scope="module")
def oauth_tls_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OAuthBroker]:
    """The broker reads the keys from a file; its key is a slow one, which is left to a thread."""
    directory = tmp_path_factory.mktemp("oauth-tls")
    issuer, vault, file = Issuer(ECKey.generate_key("P-384"), "ES384"), Vault(directory), directory / "keys.json"
    file.write_bytes(issuer.key_set())
    settings = {**one_listener(""), **vault.server(), "listeners": "SASL_SSL://127.0.0.1:0"}
    settings["listener.name.sasl_ssl.oauthbearer.sasl.oauthbearer.jwks.endpoint.url"] = file.as_uri()
    broker = TestBroker(directory / "data", settings).start()
    found = OAuthBroker(broker, Provider(issuer), directory, vault.trusted)
    create(found, "open")
    yield found
    broker.stop()


def confluent(oauth_broker: OAuthBroker, token: str) -> dict[str, Any]:
    tls = {} if oauth_broker.trusted is None else {"ssl.ca.location": oauth_broker.trusted}
    return {
        "bootstrap.servers": oauth_broker.bootstrap,
        "security.protocol": oauth_broker.protocol,
        "sasl.mechanism": "OAUTHBEARER",
        "oauth_cb": lambda _: (token, time.time() + 600),
        "log_level": 0,
        **tls,
    }


def create(oauth_broker: OAuthBroker, name: str) -> None:
    admin = AdminClient(confluent(oauth_broker, oauth_broker.provider.issuer.token("admin")))
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(PATIENCE_S)


def client_file(oauth_broker: OAuthBroker, **more: str) -> str:
    """Write the properties of a tool that gets tokens from the identity provider, as the admin."""
    oauth_broker.provider.clients["admin"] = "admin-secret"
    properties = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.jaas.config": f"{MODULE};",
        "sasl.login.callback.handler.class": f"{HANDLERS}OAuthBearerLoginCallbackHandler",
        "sasl.oauthbearer.token.endpoint.url": f"{oauth_broker.provider.url}/token",
        "sasl.oauthbearer.client.credentials.client.id": "admin",
        "sasl.oauthbearer.client.credentials.client.secret": "admin-secret",
        **{key.replace("_", "."): value for key, value in more.items()},
    }
    file = oauth_broker.directory / "client.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    return str(file)


def allow(oauth_broker: OAuthBroker, user: str, *words: str) -> None:
    config = ["--bootstrap-server", oauth_broker.bootstrap, "--command-config", client_file(oauth_broker)]
    assert acls.main([*config, "--add", "--allow-principal", f"User:{user}", *words]) == 0


# --- three libraries ----------------------------------------------------------------------------------------------


def round_trip_confluent(oauth_broker: OAuthBroker, token: str) -> bytes:
    settings = confluent(oauth_broker, token)
    produce_or_raise(settings, "open", b"by confluent")
    consumer = Consumer({**settings, "group.id": "unused"})
    try:
        consumer.assign([TopicPartition("open", 0, 0)])
        message = consumer.poll(PATIENCE_S)
        assert message is not None
        assert message.error() is None
        return bytes(message.value() or b"")
    finally:
        consumer.close()


class KafkaPythonToken(AbstractTokenProvider):
    def __init__(self, token: str) -> None:
        self._token = token

    def token(self) -> str:
        return self._token

    def extensions(self) -> dict[str, str]:
        return {"traceId": "42"}


def round_trip_kafka_python(oauth_broker: OAuthBroker, token: str) -> bytes:
    settings = {
        "bootstrap_servers": oauth_broker.bootstrap,
        "security_protocol": oauth_broker.protocol,
        "ssl_cafile": oauth_broker.trusted,
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauth_token_provider": KafkaPythonToken(token),
    }
    producer = kafka.KafkaProducer(**settings)
    try:
        producer.send("open", b"by kafka-python", partition=0).get(PATIENCE_S)
    finally:
        producer.close()
    wait_ms = int(PATIENCE_S * 1000)
    consumer = kafka.KafkaConsumer(**settings, group_id=None, auto_offset_reset="earliest", consumer_timeout_ms=wait_ms)
    try:
        consumer.assign([kafka.TopicPartition("open", 0)])
        return bytes(next(consumer).value)
    finally:
        consumer.close()


class AiokafkaToken(AioTokenProvider):
    def __init__(self, token: str) -> None:
        self._token = token

    async def token(self) -> str:
        return self._token


def round_trip_aiokafka(oauth_broker: OAuthBroker, token: str) -> bytes:
    settings = {
        "bootstrap_servers": oauth_broker.bootstrap,
        "security_protocol": oauth_broker.protocol,
        "ssl_context": create_ssl_context(cafile=oauth_broker.trusted) if oauth_broker.trusted else None,
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauth_token_provider": AiokafkaToken(token),
    }

    async def talk() -> bytes:
        producer = AIOKafkaProducer(**settings)
        try:
            await producer.start()
        except Exception as error:
            await producer.stop()
            raise PermissionError(repr(error)) from error
        await producer.send_and_wait("open", b"by aiokafka", partition=0)
        await producer.stop()
        consumer = AIOKafkaConsumer(**settings, group_id=None, auto_offset_reset="earliest")
        await consumer.start()
        try:
            consumer.assign([AioTopicPartition("open", 0)])
            return bytes((await asyncio.wait_for(consumer.getone(), PATIENCE_S)).value)
        finally:
            await consumer.stop()

    return asyncio.run(talk())


LIBRARIES: dict[str, Callable[[OAuthBroker, str], bytes]] = {
    "confluent": round_trip_confluent,
    "kafka-python": round_trip_kafka_python,
    "aiokafka": round_trip_aiokafka,
}


@pytest.mark.parametrize("library", LIBRARIES)
def test_every_library_produces_and_consumes(oauth_broker: OAuthBroker, library: str) -> None:
    assert LIBRARIES[library](oauth_broker, oauth_broker.provider.issuer.token("ann")).startswith(b"by ")


@pytest.mark.parametrize("library", LIBRARIES)
def test_every_library_logs_in_over_tls_with_keys_from_a_file(oauth_tls_broker: OAuthBroker, library: str) -> None:
    assert LIBRARIES[library](oauth_tls_broker, oauth_tls_broker.provider.issuer.token("ann")).startswith(b"by ")


def broker_lines(caplog: pytest.LogCaptureFixture) -> str:
    return "\n".join(record.getMessage() for record in caplog.records if record.name.startswith("moldau"))


def check_refused_confluent(oauth_broker: OAuthBroker, token: str) -> None:
    errors: list[str] = []
    admin = AdminClient({**confluent(oauth_broker, token), "error_cb": lambda error: errors.append(error.name())})
    wait_until(lambda: admin.poll(0.1) or "_AUTHENTICATION" in errors, f"_AUTHENTICATION among {errors}")


def check_refused_aiokafka(oauth_broker: OAuthBroker, token: str) -> None:
    """aiokafka ignores the error and sends a request, which closes the connection."""
    with pytest.raises(PermissionError):
        round_trip_aiokafka(oauth_broker, token)


@pytest.mark.parametrize("refused", [check_refused_confluent, check_refused_aiokafka])
def test_an_expired_token_is_refused_and_the_reason_is_logged(
    oauth_broker: OAuthBroker, refused: Callable[[OAuthBroker, str], None], caplog: pytest.LogCaptureFixture
) -> None:
    token = oauth_broker.provider.issuer.token("ann", -100)
    refused(oauth_broker, token)
    wait_until(lambda: "the token has expired" in broker_lines(caplog), "the reason is logged")
    assert token not in broker_lines(caplog)


# --- raw messages -------------------------------------------------------------------------------------------------


def request(key: int, version: int, body: bytes) -> bytes:
    data = struct.pack(">hhih", key, version, 1, -1) + body
    return struct.pack(">i", len(data)) + data


HANDSHAKE = request(17, 1, struct.pack(">h", 11) + b"OAUTHBEARER")


def token_request(data: bytes) -> bytes:
    return request(36, 1, struct.pack(">i", len(data)) + data)


def first(token: str) -> bytes:
    return b"n,,\x01auth=Bearer %s\x01\x01" % token.encode()


class RawConnection:
    """A connection on which a test sends bytes."""

    def __init__(self, bootstrap: str) -> None:
        host, _, port = bootstrap.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=PATIENCE_S)

    def __enter__(self) -> RawConnection:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def ask(self, data: bytes) -> bytes:
        """Return the body of the response; empty if the connection was closed."""
        self.socket.sendall(data)
        size = self._receive(4)
        return self._receive(struct.unpack(">i", size)[0])[4:] if size else b""

    def _receive(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            try:
                piece = self.socket.recv(size - len(data))
            except ConnectionResetError:
                return b""
            if not piece:
                return b""
            data += piece
        return data

    def log_in(self, token: str) -> tuple[int, str, bytes, int]:
        """Return error code, message, token and lifetime of the answer to a token."""
        assert self.ask(HANDSHAKE)[:2] == b"\0\0"
        return self.send(first(token))

    def send(self, message: bytes) -> tuple[int, str, bytes, int]:
        body = self.ask(token_request(message))
        code, length = struct.unpack_from(">hh", body)
        text = body[4 : 4 + max(0, length)].decode()
        position = 4 + max(0, length)
        (size,) = struct.unpack_from(">i", body, position)
        answer = body[position + 4 : position + 4 + size]
        return code, text, answer, struct.unpack_from(">q", body, position + 4 + size)[0]


def invalid_tokens(issuer: Issuer) -> dict[str, tuple[str, str]]:
    _, payload, signature = issuer.token("ann").split(".")
    return {
        "expired": (issuer.token("ann", -60), "the token has expired 60 s ago"),
        "not valid yet": (issuer.token("ann", nbf=time.time() + 100), "the token is not valid yet"),
        "another audience": (issuer.token("ann", aud="payroll"), "the audience of the token is"),
        "another issuer": (issuer.token("ann", iss="https://evil"), "the issuer of the token is"),
        "no user": (issuer.token("ann", sub=None), "the token has no user"),
        "no expiry": (issuer.token("ann", exp=None), "the token lacks the claim exp"),
        "not signed": (f"{part({'alg': 'none'})}.{payload}.", "the token is not signed"),
        "a shared secret": (f"{part({'alg': 'HS256', 'kid': 'first'})}.{payload}.{signature}", "a shared secret"),
        "another key": (Issuer().token("ann"), "the signature of the token is not valid"),
        "another algorithm": (f"{part({'alg': 'RS256', 'kid': 'first'})}.{payload}.AAAA", "is not for its algorithm"),
        "an unknown key": (issuer.token("ann", header={"kid": "x"}), "the key of the token"),
        "too long": (issuer.token("ann", padding="x" * 100_000), "bytes; at most 65536"),
        "not a token": ("abc", "is not a signed JWT"),
    }


@pytest.mark.parametrize("name", invalid_tokens(Issuer()))
def test_an_invalid_token_is_refused_and_the_reason_is_logged(
    oauth_broker: OAuthBroker, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    token, sentence = invalid_tokens(oauth_broker.provider.issuer)[name]
    with RawConnection(oauth_broker.bootstrap) as connection:
        assert connection.log_in(token) == (0, "", b'{"status":"invalid_token"}', 0)
        assert connection.send(b"\x01") == (58, '{"status":"invalid_token"}', b"", 0)
        assert connection.ask(b"") == b""
    wait_until(lambda: sentence in broker_lines(caplog), f"the log has {sentence}")
    assert token not in broker_lines(caplog)
    assert len(broker_lines(caplog)) < 1000


def test_a_refusal_is_logged_even_if_the_client_disconnects(
    oauth_broker: OAuthBroker, caplog: pytest.LogCaptureFixture
) -> None:
    with RawConnection(oauth_broker.bootstrap) as connection:
        connection.log_in(oauth_broker.provider.issuer.token("ann", aud="left"))
    wait_until(lambda: 'the audience of the token is ["left"]' in broker_lines(caplog), "the reason is logged")


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\x01",
        b"\0ann\0secret",
        b"n,,\x01auth=Bearer \xff\x01\x01",
        b"y,,\x01auth=Bearer t\x01\x01",
        b"x" * 400_000,
    ],
    ids=["empty", "an acknowledgement", "PLAIN", "not ASCII", "channel binding", "too long"],
)
def test_malformed_messages_close_only_their_connection(oauth_broker: OAuthBroker, message: bytes) -> None:
    with RawConnection(oauth_broker.bootstrap) as connection:
        assert connection.ask(HANDSHAKE)[:2] == b"\0\0"
        code, text, _, _ = connection.send(message)
        assert (code, text) == (
            58,
            "Authentication failed during authentication due to invalid credentials with SASL mechanism OAUTHBEARER",
        )
        assert connection.ask(b"") == b""
    with RawConnection(oauth_broker.bootstrap) as connection:
        assert connection.log_in(oauth_broker.provider.issuer.token("ann"))[0] == 0


def test_a_session_ends_with_its_token_and_continues_with_a_new_one(
    oauth_broker: OAuthBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("moldau.security.sasl.exchange.REAUTHENTICATION_INTERVAL_MS_MIN", 0)
    issuer, metadata = oauth_broker.provider.issuer, request(3, 1, struct.pack(">i", 0))
    with RawConnection(oauth_broker.bootstrap) as connection:
        code, _, _, lifetime_ms = connection.log_in(issuer.token("ann", 60))
        assert code == 0
        assert 0 < lifetime_ms <= 60_000
        assert connection.ask(metadata)
        code, _, _, lifetime_ms = connection.log_in(issuer.token("ann", 100))
        assert (code, lifetime_ms > 90_000) == (0, True)
        assert connection.ask(metadata)
    with RawConnection(oauth_broker.bootstrap) as connection:
        connection.log_in(issuer.token("ann", 0.5))
        wait_until(lambda: connection.ask(metadata) == b"", "the session has ended")
    with RawConnection(oauth_broker.bootstrap) as connection:
        connection.log_in(issuer.token("ann", 100))
        code, text, _, _ = connection.log_in(issuer.token("bob", 100))
        assert (code, text) == (58, "Cannot change principals during re-authentication from User.ann: User.bob")


def test_librdkafka_continues_with_new_tokens(oauth_broker: OAuthBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """librdkafka asks for the next token in time, and authenticates again on the same connection."""
    monkeypatch.setattr("moldau.security.sasl.exchange.REAUTHENTICATION_INTERVAL_MS_MIN", 0)  # the client may be late
    token_s = 8  # librdkafka authenticates again when a tenth of it is left
    tokens_end: list[float] = []

    def new_token(_: str) -> tuple[str, float]:
        tokens_end.append(time.time() + token_s)
        # librdkafka requests the next token soon, so that no session is short.
        return oauth_broker.provider.issuer.token("ann", token_s), time.time() + 1.5

    errors: list[Any] = []
    settings = {**confluent(oauth_broker, ""), "oauth_cb": new_token, "error_cb": errors.append}
    producer = Producer({**settings, "acks": "all"})
    delivered: list[Any] = []

    def produce() -> bool:
        producer.produce("open", b"x", on_delivery=lambda error, _: delivered.append(error))
        producer.flush(PATIENCE_S)
        return time.time() > tokens_end[0] + 0.5

    wait_until(produce, "the first token has expired")
    assert set(delivered) == {None}
    assert not errors


# --- keys ---------------------------------------------------------------------------------------------------------


def logs_in(bootstrap: str, token: str) -> bool:
    with RawConnection(bootstrap) as connection:
        return connection.log_in(token)[2] == b""


def test_keys_change_without_a_restart(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    issuer = Issuer()
    with provider(issuer) as running:
        settings = one_listener(f"{running.url}/jwks", refresh_ms="200", retry_backoff_ms="50")
        broker = TestBroker(tmp_path / "data", settings).start()
        bootstrap = broker.bootstrap_servers
        try:
            old = issuer.token()
            assert logs_in(bootstrap, old)
            issuer.rotate("second")
            issuer.add_key("third", RSAKey.generate_key(2048), "RS256")
            wait_until(lambda: logs_in(bootstrap, issuer.token()), "the new keys are read")
            wait_until(lambda: not logs_in(bootstrap, old), "the removed key is no longer used")
            running.status = 503
            wait_until(
                lambda: "the last 2 keys stay in use" in broker_lines(caplog), "a line says that the old keys are kept"
            )
            assert logs_in(bootstrap, issuer.token())
            running.status = 200
            issuer.rotate("fourth")
            wait_until(lambda: logs_in(bootstrap, issuer.token()), "the keys are read again")
        finally:
            broker.stop()


def test_an_unknown_key_is_looked_up_at_once(tmp_path: Path) -> None:
    issuer = Issuer()
    with provider(issuer) as running:
        broker = TestBroker(tmp_path / "data", one_listener(f"{running.url}/jwks")).start()
        try:
            issuer.rotate("second")
            assert logs_in(broker.bootstrap_servers, issuer.token())
        finally:
            broker.stop()


def test_invented_key_ids_do_not_cause_many_jwks_requests(tmp_path: Path) -> None:
    issuer = Issuer()
    with provider(issuer) as running:
        broker = TestBroker(tmp_path / "data", one_listener(f"{running.url}/jwks")).start()
        try:
            for number in range(30):
                assert not logs_in(broker.bootstrap_servers, issuer.token(header={"kid": f"invented {number}"}))
            assert running.jwks_requests <= 3  # at the start, for the first invented key, and on a very slow machine
        finally:
            broker.stop()


def test_a_changed_key_file_is_read_again(tmp_path: Path) -> None:
    issuer = Issuer()
    file = tmp_path / "keys.json"
    file.write_bytes(issuer.key_set())
    broker = TestBroker(tmp_path / "data", one_listener(file.as_uri())).start()
    try:
        assert logs_in(broker.bootstrap_servers, issuer.token())
        file.write_text("half")
        assert not logs_in(broker.bootstrap_servers, issuer.token(header={"kid": "x"}))
        assert logs_in(broker.bootstrap_servers, issuer.token())
        issuer.rotate("second")
        file.write_bytes(issuer.key_set())
        wait_until(lambda: logs_in(broker.bootstrap_servers, issuer.token()), "the new key is read")
    finally:
        broker.stop()


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("file:///nowhere/keys.json", "cannot be read: No such file or directory"),
        ("http://127.0.0.1:1/keys", "no connection: Connection refused"),
        ("PROVIDER/nothing", "the server answered 404"),
        ("PROVIDER/token", "the server answered 404"),
    ],
)
def test_without_keys_a_broker_does_not_start(tmp_path: Path, url: str, sentence: str) -> None:
    with provider(Issuer()) as running:
        broker = TestBroker(tmp_path / "data", one_listener(url.replace("PROVIDER", running.url)))
        with pytest.raises(SettingsError, match=sentence):
            broker.start()


# --- our own clients, ACLs ----------------------------------------------------------------------------------------


def test_acls_apply_to_the_user_of_the_token(oauth_broker: OAuthBroker) -> None:
    create(oauth_broker, "secret")

    def produced(user: str) -> str:
        outcomes: list[str] = []
        producer = Producer(confluent(oauth_broker, oauth_broker.provider.issuer.token(user)))
        producer.produce("secret", b"x", on_delivery=lambda error, _: outcomes.append(error.name() if error else ""))
        producer.flush(PATIENCE_S)
        return outcomes[0]

    assert produced("ann") == "TOPIC_AUTHORIZATION_FAILED"
    allow(oauth_broker, "ann", "--producer", "--topic", "secret")
    wait_until(lambda: produced("ann") == "", "ann may produce")
    assert produced("bob") == "TOPIC_AUTHORIZATION_FAILED"


def test_kafka_topics_logs_in_with_client_credentials(
    oauth_broker: OAuthBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    oauth_broker.provider.token_requests.clear()
    config = [
        "--bootstrap-server",
        oauth_broker.bootstrap,
        "--command-config",
        client_file(oauth_broker, sasl_oauthbearer_scope="a b"),
    ]
    assert topics.main([*config, "--create", "--topic", "by-tool"]) == 0
    assert topics.main([*config, "--list"]) == 0
    assert "by-tool" in capsys.readouterr().out
    assert set(oauth_broker.provider.token_requests) == {"grant_type=client_credentials&scope=a%20b"}


def test_kafka_topics_accepts_older_jaas_options(oauth_broker: OAuthBroker, capsys: pytest.CaptureFixture[str]) -> None:
    oauth_broker.provider.clients["admin"] = "admin-secret"
    file = oauth_broker.directory / "older.properties"
    file.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=OAUTHBEARER\n"
        f"sasl.oauthbearer.token.endpoint.url={oauth_broker.provider.url}/token\n"
        f'sasl.jaas.config={MODULE} clientId="admin" clientSecret="admin-secret" extension_traceId="7";\n'
    )
    config = ["--bootstrap-server", oauth_broker.bootstrap, "--command-config", str(file)]
    assert topics.main([*config, "--list"]) == 0
    assert "open" in capsys.readouterr().out


def test_console_clients_log_in_with_a_token_file(
    oauth_broker: OAuthBroker, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import io
    import sys

    create(oauth_broker, "console")
    (oauth_broker.directory / "token").write_text(oauth_broker.provider.issuer.token("admin") + "\n")
    file = oauth_broker.directory / "file.properties"
    file.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=OAUTHBEARER\n"
        f"sasl.oauthbearer.token.endpoint.url={(oauth_broker.directory / 'token').as_uri()}\n"
    )
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"one\ntwo\n")))
    config = ["--bootstrap-server", oauth_broker.bootstrap, "--topic", "console", "--command-config", str(file)]
    assert console_producer.main(config) == 0
    assert console_consumer.main([*config, "--from-beginning", "--max-messages", "2"]) == 0
    assert capsys.readouterr().out.split() == ["one", "two"]


def test_the_moldau_command_logs_in_with_a_token_file(
    oauth_broker: OAuthBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    (oauth_broker.directory / "token").write_text(oauth_broker.provider.issuer.token("admin"))
    options = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": (oauth_broker.directory / "token").as_uri(),
    }
    flags = [word for key, value in options.items() for word in ("-X", f"{key}={value}")]
    for command in (["topic", "list"], ["acl", "list"]):  # librdkafka, and our own channel
        with pytest.raises(SystemExit) as ended:
            moldau([*command, "-b", oauth_broker.bootstrap, *flags])
        assert ended.value.code in (0, None)
        assert "open" in capsys.readouterr().out


def test_a_wrong_client_secret_is_reported_and_not_shown(
    oauth_broker: OAuthBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = client_file(oauth_broker, sasl_oauthbearer_client_credentials_client_secret="wr0ng-planted")
    for tool in (acls, topics):  # our own channel, and librdkafka
        assert tool.main(["--bootstrap-server", oauth_broker.bootstrap, "--command-config", wrong, "--list"]) == 1
        printed = capsys.readouterr()
        assert "the server answered 401" in printed.out + printed.err
        assert "wr0ng-planted" not in printed.out + printed.err


def test_cluster_nodes_log_in_with_tokens_and_renew_them(tmp_path: Path) -> None:
    """Nodes get their tokens from the provider, and authenticate again before these expire."""
    issuer = Issuer()
    with provider(issuer) as running:
        running.lifetime_s = 4
        settings = {
            "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
            "sasl.enabled.mechanisms": "OAUTHBEARER",
            "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
            "sasl.mechanism.controller.protocol": "OAUTHBEARER",
            "sasl.oauthbearer.expected.audience": AUDIENCE,
            "sasl.oauthbearer.expected.issuer": ISSUER,
            "sasl.oauthbearer.jwks.endpoint.url": f"{running.url}/jwks",
            "sasl.oauthbearer.token.endpoint.url": f"{running.url}/token",
            "sasl.oauthbearer.client.credentials.client.id": "node",
            "sasl.oauthbearer.client.credentials.client.secret": "n0de-secret",
            "authorizer.class.name": STANDARD_AUTHORIZER,
            "super.users": "User:node;User:admin",
        }
        cluster = TestCluster(tmp_path, 3, settings).start()
        try:
            admin = {
                "bootstrap.servers": cluster.bootstrap_servers,
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "OAUTHBEARER",
                "oauth_cb": lambda _: (issuer.token("admin"), time.time() + 600),
            }
            creator = AdminClient(admin)
            creator.create_topics([NewTopic("replicated", 1, 3)])["replicated"].result(PATIENCE_S)
            asked = len(running.token_requests)
            delivered: list[Any] = []
            producer = Producer({**admin, "acks": "all"})

            def produce() -> bool:
                producer.produce("replicated", b"x", on_delivery=lambda error, _: delivered.append(error))
                producer.flush(PATIENCE_S)
                return len(running.token_requests) >= asked + 6

            wait_until(produce, "every node gets another token")
            cluster.wait_for_isr("replicated", 0, {1, 2, 3})
            assert set(delivered) == {None}
        finally:
            cluster.stop_all()


def test_secrets_are_not_described(oauth_broker: OAuthBroker) -> None:
    from confluent_kafka.admin import ConfigResource

    admin = AdminClient(confluent(oauth_broker, oauth_broker.provider.issuer.token("admin")))
    (described,) = admin.describe_configs([ConfigResource(ConfigResource.Type.BROKER, "1")]).values()
    found = described.result(PATIENCE_S)
    assert found["sasl.oauthbearer.expected.audience"].value == AUDIENCE
    assert found["sasl.oauthbearer.client.credentials.client.secret"].value is None
    assert json.dumps([str(each.value) for each in found.values()]).count("secret") == 0


@pytest.fixture(autouse=True)
def _log_level(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="moldau")
