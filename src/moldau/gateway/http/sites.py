"""Pages of other sites that may use the gateway (CORS): what a browser asks first, and what it needs to see."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from starlette.datastructures import Headers
from starlette.types import Message, Scope, Send

METHODS: Final = b"GET, POST, PUT, DELETE"
REMEMBERED_S: Final = b"600"
ASKED_LENGTH_MAX: Final = 2_000
Pair = tuple[bytes, bytes]


def for_site(origin: bytes, send: Send) -> Send:
    """Return a `send` that lets pages of this site see the answer."""
    own: Sequence[Pair] = [
        (b"access-control-allow-origin", origin),
        (b"access-control-allow-credentials", b"true"),
        (b"vary", b"origin"),
    ]

    async def send_for_site(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", ()), *own]
        await send(message)

    return send_for_site


async def answer_preflight(scope: Scope, send: Send) -> None:
    """Tell a browser that the page may send what it wants to."""
    asked = Headers(scope=scope).get("access-control-request-headers", "")[:ASKED_LENGTH_MAX]
    headers = [
        (b"access-control-allow-methods", METHODS),
        (b"access-control-allow-headers", asked.encode("latin-1")),
        (b"access-control-max-age", REMEMBERED_S),
    ]
    await send({"type": "http.response.start", "status": 204, "headers": headers})
    await send({"type": "http.response.body", "body": b""})
