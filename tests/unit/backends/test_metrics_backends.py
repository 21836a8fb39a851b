"""StatsD and Graphite against sockets; values that would be other metrics."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from harness.patience import wait_until

from moldau.backends.catalog import KINDS
from moldau.backends.delivery import Delivery
from moldau.backends.interface import Away, Backend, Refused, Row
from moldau.backends.metric_lines import graphite_line, packets, statsd_line
from moldau.backends.options import Options
from moldau.backends.sending import retry_of

opened: list[Backend] = []


@pytest.fixture(autouse=True)
def close_connections() -> Iterator[None]:
    yield
    while opened:
        opened.pop().close()


def backend(kind: str, scheme: str, port: int, **options: str) -> Backend:
    one = KINDS[kind].prepare(f"{scheme}://127.0.0.1:{port}", Options(options), Delivery(timeout_s=20.0))()
    opened.append(one)
    return one


def metric(value: str = "1", headers: dict[str, str] | None = None, **more: str | None) -> Row:
    return Row("k", {"metric": "orders", "value": value, **more}, headers)


def test_statsd_gets_datagrams_of_lines() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        server.settimeout(20.0)
        one = backend("statsd", "udp", server.getsockname()[1], prefix="shop.")
        failures = one.write([metric(), metric("x"), metric("2.5", {"city": "brno"}, type="ms")])
        assert server.recv(65_536) == b"shop.orders:1|c\nshop.orders:2.5|ms|#city:brno"
        assert [(failed.index, type(failed.error)) for failed in failures or ()] == [(1, Refused)]
        assert list(one.write([metric()] * 200) or ()) == []
        received = [server.recv(65_536)]
        while sum(len(packet.split(b"\n")) for packet in received) < 200:
            received.append(server.recv(65_536))
        assert all(len(packet) <= 1432 for packet in received)


def test_a_server_that_does_not_answer_a_connect_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    def connect(*given: object) -> socket.socket:
        raise TimeoutError("timed out")

    monkeypatch.setattr(socket, "create_connection", connect)
    with pytest.raises(Away, match="no connection"):
        backend("graphite", "tcp", 2003).write([metric()])


def test_a_datagram_server_that_is_not_there_is_away() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    one = backend("statsd", "udp", port)

    def is_refused() -> bool:
        try:
            one.write([metric()])
        except ConnectionRefusedError as error:
            return isinstance(retry_of(error), Away)
        return False

    wait_until(is_refused, "the system says that nobody listens")


def test_graphite_gets_lines_and_a_closed_connection_is_opened_again() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(20.0)
        one = backend("graphite", "tcp", server.getsockname()[1])
        for _ in range(2):
            one.write([metric("3", {"city": "brno"}, timestamp="1769846400"), metric("4", timestamp="1769846401.9")])
            accepted, _ = server.accept()
            with accepted, accepted.makefile("rb") as stream:
                lines = [stream.readline(), stream.readline()]
            assert lines == [b"orders;city=brno 3 1769846400\n", b"orders 4 1769846401\n"]


@pytest.mark.parametrize(
    "row",
    [
        *(metric(value) for value in ("nan", "inf", "", "1_0", "1|c\nx:1", "１")),
        *(metric(metric=name) for name in ("a b", "a:1|c", "a\nb", None)),
        *(metric(headers={"a": tag}) for tag in ("b|c", "b\nc", "")),
    ],
)
def test_what_would_be_another_metric_is_refused(row: Row) -> None:
    with pytest.raises(Refused):
        statsd_line(row, "")
    with pytest.raises(Refused):
        graphite_line(row, "", 0.0)


@pytest.mark.parametrize("row", [metric(type="x"), metric("a|b", type="s"), metric("", type="s")])
def test_types_of_statsd(row: Row) -> None:
    with pytest.raises(Refused):
        statsd_line(row, "")


def test_sets_and_times() -> None:
    assert statsd_line(metric("ann@example.org", type="s"), "") == b"orders:ann@example.org|s"
    assert graphite_line(metric(), "", 12.5) == b"orders 1 12\n"
    with pytest.raises(Refused):
        graphite_line(metric(timestamp="yesterday"), "", 0.0)


def test_packets_are_as_full_as_possible() -> None:
    assert list(packets([b"aaa", b"bbb", b"ccccccccc", b"d"], 7)) == [b"aaa\nbbb", b"ccccccccc", b"d"]
    assert list(packets([], 7)) == []


@pytest.mark.parametrize(
    ("kind", "url"), [("statsd", "http://h:1"), ("graphite", "tcp://"), ("statsd", "udp://h:99999")]
)
def test_settings_that_cannot_work_are_refused(kind: str, url: str) -> None:
    with pytest.raises(ValueError, match="URL"):
        KINDS[kind].prepare(url, Options({}), Delivery())
