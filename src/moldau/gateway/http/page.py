"""The gateway's page: it follows a topic, and shows how little a page needs for that."""

from __future__ import annotations

from importlib.resources import files
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

HEADERS: Final = {
    "content-security-policy": "default-src 'none'; connect-src 'self'; style-src 'unsafe-inline';"
    " script-src 'unsafe-inline'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",
}


def route() -> Route:
    content = files("moldau.gateway.http").joinpath("follow.html").read_bytes()

    async def page(request: Request) -> Response:
        return Response(content, media_type="text/html", headers=HEADERS)

    return Route("/", page, methods=["GET"])
