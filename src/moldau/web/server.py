"""The HTTP server: binds its port, serves until a signal, and stops without waiting for open streams."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import Any, Literal

import uvicorn
from starlette.types import ASGIApp
from uvicorn.config import HTTP_PROTOCOLS
from uvicorn.importer import import_from_string


@dataclass(frozen=True, slots=True)
class ServerSettings:
    connections_max: int
    """One more is answered with 503."""
    stop_seconds: int
    """What is under way then is cancelled."""
    idle_seconds: int
    """How long a connection without a request stays open."""
    header_bytes_max: int
    """A head that is longer and not complete is refused: what one read completes may be longer, up to what asyncio
    reads at once. Only h11 has this limit, not httptools."""
    certificate: str | None = None
    """With a key: serve HTTPS. Both are files as PEM."""
    key: str | None = None
    http: Literal["h11", "httptools"] = "h11"
    ws: str | type[asyncio.Protocol] = "none"
    """What reads web sockets: uvicorn's name of it, or a protocol that takes its arguments."""
    slow_seconds_max: float | None = None
    """A client that has not taken what waits for it after this time is cut off; None: never."""


class Server(uvicorn.Server):
    """`end_streams` is called when it is to stop: it would wait for them. A signal may interrupt anything, so it takes
    no lock."""

    def __init__(
        self,
        app: ASGIApp,
        settings: ServerSettings,
        end_streams: Callable[[], None],
        on_start: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(_config(app, settings))
        self._end_streams, self._on_start = end_streams, on_start

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._on_start()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._end_streams()
        super().handle_exit(sig, frame)

    def stop(self) -> None:
        """For tests: like a signal."""
        self._end_streams()
        self.should_exit = True


def _config(app: ASGIApp, settings: ServerSettings) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=_protocol(settings),
        ws=settings.ws,
        loop="asyncio",
        log_config=None,
        access_log=False,
        server_header=False,
        limit_concurrency=settings.connections_max,
        timeout_graceful_shutdown=settings.stop_seconds,
        timeout_keep_alive=settings.idle_seconds,
        h11_max_incomplete_event_size=settings.header_bytes_max,
        ssl_certfile=settings.certificate,
        ssl_keyfile=settings.key,
        proxy_headers=False,
    )


def _protocol(settings: ServerSettings) -> Any:
    """Return what uvicorn calls for each connection."""
    if settings.slow_seconds_max is None:
        return settings.http
    protocol: Any = import_from_string(HTTP_PROTOCOLS[settings.http])
    return type("CutsSlowClients", (_CutsSlowClients, protocol), {"slow_seconds_max": settings.slow_seconds_max})


class _CutsSlowClients(asyncio.Protocol):
    """Put before a protocol of uvicorn: it waits for a slow client for ever, and closes only what is sent."""

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


def bind(host: str, port: int) -> socket.socket:
    """Return a socket that is bound, so that a port in use is an error before anything is started."""
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError:
        listener.close()
        raise
    listener.set_inheritable(False)
    return listener
