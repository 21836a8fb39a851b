"""A console in a thread of this process, and a small HTTP client that behaves like its pages."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

from harness.patience import PATIENCE_S, wait_until

from moldau.console.options import ConsoleOptions
from moldau.console.server import make_server
from moldau.web.server import bind


class Answer:
    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status, self.headers, self.body = status, headers, body

    @property
    def data(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        return str(self.data["error"]["code"])

    @property
    def message(self) -> str:
        return str(self.data["error"]["message"])


class Page:
    """A browser with one cookie and the token of its session."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.cookie = ""
        self.token = ""

    def begin(self) -> dict[str, Any]:
        data: dict[str, Any] = self.get("/api/session").data
        self.token = data["token"]
        return data

    def login(self, user: str, password: str, **more: str) -> Answer:
        self.begin()
        answer = self.post("/api/login", {"user": user, "password": password, **more})
        if answer.status == 200:
            self.token = answer.data["token"]
        return answer

    def get(self, path: str, **headers: str) -> Answer:
        return self.request("GET", path, None, headers)

    def post(self, path: str, body: Any = None, **headers: str) -> Answer:
        return self.request("POST", path, body, headers)

    def patch(self, path: str, body: Any) -> Answer:
        return self.request("PATCH", path, body, {})

    def delete(self, path: str, body: Any = None) -> Answer:
        return self.request("DELETE", path, body, {})

    def request(self, method: str, path: str, body: Any, headers: dict[str, str]) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        sent = {"Cookie": self.cookie} if self.cookie else {}
        data = None
        if body is not None:
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            sent["Content-Type"] = "application/json"
        if method != "GET":
            sent["X-Console-Token"] = self.token
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        try:
            connection.request(method, path, data, {name: value for name, value in sent.items() if value})
            response = connection.getresponse()
            answer = Answer(
                response.status, {key.lower(): value for key, value in response.getheaders()}, response.read()
            )
        finally:
            connection.close()
        if "set-cookie" in answer.headers:
            self.cookie = answer.headers["set-cookie"].partition(";")[0]
        return answer

    @contextmanager
    def stream(self, path: str) -> Iterator[Iterator[tuple[str, Any]]]:
        """Yield the events of a live stream."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        connection.request("GET", path, headers={"Cookie": self.cookie} if self.cookie else {})
        response = connection.getresponse()
        assert response.status == 200, response.read()
        assert response.headers["content-type"].startswith("text/event-stream")

        def events() -> Iterator[tuple[str, Any]]:
            name = ""
            while line := response.readline():
                text = line.decode().rstrip("\n")
                if text.startswith("event: "):
                    name = text[7:]
                elif text.startswith("data: "):
                    yield name, json.loads(text[6:])

        try:
            yield events()
        finally:
            connection.close()

    def await_rows(self, path: str, name: str, *wanted: str) -> dict[str, dict[str, Any]]:
        """Wait until a list has rows with these names; return all rows by name."""

        def rows() -> dict[str, dict[str, Any]] | None:
            found = {row[name]: row for row in self.get(path).data["rows"]}
            return found if found.keys() >= set(wanted) else None

        result = wait_until(rows, f"{path} has {wanted}", every_s=0.1)
        assert result is not None
        return result


@contextmanager
def console(bootstrap: str, properties: dict[str, str] | None = None, **options: Any) -> Iterator[Page]:
    """Run a console; yield a page that has begun its session."""
    listener = bind("127.0.0.1", 0)
    port = listener.getsockname()[1]
    started = threading.Event()
    server = make_server(ConsoleOptions(bootstrap, properties or {}, "127.0.0.1", port, **options), started.set)
    server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, name="console")
    thread.start()
    try:
        assert started.wait(PATIENCE_S)
        page = Page(port)
        page.begin()
        yield page
    finally:
        server.stop()
        thread.join(PATIENCE_S)
        listener.close()
        assert not thread.is_alive()


def name_in_path(name: str) -> str:
    return quote(name, safe="")


def faults(overview: Any) -> list[str]:
    """Return the titles of warnings and errors, but not of a full disk: the machine of the test may have one; nor of
    groups that are behind: records of the tests have old timestamps."""
    problems = [each["title"] for each in overview["problems"] if each["severity"] != "info"]
    return [title for title in problems if "% of the disk of" not in title and "behind" not in title]
