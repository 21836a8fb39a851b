"""What stands before an application."""

from __future__ import annotations

import asyncio
from typing import Any

from moldau.web.guard import Guard


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
