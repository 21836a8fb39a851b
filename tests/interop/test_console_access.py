"""Who may do what in the console: logins, ACLs, tokens, hosts, read-only, and hostile requests."""

from __future__ import annotations

import http.client
import re
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from console_server import Page, console
from patience import PATIENCE_S, wait_until

from moldau.console import live
from moldau.console.endpoints import ENDPOINTS
from moldau.console.web import BODY_BYTES_MAX
from moldau.testing import TestBroker, broker

pytestmark = pytest.mark.moldau_only


@pytest.fixture(scope="module")
def secure() -> Iterator[TestBroker]:
    with broker(secure=True) as running:
        running.add_user("alice", "wonderland")
        running.allow("alice", "read,describe", topic="alices-", prefix=True)
        yield running


@pytest.fixture(scope="module", autouse=True)
def broker_answers() -> None:
    """These tests do not use the shared broker of this directory."""


@pytest.fixture(scope="module")
def operator(secure: TestBroker) -> Iterator[Page]:
    with console(secure.bootstrap_servers, secure.client_config()) as page:
        assert page.login("admin", secure.password("admin")).status == 200
        yield page


@pytest.fixture(scope="module")
def alice(operator: Page) -> Page:
    for name in ("alices-topic", "secret-topic"):
        assert operator.post("/api/topics", {"name": name}).status == 201
        assert operator.post(f"/api/topics/{name}/records", {"value": f"of {name}"}).status == 201
    page = Page(operator.port)
    assert page.login("alice", "wonderland").data["user"] == "alice"
    return page


def test_every_endpoint_requires_a_login(operator: Page) -> None:
    stranger = Page(operator.port)
    session = stranger.begin()
    assert (session["login_required"], session["user"]) == (True, None)
    paths = (
        "/api/overview", "/api/topics", "/api/topics/a", "/api/topics/a/records", "/api/groups", "/api/cluster",
        "/api/live/overview", "/api/live/records/a", "/api/topics/a/export", "/api/learn", "/api/pipelines",
    )  # fmt: skip
    for path in paths:
        answer = stranger.get(path)
        assert (answer.status, answer.code) == (401, "LOGIN_REQUIRED"), path
    assert stranger.post("/api/topics", {"name": "mine"}).code == "LOGIN_REQUIRED"


def test_a_wrong_password_is_refused_and_not_echoed(operator: Page) -> None:
    answer = Page(operator.port).login("alice", "looking-glass")
    assert (answer.status, answer.code) == (401, "LOGIN_FAILED")
    assert b"looking-glass" not in answer.body
    assert Page(operator.port).login("alice", "wonderland", mechanism="GSSAPI").status == 400


def test_a_login_starts_a_new_session(operator: Page, secure: TestBroker) -> None:
    page = Page(operator.port)
    page.begin()
    planted, old_token = page.cookie, page.token
    page.login("admin", secure.password("admin"))
    assert page.cookie != planted
    assert page.token != old_token
    cookie, page.cookie = page.cookie, planted
    assert page.get("/api/overview").status == 401
    page.cookie = cookie
    assert page.get("/api/overview").status == 200
    assert page.post("/api/logout").status == 200
    page.cookie = cookie
    assert page.get("/api/overview").code == "LOGIN_REQUIRED"


def test_a_user_who_logs_in_again_still_sees_new_topics(secure: TestBroker, operator: Page) -> None:
    with console(secure.bootstrap_servers, secure.client_config()) as page:
        for _ in range(2):
            assert page.login("admin", secure.password("admin")).status == 200
        assert page.cookie.startswith(f"moldau_console_{page.port}=")
        operator.post("/api/topics", {"name": "made-elsewhere"})
        page.await_rows("/api/topics", "name", "made-elsewhere")


def test_a_logout_ends_the_streams_of_the_session(operator: Page, secure: TestBroker) -> None:
    page = Page(operator.port)
    page.login("admin", secure.password("admin"))
    with page.stream("/api/live/overview") as events:
        next(events)
        page.post("/api/logout")
        list(events)  # it ends
    assert operator.get("/api/overview").status == 200, "other sessions of the same user continue"


def test_the_cookie_is_httponly_and_samesite_strict(operator: Page) -> None:
    cookie = Page(operator.port).get("/api/session").headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie


def test_a_user_sees_and_does_what_the_acls_allow(operator: Page, alice: Page) -> None:
    operator.await_rows("/api/topics", "name", "alices-topic", "secret-topic")
    assert list(alice.await_rows("/api/topics", "name", "alices-topic")) == ["alices-topic"]
    records = alice.get("/api/topics/alices-topic/records").data["records"]
    assert [record["value"]["text"] for record in records] == ["of alices-topic"]
    assert alice.get("/api/topics/secret-topic").status == 404
    hidden = alice.get("/api/topics/secret-topic/records")
    assert (hidden.status, hidden.code) == (403, "NOT_ALLOWED")
    assert alice.get("/api/topics/secret-topic/export").code == "NOT_ALLOWED"
    written = alice.post("/api/topics/alices-topic/records", {"value": "x"})
    assert (written.status, written.code) == (403, "NOT_ALLOWED")
    assert "ask for an ACL on the topic" in written.message
    assert alice.post("/api/topics", {"name": "more"}).code == "NOT_ALLOWED"
    assert alice.delete("/api/topics/alices-topic", {"confirm": "alices-topic"}).code == "NOT_ALLOWED"
    assert alice.post("/api/learn/topic", {}).code == "NOT_ALLOWED"
    row = alice.await_rows("/api/topics", "name", "alices-topic")["alices-topic"]
    assert row["size_bytes"] is None, "sizes need a right on the cluster"
    with alice.stream("/api/live/records/secret-topic") as events:
        kind, problem = next(events)
    assert (kind, problem["error"]["code"]) == ("problem", "NOT_ALLOWED")


def test_every_change_requires_the_console_token(operator: Page) -> None:
    with_cookie = Page(operator.port)
    with_cookie.cookie = operator.cookie
    for token in ("", "0" * 64, operator.token[:-1]):
        with_cookie.token = token
        answer = with_cookie.post("/api/topics", {"name": "forged"})
        assert (answer.status, answer.code) == (403, "BAD_TOKEN")
    assert operator.post("/api/topics", {"name": "forged"}, Origin="http://evil.example.com").code == "BAD_TOKEN"
    assert operator.post("/api/topics", {"name": "forged"}, Sec_Fetch_Site="cross-site").code == "BAD_TOKEN"
    assert operator.get("/api/overview", Sec_Fetch_Site="cross-site").code == "BAD_TOKEN"
    form = operator.post("/api/topics", b"name=forged", Content_Type="application/x-www-form-urlencoded")
    assert form.message == "the body must be application/json"


@pytest.mark.parametrize("host", ["evil.example.com", "localhost.evil.com:8080", "127.0.0.1.evil.com", "a" * 5000])
def test_requests_for_another_host_are_refused(operator: Page, host: str) -> None:
    for path in ("/api/session", "/", "/topics"):
        answer = operator.get(path, Host=host)
        assert (answer.status, answer.code) == (421, "BAD_HOST")


def test_every_answer_has_the_security_headers(operator: Page) -> None:
    for path in ("/api/overview", "/api/nonsense", "/topics/a", "/nothing.js"):
        headers = operator.get(path).headers
        policy = headers["content-security-policy"]
        assert "frame-ancestors 'none'" in policy
        assert "script-src 'self';" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert "server" not in headers
    assert operator.get("/api/overview").headers["cache-control"] == "no-store"


@pytest.mark.parametrize(
    "path",
    [
        "/../../etc/passwd",
        "/..%2f..%2fetc%2fpasswd",
        "/static/../../console.py",
        "/%2e%2e/console.py",
        "//etc/passwd",
        "/../console.py",
        "/%00",
    ],
)
def test_no_path_leads_out_of_the_static_files(operator: Page, path: str) -> None:
    answer = operator.get(path)
    assert b"root:" not in answer.body
    assert b"import" not in answer.body[:200]
    assert answer.status in (200, 400, 404)


def test_a_huge_body_is_refused(operator: Page) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", operator.port, timeout=PATIENCE_S)
    connection.putrequest("POST", "/api/topics")
    headers = {"Cookie": operator.cookie, "X-Console-Token": operator.token, "Content-Length": str(10 << 30)}
    for name, value in headers.items():
        connection.putheader(name, value)
    connection.endheaders()
    assert connection.getresponse().status == 413
    connection.close()
    chunked = socket.create_connection(("127.0.0.1", operator.port), timeout=PATIENCE_S)
    head = (
        f"POST /api/topics HTTP/1.1\r\nHost: localhost\r\nCookie: {operator.cookie}\r\n"
        f"X-Console-Token: {operator.token}\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    chunked.sendall(head.encode())
    sent = 0
    try:
        while sent < 20 * BODY_BYTES_MAX:
            chunked.sendall(b"10000\r\n" + b"x" * 65536 + b"\r\n")
            sent += 65536
        answered = chunked.recv(100)
    except OSError:
        answered = b"closed"
    chunked.close()
    assert b"413" in answered or answered == b"closed"
    assert operator.get("/api/overview").status == 200


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"{", "the body is not JSON"),
        (b"[" * 100_000, "the body is not JSON"),
        (b"[]", "the body must be a JSON object"),
        (b'{"name": 5}', "name: expected a text"),
        (b'{"name": "a", "partitions": true}', "partitions: expected a whole number"),
        (b'{"name": "a", "partitions": 1e9}', "partitions: expected a whole number"),
        (b'{"name": "a", "unknown": 1}', "unknown field 'unknown'; known are "),
        (b"{}", "name is missing"),
    ],
)
def test_invalid_bodies_are_refused_with_a_message(operator: Page, body: bytes, message: str) -> None:
    answer = operator.post("/api/topics", body)
    assert answer.status == 400
    assert answer.message.startswith(message)


@pytest.mark.parametrize(
    "path",
    [
        "/api/topics?sort=nothing",
        "/api/topics?pagee=1",
        "/api/topics?size=100000",
        "/api/topics/alices-topic/records?limit=100000",
        "/api/topics/alices-topic/records?cursor=0:x",
        "/api/topics/alices-topic/records?where=" + "a" * 600,
        "/api/topics/alices-topic/records?committed=perhaps",
        "/api/topics/" + "a" * 1001,
        "/api/topics/a%00b",
        "/api/brokers/-1",
        "/api/brokers/99999999999999999999",
    ],
)
def test_invalid_parameters_are_refused_with_a_message(operator: Page, alice: Page, path: str) -> None:
    answer = operator.get(path)
    assert answer.status == 400
    assert answer.message


def test_a_long_query_is_refused(operator: Page) -> None:
    assert operator.get("/api/topics?filter=" + "a" * 25_000).status == 414


def test_live_streams_are_bounded_and_freed(operator: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "STREAMS_MAX", 5)
    with ExitStack() as opened:
        for _ in range(5):
            next(opened.enter_context(operator.stream("/api/live/overview")))
        refused = operator.get("/api/live/overview")
        assert (refused.status, refused.code) == (429, "TOO_MANY")
        assert operator.get("/api/overview").status == 200, "other requests are answered"

    def is_free() -> bool:
        try:
            with operator.stream("/api/live/overview") as events:
                next(events)
        except AssertionError:
            return False
        return True

    wait_until(is_free, "closed streams make room", every_s=0.1)


def test_many_silent_connections_do_not_stop_the_console(operator: Page) -> None:
    silent = [socket.create_connection(("127.0.0.1", operator.port), timeout=PATIENCE_S) for _ in range(200)]
    try:
        for each in silent:
            each.sendall(b"GET /api/overview HTTP/1.1\r\nHost: loc")
        assert operator.get("/api/overview").status == 200
    finally:
        for each in silent:
            each.close()


CHANGES: list[tuple[str, str, Any]] = [
    ("POST", "/api/topics", {"name": "x"}),
    ("PATCH", "/api/topics/alices-topic", {"partitions": 5}),
    ("DELETE", "/api/topics/alices-topic", {"confirm": "alices-topic"}),
    ("POST", "/api/topics/alices-topic/trim", {"before": "end", "confirm": "alices-topic"}),
    ("POST", "/api/topics/alices-topic/records", {"value": "x"}),
    ("POST", "/api/topics/alices-topic/replay", {"to": "x"}),
    ("POST", "/api/groups/g/reset", {"to": "earliest"}),
    ("DELETE", "/api/groups/g", {"confirm": "g"}),
    ("POST", "/api/groups/g/offsets/delete", {"topic": "x", "confirm": "g"}),
    ("POST", "/api/cluster/elect", {}),
    ("POST", "/api/cluster/reassign", {}),
    ("POST", "/api/cluster/reassign/cancel", {}),
    ("POST", "/api/transactions/abort", {}),
    ("POST", "/api/learn/topic", {}),
    ("DELETE", "/api/learn/topic", None),
    ("POST", "/api/learn/produce", {}),
    ("POST", "/api/learn/consumers", {"count": 1}),
    ("POST", "/api/learn/compact", None),
]
"""A request to every endpoint that changes something."""


def test_read_only_refuses_every_change_and_nothing_else(secure: TestBroker, operator: Page, alice: Page) -> None:
    with console(secure.bootstrap_servers, secure.client_config(), read_only=True) as page:
        assert page.login("admin", secure.password("admin")).data["read_only"] is True
        for method, path, body in CHANGES:
            answer = page.request(method, path, body, {})
            assert (answer.status, answer.code) == (403, "READ_ONLY"), path
        assert page.post("/api/where", {"where": "key == 1"}).status == 200
        assert page.get("/api/topics/alices-topic/records").status == 200


def test_every_changing_endpoint_is_in_the_list_of_changes() -> None:
    changing = {(each.method, each.path) for each in ENDPOINTS if each.method != "GET" and each.changes}
    listed = {
        (method, template)
        for method, path, _ in CHANGES
        for method_of, template in changing
        if method_of == method and re.fullmatch(re.sub(r"{\w+}", "[^/]+", template), path)
    }
    assert listed == changing
    assert len(CHANGES) == len(changing)


def test_a_stop_does_not_wait_for_open_pages(secure: TestBroker) -> None:
    with ExitStack() as opened:
        with console(secure.bootstrap_servers, secure.client_config(), asks_login=False) as page:
            events = opened.enter_context(page.stream("/api/live/overview"))
            next(events)
        list(events)  # it has ended


def test_without_login_the_console_acts_as_the_user_of_its_config(secure: TestBroker) -> None:
    with console(secure.bootstrap_servers, secure.client_config("alice"), asks_login=False) as page:
        assert page.begin()["login_required"] is False
        assert page.get("/api/topics/secret-topic/records").code in ("NOT_ALLOWED", "UNKNOWN_TOPIC_OR_PARTITION")
