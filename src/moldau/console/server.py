"""Runs the console: binds its port, serves until a signal, and stops without waiting for open pages."""

from __future__ import annotations

import socket
from collections.abc import Callable
from types import FrameType
from typing import Any, Final

import uvicorn

from moldau.console.console import Console
from moldau.console.options import ConsoleOptions

CONNECTIONS_MAX: Final = 400
STOP_SECONDS: Final = 2
HEADER_BYTES_MAX: Final = 32 << 10


class ConsoleServer(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, console: Console, on_start: Callable[[], None]) -> None:
        super().__init__(config)
        self._console, self._on_start = console, on_start

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._on_start()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._console.streams.stop()  # else the server waits for them
        super().handle_exit(sig, frame)

    def stop(self) -> None:
        """For tests: like a signal."""
        self._console.streams.stop()
        self.should_exit = True


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


def make_server(options: ConsoleOptions, on_start: Callable[[], None] = lambda: None, **settings: Any) -> ConsoleServer:
    console = Console(options)
    config = uvicorn.Config(
        console.app(),
        http="h11",
        ws="none",
        loop="asyncio",
        log_config=None,
        access_log=False,
        server_header=False,
        limit_concurrency=CONNECTIONS_MAX,
        timeout_graceful_shutdown=STOP_SECONDS,
        timeout_keep_alive=15,
        h11_max_incomplete_event_size=HEADER_BYTES_MAX,
        ssl_certfile=options.certificate,
        ssl_keyfile=options.key,
        proxy_headers=False,
        **settings,
    )
    return ConsoleServer(config, console, on_start)


def serve(options: ConsoleOptions, listener: socket.socket, on_start: Callable[[], None]) -> None:
    make_server(options, on_start).run(sockets=[listener])
