"""HTTP around the handlers: hosts, headers, bodies, errors, the files of the pages.

Of the console's modules only this one, live.py, console.py (sessions, logins, routes) and server.py have `async`. They
never wait for Kafka or a disk themselves: handlers run in `Threads`.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from moldau.console.daemon_pool import DaemonPool
from moldau.console.failures import ApiError, api_error, bad_request, internal_error, not_found
from moldau.console.options import ConsoleOptions, host_of, is_allowed_host

STATIC: Final = Path(__file__).parent / "static"
BODY_BYTES_MAX: Final = 2 << 20
NAME_LENGTH_MAX: Final = 1000
QUERY_LENGTH_MAX: Final = 24_000
"""Enough for the cursor of a search in some thousand partitions."""
CLUSTER_THREADS: Final = 12
MEMORY_THREADS: Final = 4
SAFE_METHODS: Final = ("GET", "HEAD")
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


class Threads:
    """Two pools: requests that wait for the cluster cannot hold up those that answer from memory."""

    def __init__(self) -> None:
        self._cluster = DaemonPool(CLUSTER_THREADS, "cluster")
        self._memory = DaemonPool(MEMORY_THREADS, "memory")

    async def run(self, asks_cluster: bool, function: Any, *arguments: Any) -> Any:
        pool = self._cluster if asks_cluster else self._memory
        return await asyncio.get_running_loop().run_in_executor(pool, function, *arguments)

    def stop(self) -> None:
        for pool in (self._cluster, self._memory):
            pool.shutdown(wait=False, cancel_futures=True)


class Guard:
    """Checks what comes from outside before anything else sees it, and adds the security headers to every response."""

    def __init__(self, app: ASGIApp, options: ConsoleOptions) -> None:
        self._app, self._options = app, options

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return

        has_begun = False

        async def send_with_headers(message: Message) -> None:
            nonlocal has_begun
            if message["type"] == "http.response.start":
                has_begun = True
                headers = MutableHeaders(scope=message)
                for name, value in SECURITY_HEADERS.items():
                    headers[name] = value
                headers.setdefault("cache-control", "no-store")
            await send(message)

        try:
            check_request(scope, self._options)
        except ApiError as error:
            await error_response(error)(scope, receive, send_with_headers)
            return
        if scope["path"].startswith("/api/"):
            # Names are taken apart before they are decoded: a group's name may have a slash.
            scope["path"] = scope["raw_path"].partition(b"?")[0].decode("latin-1")
        try:
            await self._app(scope, receive, send_with_headers)
        except asyncio.CancelledError:  # the server stops, and waits no longer for what the cluster does not answer
            if not has_begun:
                stopping = ApiError(503, "STOPPING", "the console stops")
                await error_response(stopping)(scope, receive, send_with_headers)


def check_request(scope: Scope, options: ConsoleOptions) -> None:
    headers = Headers(scope=scope)
    if not is_allowed_host(headers.get("host", ""), options):
        raise ApiError(
            421, "BAD_HOST", f"this console is {options.url}; another name has to be allowed with --allow-host"
        )
    if "\0" in scope["path"]:
        raise bad_request("a path has no zero")
    if len(scope["query_string"]) > QUERY_LENGTH_MAX:
        raise ApiError(414, "BAD_REQUEST", f"the query has more than {QUERY_LENGTH_MAX} characters")
    if scope["path"].startswith("/api/") and headers.get("sec-fetch-site", "same-origin") not in (
        "same-origin",
        "none",
    ):
        raise ApiError(403, "BAD_TOKEN", "the request comes from a page of another site")
    origin = headers.get("origin")
    if origin is not None and host_of(origin.rpartition("://")[2]) != host_of(headers["host"]):
        raise ApiError(403, "BAD_TOKEN", "the request comes from a page of another site")


def json_response(content: Any, status: int = 200) -> Response:
    data = json.dumps(content, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode(errors="replace")
    return Response(data, status, media_type="application/json")


def error_response(error: ApiError) -> Response:
    return json_response(error.body(), error.status)


def response_to(error: Exception) -> Response:
    return error_response(api_error(error) or internal_error(error))


async def read_body(request: Request) -> Any:
    """Return the JSON of the body, None without a body."""
    declared = request.headers.get("content-length", "0")
    if not declared.isdigit() or int(declared) > BODY_BYTES_MAX:
        raise ApiError(413, "TOO_LARGE", f"the body has more than {BODY_BYTES_MAX} bytes")
    data = bytearray()
    async for chunk in request.stream():
        data += chunk
        if len(data) > BODY_BYTES_MAX:
            raise ApiError(413, "TOO_LARGE", f"the body has more than {BODY_BYTES_MAX} bytes")
    if not data:
        return None
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise bad_request("the body must be application/json")
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        raise bad_request("the body is not JSON") from None


def path_names(request: Request) -> dict[str, str]:
    names = {}
    for name, raw in request.path_params.items():
        text = unquote(raw, errors="replace")
        if len(text) > NAME_LENGTH_MAX or "\0" in text:
            raise bad_request(f"{name} is not a name: it has more than {NAME_LENGTH_MAX} characters or a zero")
        names[name] = text
    return names


def query_of(request: Request, allowed: tuple[str, ...]) -> dict[str, str]:
    query = dict(request.query_params)
    unknown = [name for name in query if name not in allowed]
    if unknown:
        known = f"known are {', '.join(allowed)}" if allowed else "there are none"
        raise bad_request(f"unknown parameter {unknown[0][:40]!r}; {known}")
    return query


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
    async def no_such_endpoint(request: Request) -> Response:
        return error_response(not_found(f"there is no {request.method} {request.url.path[:100]}"))

    async def on_http_error(request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 500
        return error_response(
            ApiError(status, "BAD_REQUEST" if status < 500 else "INTERNAL", "the method is not allowed")
        )

    methods = ["GET", "POST", "PUT", "PATCH", "DELETE"]
    app = Starlette(
        routes=[
            *routes,
            Route("/api/{rest:path}", no_such_endpoint, methods=methods),
            Mount("/", Pages(directory=STATIC, check_dir=False), name="pages"),
        ],
        exception_handlers={405: on_http_error},
        lifespan=lifespan,
    )
    return Guard(app, options)
