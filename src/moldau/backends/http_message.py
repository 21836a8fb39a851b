"""HTTP/1.1 as a client needs it, without I/O: the bytes of a request, and a response from the bytes that come.

    POST /hooks HTTP/1.1                     HTTP/1.1 200 OK
    Host: shop.example                       Content-Length: 2
    Content-Length: 9
                                             ok
    {"n": 1}

Responses have a length, chunks, or end with the connection. A body is kept up to a limit and the rest is dropped; the
connection is then not used again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

from moldau.backends.interface import Refused

HEAD_BYTES_MAX: Final = 64 * 1024
FRAMING: Final = frozenset({"host", "content-length", "transfer-encoding", "connection"})
"""Headers that say where a request goes and where it ends."""
_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE: Final = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
_STATUS_LINE: Final = re.compile(rb"HTTP/1\.[01] (\d{3})(?: [^\r\n]*)?")
_HEX: Final = re.compile(rb"[0-9A-Fa-f]{1,15}")


class BadResponse(ValueError):
    """What came is not HTTP/1.1."""


@dataclass(slots=True)
class Response:
    status: int
    headers: Mapping[str, str]
    """By lower-case name; of a repeated one the last."""
    body: bytes
    keeps_connection: bool
    is_cut: bool = False
    """The body was longer than the limit."""


def header_line(name: str, value: str) -> str:
    """Return a header as a line. Raises Refused for one that would end the line, or that HTTP cannot carry."""
    if not _HEADER_NAME.fullmatch(name):
        raise Refused(f"{name!r} cannot be a header's name")
    if name.lower() in FRAMING:
        raise Refused(f"the header {name} is not for the user to set")
    try:
        value = value.encode("latin-1").decode("latin-1")
    except UnicodeEncodeError:
        raise Refused(f"header {name}: the value has characters beyond Latin-1") from None
    if not _HEADER_VALUE.fullmatch(value):
        raise Refused(f"header {name}: the value has a line end or another control character")
    return f"{name}: {value.strip()}\r\n"


def request_bytes(method: str, target: str, host: str, headers: Mapping[str, str], body: bytes) -> bytes:
    lines = "".join(header_line(name, value) for name, value in headers.items())
    head = f"{method} {target} HTTP/1.1\r\nHost: {host}\r\n{lines}Content-Length: {len(body)}\r\n\r\n"
    return head.encode("latin-1") + body


def retry_after_s(value: str | None, now: datetime) -> float | None:
    """Return the seconds that a Retry-After header asks for, which is a number or a date; None if it is neither."""
    if value is None:
        return None
    if re.fullmatch(r"\s*\d{1,9}\s*", value):
        return float(value)
    try:
        at = parsedate_to_datetime(value)
    except (ValueError, OverflowError):
        return None
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    return max(0.0, (at - now).total_seconds())


@dataclass(slots=True)
class ResponseReader:
    """Takes the bytes of one response as they come."""

    body_bytes_max: int
    _received: bytearray = field(default_factory=bytearray)
    _head: Response | None = None
    _left: int | None = None
    """Bytes of the body, or of the current chunk, that are still to come; None: until the connection ends."""
    _is_chunked: bool = False
    _is_at_line_end: bool = False
    """The bytes of a chunk are read, and its line end is not."""
    _body: bytearray = field(default_factory=bytearray)

    def feed(self, data: bytes) -> Response | None:
        """Return the response once it is complete. No data means that the connection ended."""
        self._received += data
        if self._head is None and not self._read_head():
            if not data:
                raise ConnectionResetError("the connection was closed before the response")
            return None
        assert self._head is not None
        is_complete = self._read_chunks() if self._is_chunked else self._read_body(is_end=not data)
        if not is_complete and not self._head.is_cut:
            if not data:
                raise ConnectionResetError("the connection was closed in the middle of the response")
            return None
        self._head.body = bytes(self._body)
        self._head.keeps_connection &= is_complete and not self._received
        return self._head

    def _read_head(self) -> bool:
        """Read the status line and headers; skip interim responses (100 to 199)."""
        while (end := self._received.find(b"\r\n\r\n")) >= 0:
            head = bytes(self._received[:end])
            del self._received[: end + 4]
            response = _parse_head(head)
            if response.status >= 200:
                self._head = response
                self._choose_framing(response)
                return True
        if len(self._received) > HEAD_BYTES_MAX:
            raise BadResponse(f"the head of the response is longer than {HEAD_BYTES_MAX} bytes")
        return False

    def _choose_framing(self, response: Response) -> None:
        length = response.headers.get("content-length")
        if response.status in (204, 304):
            self._left = 0
        elif "transfer-encoding" in response.headers:
            if response.headers["transfer-encoding"].strip().lower() != "chunked":
                raise BadResponse("a transfer encoding other than chunked")
            self._is_chunked, self._left = True, 0
        elif length is not None:
            if not re.fullmatch(r"\d{1,15}", length):
                raise BadResponse("the content length is not a number")
            self._left = int(length)
        else:
            response.keeps_connection = False

    def _read_body(self, is_end: bool) -> bool:
        if self._left is None:
            self._keep(len(self._received))
            return is_end
        count = min(self._left, len(self._received))
        self._keep(count)
        self._left -= count
        return self._left == 0

    def _read_chunks(self) -> bool:
        """Read whole chunks: a line with the length, the bytes, a line end; the last has length 0, then trailers."""
        while True:
            if self._left:
                count = min(self._left, len(self._received))
                self._keep(count)
                self._left -= count
                if self._left:
                    return False
                self._is_at_line_end = True
            if self._is_at_line_end:
                if len(self._received) < 2:
                    return False
                if self._received[:2] != b"\r\n":
                    raise BadResponse("a chunk is longer than its length")
                del self._received[:2]
                self._is_at_line_end = False
            end = self._received.find(b"\r\n")
            if end < 0:
                if len(self._received) > HEAD_BYTES_MAX:
                    raise BadResponse("a chunk without a length")
                return False
            size = self._received[:end].partition(b";")[0].strip()
            if not _HEX.fullmatch(size):
                raise BadResponse("the length of a chunk is not a number")
            if int(size, 16) == 0:
                return self._read_trailers(end)
            del self._received[: end + 2]
            self._left = int(size, 16)

    def _read_trailers(self, end_of_size: int) -> bool:
        end = self._received.find(b"\r\n\r\n", end_of_size)
        if end < 0:
            return False
        del self._received[: end + 4]
        return True

    def _keep(self, count: int) -> None:
        assert self._head is not None
        room = self.body_bytes_max - len(self._body)
        self._body += self._received[: min(count, room)]
        self._head.is_cut |= count > room
        del self._received[:count]


def _parse_head(head: bytes) -> Response:
    status_line, *lines = head.split(b"\r\n")
    match = _STATUS_LINE.fullmatch(status_line)
    if match is None:
        raise BadResponse("the answer is not HTTP/1.1")
    headers = {}
    for line in lines:
        name, colon, value = line.decode("latin-1").partition(":")
        if not colon:
            raise BadResponse("a header without a colon")
        headers[name.strip().lower()] = value.strip()
    options = headers.get("connection", "").lower()
    keeps = "close" not in options and (status_line.startswith(b"HTTP/1.1") or "keep-alive" in options)
    return Response(int(match[1]), headers, b"", keeps)
