"""A connection of the broker and its other end, which the test reads and writes: plaintext, or with TLS."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache

from harness.certificates import Authority
from harness.patience import PATIENCE_S
from scripted_conversation import NEVER, reply_to, until

from moldau.base.limits import SCRATCH_BYTES
from moldau.security.principals import ANONYMOUS, Principal
from moldau.server.conversation import ConnectionBudget, Reply
from moldau.server.handshakes import Handshakes
from moldau.server.socket_connection import SocketConnection
from moldau.server.tls_connection import ServerHandshake, TlsConnection
from moldau.wire.codec import Outgoing

BUDGET_BYTES = 10 << 20
FRAME_BYTES_MAX = 2 << 20
Answer = Callable[[memoryview], Reply]


def answer_at_once(view: memoryview) -> Reply:
    body = bytes(view)
    return None if body.startswith(NEVER.encode()) else Outgoing(reply_to(body))


class ConnectionPair:
    """The broker's end of a connection, and the client's, which the test uses."""

    scratch_bytes = SCRATCH_BYTES

    def __init__(self, answer: Answer) -> None:
        self.loop = asyncio.get_running_loop()
        self.client, broker_end = socket.socketpair()
        self.client.setblocking(False)
        broker_end.setblocking(False)
        self.budget = ConnectionBudget(BUDGET_BYTES)
        self.close_reasons: list[str] = []
        self.requests = 0
        self._answer = answer
        self.connection = self._connection(broker_end)

    def _connection(self, broker_end: socket.socket) -> SocketConnection:
        scratch = memoryview(bytearray(self.scratch_bytes))
        return SocketConnection(
            self.loop,
            broker_end,
            "test:1",
            scratch,
            self._count_and_answer,
            FRAME_BYTES_MAX,
            self.budget,
            self._on_closed,
        )

    def _count_and_answer(self, view: memoryview) -> Reply:
        self.requests += 1
        return self._answer(view)

    def _on_closed(self, connection: SocketConnection, reason: str) -> None:
        self.close_reasons.append(reason)

    async def send(self, data: bytes) -> None:
        await asyncio.wait_for(self.loop.sock_sendall(self.client, data), PATIENCE_S)

    async def receive(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            piece = await self.receive_some(size - len(data))
            assert piece, "the connection ended"
            data += piece
        return bytes(data)

    async def receive_some(self, size: int) -> bytes:
        return await asyncio.wait_for(self.loop.sock_recv(self.client, size), PATIENCE_S)

    async def wait_for_close(self) -> str:
        """Wait until the broker closes the connection, and return its reason."""
        assert await self.receive_some(1) == b""
        return self.close_reasons[0]


@cache
def contexts() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Return contexts for server and client."""
    authority = Authority()
    issued = authority.issue("localhost")
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context(cadata=authority.pem)
    from moldau.platforms.key_files import DiskKeyFiles

    with DiskKeyFiles().named(issued.pem.encode()) as path:
        server.load_cert_chain(path)
    server.num_tickets = 0
    return server, client


class FakeListenerTls:
    """The TLS of a listener whose clients are all anonymous."""

    server = property(lambda self: contexts()[0])

    def principal(self, certificate: bytes | None) -> Principal:
        return ANONYMOUS


class TlsConnectionPair(ConnectionPair):
    """The test's end encrypts in memory; the handshake happens before the first bytes."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer)
        self._from_server, self._to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = contexts()[1].wrap_bio(self._from_server, self._to_server, server_hostname="localhost")
        self._is_handshake_done = False

    def _connection(self, broker_end: socket.socket) -> SocketConnection:
        scratch = memoryview(bytearray(self.scratch_bytes))
        handshakes = Handshakes(self.loop)
        limits = FRAME_BYTES_MAX, self.budget, self._on_closed
        secured = ServerHandshake(
            FakeListenerTls(), handshakes, lambda _: self._count_and_answer, lambda connection, answer: None
        )
        return TlsConnection(self.loop, broker_end, "test:1", scratch, secured, *limits)

    async def handshake(self) -> None:
        while not self._is_handshake_done:
            try:
                self.tls.do_handshake()
                self._is_handshake_done = True
            except ssl.SSLWantReadError:
                await self._push()
                await self._pull()
        await self._push()
        # The broker runs its last step in a thread; wait for it, so that the test continues with the loop alone.
        connection = self.connection
        assert isinstance(connection, TlsConnection)
        await until(lambda: connection._is_established or self.close_reasons)

    async def send(self, data: bytes) -> None:
        await self.handshake()
        self.tls.write(data)
        await self._push()

    async def receive_some(self, size: int) -> bytes:
        while True:
            try:
                return self.tls.read(size)
            except ssl.SSLWantReadError:
                await self._pull()
            except ssl.SSLZeroReturnError:
                return b""

    async def _push(self) -> None:
        await super().send(self._to_server.read())

    async def _pull(self) -> None:
        piece = await super().receive_some(1 << 16)
        self._from_server.write(piece) if piece else self._from_server.write_eof()


class TlsConnectionPairInSmallSteps(TlsConnectionPair):
    """The broker reads less at a time than OpenSSL has decrypted."""

    scratch_bytes = 1000


MakeConnectionPair = Callable[..., AbstractContextManager[ConnectionPair]]


@contextmanager
def open_connection_pair(kind: type[ConnectionPair], answer: Answer = answer_at_once) -> Iterator[ConnectionPair]:
    made = kind(answer)
    try:
        yield made
    finally:
        made.connection.close()
        made.client.close()
        assert made.budget.free == BUDGET_BYTES
        assert len(made.close_reasons) == 1
