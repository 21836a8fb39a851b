"""Logins of our own clients, on a listener with SASL: connections between nodes, and the blocking channel."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from harness.patience import PATIENCE_S
from scripted_peer import HEARTBEAT, ScriptedPeer, heartbeat, run, until

from moldau.base.clock import SystemClock
from moldau.base.connection_settings import ConnectionMaxima
from moldau.base.errors import ErrorCode, KafkaError, UnusableProperty
from moldau.base.promise import Promise, resolved
from moldau.client import peer_connections
from moldau.client.channel import Channel, Security
from moldau.client.peer_connections import PeerConnections
from moldau.client.properties import for_librdkafka, security
from moldau.metadata.current import CurrentImage
from moldau.runtime.timers import LoopTimers
from moldau.security.acls.access import Access, Unrestricted
from moldau.security.principals import Principal
from moldau.security.quotas.connections import ConnectionQuotas
from moldau.security.quotas.rates import Window
from moldau.security.sasl.client import ClientLogin
from moldau.security.sasl.mechanism import SCRAM_MECHANISMS, SUPPORTED_MECHANISMS
from moldau.security.sasl.oauthbearer.server import AccessToken, TokenRefused, Verdict
from moldau.security.sasl.scram_messages import ScramKeys
from moldau.security.sasl.use import SaslListenerSettings
from moldau.server.conversation import ConnectionBudget
from moldau.server.handler import Caller, Handler
from moldau.server.handlers.api_versions import ApiVersions
from moldau.server.handlers.sasl import SaslAuthenticate, SaslHandshake
from moldau.server.listener import Listener
from moldau.server.router import Router
from moldau.server.sasl_session import SaslServer
from moldau.wire.apis import ApiKey
from moldau.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

MECHANISMS = pytest.mark.parametrize("mechanism", SUPPORTED_MECHANISMS)
PASSWORD = "s3cr3t"


def login_with(mechanism: str, password: str = PASSWORD) -> ClientLogin:
    return ClientLogin(mechanism, "node", password, token=lambda: password)


def verify(token: str) -> Promise[Verdict]:
    """The token is the password here."""
    verdict: Verdict = AccessToken("node", 600_000) if token == PASSWORD else TokenRefused("it is not the password")
    return resolved(verdict)


class RecordingHeartbeat(Handler):
    api = ApiKey.HEARTBEAT
    versions = (0, 4)

    def __init__(self) -> None:
        self.users: list[str] = []

    def answer(self, request: HeartbeatRequest, caller: Caller) -> HeartbeatResponse:
        self.users.append(caller.access.principal.name)
        return HeartbeatResponse()


class SaslPeer:
    def __init__(self, lifetime_ms: int = 0) -> None:
        self.heartbeat = RecordingHeartbeat()
        self.logins: list[Access] = []
        router = Router()
        router.serve(
            [self.heartbeat, ApiVersions(CurrentImage(), router.served, lambda: 1), SaslHandshake(), SaslAuthenticate()]
        )
        settings = SaslListenerSettings(
            dict.fromkeys(SUPPORTED_MECHANISMS, lifetime_ms), receive_bytes_max=10_000, passwords={"node": PASSWORD}
        )
        stored = {
            (int(mechanism), "node"): keys.credential(
                keys.salted_password(PASSWORD, b"salt", iterations=4096), b"salt", iterations=4096
            )
            for mechanism in SCRAM_MECHANISMS.values()
            for keys in [ScramKeys(mechanism)]
        }
        timers = LoopTimers(asyncio.get_running_loop())
        sasl = SaslServer(
            settings.mechanisms(lambda: stored, bytes, lambda: "nonce", verify=verify),
            receive_bytes_max=10_000,
            failure_delay_ms=5,
            clock=SystemClock(),
            timers=timers,
        )
        quotas = ConnectionQuotas(ConnectionMaxima(), Window())
        self.listener = Listener(
            "SASL", router, ConnectionBudget(1 << 20), 1 << 20, quotas, 600_000, access=self._access, sasl=sasl
        )
        _, self.port = self.listener.bind("127.0.0.1", 0)
        self.listener.start()

    def _access(self, principal: Principal, host: str) -> Access:
        access = Unrestricted(principal)
        if principal.name == "node":
            self.logins.append(access)
        return access


@asynccontextmanager
async def sasl_peer(lifetime_ms: int = 0) -> AsyncIterator[tuple[SaslPeer, PeerConnections]]:
    peer, peers = SaslPeer(lifetime_ms), PeerConnections(asyncio.get_running_loop())
    try:
        yield peer, peers
    finally:
        peers.close_all()
        await peer.listener.stop(0)


@MECHANISMS
def test_a_node_logs_in_before_its_first_request(mechanism: str) -> None:
    async def talk() -> None:
        async with sasl_peer() as (server, peers):
            peer = peers.with_login(login_with(mechanism)).to("127.0.0.1", server.port, "x")
            answers = [await heartbeat(peer) for _ in range(3)]  # type: ignore[arg-type]
            assert all(isinstance(answer, HeartbeatResponse) for answer in answers)
            assert server.heartbeat.users == ["node"] * 3
            assert server.listener.connections == 1

    run(talk(), uvloop=False)


@MECHANISMS
def test_a_wrong_password_fails_requests_and_is_logged_without_it(
    mechanism: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def talk() -> None:
        async with sasl_peer() as (server, peers):
            peer = peers.with_login(login_with(mechanism, "wr0ng")).to("127.0.0.1", server.port, "x")
            assert await heartbeat(peer) is ErrorCode.NETWORK_EXCEPTION  # type: ignore[arg-type]
            assert not server.heartbeat.users

    with caplog.at_level(logging.WARNING):
        run(talk(), uvloop=False)
    assert f"login as node with {mechanism} failed" in caplog.text
    assert "wr0ng" not in caplog.text


def test_a_node_without_a_login_is_not_served() -> None:
    async def talk() -> None:
        async with sasl_peer() as (server, peers):
            assert await heartbeat(peers.to("127.0.0.1", server.port, "x")) is ErrorCode.NETWORK_EXCEPTION
            assert not server.heartbeat.users

    run(talk(), uvloop=False)


def test_a_peer_without_sasl_fails_the_login() -> None:
    async def talk() -> None:
        server, peers = await ScriptedPeer().start(), PeerConnections(asyncio.get_running_loop())
        peer = peers.with_login(ClientLogin("PLAIN", "node", PASSWORD)).to("127.0.0.1", server.port, "x")
        assert await heartbeat(peer) is ErrorCode.NETWORK_EXCEPTION  # type: ignore[arg-type]
        assert not server.asked
        peers.close_all()
        await server.stop()

    run(talk(), uvloop=False)


@MECHANISMS
def test_a_session_is_renewed_before_it_expires(mechanism: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """At a hundredth of the lifetime here, so that a slow machine is not too late."""
    monkeypatch.setattr(peer_connections, "RENEW_AT", 0.01)
    monkeypatch.setattr("moldau.security.sasl.exchange.REAUTHENTICATION_INTERVAL_MS_MIN", 0)

    async def talk() -> None:
        async with sasl_peer(lifetime_ms=15_000) as (server, peers):
            peer = peers.with_login(login_with(mechanism)).to("127.0.0.1", server.port, "x")
            while len(server.logins) < 3:
                assert isinstance(await heartbeat(peer), HeartbeatResponse)  # type: ignore[arg-type]
                await asyncio.sleep(0.01)
            assert server.listener.connections == 1

    run(talk(), uvloop=False)


def test_requests_continue_while_a_login_waits_for_its_token(monkeypatch: pytest.MonkeyPatch) -> None:
    """An identity provider may be slow; the session is still valid."""
    monkeypatch.setattr(peer_connections, "RENEW_AT", 0.01)
    monkeypatch.setattr("moldau.security.sasl.exchange.REAUTHENTICATION_INTERVAL_MS_MIN", 0)
    began, gate, begin = [], threading.Event(), ClientLogin.begin

    def slow_begin(login: ClientLogin, nonce: str) -> Any:
        began.append(nonce)
        assert len(began) == 1 or gate.wait(PATIENCE_S)
        return begin(login, nonce)

    monkeypatch.setattr(ClientLogin, "begin", slow_begin)

    async def talk() -> None:
        async with sasl_peer(lifetime_ms=60_000) as (server, peers):
            peer = peers.with_login(login_with("PLAIN")).to("127.0.0.1", server.port, "x")
            assert isinstance(await heartbeat(peer), HeartbeatResponse)  # type: ignore[arg-type]
            await until(lambda: len(began) == 2)
            for _ in range(3):
                assert isinstance(await heartbeat(peer), HeartbeatResponse)  # type: ignore[arg-type]
            gate.set()
            await until(lambda: len(server.logins) >= 2)

    run(talk(), uvloop=False)


def test_closing_a_connection_during_its_login_fails_its_requests() -> None:
    async def talk() -> None:
        async with sasl_peer(lifetime_ms=15_000) as (server, peers):
            peer = peers.with_login(ClientLogin("SCRAM-SHA-512", "node", PASSWORD)).to("127.0.0.1", server.port, "x")
            pending = peer.ask(ApiKey.HEARTBEAT, HEARTBEAT, 10_000)
            await asyncio.sleep(0)
            peer.close()
            await until(lambda: pending.done)
            assert isinstance(pending.value(), KafkaError)

    run(talk(), uvloop=False)


def ask(channel: Channel) -> Any:
    return channel.ask(ApiKey.HEARTBEAT, HEARTBEAT, HeartbeatResponse)


@MECHANISMS
def test_the_channel_logs_in_and_renews_its_session(mechanism: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moldau.client.channel.RENEW_AT", 0.0)
    monkeypatch.setattr("moldau.security.sasl.exchange.REAUTHENTICATION_INTERVAL_MS_MIN", 0)

    async def talk() -> None:
        async with sasl_peer(lifetime_ms=600_000) as (server, _):
            login = Security(login=login_with(mechanism))
            channel = await asyncio.to_thread(Channel, "127.0.0.1", server.port, login)
            for _ in range(3):
                await asyncio.to_thread(ask, channel)
            assert server.heartbeat.users == ["node"] * 3
            assert len(server.logins) == 4
            channel.close()

    run(talk(), uvloop=False)


@MECHANISMS
def test_the_channel_reports_a_wrong_password(mechanism: str) -> None:
    async def talk() -> None:
        async with sasl_peer() as (server, _):
            login = Security(login=login_with(mechanism, "wr0ng"))
            with pytest.raises(KafkaError) as refused:
                await asyncio.to_thread(Channel, "127.0.0.1", server.port, login)
            assert refused.value.code == ErrorCode.SASL_AUTHENTICATION_FAILED
            assert "wr0ng" not in str(refused.value)

    run(talk(), uvloop=False)


JAAS = 'org.apache.kafka.common.security.scram.ScramLoginModule required username=\'a b\' password="x\\"y";'


def test_properties_of_java_and_of_librdkafka() -> None:
    java = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-256", "sasl.jaas.config": JAAS}
    login = ClientLogin("SCRAM-SHA-256", "a b", 'x"y')
    assert security(java) == Security(login=login)
    assert security(for_librdkafka(java)) == Security(login=login)
    plural = {"security.protocol": "sasl_plaintext", "sasl.mechanisms": "PLAIN", "sasl.username": "a"}
    assert security(plural) == Security(login=ClientLogin("PLAIN", "a", ""))


def test_properties_of_a_login_with_a_delegation_token() -> None:
    """Our own channel can use it, librdkafka cannot."""
    java = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-256"}
    by_token = {**java, "sasl.jaas.config": f"{JAAS[:-1]} tokenauth=true;"}
    assert security(by_token) == Security(login=ClientLogin("SCRAM-SHA-256", "a b", 'x"y', by_token=True))
    with pytest.raises(UnusableProperty, match="librdkafka cannot log in with a delegation token"):
        for_librdkafka(by_token)
    without = {**java, "sasl.jaas.config": f"{JAAS[:-1]} tokenauth=false;"}
    assert security(without) == Security(login=ClientLogin("SCRAM-SHA-256", "a b", 'x"y'))
    assert for_librdkafka(without)["sasl.username"] == "a b"


def test_a_callback_gives_the_token() -> None:
    oauth = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}
    login = security(oauth, lambda _: ("a.b.c", 0.0)).login
    assert login is not None
    assert login.begin("nonce").first() == b"n,,\x01auth=Bearer a.b.c\x01\x01"
    assert "a.b.c" not in repr(login)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sasl.mechanism": "GSSAPI"}, "expected one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512"),
        ({"sasl.mechanism": ""}, "expected one of PLAIN"),
        ({"sasl.jaas.config": JAAS[:-1] + PASSWORD}, "Value not specified"),
    ],
)
def test_invalid_properties_are_refused(changes: dict[str, str], message: str) -> None:
    java = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.jaas.config": JAAS}
    with pytest.raises(UnusableProperty) as refused:
        security({**java, **changes})
    assert message in str(refused.value)
    assert PASSWORD not in str(refused.value)
