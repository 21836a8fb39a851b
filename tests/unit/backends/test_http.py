"""Webhooks against a real server that also does what no server should do."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme
from harness.web_server import Answer, Request, WebServer, response

from moldau.backends.catalog import KINDS
from moldau.backends.http import HttpBackend, HttpSettings
from moldau.backends.interface import Away, Refused, Retry, Row
from moldau.backends.options import Options
from moldau.backends.sending import retry_of

opened: list[HttpBackend] = []


@pytest.fixture(autouse=True)
def close_connections() -> Iterator[None]:
    yield
    while opened:
        opened.pop().close()


def backend(url: str, timeout_s: float = 20.0, **options: str) -> HttpBackend:
    one = HttpBackend(HttpSettings.read(url, Options(options), timeout_s, "application/json"))
    opened.append(one)
    return one


def send(one: HttpBackend, values: dict[str, Any] | None = None, headers: dict[str, str] | None = None) -> None:
    one.write([Row("key-1", {"body": '{"n":1}'} if values is None else values, headers)])


def outcome(answer: Answer, **settings: Any) -> Exception | None:
    """Return what one request to a server with this answer raises."""
    with WebServer(answer) as server:
        try:
            send(backend(f"{server.url}/hooks", **settings))
        except Exception as error:
            return error
    return None


def test_requests_have_body_headers_and_key_and_share_a_connection() -> None:
    with WebServer(lambda request: response(200, b"ok")) as server:
        options = {"authorization": "Bearer secret", "header.X-Shop": "1"}
        one = backend(f"{server.url}/hooks?a=b", **options)
        send(one)
        send(one, {"body": "ž", "path": "/orders/7"}, {"X-Kind": "placed", "Content-Type": "text/plain"})
        one.close()
    first, second = server.requests
    assert (first.method, first.target, first.body) == ("POST", "/hooks?a=b", b'{"n":1}')
    assert first.headers["host"] == f"127.0.0.1:{server.port}"
    assert first.headers["idempotency-key"] == "key-1"
    assert first.headers["authorization"] == "Bearer secret"
    assert first.headers["content-type"] == "application/json"
    assert (second.target, second.body) == ("/hooks/orders/7?a=b", "ž".encode())
    assert second.headers["x-kind"] == "placed"
    assert second.headers["content-type"] == "text/plain"
    assert first.connection == second.connection


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
def test_2xx_is_taken(status: int) -> None:
    assert outcome(lambda request: response(status)) is None


@pytest.mark.parametrize(
    ("status", "error"),
    [(400, Refused), (404, Refused), (410, Refused), (413, Refused), (422, Refused), (401, Retry), (403, Retry),
     (408, Retry), (500, Retry), (502, Retry), (302, Retry), (429, Away), (503, Away)],
)  # fmt: skip
def test_other_statuses_are_refused_or_tried_again(status: int, error: type[Exception]) -> None:
    raised = outcome(lambda request: response(status, b"<b>no\nway</b>\x07"))
    assert type(raised) is error
    assert str(raised).startswith(f"HTTP {status}")
    assert "\n" not in str(raised)


def test_statuses_may_be_made_temporary() -> None:
    with WebServer(lambda request: response(404)) as server, pytest.raises(Retry):
        send(backend(server.url, retry_statuses="404, 409"))


def test_retry_after_is_passed_on() -> None:
    raised = outcome(lambda request: response(429, Retry_After="7"))
    assert isinstance(raised, Away)
    assert raised.after_s == 7.0
    raised = outcome(lambda request: response(503, Retry_After="Sat, 31 Jan 2099 08:00:00 GMT"))
    assert isinstance(raised, Away)
    assert raised.after_s is not None
    assert raised.after_s > 1e6


def test_a_redirect_to_the_same_server_is_followed_with_its_body() -> None:
    def answer(request: Request) -> bytes:
        return response(200) if request.target == "/new" else response(308, Location="/new")

    with WebServer(answer) as server:
        send(backend(f"{server.url}/old"))
    assert [(each.method, each.target, each.body) for each in server.requests] == [
        ("POST", "/old", b'{"n":1}'),
        ("POST", "/new", b'{"n":1}'),
    ]


@pytest.mark.parametrize(
    "location", ["http://localhost:{port}/x", "https://127.0.0.1:{port}/x", "file:///etc/passwd", "//evil.example/", ""]
)
def test_a_redirect_to_another_server_is_not_followed(location: str) -> None:
    with (
        WebServer(lambda request: response(307, Location=location.format(port=1))) as server,
        pytest.raises(Retry, match="a redirect that is not followed"),
    ):
        send(backend(f"{server.url}/old", authorization="Bearer secret"))
    assert len(server.requests) == (1 if location else 5), "an empty location is the same address: the loop ends"


def test_a_redirect_loop_ends() -> None:
    with WebServer(lambda request: response(307, Location="/again")) as server, pytest.raises(Retry):
        send(backend(server.url))
    assert len(server.requests) == 5


def test_a_closed_connection_is_opened_again() -> None:
    with WebServer(lambda request: response(200)) as server:
        one = backend(server.url)
        send(one)
        server.close_connections()
        send(one)
    assert [request.connection for request in server.requests] == [1, 2]


@pytest.mark.parametrize(
    "part", [None, b"HTTP/1.1 200 OK\r\nConne", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf"]
)
def test_a_connection_that_ends_in_the_middle_is_tried_again(part: bytes | None) -> None:
    raised = outcome(lambda request: part and part.replace(b"OK", b"OK\r\nConnection: close"))
    assert isinstance(raised, ConnectionResetError)
    assert type(retry_of(raised)) is Retry


def test_no_answer_and_a_dribbled_answer_end_after_the_timeout() -> None:
    over = threading.Event()
    try:
        raised = outcome(lambda request: str(over.wait()).encode(), timeout_s=0.2)
        assert type(raised) is Retry
        assert str(raised) == "no answer in 0.2 s"
    finally:
        over.set()


def test_an_answer_that_comes_byte_by_byte_ends_after_the_timeout() -> None:
    def dribble() -> Iterator[bytes]:
        yield b"HTTP/1.1 200 OK\r\n"
        while True:
            time.sleep(0.02)
            yield b"x"

    raised = outcome(lambda request: dribble(), timeout_s=0.2)
    assert type(raised) is Retry
    assert str(raised) == "no answer in 0.2 s"


def test_an_endless_answer_is_read_up_to_a_limit() -> None:
    with WebServer(lambda request: b"HTTP/1.1 400 no\r\n\r\n" + b"x" * 1_000_000) as server, pytest.raises(Refused):
        send(backend(server.url))


def test_nobody_listens_and_an_unknown_host_are_away() -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    for url in (f"http://127.0.0.1:{port}", "http://no-such-host.invalid", "http://a..b/"):
        with pytest.raises((OSError, Retry)) as raised:
            send(backend(url))
        error = raised.value
        assert isinstance(retry_of(error) if isinstance(error, OSError) else error, Away)


def test_certificates_are_verified(tmp_path: Path) -> None:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    with WebServer(lambda request: response(200), tls=context) as server:
        one = backend(server.url, ca=str(tmp_path / "ca.pem"))
        send(one)
        send(one)
        one.close()
        assert len(server.requests) == 2
        assert server.requests[0].connection == server.requests[1].connection
        with pytest.raises(ssl.SSLCertVerificationError) as unknown:
            send(backend(server.url))
        assert type(retry_of(unknown.value)) is Away
        with pytest.raises(ssl.SSLCertVerificationError):
            send(backend(server.url.replace("127.0.0.1", "localhost"), ca=str(tmp_path / "ca.pem")))
    assert len(server.requests) == 2


@pytest.mark.parametrize(
    ("values", "headers"),
    [
        ({"body": "x"}, {"X-Name": "a\r\nX-Other: b"}),
        ({"body": "x", "path": "/a b"}, None),
        ({"body": "x", "path": "/a\r\nHost: evil"}, None),
        ({"body": "x", "path": "/../admin"}, None),
        ({"body": "x", "path": "%2e%2E/admin"}, None),
    ],
)
def test_a_row_that_would_change_the_request_is_refused(values: dict[str, Any], headers: dict[str, str] | None) -> None:
    with WebServer(lambda request: response(200)) as server:
        with pytest.raises(Refused):
            send(backend(f"{server.url}/hooks"), values, headers)
        with pytest.raises(Refused):
            backend(server.url).write([Row("a\r\nb", {"body": "x"})])
    assert server.requests == []


@pytest.mark.parametrize(
    ("url", "options", "problem"),
    [
        ("ftp://host/", {}, "http:// or https://"),
        ("file:///etc/passwd", {}, "http:// or https://"),
        ("http://", {}, "no host"),
        ("http://ann:secret@host/", {}, "not given in the URL"),
        ("http://host:99999/", {}, "not valid"),
        ("http://host/a b", {}, "space"),
        ("http://host/", {"method": "TRACE"}, "'method'"),
        ("http://host/", {"header.X": "a\r\nb"}, "line end"),
        ("http://host/", {"retry_statuses": "4xx"}, "'retry_statuses'"),
    ],
)
def test_settings_that_cannot_work_are_refused_without_their_secrets(
    url: str, options: dict[str, str], problem: str
) -> None:
    kind = KINDS["http"]
    with pytest.raises(ValueError, match=problem) as refusal:
        kind.prepare(url, Options(options), kind.defaults)
    assert "secret" not in str(refusal.value)
