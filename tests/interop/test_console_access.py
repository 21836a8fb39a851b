"""Who may do what in the console: logins, ACLs, tokens, hosts, read-only, and hostile requests."""

from __future__ import annotations

import http.client
import re
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any
from urllib.parse import urlencode

import pytest
from confluent_kafka.admin import AdminClient
from console_server import Page, console, name_in_path
from harness.patience import PATIENCE_S, wait_until
from share_members import FROM_THE_START, ShareMember, configure

from moldau.console import live
from moldau.console.console import BODY_BYTES_MAX
from moldau.console.endpoints import ENDPOINTS
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


def test_a_user_without_the_right_sees_a_share_group_without_its_states(secure: TestBroker, operator: Page) -> None:
    assert operator.post("/api/topics", {"name": "walters-topic"}).status == 201
    assert operator.post("/api/topics/walters-topic/records", {"value": "job"}).status == 201
    config = secure.client_config()
    configure(AdminClient(config), "walters-queue", FROM_THE_START)
    with ShareMember(secure.bootstrap_servers, "walters-queue", ["walters-topic"], **config) as member:
        member.take(1)
    secure.add_user("walter", "queues-1")
    secure.allow("walter", "read,describe", topic="walters-", group="walters-", prefix=True)
    walter = Page(operator.port)
    assert walter.login("walter", "queues-1").status == 200
    seen, all_seen = (page.get("/api/groups/walters-queue").data for page in (walter, operator))
    assert (seen["lag"], all_seen["lag"]) == (0, 0)
    assert (seen["partitions"][0]["acknowledged"], all_seen["partitions"][0]["acknowledged"]) == (None, 1)
    assert all_seen["states_error"] is None
    assert seen["states_error"].startswith("the share coordinator: ")
    assert seen["dead_letters"]["error"].startswith("group walters-queue: ")


def test_every_endpoint_requires_a_login(operator: Page) -> None:
    stranger = Page(operator.port)
    session = stranger.begin()
    assert (session["login_required"], session["user"]) == (True, None)
    paths = (
        "/api/overview", "/api/topics", "/api/topics/a", "/api/topics/a/records", "/api/groups", "/api/cluster",
        "/api/live/overview", "/api/live/records/a", "/api/topics/a/export", "/api/learn", "/api/pipelines",
        "/api/access", "/api/acls", "/api/users", "/api/quotas",
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
        "/api/topics/alices-topic/records?where=" + "(" * 60,
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


def test_live_streams_are_bounded_and_freed(secure: TestBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "STREAMS_MAX", 5)
    with console(secure.bootstrap_servers, secure.client_config()) as page:
        page.login("admin", secure.password("admin"))
        with ExitStack() as opened:
            for _ in range(5):
                next(opened.enter_context(page.stream("/api/live/overview")))
            refused = page.get("/api/live/overview")
            assert (refused.status, refused.code) == (429, "TOO_MANY")
            assert refused.message == "5 live pages are open, which is the most; close one"
            assert page.get("/api/overview").status == 200, "other requests are answered"

        def is_free() -> bool:
            try:
                with page.stream("/api/live/overview") as events:
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
    ("POST", "/api/groups/g/dead-letters/send", {"topic": "x", "records": [[0, 0]]}),
    ("POST", "/api/cluster/elect", {}),
    ("POST", "/api/cluster/reassign", {}),
    ("POST", "/api/cluster/reassign/cancel", {}),
    ("POST", "/api/transactions/abort", {}),
    ("POST", "/api/acls", {}),
    ("POST", "/api/acls/remove", {}),
    ("POST", "/api/users", {}),
    ("PATCH", "/api/users/alice", {}),
    ("DELETE", "/api/users/alice", None),
    ("POST", "/api/quotas", {}),
    ("POST", "/api/learn/topic", {}),
    ("DELETE", "/api/learn/topic", None),
    ("POST", "/api/learn/produce", {}),
    ("POST", "/api/learn/consumers", {"count": 1}),
    ("POST", "/api/learn/workers", {"count": 1}),
    ("POST", "/api/learn/fail", {"says": "release"}),
    ("POST", "/api/learn/compact", None),
]
"""A request to every endpoint that changes something."""


def test_read_only_refuses_every_change_and_nothing_else(secure: TestBroker, operator: Page, alice: Page) -> None:
    with console(secure.bootstrap_servers, secure.client_config(), read_only=True) as page:
        assert page.login("admin", secure.password("admin")).data["read_only"] is True
        assert page.get("/api/access").data["may"] == {"acls": False, "users": False, "quotas": False}
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


# --- the page of users, ACLs and quotas -----------------------------------------------------------------------------


def rows_of(page: Page, path: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = page.get(path).data["rows"]
    return rows


def may(page: Page, **asked: str) -> dict[str, Any]:
    answer = page.get(f"/api/access/test?{urlencode(asked)}")
    assert answer.status == 200, answer.body
    data: dict[str, Any] = answer.data
    return data


def test_an_acl_is_planned_added_tested_and_removed(operator: Page) -> None:
    resources = [{"type": "topic", "name": "bills"}, {"type": "group", "name": "<b>billing</b>"}]
    wanted = {"permission": "allow", "principal": "bob", "roles": ["consumer"], "resources": resources, "host": "::1"}
    asked = {"principal": "bob", "operation": "read", "type": "topic", "name": "bills", "host": "::1"}
    plan = operator.post("/api/acls", wanted).data
    assert [(each["operation"], each["effect"]) for each in plan["changes"]] == [
        ("read", "User:bob gains read, describe from 0:0:0:0:0:0:0:1"),
        ("describe", "User:bob gains describe from 0:0:0:0:0:0:0:1"),
        ("read", "User:bob gains read, describe from 0:0:0:0:0:0:0:1"),
    ]
    assert plan["notes"] == ["bob is not one of the users with a password; the page Access adds one"]
    assert rows_of(operator, "/api/acls?principal=bob") == [], "a plan changes nothing"
    assert may(operator, **asked)["answer"] == "User:bob may not read topic bills: no ACL covers the resource"
    assert operator.post("/api/acls", {**wanted, "execute": True}).data["executed"] is True
    rows = rows_of(operator, "/api/acls?principal=bob&sort=-name")
    assert [(row["name"], row["host"]) for row in rows][-1] == ("<b>billing</b>", "0:0:0:0:0:0:0:1")
    answer = may(operator, **asked)
    assert (answer["allowed"], answer["rule"]["operation"], answer["host"]) == (True, "read", "0:0:0:0:0:0:0:1")
    assert may(operator, **asked | {"host": ""})["allowed"] is False, "from everywhere"
    again = operator.post("/api/acls", {**wanted, "execute": True}).data
    assert {each["effect"] for each in again["changes"]} == {"is there already"}
    removal = operator.post("/api/acls/remove", {"acls": rows}).data
    assert {each["effect"].partition(" from")[0] for each in removal["changes"]} == {
        "User:bob loses read, describe",
        "User:bob loses describe",
    }
    assert len(rows_of(operator, "/api/acls?principal=bob")) == 3
    assert operator.post("/api/acls/remove", {"acls": rows, "execute": True}).status == 200
    assert rows_of(operator, "/api/acls?principal=bob") == []
    assert operator.post("/api/acls/remove", {"acls": rows}).data["notes"] == ["3 of these ACLs are gone already"]


def test_a_user_is_added_gets_a_password_and_is_removed_without_its_being_shown(
    operator: Page, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    bodies = []
    plan = operator.post("/api/users", {"name": "carol/<i>"})
    assert plan.data["notes"][0].startswith("carol/<i> may do nothing yet")
    for name, secret in (("carol/<i>", "planted-1"), ("alice", "x" * 501)):
        bodies.append(operator.post("/api/users", {"name": name, "password": secret, "execute": True}))
    assert [each.status for each in bodies] == [200, 400]
    assert Page(operator.port).login("carol/<i>", "planted-1").status == 200
    path = f"/api/users/{name_in_path('carol/<i>')}"
    assert operator.post("/api/users", {"name": "carol/<i>"}).code == "CONFLICT"
    bodies.append(operator.patch(path, {"password": "planted-2", "execute": True}))
    assert Page(operator.port).login("carol/<i>", "planted-1").code == "LOGIN_FAILED"
    users = {row["principal"]: row for row in rows_of(operator, "/api/users")}
    assert users["User:carol/<i>"]["mechanisms"] == ["SCRAM-SHA-256", "SCRAM-SHA-512"]
    assert (users["User:alice"]["kind"], users["User:alice"]["acls"]) == ("password", 2)
    assert "Connections that are open stay open." in operator.delete(path, {}).data["notes"]
    bodies.append(operator.delete(path, {"execute": True}))
    assert operator.delete(path, {"execute": True}).status == 404
    assert "User:carol/<i>" not in {row["principal"] for row in rows_of(operator, "/api/users")}
    assert not any(b"planted-" in each.body for each in bodies)
    assert "planted-" not in caplog.text


def test_a_quota_is_planned_set_and_removed(operator: Page) -> None:
    entity = {"user": "bob", "client_id": None}
    change = {"entity": entity, "set": {"producer_byte_rate": 1000}}
    plan = operator.post("/api/quotas", change).data
    assert plan["changes"] == [{"quota": "producer_byte_rate", "before": None, "after": 1000.0}]
    assert rows_of(operator, "/api/quotas") == []
    operator.post("/api/quotas", {**change, "execute": True})
    (row,) = rows_of(operator, "/api/quotas?filter=BOB")
    assert (row["entity"], row["title"]) == (entity, "user bob, every client id without its own")
    assert (row["producer_byte_rate"], row["consumer_byte_rate"]) == (1000.0, None)
    refused = operator.post("/api/quotas", {"entity": entity, "set": {"producer_byte_rate": 0.5}, "execute": True})
    assert (refused.status, refused.code) == (400, "INVALID_REQUEST")
    removal = {"entity": entity, "unset": ["producer_byte_rate", "request_percentage"], "execute": True}
    assert operator.post("/api/quotas", removal).data["changes"][0]["before"] == 1000.0
    assert rows_of(operator, "/api/quotas") == []
    assert operator.post("/api/quotas", removal).data["changes"] == []


def test_who_may_not_is_offered_nothing_and_told_the_missing_right(operator: Page, alice: Page) -> None:
    mine = alice.get("/api/access").data
    assert set(mine["may"].values()) == set(mine["sees"].values()) == {False}
    everything = operator.get("/api/access").data
    assert set(everything["may"].values()) == set(everything["sees"].values()) == {True}
    assert "User:admin" in everything["super_users"]
    allow = {"permission": "allow", "principal": "alice", "operations": ["all"], "resources": [{"type": "cluster"}]}
    quota = {"entity": {"user": "alice"}, "unset": ["producer_byte_rate"], "execute": True}
    for answer, right in (
        (alice.get("/api/acls"), "see ACLs: that needs DESCRIBE"),
        (alice.get("/api/users"), "see ACLs: that needs DESCRIBE"),
        (alice.get("/api/quotas"), "see quotas: that needs DESCRIBE_CONFIGS"),
        (alice.post("/api/acls", {**allow, "execute": True}), "change ACLs: that needs ALTER"),
        (alice.post("/api/acls", allow), "change ACLs: that needs ALTER"),
        (alice.post("/api/users", {"name": "eve", "password": "x", "execute": True}), "add users: that needs ALTER"),
        (alice.delete("/api/users/admin", {"execute": True}), "remove users: that needs ALTER"),
        (alice.post("/api/quotas", quota), "change quotas: that needs ALTER_CONFIGS"),
    ):
        assert (answer.status, answer.code) == (403, "NOT_ALLOWED")
        assert answer.message == f"you may not {right} on the cluster; ask for an ACL"


def test_thousands_of_acls_are_shown_by_the_page(operator: Page) -> None:
    names = [f"load-{number}" for number in range(1000)]
    body = {"permission": "deny", "principal": "load", "operations": ["read"], "execute": True}
    body["resources"] = [{"type": "group", "name": name} for name in names]
    assert operator.post("/api/acls", body).status == 200
    page = operator.get("/api/acls?principal=load&size=500&page=2").data
    assert (page["matching"], page["pages"], len(page["rows"])) == (1000, 2, 500)
    rows = page["rows"] + rows_of(operator, "/api/acls?principal=load&size=500")
    removed = operator.post("/api/acls/remove", {"acls": rows, "execute": True}).data
    assert len(removed["changes"]) == 1000
    assert operator.get("/api/acls?principal=load").data["matching"] == 0


def test_a_cluster_without_an_authorizer_says_that_everybody_may_do_everything() -> None:
    with broker() as running, console(running.bootstrap_servers) as page:
        answer = page.get("/api/access").data
        assert (answer["authorizer"], answer["may"]["acls"], answer["may"]["users"]) == (False, False, True)
        assert answer["note"].startswith("Everybody who can connect may do everything: the brokers have no authorizer.")
        assert page.get("/api/acls").message == answer["note"]
        assert rows_of(page, "/api/users") == []
        assert page.post("/api/users", {"name": "ann"}).data["notes"][0].startswith("ann may do everything")


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
