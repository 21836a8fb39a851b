"""TLS connections and listeners: handshakes of good and bad clients, and partial sends and receives of OpenSSL."""

from __future__ import annotations

import asyncio
import logging
import shutil
import socket
import ssl
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

import pytest
from connection_pairs import ConnectionPair, TlsConnectionPair, contexts, open_connection_pair
from harness.certificates import Vault
from harness.depth import DEPTH
from harness.patience import PATIENCE_S
from scripted_conversation import NOW, frame, reply_to, request, until

from moldau.base.broker_configs import BROKER_CONFIGS
from moldau.base.connection_settings import ConnectionLimits, ConnectionMaxima
from moldau.base.counters import CLOSED_NOT_AUTHENTICATED
from moldau.base.limits import HANDSHAKE_THREADS
from moldau.base.promise import Promise
from moldau.base.setting_sources import SettingsError
from moldau.log.reading import Slice
from moldau.platforms import page_cache
from moldau.platforms.event_loop import new_loop
from moldau.platforms.key_files import DiskKeyFiles
from moldau.security.acls.access import UNRESTRICTED, Access
from moldau.security.principals import Principal
from moldau.security.quotas.connections import ConnectionQuotas
from moldau.security.quotas.rates import Window
from moldau.security.tls.renewal import ListenerTls
from moldau.security.tls.settings import read_tls
from moldau.server.audit import FailedLogin
from moldau.server.conversation import ConnectionBudget, Reply
from moldau.server.handler import Caller, Handler
from moldau.server.handshakes import Handshakes, Step
from moldau.server.listener import Listener
from moldau.server.router import Router
from moldau.server.tls_connection import TlsConnection
from moldau.wire.apis import ApiKey
from moldau.wire.codec import Outgoing
from moldau.wire.frames import request_frame
from moldau.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

ALERT, KEY_UPDATE = b"\x15", 24
"""TLS: the content type of an alert, and the type of a handshake message."""
ASK = bytes(request_frame(ApiKey.HEARTBEAT, 4, 1, "c", HeartbeatRequest(group_id="g", member_id="m")))


@pytest.fixture(params=[asyncio.new_event_loop, new_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Callable[[Coroutine[Any, Any, None]], None]:
    def run(test: Coroutine[Any, Any, None]) -> None:
        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(asyncio.wait_for(test, PATIENCE_S))

    return run


Run = Callable[[Coroutine[Any, Any, None]], None]


# --- a connection -----------------------------------------------------------------------------------------------


def test_a_request_larger_than_every_buffer_arrives(run: Run) -> None:
    async def talk() -> None:
        bodies = [request(number, NOW, size) for number, size in enumerate((1_500_000, 5, 16_380, 300_000, 16_384))]
        wanted = b"".join(map(reply_to, bodies))
        with open_connection_pair(TlsConnectionPair) as this:
            assert isinstance(this, TlsConnectionPair)
            await this.handshake()
            sending = asyncio.ensure_future(this.send(b"".join(map(frame, bodies))))
            assert await this.receive(len(wanted)) == wanted
            await sending

    run(talk())


@pytest.mark.parametrize("is_cached", [True, False], ids=["cached", "on-disk"])
def test_a_slow_reader_gets_all_records(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_cached: bool
) -> None:
    """A send that the socket does not accept is repeated as OpenSSL demands, while more replies are queued."""
    content = Random(3).randbytes(3_000_000)
    (tmp_path / "segment").write_bytes(content)
    fetched: list[int] = []
    fetch = page_cache.fetch

    def note(fd: int, position: int, length: int) -> None:
        fetched.append(position)
        fetch(fd, position, length)

    monkeypatch.setattr(page_cache, "is_cached", lambda fd, position, length: is_cached)
    monkeypatch.setattr(page_cache, "fetch", note)

    async def talk() -> None:
        with (tmp_path / "segment").open("rb") as file, open_connection_pair(TlsConnectionPair, answer) as this:
            answer.file = file  # type: ignore[attr-defined]
            assert isinstance(this, TlsConnectionPair)
            this.client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
            this.connection._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)
            wanted, received = b"", b""
            for number in range(6):
                await this.send(frame(b"%02d" % number))
                wanted += b"HEAD" + content[number:2_000_000] + b"MIDDLE" + content[5:25] + b"%02d" % number
                received += await this.receive(min(17_000, len(wanted) - len(received)))
            received += await this.receive(len(wanted) - len(received))
            assert received == wanted

    def answer(view: memoryview) -> Reply:
        number = int(bytes(view))
        out = Outgoing(b"HEAD")
        file = answer.file  # type: ignore[attr-defined]
        out.slices = [*out.slices, (4, Slice(file, number, 2_000_000 - number))]
        out += b"MIDDLE"
        out.slices = [*out.slices, (10, Slice(file, 5, 20))]
        out += bytes(view)
        return out

    run(talk())
    assert bool(fetched) == (not is_cached)


def test_a_segment_that_is_too_short_closes_the_connection(run: Run, tmp_path: Path) -> None:
    (tmp_path / "segment").write_bytes(b"short")

    async def talk() -> None:
        with (tmp_path / "segment").open("rb") as file:
            out = Outgoing(b"HEAD")
            out.slices = [*out.slices, (4, Slice(file, 0, 100))]
            with open_connection_pair(TlsConnectionPair, lambda _: out) as this:
                await this.send(frame(b"x"))
                await until(lambda: this.close_reasons)
                assert "ended before its slice did" in this.close_reasons[0]

    run(talk())


def test_close_sends_a_close_notify_alert(run: Run) -> None:
    async def talk() -> None:
        with open_connection_pair(TlsConnectionPair) as this:
            await this.send(frame(request(1, NOW)))
            await this.receive(len(reply_to(request(1, NOW))))
            this.connection.close()
            assert await this.wait_for_close() == ""  # a connection that just ended would raise SSLEOFError

    run(talk())


def test_bytes_that_were_not_encrypted_close_an_established_connection(run: Run) -> None:
    async def talk() -> None:
        with open_connection_pair(TlsConnectionPair) as this:
            await this.send(frame(request(1, NOW)))
            await ConnectionPair.send(this, b"\x17\x03\x03\x00\x20" + bytes(32))
            await until(lambda: this.close_reasons)
            assert this.close_reasons[0].startswith("TLS: ")

    run(talk())


def test_a_client_may_change_its_keys(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """openssl's client asks for a key update in both directions between two requests."""
    if shutil.which("openssl") is None:
        pytest.skip("needs the command openssl")

    server_context = contexts()[0]
    key_updates: list[str] = []

    def note(connection: object, direction: str, version: int, content_type: int, kind: int, data: bytes) -> None:
        if kind == KEY_UPDATE and direction == "read":
            key_updates.append(direction)

    monkeypatch.setattr(server_context, "_msg_callback", note)

    async def talk() -> None:
        with open_connection_pair(TlsConnectionPair) as this:
            listening = socket.create_server(("127.0.0.1", 0))
            listening.setblocking(False)
            client = await asyncio.create_subprocess_exec(
                *("openssl", "s_client", "-connect", f"127.0.0.1:{listening.getsockname()[1]}", "-brief"),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
            )
            accepted, _ = await this.loop.sock_accept(listening)
            accepted.setblocking(False)
            assert isinstance(this, TlsConnectionPair)
            other = this._connection(accepted)
            assert client.stdin is not None
            assert client.stdout is not None
            for number in range(3):
                client.stdin.write(frame(request(number, NOW)))
                wanted = reply_to(request(number, NOW))
                assert await client.stdout.readexactly(len(wanted)) == wanted
                client.stdin.write(b"K\n")
                await client.stdin.drain()
                # openssl reads "K" as a command only if nothing follows in the same read.
                await until(lambda expected=number + 1: len(key_updates) == expected)
            client.stdin.close()
            await client.wait()
            await until(lambda: this.close_reasons)
            other.close()
            listening.close()
            assert this.close_reasons == [""]
            this.close_reasons.clear()

    run(talk())


def test_a_send_may_wait_for_bytes_of_the_client(run: Run) -> None:
    """OpenSSL wants to read before it sends, as in the middle of a key update."""

    async def talk() -> None:
        wants = [ssl.SSLWantReadError(), ssl.SSLWantReadError()]
        with open_connection_pair(TlsConnectionPair) as this:
            assert isinstance(this, TlsConnectionPair)
            await this.handshake()
            await until(lambda: this.connection._is_established)  # type: ignore[attr-defined]
            connection = this.connection
            real = connection._socket

            class Reluctant:
                def send(self, data: memoryview) -> int:
                    if wants:
                        raise wants.pop()
                    return real.send(data)

                def __getattr__(self, name: str) -> Any:
                    return getattr(real, name)

            connection._socket = Reluctant()  # type: ignore[assignment]
            body = request(1, NOW)
            await this.send(frame(body))
            await until(lambda: len(wants) == 1)
            for _ in range(5):
                await asyncio.sleep(0)
            assert len(wants) == 1, "the connection waits for the client and does not retry in a loop"
            await this.send(frame(body))
            await this.send(frame(body))
            assert await this.receive(3 * len(reply_to(body))) == 3 * reply_to(body)
            connection._socket = real

    run(talk())


def test_a_receive_may_wait_until_the_socket_takes_bytes(run: Run) -> None:
    async def talk() -> None:
        wants = [ssl.SSLWantWriteError(), ssl.SSLWantWriteError()]
        with open_connection_pair(TlsConnectionPair) as this:
            assert isinstance(this, TlsConnectionPair)
            await this.handshake()
            await until(lambda: this.connection._is_established)  # type: ignore[attr-defined]
            connection = this.connection
            real = connection._socket

            class Reluctant:
                def recv_into(self, buffer: memoryview) -> int:
                    if wants:
                        raise wants.pop()
                    return real.recv_into(buffer)

                def __getattr__(self, name: str) -> Any:
                    return getattr(real, name)

            connection._socket = Reluctant()  # type: ignore[assignment]
            body = request(1, NOW)
            await this.send(frame(body))
            assert await this.receive(len(reply_to(body))) == reply_to(body)
            assert not connection._writing
            connection._socket = real

    run(talk())


def test_a_late_reply_is_sent_while_a_receive_waits_to_write(run: Run) -> None:
    """While a receive waits for the socket to take bytes, a late reply is sent completely."""

    async def talk() -> None:
        late: Promise[Outgoing] = Promise()
        stash: list[bytes] = []
        with open_connection_pair(
            TlsConnectionPair, lambda view: late if bytes(view) == b"late" else Outgoing(b"second")
        ) as this:
            await this.send(frame(b"late"))
            await until(lambda: this.requests)
            real = this.connection._socket

            class Reluctant:
                def recv_into(self, buffer: memoryview) -> int:
                    if not stash:
                        stash.append(bytes(buffer[: real.recv_into(buffer)]))
                        this.loop.call_soon(late.complete, Outgoing(b"first"))
                        raise ssl.SSLWantWriteError
                    this.connection._socket = real
                    buffer[: len(stash[0])] = stash[0]
                    return len(stash[0])

                def __getattr__(self, name: str) -> Any:
                    return getattr(real, name)

            this.connection._socket = Reluctant()  # type: ignore[assignment]
            await this.send(frame(b"x"))
            assert await this.receive(11) == b"firstsecond"

    run(talk())


def test_handshakes_run_in_a_few_threads_and_never_in_the_loops_thread() -> None:
    async def talk() -> None:
        threads: list[int] = []
        done: list[Step] = []
        handshakes = Handshakes(asyncio.get_running_loop())
        gate = threading.Event()

        def step() -> None:
            threads.append(threading.get_ident())
            assert gate.wait(PATIENCE_S)

        steps = [handshakes.run(step, done.append) for _ in range(10)]
        await until(lambda: len(threads) == HANDSHAKE_THREADS)
        assert done == [], "the loop is free while handshakes wait"
        assert steps[-1].cancel()
        gate.set()
        await until(lambda: len(done) == 10)
        assert len(threads) == 9
        assert len(set(threads)) == HANDSHAKE_THREADS
        assert threading.get_ident() not in threads
        handshakes.close()

    asyncio.run(talk())


def test_a_connection_may_be_closed_while_its_handshake_is_in_a_thread(run: Run, vault: Vault) -> None:
    """The socket is closed after the step: otherwise another connection could get its descriptor during the step."""
    entered, gate = threading.Event(), threading.Event()
    slow_handshake = slow_handshakes(entered, gate)

    async def scenario() -> None:
        server = RunningListener(vault)
        _, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(HELLO)
        await until(entered.is_set)
        (connection,) = server.listener._connections
        sock = connection._socket
        connection.close()  # does not wait for the thread
        assert not gate.is_set()
        assert server.listener.connections == 0
        assert sock.fileno() >= 0
        gate.set()
        await until(lambda: sock.fileno() < 0)
        writer.close()
        await server.listener.stop(1)

    with slow_handshake:
        run(scenario())


def slow_handshakes(entered: threading.Event, gate: threading.Event) -> Any:
    def do_handshake(self: ssl.SSLSocket) -> None:
        entered.set()
        assert gate.wait(PATIENCE_S)
        assert self.fileno() >= 0, "the socket was closed meanwhile"
        raise ssl.SSLWantReadError

    return mock.patch.object(ssl.SSLSocket, "do_handshake", do_handshake)


# --- a listener -------------------------------------------------------------------------------------------------


class Heartbeats(Handler):
    api = ApiKey.HEARTBEAT
    versions = (0, 4)

    def answer(self, request: HeartbeatRequest, caller: Caller) -> HeartbeatResponse:
        return HeartbeatResponse()


def listener_tls(settings: dict[str, str]) -> ListenerTls:
    def value_of(key: str) -> Any:
        definition = BROKER_CONFIGS[key]
        return definition.parse(settings[key]) if key in settings else definition.default

    read = read_tls(value_of, lambda key, reason: SettingsError(f"{key}: {reason}"), is_server=True)
    return ListenerTls("SSL", read, DiskKeyFiles())


class RunningListener:
    def __init__(self, vault: Vault, authentication_ms_max: int = 30_000, **settings: str) -> None:
        self.principals: list[str] = []
        router = Router()
        router.serve([Heartbeats()])
        limits = ConnectionLimits(authentication_ms_max=authentication_ms_max)
        self.budget = ConnectionBudget(1 << 20, limits)
        self.tls = tls = listener_tls(vault.server(**settings))
        quotas = ConnectionQuotas(ConnectionMaxima(), Window())
        self.failed_logins: list[FailedLogin] = []
        self.listener = Listener(
            "SSL",
            router,
            self.budget,
            1 << 20,
            quotas,
            600_000,
            access=self._access,
            tls=tls,
            on_login_failed=self.failed_logins.append,
        )
        _, self.port = self.listener.bind("127.0.0.1", 0)
        self.listener.start()

    def _access(self, principal: Principal, host: str) -> Access:
        self.principals.append(str(principal))
        return UNRESTRICTED

    async def ask(self, context: ssl.SSLContext) -> bytes:
        """Return the response, or raise what a client sees."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, ssl=context, server_hostname="localhost")
        try:
            writer.write(ASK)
            size = int.from_bytes(await reader.readexactly(4), "big")
            return await reader.readexactly(size)
        finally:
            writer.close()

    async def send_plaintext(self, data: bytes) -> bytes:
        """Send bytes without TLS, and no more; return what comes back."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(data)
            writer.write_eof()
            return await reader.read()
        except OSError:
            return b""
        finally:
            writer.close()


@pytest.fixture
def vault(tmp_path: Path) -> Vault:
    return Vault(tmp_path)


def client_context(vault: Vault, key: str | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=vault.trusted)
    if key is not None:
        context.load_cert_chain(key)
    return context


def test_a_listener_without_a_context_closes_connections(
    run: Run, vault: Vault, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        server = RunningListener(vault)
        server.tls.begin(None)
        with pytest.raises(OSError):
            await server.ask(client_context(vault))
        assert server.failed_logins == []
        await server.listener.stop(1)

    run(scenario())
    assert "closed: listener SSL waits until its dynamic configs of TLS can be used" in caplog.text


def test_a_client_without_a_certificate_is_anonymous(run: Run, vault: Vault) -> None:
    async def scenario() -> None:
        server = RunningListener(vault, client_auth="requested")
        assert await server.ask(client_context(vault))
        assert server.principals == ["User:ANONYMOUS"]
        await server.listener.stop(1)

    run(scenario())


def test_a_client_with_a_certificate_has_the_mapped_name(run: Run, vault: Vault) -> None:
    async def scenario() -> None:
        rules = "RULE:^CN=(.*?),OU=tests.*$/$1/"
        server = RunningListener(vault, client_auth="required", principal_mapping_rules=rules)
        assert await server.ask(client_context(vault, vault.issue("alice", user="alice")))
        assert server.principals == ["User:alice"]
        await server.listener.stop(1)

    run(scenario())


@pytest.mark.parametrize(
    ("settings", "key", "line"),
    [
        ({}, None, "peer did not return a certificate"),
        ({}, "stranger", "certificate verify failed: self-signed certificate|unable to get local issuer"),
        ({}, "expired", "certificate verify failed: certificate has expired"),
        ({"principal_mapping_rules": "RULE:^O=(.*)$/$1/"}, "alice", "No rules apply to CN=alice,OU=tests,O=Moldau"),
    ],
    ids=["no certificate", "unknown issuer", "expired", "no mapping rule"],
)
def test_a_client_without_a_principal_is_refused_with_one_log_line(
    run: Run,
    vault: Vault,
    caplog: pytest.LogCaptureFixture,
    settings: dict[str, str],
    key: str | None,
    line: str,
    tmp_path: Path,
) -> None:
    (tmp_path / "other").mkdir()
    keys = {
        "stranger": Vault(tmp_path / "other").issue("stranger", user="alice"),
        "expired": vault.issue("expired", user="alice", expired=True),
        "alice": vault.issue("alice", user="alice"),
    }

    async def scenario() -> None:
        server = RunningListener(vault, client_auth="required", **settings)
        with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
            await server.ask(client_context(vault, keys[key] if key else None))
        await until(lambda: caplog.records)
        assert server.principals == []
        assert server.listener.connections == 0
        await server.listener.stop(1)

    run(scenario())
    assert len(caplog.records) == 1
    assert caplog.records[0].levelno == logging.WARNING
    assert any(part in caplog.text for part in line.split("|"))


def test_a_client_that_does_not_trust_the_node_is_logged_once(
    run: Run, vault: Vault, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        server = RunningListener(vault)
        # asyncio's client would disconnect without the alert
        with pytest.raises(ssl.SSLCertVerificationError):
            await asyncio.to_thread(handshake_without_trust, server.port)
        await until(lambda: server.failed_logins)
        (failed,) = server.failed_logins
        assert failed[:4] == ("SSL", "127.0.0.1", "SSL", "")
        await server.listener.stop(1)

    run(scenario())
    assert len(caplog.records) == 1
    assert "TLS handshake failed: tlsv1 alert unknown ca" in caplog.text


def handshake_without_trust(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port)) as plain:
        ssl.create_default_context().wrap_socket(plain, server_hostname="localhost")


HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(60)


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "it does not use TLS; this listener does"),
        (ASK, "it does not use TLS; this listener does"),
        (b"\x16garbage" * 10, "TLS handshake failed: "),
        (HELLO, "it ended the TLS handshake"),
        (b"\x16", "it ended the TLS handshake"),
    ],
    ids=["http", "plaintext-kafka", "garbage", "cut", "one-byte"],
)
def test_bytes_that_are_no_handshake_are_logged_as_one_warning(
    run: Run, vault: Vault, caplog: pytest.LogCaptureFixture, data: bytes, line: str
) -> None:
    async def scenario() -> None:
        server = RunningListener(vault)
        assert (await server.send_plaintext(data))[:1] in (b"", ALERT), "a reply to bytes that are no handshake"
        await until(lambda: caplog.records)
        assert server.listener.connections == 0
        assert await server.ask(client_context(vault))
        await server.listener.stop(1)

    run(scenario())
    of_server = [record for record in caplog.records if record.name == "moldau.server"]  # not of a slow machine
    assert [record.levelname for record in of_server] == ["WARNING"]
    assert line in caplog.text


def test_a_port_check_logs_no_warning(run: Run, vault: Vault, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        server = RunningListener(vault)
        assert await server.send_plaintext(b"") == b""
        await until(lambda: not server.listener.connections)
        await server.listener.stop(1)

    run(scenario())
    assert caplog.records == []


def test_a_random_handshake_closes_only_its_connection(vault: Vault) -> None:
    rng = Random(4)

    async def scenario() -> None:
        server = RunningListener(vault)
        hello = bytearray(await recorded_hello())
        for _ in range(35 * DEPTH):
            data = bytearray(hello)
            for _ in range(rng.randint(0, 8)):
                data[rng.randrange(len(data))] = rng.randrange(256)
            del data[rng.randrange(1, len(data)) :]
            await server.send_plaintext(bytes(data) + rng.randbytes(rng.randrange(100)))
        await until(lambda: not server.listener.connections)
        assert await server.ask(client_context(vault))
        await server.listener.stop(1)

    asyncio.run(asyncio.wait_for(scenario(), PATIENCE_S))


async def recorded_hello() -> bytes:
    """Return the first bytes of a real client."""
    to_server = ssl.MemoryBIO()
    client = contexts()[1].wrap_bio(ssl.MemoryBIO(), to_server, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return to_server.read()


def test_a_handshake_has_a_time_limit(run: Run, vault: Vault, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        server = RunningListener(vault, authentication_ms_max=50)
        _, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(HELLO[:10])
        await until(lambda: caplog.records)
        assert "no TLS handshake within 0.05 s" in caplog.text
        assert server.budget.counters[CLOSED_NOT_AUTHENTICATED] == 1
        assert server.listener.connections == 0
        writer.close()
        await server.listener.stop(1)

    run(scenario())


def test_many_clients_at_once_are_all_served(run: Run, vault: Vault) -> None:
    async def scenario() -> None:
        server = RunningListener(vault)
        context = client_context(vault)
        assert all(await asyncio.gather(*(server.ask(context) for _ in range(30))))
        await until(lambda: not server.listener.connections)
        assert server.budget.free == 1 << 20
        await server.listener.stop(1)

    run(scenario())


def test_a_listener_stops_in_the_middle_of_handshakes(run: Run, vault: Vault) -> None:
    async def scenario() -> None:
        server = RunningListener(vault)
        writers = []
        for data in (b"", HELLO[:20], HELLO):
            _, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(data)
            writers.append(writer)
        await until(lambda: server.listener.connections == 3)
        await server.listener.stop(1)
        assert server.listener.connections == 0
        for writer in writers:
            writer.close()

    run(scenario())


def test_a_tls_connection_has_no_tls_state_before_its_first_byte(vault: Vault) -> None:
    async def scenario() -> None:
        server = RunningListener(vault)
        _, writer = await asyncio.open_connection("127.0.0.1", server.port)
        await until(lambda: server.listener.connections)
        (connection,) = server.listener._connections
        assert isinstance(connection, TlsConnection)
        assert not isinstance(connection._socket, ssl.SSLSocket)
        writer.close()
        await server.listener.stop(1)

    asyncio.run(scenario())
