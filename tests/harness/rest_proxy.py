"""A client of the REST proxy's calls, on one connection that is kept open."""

from __future__ import annotations

import base64
import http.client
import json
from typing import Any, NamedTuple, Self

from harness.patience import PATIENCE_S

V2 = "application/vnd.kafka.v2+json"
V2_JSON = "application/vnd.kafka.json.v2+json"
V2_BINARY = "application/vnd.kafka.binary.v2+json"
JSON = "application/json"


class Answered(NamedTuple):
    status: int
    json: Any
    headers: dict[str, str]


class RestClient:
    def __init__(self, port: int, user: str | None = None, password: str = "", token: str | None = None) -> None:
        self._connection = http.client.HTTPConnection("localhost", port, timeout=PATIENCE_S)
        self._headers = {}
        if user is not None:
            login = base64.b64encode(f"{user}:{password}".encode()).decode()
            self._headers["Authorization"] = f"Basic {login}"
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def ask(
        self, method: str, path: str, body: Any = None, content_type: str = V2, accept: str | None = None
    ) -> Answered:
        """`body` is sent as JSON, unless it is bytes."""
        headers = dict(self._headers)
        if body is not None:
            headers["Content-Type"] = content_type
        if accept is not None:
            headers["Accept"] = accept
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        self._connection.request(method, path, data, headers)
        response = self._connection.getresponse()
        text = response.read()
        named = {name.lower(): value for name, value in response.getheaders()}
        return Answered(response.status, json.loads(text) if text else None, named)

    def get(self, path: str, accept: str | None = None, body: Any = None) -> Answered:
        return self.ask("GET", path, body, accept=accept)

    def post(self, path: str, body: Any = None, content_type: str = V2) -> Answered:
        return self.ask("POST", path, body, content_type)

    def delete(self, path: str) -> Answered:
        return self.ask("DELETE", path)
