"""TLS of our own clients: the properties of Java's clients and of librdkafka, against a real TLS server."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from harness.certificates import PASSWORD, Authority, Vault
from harness.patience import PATIENCE_S
from scripted_peer import ScriptedPeer, heartbeat, run

from moldau.base.errors import ErrorCode, UnusableProperty
from moldau.client.peer_connections import PeerConnections
from moldau.client.properties import security
from moldau.client.response_frames import ResponseFrames
from moldau.client.tls import tls_context
from moldau.wire.messages.heartbeat import HeartbeatResponse


@pytest.fixture
def vault(tmp_path: Path) -> Vault:
    return Vault(tmp_path)


@contextmanager
def tls_server(vault: Vault, wants_certificate: bool = False) -> Iterator[tuple[int, list[str]]]:
    """Yield a port and the common names of clients that connected."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=vault.trusted)
    context.load_cert_chain(vault.node)
    context.verify_mode = ssl.CERT_REQUIRED if wants_certificate else ssl.CERT_NONE
    names: list[str] = []
    with closing(socket.create_server(("127.0.0.1", 0))) as server:

        def accept() -> None:
            try:
                with context.wrap_socket(server.accept()[0], server_side=True) as accepted:
                    subject = (accepted.getpeercert() or {}).get("subject", ())
                    names.append(str(dict(pair for ((*pair,),) in subject).get("commonName", "")))  # type: ignore[misc]
                    accepted.send(b"x")
            except OSError:
                names.append("refused")

        thread = threading.Thread(target=accept)
        thread.start()
        yield server.getsockname()[1], names
        thread.join(PATIENCE_S)


def connect(port: int, context: ssl.SSLContext, host: str = "localhost") -> None:
    with (
        socket.create_connection(("127.0.0.1", port)) as plain,
        context.wrap_socket(plain, server_hostname=host) as tls,
    ):
        assert tls.recv(1) == b"x"


def key_properties(vault: Vault) -> list[dict[str, str]]:
    alice = vault.authority.issue(user="alice")
    files = {
        "alice.pem": alice.pem,
        "alice.key": alice.encrypted_key(),
        "alice.crt": alice.chain,
        "alice.p12": alice.pkcs12(vault.authority),
    }
    for name, content in files.items():
        data = content if isinstance(content, bytes) else content.encode()
        (vault.directory / name).write_bytes(data)
    at = {name: str(vault.directory / name) for name in files}
    return [
        {"ssl.keystore.type": "PEM", "ssl.keystore.location": at["alice.pem"]},
        {"ssl.keystore.type": "PKCS12", "ssl.keystore.location": at["alice.p12"], "ssl.keystore.password": PASSWORD},
        {"ssl.keystore.location": at["alice.p12"], "ssl.keystore.password": PASSWORD},
        {"ssl.keystore.type": "PEM", "ssl.keystore.key": alice.key, "ssl.keystore.certificate.chain": alice.chain},
        {"ssl.certificate.pem": alice.chain, "ssl.key.pem": alice.encrypted_key(), "ssl.key.password": PASSWORD},
        {
            "ssl.certificate.location": at["alice.crt"],
            "ssl.key.location": at["alice.key"],
            "ssl.key.password": PASSWORD,
        },
        {"ssl.certificate.location": at["alice.pem"]},
    ]


@pytest.mark.parametrize("case", range(7))
def test_every_way_to_configure_a_key(vault: Vault, case: int) -> None:
    properties = {"security.protocol": "SSL", "ssl.ca.location": vault.trusted, **key_properties(vault)[case]}
    context = security(properties).tls
    assert context is not None
    with tls_server(vault, wants_certificate=True) as (port, names):
        connect(port, context)
    assert names == ["alice"]


@pytest.mark.parametrize("host", ["localhost", "elsewhere.example"])
@pytest.mark.parametrize("algorithm", [None, "", "none", "https"])
def test_host_names_are_checked_unless_disabled(vault: Vault, host: str, algorithm: str | None) -> None:
    properties = {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": vault.authority.pem}
    if algorithm is not None:
        properties["ssl.endpoint.identification.algorithm"] = algorithm
    with tls_server(vault) as (port, _):
        if host == "localhost" or algorithm in ("", "none"):
            connect(port, tls_context(properties), host)
        else:
            with pytest.raises(ssl.SSLCertVerificationError, match="not valid for"):
                connect(port, tls_context(properties), host)


def test_an_unknown_authority_is_refused_unless_verification_is_disabled(vault: Vault) -> None:
    other = {"ssl.ca.pem": Authority().pem}
    with tls_server(vault) as (port, _), pytest.raises(ssl.SSLCertVerificationError):
        connect(port, tls_context(other))
    with tls_server(vault) as (port, _):
        connect(port, tls_context({**other, "enable.ssl.certificate.verification": "false"}))


@pytest.mark.parametrize(
    ("properties", "line"),
    [
        ({"ssl.ca.location": "none.pem"}, "ssl.truststore.location=none.pem: cannot be read"),
        (
            {"ssl.certificate.location": "none.pem", "ssl.key.location": "b"},
            "ssl.certificate.location=none.pem: ",
        ),
        ({"ssl.keystore.location": "x", "ssl.keystore.type": "BKS"}, "ssl.keystore.type: expected one of"),
        ({"ssl.truststore.password": "planted"}, "ssl.truststore.password: set ssl.truststore.location too"),
        ({"ssl.enabled.protocols": "SSLv3"}, "SSLv3 is not supported"),
        ({"ssl.cipher.suites": "NONE:SUCH"}, "ssl.cipher.suites: NONE is not supported"),
    ],
)
def test_unusable_properties_are_refused(properties: dict[str, str], line: str) -> None:
    with pytest.raises(UnusableProperty, match=line) as refused:
        security({"security.protocol": "SSL", **properties})
    assert "planted" not in str(refused.value)


@pytest.mark.parametrize("uv", [True, False], ids=["uvloop", "asyncio"])
def test_nodes_talk_over_tls(vault: Vault, uv: bool, caplog: pytest.LogCaptureFixture) -> None:
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(vault.node)
    contexts = [tls_context({"ssl.ca.pem": Authority().pem}), tls_context({"ssl.ca.location": vault.trusted})]

    async def talk() -> None:
        peer = await ScriptedPeer().start(tls=server)
        peers = PeerConnections(asyncio.get_running_loop(), lambda: contexts[0])
        connection = peers.to("127.0.0.1", peer.port, "test")
        assert await heartbeat(connection) == ErrorCode.NETWORK_EXCEPTION
        contexts.pop(0)  # the next connection uses the renewed context
        assert isinstance(await heartbeat(connection), HeartbeatResponse)
        peers.close_all()
        await peer.stop()

    with caplog.at_level(logging.WARNING):
        run(talk(), uv)
    lines = [record.getMessage() for record in caplog.records if record.name == "moldau.peers"]
    assert len(lines) == 1
    assert "failed: TLS: certificate verify failed" in lines[0]


@pytest.mark.parametrize("uv", [True, False], ids=["uvloop", "asyncio"])
def test_a_connection_is_closed_at_once_while_it_opens(vault: Vault, uv: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """uvloop itself would wait for the other side's end of TLS, and its loop cannot be closed before."""
    context = tls_context({"ssl.ca.location": vault.trusted})
    connected = ResponseFrames.connection_made

    async def open_and_close(port: int) -> None:
        peers = PeerConnections(asyncio.get_running_loop(), lambda: context)

        def close_once_connected(frames: ResponseFrames, transport: asyncio.BaseTransport) -> None:
            connected(frames, transport)
            asyncio.get_running_loop().call_soon(peers.close_all)

        monkeypatch.setattr(ResponseFrames, "connection_made", close_once_connected)
        assert await heartbeat(peers.to("127.0.0.1", port, "test")) == ErrorCode.NETWORK_EXCEPTION

    with tls_server(vault) as (port, _):
        run(open_and_close(port), uv)
