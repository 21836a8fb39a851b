"""The files of the pages, and what stands before them and the API: hosts, origins, security headers."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, Final

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Scope

from moldau.console.next_steps import NAME
from moldau.console.options import ConsoleOptions
from moldau.web.guard import Guard, check_fetch_site, check_host, check_origin, check_target
from moldau.web.responses import method_not_allowed, no_such_endpoint

STATIC: Final = Path(__file__).parent / "static"
QUERY_LENGTH_MAX: Final = 24_000
"""Enough for the cursor of a search in some thousand partitions."""
SECURITY_HEADERS: Final = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self';"
        " connect-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "x-frame-options": "DENY",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}


def check_request(scope: Scope, options: ConsoleOptions) -> None:
    headers = Headers(scope=scope)
    check_host(
        headers, options.host_names, f"this console is {options.url}; another name has to be allowed with --allow-host"
    )
    check_target(scope, QUERY_LENGTH_MAX)
    if scope["path"].startswith("/api/"):
        check_fetch_site(headers)
    check_origin(headers)


class Pages(StaticFiles):
    """The files of the pages. A path that is no file is a deep link: the page itself reads it."""

    async def check_config(self) -> None:
        """A missing directory is said below, in words."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        try:
            response = await super().get_response(path, scope)
        except HTTPException as error:
            if error.status_code != 404 or self._is_asset(path):
                return Response("not found\n", error.status_code, media_type="text/plain")
            try:
                response = await super().get_response("index.html", scope)
            except HTTPException:
                return Response("The pages of the console are not installed.\n", 404, media_type="text/plain")
        response.headers["cache-control"] = "no-cache"
        return response

    def _is_asset(self, path: str) -> bool:
        """Whether the path is below a directory of the files: a missing script must not be a page."""
        first, slash, _ = path.partition("/")
        return bool(slash) and first not in ("", ".", "..") and (STATIC / first).is_dir()


def application(options: ConsoleOptions, routes: list[Route], lifespan: Any) -> ASGIApp:
    methods = ["GET", "POST", "PUT", "PATCH", "DELETE"]
    app = Starlette(
        routes=[
            *routes,
            Route("/api/{rest:path}", no_such_endpoint, methods=methods),
            Mount("/", Pages(directory=STATIC, check_dir=False), name="pages"),
        ],
        exception_handlers={405: method_not_allowed},
        lifespan=lifespan,
    )
    return Guard(app, NAME, partial(check_request, options=options), SECURITY_HEADERS)
