"""What stands before an application: checks of each request, and headers for each response."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from moldau.web.failures import ApiError, bad_request
from moldau.web.hosts import host_of, is_allowed_host
from moldau.web.responses import error_response


class Guard:
    """Checks what comes from outside before anything else sees it, and adds its headers to every response."""

    def __init__(
        self, app: ASGIApp, server: str, check: Callable[[Scope], None], headers: Mapping[str, str], api: str = "/api/"
    ) -> None:
        """`server` is its name in a sentence, such as "the console". `check` raises ApiError to refuse a request. Names
        in paths below `api` may have a slash, as %2F."""
        self._app, self._check = app, check
        self._server, self._headers, self._api = server, headers, api

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
                for name, value in self._headers.items():
                    headers[name] = value
                headers.setdefault("cache-control", "no-store")
            await send(message)

        try:
            self._check(scope)
        except ApiError as error:
            await error_response(error)(scope, receive, send_with_headers)
            return
        if scope["path"].startswith(self._api):
            # Names are taken apart before they are decoded: a group's name may have a slash.
            scope["path"] = scope["raw_path"].partition(b"?")[0].decode("latin-1")
        try:
            await self._app(scope, receive, send_with_headers)
        except asyncio.CancelledError:  # the server stops, and waits no longer for what the cluster does not answer
            if not has_begun:
                stopping = ApiError(503, "STOPPING", f"{self._server} stops")
                await error_response(stopping)(scope, receive, send_with_headers)


def check_host(headers: Headers, names: frozenset[str], message: str) -> None:
    """Refuse a request to another name, which a page of another site may have made to point here; say what helps."""
    if not is_allowed_host(headers.get("host", ""), names):
        raise ApiError(421, "BAD_HOST", message)


def check_target(scope: Scope, query_length_max: int) -> None:
    """Refuse a path or a query that nothing of ours has."""
    if "\0" in scope["path"]:
        raise bad_request("a path has no zero")
    if len(scope["query_string"]) > query_length_max:
        raise ApiError(414, "BAD_REQUEST", f"the query has more than {query_length_max} characters")


def check_fetch_site(headers: Headers) -> None:
    """Refuse what a browser says it sends for a page of another site."""
    if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        raise _other_site()


def check_origin(headers: Headers) -> None:
    """Refuse an `Origin` that is not the host of the request."""
    origin = headers.get("origin")
    if origin is not None and host_of(origin.rpartition("://")[2]) != host_of(headers["host"]):
        raise _other_site()


def _other_site() -> ApiError:
    return ApiError(403, "BAD_TOKEN", "the request comes from a page of another site")
