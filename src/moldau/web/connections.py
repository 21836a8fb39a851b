"""What is put before a protocol of uvicorn, which waits for ever for a client that takes or says nothing."""

from __future__ import annotations

import asyncio
import ssl
from typing import Any, Final

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
    that is too long. A connection that has just been opened has the same time for its first."""

    head_seconds_max: float
    head_bytes_max: int
    transport: asyncio.Transport
    _timer: asyncio.TimerHandle | None = None
    _head_bytes = 0
    _is_in_head = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._begin_head()

    def data_received(self, data: bytes) -> None:
        if self._is_in_head:
            self._head_bytes += len(data)
        super().data_received(data)
        if self._is_in_head and self._head_bytes > self.head_bytes_max:
            self.transport.abort()

    def on_message_begin(self) -> None:
        self._begin_head()
        super().on_message_begin()  # type: ignore[misc]  # of uvicorn's protocol

    def on_headers_complete(self) -> None:
        self._is_in_head, self._head_bytes = False, 0
        self._stop_timer()
        super().on_headers_complete()  # type: ignore[misc]

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def _begin_head(self) -> None:
        self._is_in_head = True
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self.head_seconds_max, self.transport.abort)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


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
