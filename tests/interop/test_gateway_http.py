"""Records in over HTTP, on real sockets before a cluster in memory: what is taken, and what hostile devices cause."""

from __future__ import annotations

import base64
import json
import socket
import struct
import time
from collections.abc import Iterator

import pytest
from harness.gateway_accounts import MemoryAccounts, MemoryCluster
from harness.gateway_http import RunningGateway, http_gateway
from harness.patience import PATIENCE_S, wait_until

from moldau.base.errors import ErrorCode
from moldau.gateway.http.limits import HttpLimits
from moldau.gateway.http.server import HttpOptions

SHORT = HttpLimits(head_seconds=0.2, body_seconds=0.2, body_bytes=100_000, bodies_bytes=150_000)
HEAD = b"POST /topics/telemetry HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\n"


@pytest.fixture
def cluster() -> MemoryCluster:
    return MemoryCluster(telemetry=2)


@pytest.fixture
def gateway(cluster: MemoryCluster) -> Iterator[RunningGateway]:
    with http_gateway(lambda: MemoryAccounts(cluster, "nobody"), limits=SHORT) as running:
        yield running


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def received(connection: socket.socket) -> bytes:
    """Return everything until the gateway closes the connection."""
    data = b""
    try:
        while chunk := connection.recv(65536):
            data += chunk
    except ConnectionResetError:
        pass
    return data


def values(cluster: MemoryCluster) -> list[bytes | None]:
    return [record.value for record in cluster.topics["telemetry"].records()]


def test_records_are_appended_and_have_their_places(gateway: RunningGateway, cluster: MemoryCluster) -> None:
    status, answer = gateway.post("/topics/telemetry?key=pump", b'[{"t": 21.50}, 2]', Kafka_Header_Site="Prague")
    assert status == 200
    places = json.loads(answer)["offsets"]
    assert [place["offset"] for place in places] == [0, 1]
    assert [(each.key, each.value, each.headers) for each in cluster.topics["telemetry"].records()] == [
        (b"pump", b'{"t": 21.50}', (("site", b"Prague"),)),
        (b"pump", b"2", (("site", b"Prague"),)),
    ]
    assert gateway.server.counters.records == 2


def test_a_large_body_is_read_beside_others(gateway: RunningGateway, cluster: MemoryCluster) -> None:
    body = json.dumps(["x" * 1_000] * 90).encode()
    assert gateway.post("/topics/telemetry", body)[0] == 200
    assert len(values(cluster)) == 90


def test_each_device_is_a_user_of_the_cluster(gateway: RunningGateway, cluster: MemoryCluster) -> None:
    cluster.passwords["anna"] = "secret"
    cluster.allow("anna", write=["telemetry"])
    cluster.allow("nobody")
    assert gateway.post("/topics/telemetry", b"1", Authorization=basic("anna", "secret"))[0] == 200
    assert gateway.post("/topics/telemetry", b"1", Authorization=basic("anna", "wrong"))[0] == 401
    assert gateway.post("/topics/telemetry", b"1", Authorization="Digest x")[0] == 401
    status, answer = gateway.post("/topics/telemetry", b"1")
    assert (status, json.loads(answer)["error"]["code"]) == (403, "NOT_ALLOWED")
    assert len(values(cluster)) == 1


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/topics/missing", 404),
        ("/topics/", 400),
        ("/topics/a%2Fb", 400),
        ("/topics/" + "x" * 2_000, 400),
        ("/topics/telemetry?" + "x" * 9_000, 414),
        ("/topics/telemetry?what=1", 400),
        ("/nothing", 404),
    ],
)
def test_a_path_that_is_none_is_refused(gateway: RunningGateway, path: str, status: int) -> None:
    assert gateway.post(path, b"1")[0] == status


def test_what_the_cluster_refuses_is_told(gateway: RunningGateway, cluster: MemoryCluster) -> None:
    cluster.fail_append("telemetry", ErrorCode.NOT_ENOUGH_REPLICAS)
    assert gateway.post("/topics/telemetry", b"1")[0] == 503
    cluster.refuse_records("telemetry", ErrorCode.INVALID_RECORD)
    status, answer = gateway.post("/topics/telemetry", b"[1, 2]")
    assert status == 207
    assert [list(each) for each in json.loads(answer)["offsets"]] == [["error"], ["partition", "offset"]]


def test_a_request_that_is_sent_again_is_done_once(gateway: RunningGateway, cluster: MemoryCluster) -> None:
    answers = {gateway.post("/topics/telemetry", b"1", Idempotency_Key="a") for _ in range(3)}
    assert len(answers) == 1
    assert gateway.post("/topics/telemetry", b"2", Idempotency_Key="a")[0] == 422
    assert values(cluster) == [b"1"]


def test_what_may_be_appended_is_said_of_all_records_that_were_refused(
    gateway: RunningGateway, cluster: MemoryCluster
) -> None:
    cluster.refuse_records("telemetry", ErrorCode.NOT_ENOUGH_REPLICAS)
    cluster.refuse_records("telemetry", ErrorCode.REQUEST_TIMED_OUT)
    answers = [gateway.post("/topics/telemetry", b"[1, 2]", Idempotency_Key="a") for _ in range(2)]
    assert answers[0] == answers[1]
    assert answers[0][0] == 504
    assert values(cluster) == []


def test_one_connection_too_many_is_refused_and_no_other(cluster: MemoryCluster) -> None:
    request = HEAD + b"Content-Length: 1\r\n\r\n1"
    limits = HttpLimits(connections=2)
    with (
        http_gateway(lambda: MemoryAccounts(cluster, "nobody"), limits=limits) as gateway,
        gateway.connect() as first,
        gateway.connect() as second,
    ):
        wait_until(lambda: gateway.server.connections == 2, "both are open")
        with gateway.connect() as third:
            third.sendall(request)
            assert answers(received(third)) == [b"503"]
            for each in (first, second):
                each.sendall(request)
                assert answers(each.recv(65536)) == [b"200"]
        wait_until(lambda: gateway.server.connections == 2, "the third is closed")
        first.close()
        wait_until(lambda: gateway.server.connections == 1, "there is room")
        assert gateway.post("/topics/telemetry", b"2")[0] == 200


def test_clients_that_leave_or_send_nonsense_are_not_logged(
    gateway: RunningGateway, cluster: MemoryCluster, caplog: pytest.LogCaptureFixture
) -> None:
    reset = struct.pack("ii", 1, 0)
    key = b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
    upgrade = b"Host: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" + key
    nothing = b"GET /topics/telemetry/records HTTP/1.1\r\n"
    for request in (nothing + upgrade, nothing + b"Accept: text/event-stream\r\n", nothing, b"nonsense\r\n") * 20:
        with gateway.connect() as gone:
            gone.sendall(request + b"\r\n")
            gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
    with gateway.connect() as other:
        other.sendall(nothing + upgrade + b"\r\n")
        assert b"101" in other.recv(65536)
        other.sendall(b"\x81\x81\0\0\0\0\xff")  # no UTF-8
        assert received(other)[:1] == b"\x88"
    wait_until(lambda: gateway.server.connections == 0 and not cluster.followings, "all are gone")
    assert not caplog.records


# --- hostile devices ------------------------------------------------------------------------------------------------


def test_who_says_nothing_or_half_a_head_is_cut_off(gateway: RunningGateway) -> None:
    with gateway.connect() as silent, gateway.connect() as half, gateway.connect() as later:
        half.sendall(HEAD)
        later.sendall(HEAD + b"Content-Length: 1\r\n\r\n1" + HEAD)
        assert received(silent) == b""
        assert received(half) == b""
        assert received(later).startswith(b"HTTP/1.1 200")


def test_a_head_without_end_is_cut_off_before_it_is_long(gateway: RunningGateway) -> None:
    with gateway.connect() as endless:
        endless.settimeout(PATIENCE_S)
        sent = 0
        try:
            while sent < 50_000_000:
                sent += endless.send(b"X-Y: " + b"z" * 60_000 + b"\r\n" if sent else HEAD)
        except OSError:
            pass
        assert sent < 50_000_000


@pytest.mark.parametrize(
    "framing",
    [b"Content-Length: 50000\r\n\r\nx", b"Content-Length: 5\r\n\r\n", b"Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n"],
)
def test_half_a_body_is_answered_in_time(gateway: RunningGateway, cluster: MemoryCluster, framing: bytes) -> None:
    with gateway.connect() as half:
        half.sendall(HEAD + framing)
        assert received(half).startswith(b"HTTP/1.1 408")
    assert values(cluster) == []


def test_half_a_place_of_a_group_is_answered_in_time(gateway: RunningGateway, cluster: MemoryCluster) -> None:
    with gateway.connect() as half:
        half.sendall(b'PUT /topics/telemetry/groups/g HTTP/1.1\r\nContent-Length: 19\r\n\r\n{"position"')
        assert received(half).startswith(b"HTTP/1.1 408")
    assert not cluster.committed


@pytest.mark.parametrize("size", [b"100001", b"100000000000000000000000", b"-1", b"1e3"])
def test_a_length_that_is_too_large_or_none_is_refused_at_once(gateway: RunningGateway, size: bytes) -> None:
    with gateway.connect() as large:
        large.sendall(HEAD + b"Content-Length: " + size + b"\r\n\r\n")
        assert received(large)[:12] in (b"HTTP/1.1 413", b"HTTP/1.1 400")


def test_a_chunked_body_without_end_is_refused(gateway: RunningGateway) -> None:
    with gateway.connect() as endless:
        endless.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
        try:
            for _ in range(1_000):
                endless.sendall(b"2710\r\n" + b"x" * 10_000 + b"\r\n")
        except OSError:
            return
        pytest.fail("the gateway read ten megabytes")


def test_a_device_that_goes_away_in_its_body_disturbs_nobody(gateway: RunningGateway, cluster: MemoryCluster) -> None:
    for _ in range(5):  # together more than may be received at a time
        with gateway.connect() as gone:
            gone.sendall(HEAD + b"Content-Length: 90000\r\n\r\n" + b"x" * 40_000)
    wait_until(
        lambda: gateway.post("/topics/telemetry", b"x" * 90_000, "text/plain")[0] == 200,
        "there is room for a body again",
    )
    assert len(values(cluster)) == 1


def test_too_many_large_bodies_at_a_time_are_refused(gateway: RunningGateway) -> None:
    with gateway.connect() as first, gateway.connect() as second:
        for each in (first, second):
            each.sendall(HEAD + b"Content-Length: 90000\r\n\r\n" + b"x" * 40_000)
        answers = received(first)[:12], received(second)[:12]
        assert sorted(answers) == [b"HTTP/1.1 408", b"HTTP/1.1 503"]


def answers(data: bytes) -> list[bytes]:
    """Return the status of each answer."""
    return [part[1:4] for part in data.split(b"HTTP/1.1")[1:]]


@pytest.mark.parametrize("protocol", [b"h2c", b"websocket", b"TLS/1.2, websocket"])
def test_the_body_of_a_request_that_offers_another_protocol_is_read(
    protocol: bytes, gateway: RunningGateway, cluster: MemoryCluster
) -> None:
    """As Java's clients and `curl --http2` offer HTTP/2 with each first request."""
    offer = HEAD + b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: " + protocol + b"\r\nHTTP2-Settings: AAM\r\n"
    with gateway.connect() as device:
        device.sendall(offer + b"Content-Length: 5\r\n\r\nwhole" + HEAD + b"Content-Length: 4\r\n\r\nnext")
        wait_until(lambda: len(values(cluster)) == 2, "both are appended")
        device.sendall(offer + b"Content-Length: 4\r\n\r\nha")
        device.sendall(b"lf")
        wait_until(lambda: len(values(cluster)) == 3, "and a body in two pieces")
        device.sendall(offer + b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n4\r\nlast\r\n0\r\n\r\n")
        assert answers(received(device)) == [b"200"] * 4
    assert sorted(each or b"" for each in values(cluster)) == [b"half", b"last", b"next", b"whole"]


@pytest.mark.parametrize("trailer", [b"X: " + b"y" * 60_000, b"X: y\r\n" * 10_000])
def test_trailers_without_end_are_cut_off(trailer: bytes, gateway: RunningGateway, cluster: MemoryCluster) -> None:
    with gateway.connect() as endless:
        endless.settimeout(PATIENCE_S)
        endless.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n")
        sent = 0
        try:
            while sent < 20_000_000:
                sent += endless.send(trailer)
        except OSError:
            pass
        assert sent < 20_000_000
    assert values(cluster) == []


def test_trailers_are_no_headers(gateway: RunningGateway, cluster: MemoryCluster) -> None:
    with gateway.connect() as device:
        framing = b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n1\r\nx\r\n0\r\n"
        device.sendall(HEAD + framing + b"Authorization: Digest x\r\nKafka-Header-Name: y\r\n\r\n")
        assert answers(received(device)) == [b"200"]
    assert cluster.topics["telemetry"].records()[0].headers == ()


def test_requests_far_ahead_of_their_answers_are_cut_off(gateway: RunningGateway, cluster: MemoryCluster) -> None:
    gateway.call(cluster.hold_appends)
    request = HEAD + b"Content-Length: 1\r\n\r\n1"
    with gateway.connect() as ahead:
        ahead.sendall(request * 40)
        wait_until(lambda: cluster.append_calls == 1, "the first is with the cluster")
        gateway.call(cluster.let_appends_go)
        wait_until(lambda: len(values(cluster)) == 40, "forty are answered in turn")
        gateway.call(cluster.hold_appends)
        ahead.sendall(request * 1_000)
        assert answers(received(ahead)) == [b"200"] * 40


def test_a_page_of_another_site_may_not_use_the_gateway(gateway: RunningGateway, cluster: MemoryCluster) -> None:
    for headers in (
        {"Origin": "http://evil.example"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Origin": "null"},
        {"Origin": f"http://evil.example:{gateway.port}", "Host": f"evil.example:{gateway.port}"},
    ):
        assert gateway.post("/topics/telemetry", b"1", **headers)[0] in (403, 421)
    for name, status in ((f"evil.example:{gateway.port}", 421), (f"localhost:{gateway.port}", 200)):
        with gateway.connect() as browser:  # says no origin to what it takes for the page's own site
            browser.sendall(
                f"GET /topics/telemetry/records HTTP/1.0\r\nHost: {name}\r\nAccept-Language: cs\r\n\r\n".encode()
            )
            assert answers(received(browser).replace(b"HTTP/1.0", b"HTTP/1.1")) == [b"%d" % status]
    assert gateway.post("/topics/telemetry", b"1", Origin=f"http://localhost:{gateway.port}")[0] == 200
    assert values(cluster) == [b"1"]


def test_a_site_that_is_allowed_may(cluster: MemoryCluster) -> None:
    options = HttpOptions(origins=frozenset({"https://app.example"}))
    with http_gateway(lambda: MemoryAccounts(cluster, "nobody"), options) as gateway:
        assert (
            gateway.post("/topics/telemetry", b"1", Origin="https://app.example", Sec_Fetch_Site="cross-site")[0] == 200
        )
        assert gateway.post("/topics/telemetry", b"1", Origin="https://app.example.evil")[0] == 403


def test_requests_that_wait_for_the_cluster_are_answered_when_the_gateway_stops(cluster: MemoryCluster) -> None:
    cluster.hold_appends()
    with http_gateway(lambda: MemoryAccounts(cluster, "nobody")) as gateway, gateway.connect() as waiting:
        waiting.sendall(HEAD + b"Content-Length: 1\r\n\r\n1")
        wait_until(lambda: cluster.append_calls == 1, "the record is with the cluster")
        began = time.monotonic()
        gateway.loop.call_soon_threadsafe(gateway.server.stop)
        assert received(waiting).startswith(b"HTTP/1.1 504")  # it may be appended
        assert time.monotonic() - began < PATIENCE_S
