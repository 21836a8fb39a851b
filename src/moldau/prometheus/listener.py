"""Serves metrics over HTTP/1.1: `GET /metrics`, and nothing else.

The text is made in steps, one in a turn of the event loop, and sent as it is made. A client may not hold the node up:
requests are small and arrive in time, connections are few, and one that does not read is closed.
"""

from __future__ import annotations

import asyncio
import logging
import re
import socket
from collections.abc import Callable, Iterator
from http import HTTPStatus
from typing import Any, Final

from moldau.base.promise import Promise
from moldau.prometheus.text import CONTENT_TYPE

log = logging.getLogger("moldau.metrics")

REQUEST_BYTES_MAX: Final = 8 << 10
CONNECTIONS_MAX: Final = 16
REQUEST_TIMEOUT_S: Final = 10.0
"""The time for a whole request to arrive; also how long a connection may be idle between two requests."""
SEND_TIMEOUT_S: Final = 10.0
"""The time for the client to read what does not fit into the buffers."""
CHUNK_BYTES: Final = 32 << 10
PATH: Final = "/metrics"
_REQUEST_LINE: Final = re.compile(rb"([A-Z]{1,16}) (/[!-~]*) HTTP/1\.([01])")
Step = str | Promise[None]
"""A piece of the text, which may be empty, or a promise to wait for."""


class BadRequest(Exception):
    """A request that gets no metrics, with the status of the response."""

    def __init__(self, status: HTTPStatus, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


class MetricsListener:
    def __init__(
        self,
        bound: socket.socket,
        steps: Callable[[], Iterator[Step]],
        log_error: Callable[[logging.Logger, str], None] = logging.Logger.exception,
    ) -> None:
        """`bound` is a socket that is bound to its address. `steps` makes the text of one scrape. `log_error` logs the
        exception that is being handled."""
        self._socket = bound
        self.port: int = bound.getsockname()[1]
        self._steps = steps
        self._log_error = log_error
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[Any]] = set()

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, sock=self._socket, limit=REQUEST_BYTES_MAX)

    def stop(self) -> None:
        """Close the address and all connections."""
        if self._server is None:
            self._socket.close()
        else:
            self._server.close()
        for task in self._tasks:
            task.cancel()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if len(self._tasks) >= CONNECTIONS_MAX:
            writer.transport.abort()
            return
        self._tasks.add(task)
        try:
            while await self._serve_one(reader, writer):
                pass
            writer.close()
        except (OSError, TimeoutError, asyncio.CancelledError):
            writer.transport.abort()
        except Exception:
            self._log_error(log, "a scrape of the metrics failed")
            writer.transport.abort()
        finally:
            self._tasks.discard(task)

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer one request. Return whether the connection stays open for another."""
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                head = await reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, TimeoutError):
            return False
        except asyncio.LimitOverrunError:
            refuse = BadRequest(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "the request is too large")
            return await _refuse(writer, refuse)
        try:
            request = parse_request(head)
        except BadRequest as bad:
            return await _refuse(writer, bad)
        if request.wants_only_head:
            await _send(writer, _head(HTTPStatus.OK, CONTENT_TYPE, "Content-Length: 0"))
        else:
            await self._send_metrics(writer, request.is_chunked)
        return request.is_kept_open

    async def _send_metrics(self, writer: asyncio.StreamWriter, is_chunked: bool) -> None:
        length = "Transfer-Encoding: chunked" if is_chunked else "Connection: close"
        await _send(writer, _head(HTTPStatus.OK, CONTENT_TYPE, length))
        unsent: list[str] = []
        size = 0
        for step in self._steps():
            if isinstance(step, Promise):
                await _completed(step)
                continue
            unsent.append(step)
            size += len(step)
            if size >= CHUNK_BYTES:
                await _send(writer, _chunk("".join(unsent), is_chunked))
                unsent, size = [], 0
            await asyncio.sleep(0)  # the next step has a turn of its own
        await _send(writer, _chunk("".join(unsent), is_chunked) + (b"0\r\n\r\n" if is_chunked else b""))


class Request:
    """A request for metrics."""

    __slots__ = ("is_chunked", "is_kept_open", "wants_only_head")

    def __init__(self, method: bytes, is_http_11: bool, wants_close: bool) -> None:
        self.wants_only_head = method == b"HEAD"
        self.is_chunked = is_http_11
        self.is_kept_open = is_http_11 and not wants_close


def parse_request(head: bytes) -> Request:
    """Parse the lines of a request up to the empty one. Raise BadRequest if it is not one for metrics."""
    line, _, rest = head.partition(b"\r\n")
    match = _REQUEST_LINE.fullmatch(line)
    if match is None:
        raise BadRequest(HTTPStatus.BAD_REQUEST, "this is not a request of HTTP/1.1")
    headers = {name.strip().lower(): value.strip() for name, _, value in _headers(rest)}
    if b"transfer-encoding" in headers or headers.get(b"content-length", b"0") != b"0":
        raise BadRequest(HTTPStatus.BAD_REQUEST, "a request for metrics has no body")
    if match[2].partition(b"?")[0].decode() != PATH:
        raise BadRequest(HTTPStatus.NOT_FOUND, f"there is only {PATH}")
    if match[1] not in (b"GET", b"HEAD"):
        raise BadRequest(HTTPStatus.METHOD_NOT_ALLOWED, f"{PATH} can only be read, with GET")
    return Request(match[1], match[3] == b"1", headers.get(b"connection", b"").lower() == b"close")


def _headers(lines: bytes) -> list[tuple[bytes, bytes, bytes]]:
    return [line.partition(b":") for line in lines.split(b"\r\n") if line]


async def _refuse(writer: asyncio.StreamWriter, bad: BadRequest) -> bool:
    body = f"{bad.reason}\n".encode()
    allow = "Allow: GET, HEAD\r\n" if bad.status is HTTPStatus.METHOD_NOT_ALLOWED else ""
    head = _head(bad.status, "text/plain; charset=utf-8", f"{allow}Content-Length: {len(body)}\r\nConnection: close")
    await _send(writer, head + body)
    return False


def _head(status: HTTPStatus, content_type: str, more: str) -> bytes:
    return f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: {content_type}\r\n{more}\r\n\r\n".encode()


def _chunk(text: str, is_chunked: bool) -> bytes:
    data = text.encode()
    return b"%x\r\n%b\r\n" % (len(data), data) if is_chunked and data else data


async def _send(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(data)
    async with asyncio.timeout(SEND_TIMEOUT_S):
        await writer.drain()


async def _completed(promise: Promise[None]) -> None:
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    promise.then(lambda _: None if future.done() else future.set_result(None))
    await future
