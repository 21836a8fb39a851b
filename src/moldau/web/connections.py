"""What is put before a protocol of uvicorn, which waits for ever for a client that takes or says nothing."""

from __future__ import annotations

import asyncio
import ssl
import sys
import time
from collections import deque
from collections.abc import Collection
from typing import TYPE_CHECKING, Any, Final, cast

from moldau.base.errors import MalformedData
from moldau.security.tls.names import subject

if TYPE_CHECKING:
    import httptools  # a server on h11 does without it

CERTIFICATE: Final = "certificate"
"""The key, in the `state` of a scope, of the subject of a client's certificate."""
PIPELINED_MAX: Final = 50
"""Requests of one connection that wait for the answer to another: each takes some kilobytes."""
_NOWHERE: Final[deque[Any]] = deque(maxlen=0)


class CutsSlowClients(asyncio.Protocol):
    """Closes the connection of a client that takes nothing; uvicorn closes only what is sent."""

    slow_seconds_max: float
    transport: asyncio.Transport
    _cut: asyncio.TimerHandle | None = None

    def pause_writing(self) -> None:
        super().pause_writing()
        self._cut = asyncio.get_running_loop().call_later(self.slow_seconds_max, self.transport.abort)

    def resume_writing(self) -> None:
        self._keep()
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._keep()
        super().connection_lost(exc)

    def _keep(self) -> None:
        if self._cut is not None:
            self._cut.cancel()
            self._cut = None


class BoundsHeads(asyncio.Protocol):
    """Before uvicorn's protocol on httptools: closes a connection whose next request has no whole head in time, or one
    that sends much that is no body: a head, trailers, or requests ahead of their answers. A connection that has just
    been opened has the same time for its first head. A timer looks now and then whether that is so: to set one for each
    request would cost more than the rest."""

    head_seconds_max: float
    head_bytes_max: int
    transport: asyncio.Transport
    pipeline: Collection[Any]
    """Requests behind the one that is being answered."""
    headers: Any
    parser: httptools.HttpRequestParser
    _timer: asyncio.TimerHandle | None = None
    _bytes = 0
    """Since there was the last of a body, or a whole head."""
    _is_in_head = True
    _began = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._began = time.monotonic()
        self._look_again(self.head_seconds_max)

    def data_received(self, data: bytes) -> None:
        self._bytes += len(data)
        super().data_received(data)
        if self._bytes > self.head_bytes_max:
            self.transport.abort()

    def on_message_begin(self) -> None:
        self._is_in_head, self._began = True, time.monotonic()
        super().on_message_begin()  # type: ignore[misc]  # of uvicorn's protocol

    def on_headers_complete(self) -> None:
        self._is_in_head, self._bytes = False, 0
        super().on_headers_complete()  # type: ignore[misc]
        if not self.parser.should_upgrade():
            self.headers = _NOWHERE  # trailers are no headers
        if len(self.pipeline) > PIPELINED_MAX:
            self.transport.abort()
            raise ConnectionAbortedError("too many requests ahead of their answers")  # ends the parser's work

    def on_body(self, body: bytes) -> None:
        self._bytes = 0
        super().on_body(body)  # type: ignore[misc]

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        super().connection_lost(exc)

    def _look_again(self, seconds: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, self._look)

    def _look(self) -> None:
        if self.transport.is_closing():  # also after it became a web socket's: this protocol hears no more of it
            return
        left = self._began + self.head_seconds_max - time.monotonic() if self._is_in_head else self.head_seconds_max
        if left <= 0:
            self.transport.abort()
        else:
            self._look_again(left)


class IgnoresUpgrades(asyncio.Protocol):
    """Reads a request that offers another protocol, such as HTTP/2, as one that does not, if it is no web socket.
    httptools passes over the body of such a request, as if it were written in the other protocol already."""

    parser: httptools.HttpRequestParser
    headers: list[tuple[bytes, bytes]]
    url: bytes
    ws_protocol_class: Any
    _received = b""

    def data_received(self, data: bytes) -> None:
        self._received = data
        super().data_received(data)

    def _should_upgrade(self) -> bool:
        return self.parser.get_method() != b"CONNECT"

    def handle_websocket_upgrade(self) -> None:
        """uvicorn calls it when it has caught what the parser raises behind the head of such a request."""
        if self._is_web_socket():
            super().handle_websocket_upgrade()  # type: ignore[misc]  # of uvicorn's protocol
            return
        raised = sys.exception()
        assert raised is not None
        rest = self._received[raised.args[0] :]
        line = b"%b %b HTTP/%b\r\n" % (self.parser.get_method(), self.url, self.parser.get_http_version().encode())
        lines = [b"%b: %b\r\n" % pair for pair in self.headers if pair[0] != b"upgrade"]
        self.parser = type(self.parser)(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn does
        self.data_received(b"".join([line, *lines, b"\r\n", rest]))

    def _is_web_socket(self) -> bool:
        headers = dict(self.headers)
        has_body = b"content-length" in headers or b"transfer-encoding" in headers
        is_offered = headers[b"upgrade"].lower() == b"websocket" and self.parser.get_method() == b"GET"
        return is_offered and not has_body and self.ws_protocol_class is not None


class BoundsConnections(asyncio.Protocol):
    """Answers connections beyond the limit with 503; uvicorn would answer all of them so, also those from before."""

    connections_max: int
    connections: Collection[Any]
    limit_concurrency: int | None
    """uvicorn answers a request so if there are as many connections."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.limit_concurrency = 0 if len(self.connections) > self.connections_max else None


class JoinsWrites(asyncio.Protocol):
    """Sends the head and the body of a response together: uvicorn writes each by itself, and to write is dear."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(cast(asyncio.BaseTransport, _JoinedWrites(cast(asyncio.Transport, transport))))


class _JoinedWrites:
    """A transport that sends what was written in a turn of the event loop at its end."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        self._unsent: list[bytes] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        if not self._unsent:
            self._loop.call_soon(self._send)
        self._unsent.append(data)

    def close(self) -> None:
        self._send()
        self._transport.close()

    def _send(self) -> None:
        unsent, self._unsent = self._unsent, []
        if unsent and not self._transport.is_closing():  # the client may have left in this turn
            self._transport.write(unsent[0] if len(unsent) == 1 else b"".join(unsent))


class TellsCertificate(asyncio.Protocol):
    """Notes the subject of a client's certificate in the state of its requests."""

    app_state: dict[str, Any]
    transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        connection = transport.get_extra_info("ssl_object")
        if isinstance(connection, ssl.SSLObject) and (der := connection.getpeercert(binary_form=True)):
            try:
                self.app_state = {**self.app_state, CERTIFICATE: subject(der)}
            except MalformedData:
                self.transport.abort()
