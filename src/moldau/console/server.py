"""Runs the console until a signal."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Final

from moldau.console.console import Console
from moldau.console.options import ConsoleOptions
from moldau.web.server import Server, ServerSettings

CONNECTIONS_MAX: Final = 400
STOP_SECONDS: Final = 2
SLOW_SECONDS_MAX: Final = 60.0
IDLE_SECONDS: Final = 15
HEADER_BYTES_MAX: Final = 32 << 10


def make_server(options: ConsoleOptions, on_start: Callable[[], None]) -> Server:
    console = Console(options)
    settings = ServerSettings(
        CONNECTIONS_MAX,
        STOP_SECONDS,
        IDLE_SECONDS,
        HEADER_BYTES_MAX,
        options.certificate,
        options.key,
        slow_seconds_max=SLOW_SECONDS_MAX,
    )
    return Server(console.app(), settings, console.streams.stop, on_start)


def serve(options: ConsoleOptions, listener: socket.socket, on_start: Callable[[], None]) -> None:
    make_server(options, on_start).run(sockets=[listener])
