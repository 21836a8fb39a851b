"""One connection to an HTTP server, kept open between requests. A deadline bounds each request as a whole.

Certificates and host names are verified. No proxy is used.
"""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from moldau.backends.http_message import BadResponse, Response, ResponseReader, request_bytes
from moldau.backends.interface import Away, Retry

READ_BYTES: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class Address:
    """The scheme, host and port of a URL, and its path."""

    is_tls: bool
    host: str
    port: int
    path: str = field(repr=False)
    """With the query; both may hold secrets."""

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.is_tls else 80) else f"{host}:{self.port}"

    @property
    def shown(self) -> str:
        """The address without path and query."""
        return f"{'https' if self.is_tls else 'http'}://{self.authority}"


def address_of(url: str) -> Address:
    """Return the parts of an http or https URL. Raises ValueError, without quoting the URL."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ValueError(f"the URL is not valid: {error}") from None
    if parts.scheme not in ("http", "https"):
        raise ValueError("the URL must begin with http:// or https://")
    if not parts.hostname:
        raise ValueError("the URL has no host")
    if parts.username is not None or parts.password is not None:
        raise ValueError("a user and password are not given in the URL but as options")
    if any(not "!" <= character <= "~" for character in url):
        raise ValueError("the URL has a space, a control character or one beyond ASCII; write it as %20 and so on")
    is_tls = parts.scheme == "https"
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Address(is_tls, parts.hostname, port or (443 if is_tls else 80), path)


@dataclass(slots=True)
class HttpConnection:
    address: Address
    timeout_s: float
    tls: Callable[[], ssl.SSLContext]
    body_bytes_max: int
    clock: Callable[[], float] = time.monotonic
    _socket: socket.socket | None = None

    def exchange(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> Response:
        """Send a request and return the response. A kept connection that the server has closed meanwhile is opened
        again once. Raises OSError, Away if no connection is made, Retry if the answer is not HTTP."""
        request = request_bytes(method, target, self.address.authority, headers, body)
        deadline_s = self.clock() + self.timeout_s
        try:
            if self._socket is not None and not self._is_usable():
                self.close()
            if self._socket is None:
                self._socket = self._connect(deadline_s)
            response = self._exchange(request, deadline_s)
        except BadResponse as error:
            self.close()
            raise Retry(str(error)) from error
        except BaseException:
            self.close()
            raise
        if not response.keeps_connection or response.is_cut:
            self.close()
        return response

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _is_usable(self) -> bool:
        """Return whether the server still keeps the connection: bytes or an end that nobody asked for say no."""
        assert self._socket is not None
        self._socket.settimeout(0.0)
        try:
            self._socket.recv(1)
        except (BlockingIOError, ssl.SSLWantReadError):
            return True
        except OSError:
            return False
        return False

    def _connect(self, deadline_s: float) -> socket.socket:
        try:
            plain = socket.create_connection((self.address.host, self.address.port), self._left_s(deadline_s))
        except UnicodeError as error:  # a label of the host's name is empty or too long
            raise Away(f"{self.address.host} is not a host's name") from error
        except TimeoutError as error:
            raise Away(f"no connection to {self.address.authority} in {self.timeout_s:g} s") from error
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return self.tls().wrap_socket(plain, server_hostname=self.address.host) if self.address.is_tls else plain
        except BaseException:
            plain.close()
            raise

    def _exchange(self, request: bytes, deadline_s: float) -> Response:
        assert self._socket is not None
        reader = ResponseReader(self.body_bytes_max)
        try:
            self._socket.settimeout(self._left_s(deadline_s))
            self._socket.sendall(request)
            while True:
                self._socket.settimeout(self._left_s(deadline_s))
                response = reader.feed(self._socket.recv(READ_BYTES))
                if response is not None:
                    return response
        except TimeoutError as error:
            raise Retry(f"no answer in {self.timeout_s:g} s") from error

    def _left_s(self, deadline_s: float) -> float:
        left_s = deadline_s - self.clock()
        if left_s <= 0:
            raise TimeoutError
        return left_s
