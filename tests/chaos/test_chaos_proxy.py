"""The proxies between nodes: cut links, slow connections, and requests that outlive their sender."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import socketserver
import threading
from collections.abc import Iterator

import pytest
from chaos_proxy import Network, Slowness
from harness.patience import wait_until


@pytest.fixture
def echo() -> Iterator[socketserver.BaseServer]:
    """Send back each line, and record it."""

    class Echo(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            for line in self.rfile:
                received.append(line)
                self.wfile.write(line)

    received: list[bytes] = []
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Echo) as server:
        server.daemon_threads = True
        server.received = received  # type: ignore[attr-defined]
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def test_bytes_over_a_cut_link_wait_until_it_is_restored(echo: socketserver.TCPServer) -> None:
    with Network() as network:
        port = network.proxy(2, echo.server_address[1])
        network.runs_as(1, os.getpid())
        with socket.create_connection(("127.0.0.1", port), 5) as connection, connection.makefile("rb") as answers:

            def say(line: bytes, cut: set[tuple[int, int]]) -> bytes | None:
                """Return what comes back within a fifth of a second."""
                network.restore()
                network.cut(cut)
                connection.sendall(line)
                return answers.readline() if select.select([connection], [], [], 0.2)[0] else None

            assert say(b"one\n", set()) == b"one\n"
            assert say(b"two\n", {(1, 2)}) is None
            assert echo.received == [b"one\n"]  # type: ignore[attr-defined]
            network.restore()
            assert answers.readline() == b"two\n"
            assert say(b"three\n", {(2, 1)}) is None
            assert echo.received[-1] == b"three\n", "only the response is held back"  # type: ignore[attr-defined]
            assert say(b"", {(2, 3), (3, 2), (1, 3)}) == b"three\n", "a cut link of other nodes has no effect"
            assert say(b"four\n", {(0, 2), (2, 0)}) == b"four\n", "this process counts as node 1, not as a client"


def connect(network: Network, echo: socketserver.TCPServer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", network.proxy(2, echo.server_address[1])), 5)


def test_a_link_that_was_cut_twice_has_to_be_restored_twice(echo: socketserver.TCPServer) -> None:
    with Network() as network, connect(network, echo) as connection:
        network.cut([(0, 2)])
        network.cut([(0, 2), (2, 0)])
        network.restore([(0, 2), (2, 0)])
        connection.sendall(b"one\n")
        assert not select.select([connection], [], [], 0.2)[0]
        network.restore([(0, 2)])
        assert connection.recv(10) == b"one\n"


def test_what_was_sent_arrives_after_its_sender_has_given_up(echo: socketserver.TCPServer) -> None:
    with Network() as network:
        port = network.proxy(2, echo.server_address[1])
        network.cut([(0, 2)])
        with socket.create_connection(("127.0.0.1", port), 5) as connection:
            connection.sendall(b"late\n")
        network.restore()
        wait_until(lambda: echo.received == [b"late\n"], "the late line arrives")  # type: ignore[attr-defined]


def test_messages_of_different_connections_overtake_each_other(echo: socketserver.TCPServer) -> None:
    with Network() as network, connect(network, echo) as first, connect(network, echo) as second:
        first.sendall(b"hello\n")
        assert first.recv(10) == b"hello\n"
        slowness = Slowness([(0, 2)], 0.5, 0.5)
        network.slow_down(slowness)
        wait_until(lambda: network.slow, "the network is slow")
        first.sendall(b"first\n")
        wait_until(lambda: not select.select([first], [], [], 0.05)[0], "it is on its way")
        network.speed_up(slowness)
        wait_until(lambda: not network.slow, "the network is fast again")
        second.sendall(b"second\n")
        assert first.recv(10) == b"first\n"
        assert second.recv(10) == b"second\n"
        assert echo.received == [b"hello\n", b"second\n", b"first\n"]  # type: ignore[attr-defined]


def test_connections_can_be_broken(echo: socketserver.TCPServer) -> None:
    with Network() as network, connect(network, echo) as connection:
        connection.sendall(b"one\n")
        assert connection.recv(10) == b"one\n"
        network.break_connections([(0, 2)])
        with contextlib.suppress(ConnectionResetError):  # that, or an orderly end
            assert connection.recv(10) == b""
