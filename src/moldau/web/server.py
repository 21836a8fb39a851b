"""The HTTP server: binds its port, serves until a signal, and stops without waiting for open streams."""

from __future__ import annotations

import logging
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import Any, Final, Literal

import uvicorn
from starlette.types import ASGIApp
from uvicorn.config import HTTP_PROTOCOLS, WS_PROTOCOLS
from uvicorn.importer import import_from_string

from moldau.web.connections import (
    BoundsConnections,
    BoundsHeads,
    CutsSlowClients,
    IgnoresUpgrades,
    JoinsWrites,
    TellsCertificate,
)

FAULTS_OF_CLIENTS: Final = frozenset(
    {
        "ASGI callable returned without completing handshake.",  # the client has left
        "Invalid HTTP request received.",
        "Invalid UTF-8 sequence received from client.",
        "Unsupported upgrade request.",
    }
)
"""What uvicorn logs, the third with a traceback. Anybody could fill the log with them."""
SOCKET_MESSAGE_BYTES_MAX: Final = 64 << 10
"""Of a client: it has little to say."""


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
    reads at once. With httptools it needs `head_seconds_max`."""
    certificate: str | None = None
    """With a key: serve HTTPS. Both are files as PEM."""
    key: str | None = None
    client_authorities: str | None = None
    """Clients may show certificates of these, a file as PEM: `connections.CERTIFICATE` in a scope's state."""
    http: Literal["h11", "httptools"] = "h11"
    head_seconds_max: float | None = None
    """A connection that has no whole head of its next request after this time is cut off. With httptools only."""
    serves_sockets: bool = False
    """Whether it speaks the protocol of web sockets, which needs the package websockets."""
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

    async def serve_beside(self, sockets: list[socket.socket]) -> None:
        """Serve until `stop`, on an event loop whose signals are somebody else's."""
        await self._serve(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._end_streams()
        super().handle_exit(sig, frame)

    def stop(self) -> None:
        """Like a signal."""
        self._end_streams()
        self.should_exit = True


def _config(app: ASGIApp, settings: ServerSettings) -> uvicorn.Config:
    logging.getLogger("uvicorn.error").addFilter(_is_no_fault_of_a_client)
    return uvicorn.Config(
        app,
        http=_protocol(settings),
        ws=_socket_protocol(settings),
        ws_max_size=SOCKET_MESSAGE_BYTES_MAX,
        ws_per_message_deflate=False,
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
        ssl_ca_certs=settings.client_authorities,
        ssl_cert_reqs=ssl.CERT_NONE if settings.client_authorities is None else ssl.CERT_OPTIONAL,
        proxy_headers=False,
    )


def _is_no_fault_of_a_client(record: logging.LogRecord) -> bool:
    return record.msg not in FAULTS_OF_CLIENTS


def _protocol(settings: ServerSettings) -> Any:
    """Return what uvicorn calls for each connection."""
    before: list[type] = []
    values: dict[str, Any] = {}
    if settings.slow_seconds_max is not None:
        before.append(CutsSlowClients)
        values["slow_seconds_max"] = settings.slow_seconds_max
    if settings.head_seconds_max is not None:
        before += [IgnoresUpgrades, BoundsHeads, JoinsWrites, BoundsConnections]
        values["connections_max"] = settings.connections_max
        values |= {"head_seconds_max": settings.head_seconds_max, "head_bytes_max": settings.header_bytes_max}
    if settings.client_authorities is not None:
        before.append(TellsCertificate)
    if not before:
        return settings.http
    return type("Connection", (*before, import_from_string(HTTP_PROTOCOLS[settings.http])), values)


def _socket_protocol(settings: ServerSettings) -> Any:
    """Return what uvicorn calls for a connection that becomes a web socket."""
    if not settings.serves_sockets:
        return "none"
    protocol = import_from_string(WS_PROTOCOLS["websockets-sansio"])
    if settings.slow_seconds_max is None:
        return protocol
    return type("Socket", (CutsSlowClients, protocol), {"slow_seconds_max": settings.slow_seconds_max})


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
