"""Who makes a request, and whether a page of another site does."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from starlette.datastructures import Headers
from starlette.types import Scope

from moldau.gateway.http.credentials import credentials_of
from moldau.gateway.ports import Account, Accounts, Credentials
from moldau.web.connections import CERTIFICATE
from moldau.web.failures import ApiError
from moldau.web.guard import check_host
from moldau.web.hosts import host_of

BROWSERS_SAY: Final = (b"origin", b"sec-fetch-site")
BROWSERS_ALWAYS_SAY: Final = b"accept-language"
"""They say the others not with a GET of the same origin at a plain http://NAME, and no page can leave this one away."""


class Visitors:
    def __init__(self, accounts: Accounts, hosts: frozenset[str], origins: frozenset[str]) -> None:
        """`hosts` are names under which browsers reach the gateway, `origins` sites whose pages may use it."""
        self._accounts, self._hosts, self._origins = accounts, hosts, origins
        self._read = lru_cache(1_000)(credentials_of)

    async def account(self, scope: Scope, headers: Mapping[bytes, bytes]) -> Account:
        """Return the account of whoever makes a request. ApiError or KafkaError if it is refused."""
        if BROWSERS_SAY[0] in headers or BROWSERS_SAY[1] in headers:
            self._check_site(scope)
        elif BROWSERS_ALWAYS_SAY in headers and b"authorization" not in headers:
            self._check_host(Headers(scope=scope))
        return await self._accounts.account(self.credentials(scope, headers))

    def credentials(self, scope: Scope, headers: Mapping[bytes, bytes]) -> Credentials:
        return self._read(headers.get(b"authorization"), scope.get("state", {}).get(CERTIFICATE))

    def allows_origin(self, origin: str) -> bool:
        """Whether pages of that site may use the gateway."""
        return origin in self._origins

    def _check_site(self, scope: Scope) -> None:
        """Refuse what a browser sends for a page of another site, with the password that it knows."""
        headers = Headers(scope=scope)
        self._check_host(headers)
        origin = headers.get("origin")
        if origin is not None and self.allows_origin(origin):
            return
        is_other = origin is not None and host_of(origin.rpartition("://")[2]) != host_of(headers["host"])
        if is_other or headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            raise ApiError(403, "OTHER_SITE", "a page of another site may use the gateway only with --allow-origin")

    def _check_host(self, headers: Headers) -> None:
        """Refuse a name that a page of another site has made to point here: its browser takes the gateway for that
        site. It knows no password of that name, so only who is let in without one is in danger."""
        check_host(headers, self._hosts, "browsers may use this name of the gateway only with --allow-host")


def headers_of(scope: Scope) -> dict[bytes, bytes]:
    """Return the headers of a request; of one that comes twice, the last."""
    pairs: Any = scope["headers"]
    return dict(pairs)
