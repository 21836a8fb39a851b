"""HTTP/1.1 without sockets: requests as bytes, responses in pieces of any size, hostile ones."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.backends.http_message import (
    BadResponse,
    Response,
    ResponseReader,
    header_line,
    request_bytes,
    retry_after_s,
)
from moldau.backends.interface import Refused

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
NOW = datetime(2026, 1, 31, 8, 0, 0, tzinfo=UTC)


def read(content: bytes, size: int = 1, limit: int = 1000) -> Response:
    reader = ResponseReader(limit)
    for start in range(0, len(content), size):
        if (response := reader.feed(content[start : start + size])) is not None:
            return response
    response = reader.feed(b"")
    assert response is not None
    return response


def test_a_request_is_one_piece_of_bytes() -> None:
    assert request_bytes("POST", "/a?b", "shop:80", {"x": " ä "}, b"{}") == (
        b"POST /a?b HTTP/1.1\r\nHost: shop:80\r\nx: \xe4\r\nContent-Length: 2\r\n\r\n{}"
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [("x", "a\r\nHost: b"), ("x", "a\nb"), ("x", "a\x00"), ("x", "€"), ("x y", "a"), ("", "a"), ("Host", "b"),
     ("content-length", "0"), ("x\r\ny", "a")],
)  # fmt: skip
def test_a_header_that_would_be_more_than_one_is_refused(name: str, value: str) -> None:
    with pytest.raises(Refused) as refusal:
        header_line(name, value)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("size", [1, 3, 1000])
@pytest.mark.parametrize(
    ("content", "body", "keeps"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", b"hello", True),
        (b"HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n", b"", True),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No\r\n\r\n", b"", True),
        (CHUNKED + b"5;x=y\r\nhello\r\n1\r\n!\r\n0\r\nT: r\r\n\r\n", b"hello!", True),
        (CHUNKED + b"0\r\n\r\n", b"", True),
        (b"HTTP/1.1 200 OK\r\n\r\nuntil the end", b"until the end", False),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\nx", b"x", False),
        (b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx", b"x", False),
    ],
)  # fmt: skip
def test_a_response_is_the_same_in_pieces_of_any_size(content: bytes, body: bytes, keeps: bool, size: int) -> None:
    response = read(content, size)
    assert (response.body, response.keeps_connection) == (body, keeps)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Le",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel",
    ],
)
def test_a_response_that_ends_early_is_an_error(content: bytes) -> None:
    with pytest.raises(ConnectionResetError):
        read(content)


@pytest.mark.parametrize(
    "content",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n",
        b"HTTP/1.1 200 OK\r\nx: " + b"y" * 70_000,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1" * 70_000,
    ],
)
def test_what_is_not_http_is_refused(content: bytes) -> None:
    with pytest.raises(BadResponse):
        read(content, 1000)


@pytest.mark.parametrize("framing", [b"Content-Length: 4000", b"Transfer-Encoding: chunked", b"X: y"])
def test_a_long_body_is_read_up_to_a_limit(framing: bytes) -> None:
    body = b"fa0\r\n" + b"x" * 4000 if b"chunked" in framing else b"x" * 4000
    response = read(b"HTTP/1.1 200 OK\r\n" + framing + b"\r\n\r\n" + body, 100)
    assert response.body == b"x" * 1000
    assert response.is_cut


@given(st.binary(max_size=200), st.integers(1, 50))
def test_any_bytes_are_a_response_or_an_error(content: bytes, size: int) -> None:
    with suppress(BadResponse, ConnectionResetError):
        read(b"HTTP/1.1 200 OK\r\n" + content, size)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [(None, None), ("120", 120.0), (" 0 ", 0.0), ("Sat, 31 Jan 2026 08:01:00 GMT", 60.0),
     ("Fri, 30 Jan 2026 08:00:00 GMT", 0.0), ("tomorrow", None), ("-1", None), ("1e9", None),
     ("Sat, 31 Jan 2026 08:01:00 +99999999999999", None), ("Sat, 31 Jan 99999999999 08:01:00 GMT", None)],
)  # fmt: skip
def test_retry_after_is_seconds_or_a_date(value: str | None, seconds: float | None) -> None:
    assert retry_after_s(value, NOW) == seconds
