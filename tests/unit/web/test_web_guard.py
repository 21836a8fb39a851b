"""What stands before an application."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse

from moldau.web.failures import ApiError
from moldau.web.guard import Guard, check_fetch_site, check_host, check_origin, check_target


def test_a_cancelled_request_is_answered_with_503() -> None:
    sent: list[dict[str, Any]] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        raise AssertionError("it has no body")

    async def main() -> None:
        begun = asyncio.Event()

        async def waits(scope: Any, receive: Any, send: Any) -> None:
            begun.set()
            await asyncio.Event().wait()

        headers = [(b"host", b"localhost")]
        scope = {"type": "http", "path": "/", "query_string": b"", "headers": headers, "method": "GET"}
        request = asyncio.create_task(Guard(waits, "the server", lambda scope: None, {})(scope, receive, send))
        await begun.wait()
        request.cancel()
        await request

    asyncio.run(main())
    assert [message["type"] for message in sent] == ["http.response.start", "http.response.body"]
    assert sent[0]["status"] == 503
    assert b"the server stops" in sent[1]["body"]


def scope_with(path: str = "/api/topics", query: bytes = b"", **headers: str) -> dict[str, Any]:
    pairs = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    raw = path.encode()
    return {"type": "http", "method": "GET", "path": path, "raw_path": raw, "query_string": query, "headers": pairs}


def answer_of(scope: dict[str, Any], check: Callable[[Any], None] = lambda scope: None) -> tuple[int, dict[str, str]]:
    """Return status and headers of an answer behind the guard; the application answers 200 with its path."""
    sent: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await PlainTextResponse("ok", headers={"path": scope["path"], "x-frame-options": "ALLOW"})(scope, receive, send)

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        raise AssertionError("it has no body")

    asyncio.run(Guard(app, "the server", check, {"x-frame-options": "DENY"})(scope, receive, send))
    return sent[0]["status"], {name.decode(): value.decode() for name, value in sent[0]["headers"]}


def refuse(scope: Any) -> None:
    raise ApiError(421, "BAD_HOST", "not here")


def test_every_response_has_the_headers() -> None:
    for check, status in ((lambda scope: None, 200), (refuse, 421)):
        answered, headers = answer_of(scope_with(), check)
        assert answered == status
        assert headers["x-frame-options"] == "DENY"
        assert headers["cache-control"] == "no-store"


def test_names_below_the_api_may_have_a_slash() -> None:
    scope = scope_with("/api/groups/a/b") | {"raw_path": b"/api/groups/a%2Fb?x=%2F"}
    assert answer_of(scope)[1]["path"] == "/api/groups/a%2Fb"
    assert answer_of(scope | {"path": "/a/b"})[1]["path"] == "/a/b"


@pytest.mark.parametrize(
    ("check", "refused", "allowed"),
    [
        (check_fetch_site, {"sec_fetch_site": "cross-site"}, {"sec_fetch_site": "same-origin"}),
        (check_fetch_site, {"sec_fetch_site": "same-site"}, {"sec_fetch_site": "none"}),
        (check_origin, {"origin": "http://evil.com"}, {"origin": "https://a.com:99"}),
        (check_origin, {"origin": "null"}, {}),
        (partial(check_host, names=frozenset(), message="not here"), {}, {"host": "localhost"}),
    ],
)
def test_what_browsers_say_is_checked(check: Any, refused: dict[str, str], allowed: dict[str, str]) -> None:
    check(Headers({"host": "a.com", **{name.replace("_", "-"): value for name, value in allowed.items()}}))
    with pytest.raises(ApiError):
        check(Headers({"host": "a.com", **{name.replace("_", "-"): value for name, value in refused.items()}}))


def test_paths_and_queries_are_bounded() -> None:
    check_target(scope_with(query=b"x" * 10), 10)
    for scope, status in ((scope_with(query=b"x" * 11), 414), (scope_with("/a\0b"), 400)):
        with pytest.raises(ApiError) as refused:
            check_target(scope, 10)
        assert refused.value.status == status
