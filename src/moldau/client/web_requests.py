"""Small requests to the URLs of an identity provider: `https:`, `http:` and `file:`.

It blocks: call it in a thread. Size and time are limited, also if the server sends a byte a second. Redirects are not
followed: the answer must come from the URL that was configured.
"""

from __future__ import annotations

import http.client
import socket
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from threading import Timer
from typing import Final

from moldau.base.errors import UnusableProperty
from moldau.security.sasl.oauthbearer.urls import Endpoint, parse_endpoint
from moldau.security.tls.context import handshake_fault

_TEMPORARY: Final = frozenset((408, 425, 429, 500, 502, 503, 504))


class RequestFailed(Exception):
    """Why there is no answer, in one line without secrets."""

    def __init__(self, reason: str, *, is_temporary: bool = True) -> None:
        super().__init__(reason)
        self.is_temporary = is_temporary


@dataclass(frozen=True, slots=True)
class WebRequest:
    url: str
    bytes_max: int
    body: bytes | None = field(default=None, repr=False)
    """Without it the request is a GET."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    connect_timeout_s: float = 10.0
    read_timeout_s: float = 10.0
    """For the whole answer."""
    tls: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """Properties `ssl.` with Java's names."""


def fetch(request: WebRequest) -> bytes:
    """Return the answer. Raise RequestFailed if there is none."""
    try:
        endpoint = parse_endpoint(request.url)
    except ValueError as wrong:
        raise RequestFailed(str(wrong), is_temporary=False) from None
    data = _read_file(endpoint, request) if endpoint.is_file else _ask_server(endpoint, request)
    if len(data) > request.bytes_max:
        raise RequestFailed(f"it has more than {request.bytes_max} bytes", is_temporary=False)
    return data


def _read_file(endpoint: Endpoint, request: WebRequest) -> bytes:
    try:
        with open(endpoint.path, "rb") as file:
            return file.read(request.bytes_max + 1)
    except OSError as refused:
        raise RequestFailed(f"cannot be read: {refused.strerror}") from None


def _ask_server(endpoint: Endpoint, request: WebRequest) -> bytes:
    connection = _connection(endpoint, request)
    try:
        connection.connect()
        with _time_limit(connection.sock, request.read_timeout_s):
            headers = {"Accept": "application/json", **request.headers}
            connection.request("GET" if request.body is None else "POST", endpoint.path, request.body, headers)
            with connection.getresponse() as answer:
                if answer.status not in (200, 201):
                    is_temporary = answer.status in _TEMPORARY
                    raise RequestFailed(f"the server answered {answer.status}", is_temporary=is_temporary)
                return answer.read(request.bytes_max + 1)
    except TimeoutError:
        raise RequestFailed("no answer in time") from None
    except ssl.SSLError as refused:
        raise RequestFailed(f"TLS: {handshake_fault(refused)}") from None
    except OSError as refused:
        raise RequestFailed(f"no connection: {refused.strerror or refused}") from None
    except (http.client.HTTPException, ValueError) as wrong:
        raise RequestFailed(f"the answer is not HTTP ({type(wrong).__name__})") from None
    finally:
        connection.close()


@contextmanager
def _time_limit(connected: socket.socket, seconds: float) -> Iterator[None]:
    """End the connection after that time, and raise TimeoutError then: a timeout of the socket is only for one read."""
    is_over = False

    def end() -> None:
        nonlocal is_over
        is_over = True
        with suppress(OSError):
            connected.shutdown(socket.SHUT_RDWR)

    timer = Timer(seconds, end)
    timer.daemon = True
    timer.start()
    connected.settimeout(seconds)
    try:
        yield
    except (OSError, ValueError, http.client.HTTPException):
        if is_over:
            raise TimeoutError from None
        raise
    finally:
        timer.cancel()
    if is_over:
        raise TimeoutError


def _connection(endpoint: Endpoint, request: WebRequest) -> http.client.HTTPConnection:
    timeout_s = request.connect_timeout_s
    if endpoint.scheme == "http":
        return http.client.HTTPConnection(endpoint.host, endpoint.port, timeout=timeout_s)
    from moldau.client.tls import tls_context

    try:
        context = tls_context(dict(request.tls))
    except UnusableProperty as wrong:
        raise RequestFailed(str(wrong), is_temporary=False) from None
    return http.client.HTTPSConnection(endpoint.host, endpoint.port, timeout=timeout_s, context=context)
