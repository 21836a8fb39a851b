"""Webhooks: a request for each row.

The answer decides: 2xx is taken; 408, 425, 429, 401, 403, 407, redirects to elsewhere and 5xx are tried again; all
others are refused for good. 429 and 503 with Retry-After make all senders wait. A 2xx of a server that did nothing
cannot be told from one that did.
"""

from __future__ import annotations

import re
import ssl
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from typing import Final
from urllib.parse import urljoin

from moldau.backends.http_connection import Address, HttpConnection, address_of
from moldau.backends.http_message import Response, header_line, retry_after_s
from moldau.backends.interface import Away, Refused, Retry, Row
from moldau.backends.options import Options

REDIRECTS_MAX: Final = 5
BODY_SHOWN_MAX: Final = 120
BODY_BYTES_MAX: Final = 64 * 1024
"""Of a response; the rest is not read."""
METHODS: Final = ("POST", "PUT", "PATCH", "DELETE")
RETRIED: Final = frozenset({401, 403, 407, 408, 425, 429})
ASKS_ALL_TO_WAIT: Final = frozenset({429, 503})
FIXED_HEADER: Final = "header."
"""Options with this prefix are headers that all requests have."""
KEY_HEADER: Final = "idempotency-key"
_PATH: Final = re.compile(r"[!-~]*")


@dataclass(frozen=True, slots=True)
class HttpSettings:
    address: Address
    method: str
    headers: Mapping[str, str] = field(repr=False)
    retried: frozenset[int]
    timeout_s: float
    ca: str | None

    @staticmethod
    def read(url: str, options: Options, timeout_s: float, content_type: str) -> HttpSettings:
        """Raises ValueError for what cannot work."""
        fixed = options.with_prefix(FIXED_HEADER)
        headers = {"content-type": options.text("content_type", content_type), "user-agent": "moldau"}
        headers |= {name.lower(): value for name, value in fixed.items()}
        if (authorization := options.text("authorization")) is not None:
            headers["authorization"] = authorization
        elif (user := options.text("user")) is not None:
            login = f"{user}:{options.text('password', '')}".encode()
            headers["authorization"] = f"Basic {b64encode(login).decode()}"
        for name, value in headers.items():
            header_line(name, value)
        statuses = frozenset(options.numbers("retry_statuses"))
        return HttpSettings(
            address_of(url),
            options.choice("method", METHODS, "POST"),
            headers,
            RETRIED | statuses,
            timeout_s,
            options.text("ca"),
        )

    def connection(self, address: Address, body_bytes_max: int = BODY_BYTES_MAX) -> HttpConnection:
        ca = self.ca
        return HttpConnection(address, self.timeout_s, lambda: tls_context(ca), body_bytes_max)


@cache
def tls_context(ca: str | None) -> ssl.SSLContext:
    """Return a context that verifies certificates, by the system's authorities or those of a PEM file."""
    return ssl.create_default_context(cafile=ca)


class HttpBackend:
    def __init__(self, settings: HttpSettings, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._settings, self._now = settings, now
        self._connection = settings.connection(settings.address)

    def open(self) -> None:
        """The first request connects."""

    def write(self, rows: Sequence[Row]) -> None:
        (row,) = rows
        self._send(row)

    def close(self) -> None:
        self._connection.close()

    def _send(self, row: Row) -> None:
        settings = self._settings
        target = target_of(settings.address.path, row.values.get("path"))
        body = row.values.get("body") or ""
        of_row = {name.lower(): value for name, value in (row.headers or {}).items()}
        headers = {**settings.headers, KEY_HEADER: row.key, **of_row}
        content = body if isinstance(body, bytes) else body.encode()
        for _ in range(REDIRECTS_MAX):
            response = self._connection.exchange(settings.method, target, headers, content)
            if response.status not in (307, 308) or (followed := self._redirect(target, response)) is None:
                break
            target = followed
        check(response, settings.retried, self._now())

    def _redirect(self, target: str, response: Response) -> str | None:
        """Return the target of a redirect to the same scheme, host and port; None for all others."""
        base = self._settings.address
        try:
            to = address_of(urljoin(f"{base.shown}{target}", response.headers.get("location", "")))
        except ValueError:
            return None
        return to.path if (to.is_tls, to.host, to.port) == (base.is_tls, base.host, base.port) else None


def target_of(path: str, added: str | None) -> str:
    """Return the path of the URL with that of the row behind it. Raises Refused for one that would change more."""
    if added is None:
        return path
    if not _PATH.fullmatch(added) or "#" in added:
        raise Refused("the path has a space, '#', a control character or one beyond ASCII; write it as %20 and so on")
    if ".." in re.split(r"[/\\?]", added.lower().replace("%2e", ".")):
        raise Refused("the path has '..'")
    before, question_mark, query = path.partition("?")
    return f"{before.rstrip('/')}/{added.lstrip('/')}{question_mark}{query}"


def check(response: Response, retried: frozenset[int], now: datetime) -> None:
    """Raise what the status means, unless the request was taken."""
    status = response.status
    if 200 <= status < 300:
        return
    reason = f"HTTP {status}{_excerpt(response.body)}"
    if status in ASKS_ALL_TO_WAIT:
        raise Away(reason, retry_after_s(response.headers.get("retry-after"), now))
    if 300 <= status < 400:
        raise Retry(f"HTTP {status}: a redirect that is not followed: it is not to the same server, or not 307 or 308")
    if status in retried or status >= 500:
        raise Retry(reason, retry_after_s(response.headers.get("retry-after"), now))
    raise Refused(reason)


def _excerpt(body: bytes) -> str:
    """Return the beginning of an answer as one line of printable characters."""
    text = " ".join(body[: 4 * BODY_SHOWN_MAX].decode("utf-8", errors="replace").split())
    printable = "".join(character for character in text if character.isprintable())[:BODY_SHOWN_MAX]
    return f": {printable}" if printable else ""
