"""v3's records, over HTTP before a cluster in memory: alone, and as a stream."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from harness.gateway_accounts import MemoryAccounts, MemoryCluster
from harness.gateway_http import RunningGateway, http_gateway
from harness.memory_metadata import CLUSTER_ID
from harness.patience import wait_until
from harness.rest_proxy import JSON, V2, RestClient

from moldau.base.errors import ErrorCode
from moldau.gateway.http.limits import HttpLimits

PATH = f"/v3/clusters/{CLUSTER_ID}/topics/telemetry/records"
HEAD = f"POST {PATH} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n".encode()
LIMITS = HttpLimits(body_seconds=0.3, body_bytes=200_000, bodies_bytes=300_000)


@pytest.fixture(scope="module")
def shared() -> MemoryCluster:
    return MemoryCluster()


@pytest.fixture(scope="module")
def gateway(shared: MemoryCluster) -> Iterator[RunningGateway]:
    with http_gateway(lambda: MemoryAccounts(shared, "nobody"), limits=LIMITS) as running:
        yield running


@pytest.fixture
def cluster(shared: MemoryCluster) -> MemoryCluster:
    shared.create_topic("telemetry", 2)
    return shared


@pytest.fixture
def client(gateway: RunningGateway, cluster: MemoryCluster) -> Iterator[RestClient]:
    with RestClient(gateway.port) as client:
        yield client


class Stream:
    """A request in chunks, whose answers are read line by line."""

    def __init__(self, gateway: RunningGateway, topic: str = "telemetry") -> None:
        self.connection = gateway.connect()
        self._file = self.connection.makefile("rb")
        head = HEAD.replace(b"/telemetry/", f"/{topic}/".encode())
        self.connection.sendall(head + b"Transfer-Encoding: chunked\r\n\r\n")

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self.connection.close()

    def send(self, data: bytes) -> None:
        self.connection.sendall(b"%x\r\n%b\r\n" % (len(data), data))

    def end(self) -> None:
        self.connection.sendall(b"0\r\n\r\n")

    def head(self) -> bytes:
        lines = iter(self._file.readline, b"\r\n")
        return b"".join(lines)

    def lines(self) -> list[Any]:
        """Return the answers of the next chunk; nothing at the end."""
        data = self._file.read(int(self._file.readline(), 16))
        self._file.readline()
        return [json.loads(line) for line in data.splitlines()]


def values(cluster: MemoryCluster) -> list[bytes | None]:
    return [each.value for each in cluster.topics["telemetry"].records()]


def test_a_record_is_appended_with_all_that_it_has(client: RestClient, cluster: MemoryCluster) -> None:
    record = {
        "partition_id": 1,
        "headers": [{"name": "site", "value": "UHJhZ3Vl"}, {"name": "empty"}],
        "key": {"type": "STRING", "data": "pump"},
        "value": {"type": "JSON", "data": {"t": 21.5}},
        "timestamp": "2026-11-19T08:00:00Z",
    }
    answer = client.post(PATH, record, JSON)
    assert (answer.status, answer.headers["content-type"], answer.headers.get("connection")) == (200, JSON, None)
    assert answer.json == {
        "error_code": 200,
        "cluster_id": CLUSTER_ID,
        "topic_name": "telemetry",
        "partition_id": 1,
        "offset": 0,
        "timestamp": "2026-11-19T08:00:00.000Z",
        "key": {"type": "STRING", "size": 4},
        "value": {"type": "JSON", "size": 11},
    }
    (found,) = cluster.topics["telemetry"].records()
    assert (found.key, found.value, found.timestamp_ms) == (b"pump", b'{"t": 21.5}', 1_795_075_200_000)
    assert found.headers == (("site", b"Prague"), ("empty", None))


def test_bytes_and_nulls_are_appended(client: RestClient, cluster: MemoryCluster) -> None:
    assert client.post(PATH, {"value": {"type": "BINARY", "data": "AAH/"}}, JSON).json["value"]["size"] == 3
    assert "key" not in client.post(PATH, {"value": {"type": "JSON", "data": None}}, JSON).json
    client.post(PATH, {}, JSON)
    assert sorted(values(cluster), key=str) == [None, None, b"\0\1\xff"]


@pytest.mark.parametrize(
    ("record", "code"),
    [
        ({"value": {"type": "BINARY", "data": 1}}, 400),
        ({"value": {"type": "BINARY", "data": "not base64"}}, 400),
        ({"value": {"type": "STRING", "data": 1}}, 400),
        ({"value": {"type": "XML", "data": "1"}}, 400),
        ({"value": {"type": "JSON", "schema_id": 1, "data": 1}}, 400),
        ({"value": {"type": "AVRO", "schema": "{}", "data": 1}}, 42206),
        ({"value": {"data": 1}}, 42206),
        ({"value": 1}, 400),
        ({"unknown": 1}, 400),
        ({"timestamp": "yesterday"}, 400),
        ({"timestamp": "999999999999999"}, 400),
        ({"headers": [{"name": "a", "value": "?"}]}, 400),
        ({"partition_id": -1}, 40402),
        ({"partition_id": 1 << 40}, 40402),
        ({"partition_id": 2}, 40402),
    ],
)
def test_a_bad_record_has_its_error_and_the_next_is_appended(
    client: RestClient, cluster: MemoryCluster, record: Any, code: int
) -> None:
    bad = json.dumps(record).encode()
    client._connection.request("POST", PATH, bad + b'{"partition_id": 0}', {"Content-Type": JSON})
    response = client._connection.getresponse()
    first, second = [json.loads(line) for line in response.read().splitlines()]
    assert response.status == 200
    assert (first["error_code"], second["error_code"]) == (code, 200)
    assert first["message"]
    assert len(values(cluster)) == 1


@pytest.mark.parametrize(
    ("path", "body", "content_type", "status", "code"),
    [
        (PATH, b"", JSON, 422, 42206),
        (PATH, b" \n", JSON, 422, 42206),
        (PATH, b"[1]", JSON, 400, 400),
        (PATH, b"{", JSON, 400, 400),
        (PATH, b"}", JSON, 400, 400),
        (PATH, b"{1}", JSON, 400, 400),
        (PATH, b'{"headers": [{"name": "\\ud800"}]}', JSON, 400, 400),
        (PATH, b'{"value": "\xff"}', JSON, 400, 400),
        (PATH, {}, V2, 415, 415),
        (PATH.replace(CLUSTER_ID, "other"), {}, JSON, 404, 404),
        ("/v3/nothing", {}, JSON, 404, 404),
    ],
)
def test_a_request_without_records_is_refused(
    client: RestClient, cluster: MemoryCluster, path: str, body: Any, content_type: str, status: int, code: int
) -> None:
    answer = client.post(path, body, content_type)
    assert (answer.status, answer.json["error_code"]) == (status, code)
    assert answer.headers["content-type"] == JSON
    assert values(cluster) == []


def test_a_topic_that_is_none_is_the_error_of_each_record(client: RestClient) -> None:
    answer = client.post(PATH.replace("telemetry", "missing"), {"value": {"type": "JSON", "data": 1}}, JSON)
    assert (answer.status, answer.json["error_code"]) == (200, 40401)


# --- streams ----------------------------------------------------------------------------------------------------------


def test_each_record_of_a_stream_is_answered_while_it_goes_on(gateway: RunningGateway, cluster: MemoryCluster) -> None:
    with Stream(gateway) as stream:
        stream.send(b'{"value": {"type": "JSON", "data": 1}}')
        head = stream.head()
        assert head.startswith(b"HTTP/1.1 200")
        assert b"connection: close" in head
        assert [each["error_code"] for each in stream.lines()] == [200]
        stream.send(b'{"value": {"type": "JSON", "data": 2}}{"value": 3}{"value": {"type"')
        assert [each["error_code"] for each in stream.lines()] == [200, 400]
        stream.send(b': "JSON", "data": 4}}')
        assert [each["error_code"] for each in stream.lines()] == [200]
        stream.end()
        assert stream.lines() == []
    assert sorted(values(cluster)) == [b"1", b"2", b"4"]


def test_records_before_bad_json_are_appended_and_the_stream_ends(
    gateway: RunningGateway, cluster: MemoryCluster
) -> None:
    with Stream(gateway) as stream:
        stream.send(b'{"partition_id": 0}{"partition_id": 1}{1}{"partition_id": 0}')
        stream.head()
        assert [each["error_code"] for each in stream.lines()] == [200, 200]
        assert [each["error_code"] for each in stream.lines()] == [400]
        assert stream.lines() == []
        assert stream.connection.recv(1) == b""
    assert len(values(cluster)) == 2


def test_half_a_record_is_told_at_the_end_of_a_stream(gateway: RunningGateway, cluster: MemoryCluster) -> None:
    with Stream(gateway) as stream:
        stream.send(b'{}{"value": ')
        stream.head()
        assert [each["error_code"] for each in stream.lines()] == [200]
        stream.end()
        assert "within an object" in stream.lines()[0]["message"]
    assert len(values(cluster)) == 1


def test_a_stream_that_says_nothing_ends(gateway: RunningGateway, cluster: MemoryCluster) -> None:
    with Stream(gateway) as stream:
        stream.send(b"{}")
        stream.head()
        stream.lines()
        assert [each["error_code"] for each in stream.lines()] == [408]
        assert stream.connection.recv(1) in (b"0", b"")


def test_a_record_that_is_too_large_ends_the_stream(gateway: RunningGateway, cluster: MemoryCluster) -> None:
    with Stream(gateway) as stream:
        stream.send(b"{}")
        stream.head()
        stream.lines()
        stream.send(b'{"value": {"type": "STRING", "data": "' + b"x" * 300_000)
        assert [each["error_code"] for each in stream.lines()] == [413]
    assert len(values(cluster)) == 1


def test_large_records_share_the_room_of_bodies(gateway: RunningGateway, cluster: MemoryCluster) -> None:
    begin = b'{"value": {"type": "STRING", "data": "' + b"x" * 100_000
    with Stream(gateway) as first, Stream(gateway) as second:
        first.send(begin)
        wait_until(lambda: gateway.server.bytes_receiving == 200_000, "the first has room")
        second.send(begin)
        assert second.head().startswith(b"HTTP/1.1 503")
        first.send(b'"}}')
        first.head()
        assert first.lines()[0]["value"]["size"] == 100_000
        first.end()
    wait_until(lambda: gateway.server.bytes_receiving == 0, "the room is given back")


def test_a_client_that_goes_away_leaves_nothing(gateway: RunningGateway, cluster: MemoryCluster) -> None:
    with Stream(gateway) as stream:
        stream.send(b'{"value": {"type": "STRING", "data": "' + b"x" * 100_000)
        wait_until(lambda: gateway.server.bytes_receiving == 200_000, "it has room")
    wait_until(lambda: gateway.server.bytes_receiving == 0, "the room is given back")
    assert values(cluster) == []


def test_a_client_that_sends_much_waits_for_the_cluster(gateway: RunningGateway, cluster: MemoryCluster) -> None:
    """While an append is under way nothing more is read than buffers hold."""
    record = b'{"value": {"type": "STRING", "data": "' + b"x" * 1_000 + b'"}}'
    cluster.create_topic("flood")  # what has arrived is appended while the next test runs
    gateway.call(cluster.hold_appends)
    with Stream(gateway, "flood") as stream:
        stream.connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 50_000)
        stream.connection.settimeout(0.2)
        sent = 0
        try:
            while sent < 100_000_000:
                stream.send(record * 100)
                sent += 100
        except TimeoutError:
            pass
        assert sent * 1_000 < 30_000_000
        assert cluster.topics["flood"].records() == []
        gateway.call(cluster.let_appends_go)
    tasks = gateway.server._server.server_state.tasks
    wait_until(lambda: not tasks, "what has arrived is appended")


def test_a_failing_cluster_is_the_error_of_each_record(gateway: RunningGateway, cluster: MemoryCluster) -> None:
    cluster.fail_append("telemetry", ErrorCode.NOT_ENOUGH_REPLICAS)
    with Stream(gateway) as stream:
        stream.send(b"{}{}")
        stream.head()
        assert [each["error_code"] for each in stream.lines()] == [50003, 50003]
        stream.send(b"{}")
        assert [each["error_code"] for each in stream.lines()] == [200]
