"""Records out over HTTP, on real sockets before a cluster in memory: event streams, web sockets, pages of records."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from harness.gateway_accounts import MemoryAccounts, MemoryCluster
from harness.gateway_http import RunningGateway, http_gateway
from harness.patience import PATIENCE_S, wait_until
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from moldau.base.errors import ErrorCode
from moldau.gateway.http.limits import HttpLimits
from moldau.gateway.http.server import HttpOptions
from moldau.gateway.ports import NewRecord

APP = "https://app.example.com"
WRONG = ["", b"\x00", "{", "[]", '{"commit": 7}', '{"commit": "x"}', '{"commit": "0:1"}', "[" * 60_000]
EVENTS = {"Accept": "text/event-stream"}


@pytest.fixture
def cluster() -> MemoryCluster:
    return MemoryCluster(telemetry=2)


@pytest.fixture
def gateway(cluster: MemoryCluster) -> Iterator[RunningGateway]:
    options, limits = HttpOptions(origins=frozenset({APP})), HttpLimits(slow_seconds=0.2, streams=3)
    with http_gateway(lambda: MemoryAccounts(cluster, "nobody"), options, limits) as running:
        yield running


def add(gateway: RunningGateway, cluster: MemoryCluster, *values: bytes, partition: int = 0) -> None:
    def append() -> None:
        for value in values:
            cluster.topics["telemetry"].append(NewRecord(value, partition=partition), 1_700)
        cluster.topics["telemetry"].wake()

    gateway.call(append)


def ask(gateway: RunningGateway, path: str, method: str = "GET", body: Any = None, **headers: str) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("localhost", gateway.port, timeout=PATIENCE_S)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    data = None if body is None else json.dumps(body)
    if body is not None:
        named["Content-Type"] = "application/json"
    connection.request(method, path, data, named)
    response = connection.getresponse()
    answer = json.loads(response.read() or b"null")
    connection.close()
    return response.status, answer


class EventSource:
    """Reads events as a browser does, and remembers the last id."""

    def __init__(self, gateway: RunningGateway, path: str, **headers: str) -> None:
        self._connection = http.client.HTTPConnection("localhost", gateway.port, timeout=PATIENCE_S)
        self._connection.request("GET", path, headers={**EVENTS, **headers})
        self.response = self._connection.getresponse()
        self.last_id = ""

    def next(self) -> Any:
        """Return the content of the next event."""
        name, data = "message", ""
        while True:
            line = self.response.readline().decode().rstrip("\n")
            field, _, value = line.partition(": ")
            if field == "id":
                self.last_id = value
            elif field == "event":
                name = value
            elif field == "data":
                data += value
            elif not line and data:
                return json.loads(data) if name == "message" else (name, json.loads(data))

    def close(self) -> None:
        self.response.close()
        self._connection.close()


@contextmanager
def events(gateway: RunningGateway, path: str, **headers: str) -> Iterator[EventSource]:
    source = EventSource(gateway, path, **headers)
    assert source.response.status == 200
    try:
        yield source
    finally:
        source.close()


def web_socket(gateway: RunningGateway, path: str, **settings: Any) -> ClientConnection:
    return connect(f"ws://localhost:{gateway.port}{path}", open_timeout=PATIENCE_S, **settings)


# --- pages ----------------------------------------------------------------------------------------------------------


def test_pages_follow_each_other(gateway: RunningGateway, cluster: MemoryCluster) -> None:
    add(gateway, cluster, b"1", b"2", b"3")
    status, page = ask(gateway, "/topics/telemetry/records?max=2")
    assert status == 200
    assert [record["value"] for record in page["records"]] == [1, 2]
    assert page["position"] == "0:2,1:0"
    _, page = ask(gateway, f"/topics/telemetry/records?from={page['position']}")
    assert [record["value"] for record in page["records"]] == [3]
    _, page = ask(gateway, f"/topics/telemetry/records?wait=0&from={page['position']}")
    assert page == {"records": [], "position": "0:3,1:0"}
    assert cluster.followings == 0


def test_a_page_without_waiting_has_what_is_there(gateway: RunningGateway, cluster: MemoryCluster) -> None:
    add(gateway, cluster, b"1", b"2")
    status, page = ask(gateway, "/topics/telemetry/records?wait=0")
    assert (status, [record["value"] for record in page["records"]]) == (200, [1, 2])
    assert ask(gateway, f"/topics/telemetry/records?wait=0&from={page['position']}") == (200, {**page, "records": []})


def test_the_head_of_a_stream_has_an_end(gateway: RunningGateway) -> None:
    connection = http.client.HTTPConnection("localhost", gateway.port, timeout=PATIENCE_S)
    for method in ("HEAD", "HEAD", "GET"):
        connection.request(method, "/topics/telemetry/records", headers=EVENTS)
        response = connection.getresponse()
        assert (response.status, response.getheader("content-type")) == (200, "text/event-stream; charset=utf-8")
        if method == "HEAD":
            assert response.read() == b""
    connection.close()


@pytest.mark.parametrize(
    ("query", "status"),
    [("max=5001", 400), ("wait=31", 400), ("max=x", 400), ("from=soon", 400), ("partition=2", 404), ("until=1", 400)],
)
def test_a_page_that_cannot_be_is_refused(query: str, status: int, gateway: RunningGateway) -> None:
    assert ask(gateway, f"/topics/telemetry/records?{query}")[0] == status


def test_a_topic_that_is_not_there_or_may_not_be_read(gateway: RunningGateway, cluster: MemoryCluster) -> None:
    assert ask(gateway, "/topics/nothing/records")[0] == 404
    gateway.call(lambda: cluster.allow("nobody", write=["telemetry"]))
    for headers in ({}, EVENTS):
        assert ask(gateway, "/topics/telemetry/records", **headers)[0] == 403


# --- event streams --------------------------------------------------------------------------------------------------


def test_an_event_stream_begins_at_the_end_and_goes_on(gateway: RunningGateway, cluster: MemoryCluster) -> None:
    add(gateway, cluster, b"0")
    with events(gateway, "/topics/telemetry/records") as source:
        add(gateway, cluster, b'{\n"t": 1}', b"two\nlines")
        assert source.next() == {"partition": 0, "offset": 1, "timestamp": 1_700, "key": None, "value": {"t": 1}}
        assert source.next()["value"] == "two\nlines"
        assert source.last_id == "0:3,1:0"


def test_a_stream_is_resumed_behind_the_last_event(gateway: RunningGateway, cluster: MemoryCluster) -> None:
    add(gateway, cluster, b"0", b"1", b"2")
    add(gateway, cluster, b"10", b"11", partition=1)
    seen = []
    last_id = ""
    for _ in range(5):  # each time the connection breaks after one event
        with events(gateway, "/topics/telemetry/records?from=earliest", **{"Last-Event-ID": last_id}) as source:
            seen.append(source.next()["value"])
            last_id = source.last_id
    assert sorted(seen) == [0, 1, 2, 10, 11]
    assert last_id == "0:3,1:2"


def test_records_that_are_deleted_while_nobody_reads_are_passed(
    gateway: RunningGateway, cluster: MemoryCluster
) -> None:
    with events(gateway, "/topics/telemetry/records?partition=0") as source:

        def replace() -> None:
            topic = cluster.topics["telemetry"]
            for number in range(5):
                topic.append(NewRecord(b"%d" % number, partition=0), 0)
            cluster.delete_before("telemetry", 0, 3)
            topic.wake()

        gateway.call(replace)
        assert source.next()["value"] == 3


def test_an_error_that_stays_is_told_and_ends_the_stream(gateway: RunningGateway, cluster: MemoryCluster) -> None:
    with events(gateway, "/topics/telemetry/records") as source:
        gateway.call(lambda: cluster.break_followings("telemetry", ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        name, content = source.next()
        assert (name, content["error"]["code"]) == ("problem", "NOT_ALLOWED")
        assert source.response.read() == b""
    wait_until(lambda: cluster.followings == 0, "its reader is closed")


def test_one_stream_too_many_is_refused_until_another_ends(gateway: RunningGateway, cluster: MemoryCluster) -> None:
    sources = [EventSource(gateway, "/topics/telemetry/records") for _ in range(3)]
    assert ask(gateway, "/topics/telemetry/records", **EVENTS)[0] == 429
    with pytest.raises(InvalidStatus) as refused:
        web_socket(gateway, "/topics/telemetry/records")
    assert refused.value.response.status_code == 429
    sources.pop().close()
    wait_until(lambda: gateway.server.outflow.open == 2, "one stream has ended")
    with events(gateway, "/topics/telemetry/records") as source:
        add(gateway, cluster, b"7")
        assert source.next()["value"] == 7
    for each in sources:
        each.close()
    wait_until(lambda: (gateway.server.outflow.open, cluster.followings) == (0, 0), "all have ended")


@pytest.mark.parametrize("is_socket", [False, True])
def test_a_reader_that_takes_nothing_is_cut_off(
    is_socket: bool, gateway: RunningGateway, cluster: MemoryCluster
) -> None:
    add(gateway, cluster, *[b"x" * 500_000] * 40)
    upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: "
    upgrade += "AAAAAAAAAAAAAAAAAAAAAA==\r\n"
    more = upgrade if is_socket else "Accept: text/event-stream\r\n"
    with gateway.connect() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        head = f"GET /topics/telemetry/records?from=earliest HTTP/1.1\r\nHost: localhost\r\n{more}\r\n"
        connection.sendall(head.encode())
        wait_until(lambda: gateway.server.outflow.open == 1, "the stream is open")
        wait_until(lambda: gateway.server.outflow.open == 0, "the stream is cut off")
    assert cluster.followings == 0


def test_the_page_follows_a_topic_and_loads_nothing_else(gateway: RunningGateway) -> None:
    response = answer_to(gateway, "GET", "/?topic=telemetry")
    assert response.status == 200
    assert response.headers["Content-Type"] == "text/html; charset=utf-8"
    assert response.headers["Content-Security-Policy"].startswith("default-src 'none'; connect-src 'self';")


# --- web sockets ----------------------------------------------------------------------------------------------------


def test_a_web_socket_has_records_and_the_place_behind_them(gateway: RunningGateway, cluster: MemoryCluster) -> None:
    add(gateway, cluster, b"0")
    with web_socket(gateway, "/topics/telemetry/records?from=earliest") as reader:
        message = json.loads(reader.recv(PATIENCE_S))
        assert [record["value"] for record in message["records"]] == [0]
        assert message["position"] == "0:1,1:0"
        add(gateway, cluster, b"1", partition=1)
        assert json.loads(reader.recv(PATIENCE_S))["position"] == "0:1,1:1"
    wait_until(lambda: (gateway.server.outflow.open, cluster.followings) == (0, 0), "it has ended")


def test_a_group_commits_and_goes_on_there(gateway: RunningGateway, cluster: MemoryCluster) -> None:
    add(gateway, cluster, b"0", b"1")
    path = "/topics/telemetry/records?group=pages&from=earliest&partition=0"
    with web_socket(gateway, path) as reader:
        assert len(json.loads(reader.recv(PATIENCE_S))["records"]) == 2
        reader.send('{"commit": "0:1"}')
        assert json.loads(reader.recv(PATIENCE_S)) == {"committed": "0:1"}
        gateway.call(lambda: cluster.groups_with_members.add("pages"))
        reader.send('{"commit": "0:2"}')
        assert json.loads(reader.recv(PATIENCE_S))["error"]["code"] == "UNKNOWN_MEMBER_ID"
    assert cluster.committed["pages", "telemetry"] == {0: 1}
    with events(gateway, path) as source:
        assert source.next()["value"] == 1


@pytest.mark.parametrize(
    "said", ["", b"\x00", "{", "[]", '{"commit": 7}', '{"commit": "x"}', '{"commit": "0:1"}', "[" * 60_000]
)
def test_what_a_client_says_wrongly_is_answered(
    said: str | bytes, gateway: RunningGateway, cluster: MemoryCluster
) -> None:
    with web_socket(gateway, "/topics/telemetry/records") as reader:
        reader.send(said)
        assert json.loads(reader.recv(PATIENCE_S))["error"]["code"] == "BAD_REQUEST"
        add(gateway, cluster, b"7")
        assert json.loads(reader.recv(PATIENCE_S))["records"][0]["value"] == 7


def test_a_client_that_says_too_much_is_cut_off(gateway: RunningGateway) -> None:
    with web_socket(gateway, "/topics/telemetry/records") as reader:
        reader.send("x" * 100_000)
        with pytest.raises(ConnectionClosed):
            reader.recv(PATIENCE_S)
    wait_until(lambda: gateway.server.outflow.open == 0, "it has ended")


def test_an_error_that_stays_is_told_and_ends_the_socket(gateway: RunningGateway, cluster: MemoryCluster) -> None:
    with web_socket(gateway, "/topics/telemetry/records") as reader:
        gateway.call(lambda: cluster.delete_topic("telemetry"))
        assert json.loads(reader.recv(PATIENCE_S))["error"]["code"] == "UNKNOWN_TOPIC_OR_PARTITION"
        with pytest.raises(ConnectionClosed):
            reader.recv(PATIENCE_S)
        assert reader.close_code == 1011


@pytest.mark.parametrize(("path", "status"), [("/topics/nothing/records", 404), ("/elsewhere", 403)])
def test_a_web_socket_to_nowhere_is_refused(path: str, status: int, gateway: RunningGateway) -> None:
    with pytest.raises(InvalidStatus) as refused:
        web_socket(gateway, path)
    assert refused.value.response.status_code == status


# --- groups ---------------------------------------------------------------------------------------------------------


def test_the_place_of_a_group(gateway: RunningGateway, cluster: MemoryCluster) -> None:
    path = "/topics/telemetry/groups/a%2Fb"
    assert ask(gateway, path) == (200, {"position": None})
    assert ask(gateway, path, "PUT", {"position": "0:1,1:0"}) == (200, {"position": "0:1,1:0"})
    assert ask(gateway, path) == (200, {"position": "0:1,1:0"})
    assert cluster.committed["a/b", "telemetry"] == {0: 1, 1: 0}


@pytest.mark.parametrize("body", [{}, {"position": 1}, {"position": ""}, {"position": "0:1", "x": 1}, [], "0:1"])
def test_a_place_that_cannot_be_is_refused(body: Any, gateway: RunningGateway) -> None:
    assert ask(gateway, "/topics/telemetry/groups/g", "PUT", body)[0] == 400


# --- pages of other sites -------------------------------------------------------------------------------------------


def answer_to(gateway: RunningGateway, method: str, path: str, **headers: str) -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection("localhost", gateway.port, timeout=PATIENCE_S)
    connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
    response = connection.getresponse()
    response.read()
    connection.close()
    return response


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_page_of_an_allowed_site_sees_answers(method: str, gateway: RunningGateway) -> None:
    path = "/topics/telemetry" + ("/records?wait=0" if method == "GET" else "")
    response = answer_to(gateway, method, path, Origin=APP, Content_Type="text/plain")
    assert response.status == 200
    assert response.headers["Access-Control-Allow-Origin"] == APP
    assert response.headers["Vary"] == "origin"


def test_a_page_of_another_site_is_refused(gateway: RunningGateway) -> None:
    for method, path in (("GET", "/topics/telemetry/records"), ("POST", "/topics/telemetry")):
        response = answer_to(gateway, method, path, Origin="https://evil.example.com")
        assert response.status == 403
        assert "Access-Control-Allow-Origin" not in response.headers
    with pytest.raises(InvalidStatus) as refused:
        web_socket(gateway, "/topics/telemetry/records", origin="https://evil.example.com")
    assert refused.value.response.status_code == 403


def test_a_browser_may_ask_before_it_sends(gateway: RunningGateway) -> None:
    asked = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization,content-type"}
    response = answer_to(gateway, "OPTIONS", "/topics/telemetry", Origin=APP, **asked)
    assert response.status == 204
    assert response.headers["Access-Control-Allow-Headers"] == "authorization,content-type"
    assert "POST" in response.headers["Access-Control-Allow-Methods"]
    refused = answer_to(gateway, "OPTIONS", "/topics/telemetry", Origin="https://evil.example.com", **asked)
    assert "Access-Control-Allow-Origin" not in refused.headers


def test_a_page_that_waits_is_answered_when_the_gateway_stops(
    gateway: RunningGateway, cluster: MemoryCluster, caplog: pytest.LogCaptureFixture
) -> None:
    connection = http.client.HTTPConnection("localhost", gateway.port, timeout=PATIENCE_S)
    connection.request("GET", "/topics/telemetry/records?wait=30")
    wait_until(lambda: cluster.followings == 1, "it waits")
    gateway.loop.call_soon_threadsafe(gateway.server.stop)
    response = connection.getresponse()
    assert (response.status, json.loads(response.read())["error"]["code"]) == (503, "STOPPING")
    connection.close()
    assert not [record for record in caplog.records if record.exc_info]


def test_open_streams_do_not_hold_up_a_stop(gateway: RunningGateway) -> None:
    source = EventSource(gateway, "/topics/telemetry/records")
    with web_socket(gateway, "/topics/telemetry/records") as reader:
        gateway.loop.call_soon_threadsafe(gateway.server.stop)
        assert source.response.read() in (b"", b"retry: 2000\n\n")
        with pytest.raises(ConnectionClosed):
            reader.recv(PATIENCE_S)
    source.close()
