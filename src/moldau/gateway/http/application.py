"""What answers which path. `POST /topics/TOPIC` goes to the intake; the REST proxy's calls go to `proxy`;
everything else is Starlette's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from starlette.applications import Starlette
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from moldau.gateway.http.intake import Intake
from moldau.gateway.http.proxy.routes import RestProxy
from moldau.web.responses import method_not_allowed, no_such_endpoint

TOPICS: Final = b"/topics/"
KNOWN_PROXY: Final = b"application/vnd.kafka."
"""The content types of the REST proxy: its requests have the same path as ours."""
METHODS: Final = ["GET", "POST", "PUT", "PATCH", "DELETE"]


class Application:
    def __init__(self, intake: Intake, proxy: RestProxy, routes: Sequence[BaseRoute]) -> None:
        self._intake, self._proxy = intake, proxy
        nothing = Route("/{rest:path}", no_such_endpoint, methods=METHODS)
        self._others = Starlette(routes=[*routes, nothing], exception_handlers={405: method_not_allowed})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] == "POST":
            path: bytes = scope["raw_path"]
            if path.startswith(TOPICS) and b"/" not in path[len(TOPICS) :] and not _is_for_proxy(scope):
                await self._intake(scope, receive, send, path[len(TOPICS) :].decode("latin-1"))
                return
        if scope["type"] == "http" and self._proxy.serves(scope):
            await self._proxy(scope, receive, send)
            return
        await self._others(scope, receive, send)


def _is_for_proxy(scope: Scope) -> bool:
    return any(name == b"content-type" and value.lower().startswith(KNOWN_PROXY) for name, value in scope["headers"])
