"""The token with which a client or node logs in with OAUTHBEARER: from a file, or from the token endpoint of an
identity provider, for a client id and secret (RFC 6749, 4.4). It is kept for four fifths of its life, and until it
expires if there is no other.
"""

from __future__ import annotations

import json
import re
import time
from base64 import b64encode, urlsafe_b64decode
from threading import Lock
from typing import Any, Final, NamedTuple
from urllib.parse import quote, quote_plus

from moldau.client.web_requests import RequestFailed, WebRequest, fetch
from moldau.security.sasl.client import LoginFailed
from moldau.security.sasl.oauthbearer.settings import TokenRequest
from moldau.security.sasl.oauthbearer.urls import parse_endpoint

ANSWER_BYTES_MAX: Final = 256 << 10
RENEW_AT: Final = 0.8
"""The share of a token's life after which a new one is requested: Kafka's sasl.login.refresh.window.factor."""
RETRY_SECONDS: Final = 10.0
"""The pause after a new token was requested in vain, while the old one is valid; Kafka's is as long."""
_TOKEN: Final = re.compile(r"[-_~+/.a-zA-Z0-9]+=*")


class _Token(NamedTuple):
    text: str
    expires: float
    """When, in seconds since the epoch; 0 if it does not say."""
    renew_at: float


class AccessTokens:
    """Several threads may use it."""

    def __init__(self, request: TokenRequest) -> None:
        self._request = request
        self._is_file = parse_endpoint(request.url).is_file
        self._lock = Lock()
        self._token: _Token | None = None

    def current(self) -> str:
        """Return the token. It may wait for the network. Raise LoginFailed, without secrets, if there is none."""
        return self._current().text

    def with_expiry(self, _: str = "") -> tuple[str, float]:
        """Return the token and when it expires, in seconds since the epoch: the `oauth_cb` of confluent-kafka."""
        token = self._current()
        # librdkafka asks for the next token when this one has expired, and demands a time in the future.
        return token.text, token.expires or time.time() + 60

    def _current(self) -> _Token:
        with self._lock:
            # A file is read each time: it costs little, and who writes the file decides when the token is a new one.
            if self._token is None or self._is_file or time.time() >= self._token.renew_at:
                self._token = self._next_token(self._token)
            return self._token

    def _next_token(self, last: _Token | None) -> _Token:
        try:
            return self._new_token()
        except LoginFailed:
            now = time.time()
            if self._is_file or last is None or now >= last.expires:
                raise
            return last._replace(renew_at=min(now + RETRY_SECONDS, last.expires))

    def _new_token(self) -> _Token:
        try:
            text = self._read_file() if self._is_file else self._request_token()
        except RequestFailed as failed:
            raise LoginFailed(f"no token from {self._request.url}: {failed}") from None
        if not _TOKEN.fullmatch(text):
            raise LoginFailed(f"no token from {self._request.url}: what is there is not a token")
        now, expires = time.time(), _expiry(text)
        return _Token(text, expires, now + RENEW_AT * (expires - now))

    def _read_file(self) -> str:
        return fetch(WebRequest(self._request.url, ANSWER_BYTES_MAX)).decode("ascii", "replace").strip()

    def _request_token(self) -> str:
        wanted = self._request
        web_request = WebRequest(
            wanted.url,
            ANSWER_BYTES_MAX,
            _body(wanted),
            _headers(wanted),
            wanted.connect_timeout_ms / 1000,
            wanted.read_timeout_ms / 1000,
            wanted.tls,
        )
        deadline = time.monotonic() + wanted.retry_ms_max / 1000
        pause = max(1, wanted.retry_ms) / 1000
        while True:
            try:
                return _token_in(fetch(web_request))
            except RequestFailed as failed:
                if not failed.is_temporary or time.monotonic() + pause > deadline:
                    raise
            time.sleep(pause)
            pause *= 2


def _body(request: TokenRequest) -> bytes:
    if request.scope is None:
        return b"grant_type=client_credentials"
    # Kafka sends the scope as it is, unless told otherwise. A scope that is encoded already must not change.
    scope = quote_plus(request.scope) if request.is_header_url_encoded else quote(request.scope, safe="%+:/?@!$'()*,;")
    return f"grant_type=client_credentials&scope={scope}".encode()


def _headers(request: TokenRequest) -> dict[str, str]:
    user, password = request.client_id, request.client_secret
    if request.is_header_url_encoded:
        user, password = quote_plus(user), quote_plus(password)
    return {
        "Authorization": f"Basic {b64encode(f'{user}:{password}'.encode()).decode()}",
        "Cache-Control": "no-cache",
        "Content-Type": "application/x-www-form-urlencoded",
    }


def _token_in(answer: bytes) -> str:
    """Return the token in an answer, as Kafka does: its access_token, or else its id_token."""
    try:
        found: Any = json.loads(answer)
    except (ValueError, RecursionError):
        found = None
    if isinstance(found, dict):
        for name in ("access_token", "id_token"):
            if isinstance(text := found.get(name), str) and text.strip():
                return text.strip()
    raise RequestFailed("the answer has no access_token", is_temporary=False)


def _expiry(token: str) -> float:
    """Return when a token expires, in seconds since the epoch; 0 if it does not say. The signature is not verified:
    that is for the broker."""
    payload = token.partition(".")[2].partition(".")[0]
    try:
        claims: Any = json.loads(urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        expires = claims.get("exp") if isinstance(claims, dict) else None
    except (ValueError, RecursionError):
        return 0
    return float(expires) if isinstance(expires, int | float) and 0 < expires < 1e12 else 0
