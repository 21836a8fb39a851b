"""A web server that does what a test says, also what no server should do."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import BinaryIO


@dataclass
class Request:
    method: str
    target: str
    headers: dict[str, str]
    """By lower-case name."""
    body: bytes
    connection: int
    """The number of the connection that it came on."""


Answer = Callable[[Request], bytes | Iterable[bytes] | None]
"""Returns the bytes to send, or pieces of them. None closes the connection, as `Connection: close` and pieces do."""


def response(status: int, body: bytes = b"", **headers: str) -> bytes:
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {status} .\r\nContent-Length: {len(body)}\r\n{lines}\r\n".encode() + body


@dataclass
class WebServer:
    """Listens while it is a context. `answer` is called for each request, in the thread of its connection."""

    answer: Answer
    tls: ssl.SSLContext | None = None
    requests: list[Request] = field(default_factory=list)
    _listener: socket.socket = field(default_factory=lambda: socket.create_server(("127.0.0.1", 0)))
    _open: set[socket.socket] = field(default_factory=set)
    _connections: int = 0
    port: int = 0

    def __post_init__(self) -> None:
        self.port = self._listener.getsockname()[1]

    def __enter__(self) -> WebServer:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.close_connections()

    @property
    def url(self) -> str:
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}"

    def close_connections(self) -> None:
        for each in list(self._open):
            close(each)

    def _accept(self) -> None:
        while True:
            try:
                accepted, _ = self._listener.accept()
            except OSError:
                return
            self._connections += 1
            threading.Thread(target=self._serve, args=(accepted, self._connections), daemon=True).start()

    def _serve(self, accepted: socket.socket, number: int) -> None:
        self._open.add(accepted)
        try:
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection = self.tls.wrap_socket(accepted, server_side=True) if self.tls else accepted
            with connection, connection.makefile("rb") as stream:
                while (request := self._read(stream, number)) is not None:
                    self.requests.append(request)
                    answer = self.answer(request)
                    for piece in [answer] if isinstance(answer, bytes) else answer or ():
                        connection.sendall(piece)
                    if not isinstance(answer, bytes) or b"connection: close" in answer.lower():
                        return
        except OSError:
            return
        finally:
            self._open.discard(accepted)

    def _read(self, stream: BinaryIO, number: int) -> Request | None:
        first = stream.readline().decode("latin-1").split()
        if len(first) != 3:
            return None
        headers = {}
        while line := stream.readline().decode("latin-1").rstrip("\r\n"):
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        body = stream.read(int(headers.get("content-length", "0")))
        return Request(first[0], first[1], headers, body, number)


def close(connection: socket.socket) -> None:
    """Close a connection also for the thread that reads from it."""
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()
