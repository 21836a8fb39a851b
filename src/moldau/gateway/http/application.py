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
from moldau.gateway.http.sites import answer_preflight, for_site
from moldau.gateway.http.visitors import Visitors
from moldau.web.responses import method_not_allowed, no_such_endpoint

TOPICS: Final = b"/topics/"
KNOWN_PROXY: Final = b"application/vnd.kafka."
"""The content types of the REST proxy: its requests have the same path as ours."""
METHODS: Final = ["GET", "POST", "PUT", "PATCH", "DELETE"]


class Application:
    def __init__(self, intake: Intake, visitors: Visitors, proxy: RestProxy, routes: Sequence[BaseRoute]) -> None:
        self._intake, self._visitors, self._proxy = intake, visitors, proxy
        nothing = Route("/{rest:path}", no_such_endpoint, methods=METHODS)
        self._others = Starlette(routes=[*routes, nothing], exception_handlers={405: method_not_allowed})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._others(scope, receive, send)
            return
        path: bytes = scope["raw_path"].partition(b"?")[0]
        if scope["type"] == "websocket":
            await self._others(_with_whole_names(scope, path), receive, send)
            return
        is_for_proxy, origin = False, None
        for name, value in scope["headers"]:
            if name == b"content-type":
                is_for_proxy = value.lower().startswith(KNOWN_PROXY)
            elif name == b"origin":
                origin = value
        if origin is not None and self._visitors.allows_origin(origin.decode("latin-1")):
            send = for_site(origin, send)
            if scope["method"] == "OPTIONS":
                await answer_preflight(scope, send)
                return
        if scope["method"] == "POST" and path.startswith(TOPICS) and not is_for_proxy:
            name = path[len(TOPICS) :]
            if b"/" not in name:
                await self._intake(scope, receive, send, name.decode("latin-1"))
                return
        if self._proxy.serves(scope):
            await self._proxy(scope, receive, send)
            return
        await self._others(_with_whole_names(scope, path), receive, send)


def _with_whole_names(scope: Scope, path: bytes) -> Scope:
    """Return the scope with the path as it was sent. It is taken apart before names are decoded: they may have a slash,
    as %2F."""
    return {**scope, "path": path.decode("latin-1")}
