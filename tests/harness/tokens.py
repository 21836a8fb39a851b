"""An identity provider for tests: keys, signed tokens, and an HTTP server with its keys and a token endpoint."""

from __future__ import annotations

import json
import threading
import time
from base64 import b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from joserfc import jws
from joserfc.jwk import ECKey, OKPKey, RSAKey

ISSUER = "https://issuer.test"
AUDIENCE = "kafka"
Key = RSAKey | ECKey | OKPKey


def part(value: Any) -> str:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return urlsafe_b64encode(data).rstrip(b"=").decode()


class Issuer:
    """Its first key is an elliptic curve key, which is generated quickly."""

    def __init__(
        self, key: Key | None = None, algorithm: str = "ES256", clock: Callable[[], float] = time.time
    ) -> None:
        self._clock = clock
        self.published: list[tuple[str, Key]] = []
        self.add_key("first", key or ECKey.generate_key("P-256"), algorithm)

    def add_key(self, key_id: str, key: Key, algorithm: str) -> None:
        """Sign with that key from now on, and publish it."""
        self.key_id, self.key, self.algorithm = key_id, key, algorithm
        self.published.append((key_id, key))

    def rotate(self, key_id: str) -> None:
        """Sign with a new key; the others are not valid any more."""
        self.published.clear()
        self.add_key(key_id, ECKey.generate_key("P-256"), "ES256")

    def key_set(self) -> bytes:
        keys = [{**key.as_dict(private=False), "kid": key_id, "use": "sig"} for key_id, key in self.published]
        return json.dumps({"keys": keys}).encode()

    def claims(self, user: str = "ann", lifetime_s: float = 600, **changes: Any) -> dict[str, Any]:
        """Return the claims of a token, without those that are None."""
        now = self._clock()
        claims = {"sub": user, "iss": ISSUER, "aud": AUDIENCE, "iat": int(now) - 60, "exp": now + lifetime_s, **changes}
        return {name: value for name, value in claims.items() if value is not None}

    def token(self, user: str = "ann", lifetime_s: float = 600, header: Any = None, **changes: Any) -> str:
        return self.sign(self.claims(user, lifetime_s, **changes), header)

    def sign(self, claims: Any, header: Any = None) -> str:
        protected = {"alg": self.algorithm, "kid": self.key_id, **(header or {})}
        payload = claims if isinstance(claims, bytes) else json.dumps(claims).encode()
        registry = jws.JWSRegistry(algorithms=[self.algorithm], strict_check_header=False)
        return jws.serialize_compact(
            {name: value for name, value in protected.items() if value is not None},
            payload,
            self.key,
            registry=registry,
        )


class Provider:
    """The state of the HTTP server: how it answers, and the requests it got."""

    def __init__(self, issuer: Issuer) -> None:
        self.issuer = issuer
        self.clients = {"node": "n0de-secret", "ann": "ann-secret"}
        self.lifetime_s = 600.0
        self.status = 200
        self.jwks_requests = 0
        self.token_requests: list[str] = []
        self.url = ""

    def answer(self, method: str, path: str, authorization: str, body: str) -> tuple[int, bytes]:
        if self.status != 200:
            return self.status, b"{}"
        if (method, path) == ("GET", "/jwks"):
            self.jwks_requests += 1
            return 200, self.issuer.key_set()
        if (method, path) == ("POST", "/token"):
            self.token_requests.append(body)
            user, _, password = b64decode(authorization.removeprefix("Basic ")).decode().partition(":")
            if self.clients.get(user) != password:
                return 401, b'{"error":"invalid_client"}'
            token = self.issuer.token(user, self.lifetime_s)
            return 200, json.dumps({"access_token": token, "expires_in": self.lifetime_s}).encode()
        return 404, b"{}"


@contextmanager
def provider(issuer: Issuer) -> Iterator[Provider]:
    """Serve the keys at /jwks, and tokens for client credentials at /token."""
    state = Provider(issuer)

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
            status, data = state.answer(self.command, self.path, self.headers.get("Authorization") or "", body)
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = _answer

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
