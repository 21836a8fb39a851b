"""What is put before a protocol of uvicorn, which waits for ever for a client that takes or says nothing."""

from __future__ import annotations

import asyncio
import ssl
import time
from typing import Any, Final, cast

from moldau.base.errors import MalformedData
from moldau.security.tls.names import subject

CERTIFICATE: Final = "certificate"
"""The key, in the `state` of a scope, of the subject of a client's certificate."""


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
    that is too long. A connection that has just been opened has the same time for its first. A timer looks now and then
    whether that is so: to set one for each request would cost more than the rest."""

    head_seconds_max: float
    head_bytes_max: int
    transport: asyncio.Transport
    _timer: asyncio.TimerHandle | None = None
    _head_bytes = 0
    _is_in_head = True
    _began = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._began = time.monotonic()
        self._look_again(self.head_seconds_max)

    def data_received(self, data: bytes) -> None:
        if self._is_in_head:
            self._head_bytes += len(data)
        super().data_received(data)
        if self._is_in_head and self._head_bytes > self.head_bytes_max:
            self.transport.abort()

    def on_message_begin(self) -> None:
        self._is_in_head, self._began = True, time.monotonic()
        super().on_message_begin()  # type: ignore[misc]  # of uvicorn's protocol

    def on_headers_complete(self) -> None:
        self._is_in_head, self._head_bytes = False, 0
        super().on_headers_complete()  # type: ignore[misc]

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
        if self._unsent:
            unsent, self._unsent = self._unsent, []
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
