"""What a request may have: bodies of a bounded size, JSON, known parameters."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from starlette.requests import Request

from moldau.web.failures import ApiError
from moldau.web.requests import path_names, query_of, read_body, read_json

JSON = {"content-type": "application/json; charset=utf-8"}


def request_of(
    chunks: Sequence[bytes] = (), headers: dict[str, str] | None = None, query: str = "", **path: str
) -> Request:
    """A request whose chunks are taken one by one; there is nothing behind the last one."""
    messages: list[Any] = [{"type": "http.request", "body": chunk, "more_body": True} for chunk in chunks]
    coming = iter([*messages, {"type": "http.request", "body": b"", "more_body": False}])

    async def receive() -> Any:
        return next(coming)

    pairs = [(name.encode(), value.encode()) for name, value in (headers or {}).items()]
    scope = {"type": "http", "headers": pairs, "query_string": query.encode(), "path_params": path, "method": "POST"}
    return Request(scope, receive)


def test_a_body_may_have_as_many_bytes_as_allowed_and_no_more() -> None:
    assert asyncio.run(read_body(request_of([b"abc", b"de"]), 5)) == b"abcde"
    with pytest.raises(ApiError) as refused:
        asyncio.run(read_body(request_of([b"abc", b"def", *[b"x"] * 5]), 5))
    assert (refused.value.status, refused.value.message) == (413, "the body has more than 5 bytes")


@pytest.mark.parametrize("declared", ["6", "9" * 5000, "-1", "1e3", "²"])
def test_a_declared_length_is_checked_before_the_body_is_read(declared: str) -> None:
    async def receive() -> Any:
        raise AssertionError("the body was read")

    scope = {"type": "http", "headers": [(b"content-length", declared.encode("latin-1"))]}
    with pytest.raises(ApiError) as refused:
        asyncio.run(read_body(Request(scope, receive), 5))
    assert refused.value.status == 413


def test_json_is_none_without_a_body() -> None:
    assert asyncio.run(read_json(request_of(), 100)) is None
    assert asyncio.run(read_json(request_of([b'{"a": ', b"1}"], JSON), 100)) == {"a": 1}


@pytest.mark.parametrize(
    ("body", "headers", "message"),
    [
        (b"{}", {}, "the body must be application/json"),
        (b"{}", {"content-type": "text/plain"}, "the body must be application/json"),
        (b"{", JSON, "the body is not JSON"),
        (b"\xff", JSON, "the body is not JSON"),
        (b"[" * 100_000, JSON, "the body is not JSON"),
    ],
)
def test_a_body_that_is_no_json_is_refused(body: bytes, headers: dict[str, str], message: str) -> None:
    with pytest.raises(ApiError) as refused:
        asyncio.run(read_json(request_of([body], headers), 1 << 20))
    assert (refused.value.status, refused.value.message) == (400, message)


def test_names_in_a_path_are_decoded_and_bounded() -> None:
    assert path_names(request_of(group="a%2Fb%20c")) == {"group": "a/b c"}
    for wrong in ("a" * 1001, "a%00b"):
        with pytest.raises(ApiError, match="group is not a name"):
            path_names(request_of(group=wrong))


def test_unknown_parameters_are_refused() -> None:
    assert query_of(request_of(query="from=end"), ("from", "limit")) == {"from": "end"}
    with pytest.raises(ApiError, match="unknown parameter 'form'; known are from, limit"):
        query_of(request_of(query="form=end"), ("from", "limit"))
    with pytest.raises(ApiError, match="there are none"):
        query_of(request_of(query="from=end"), ())
