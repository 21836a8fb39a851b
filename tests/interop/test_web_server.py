"""The server of `moldau/web` over real sockets: its limits, clients that read nothing, its stop."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from harness.patience import PATIENCE_S, wait_until
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from moldau.web.failures import ApiErrors
from moldau.web.server import Server, ServerSettings, bind
from moldau.web.streams import EventStreams, StreamLimits, frame

pytestmark = pytest.mark.moldau_only


@pytest.fixture(scope="module", autouse=True)
def broker_answers() -> None:
    """These tests need no broker."""


class Application:
    """`/events` streams as fast as it is read, `/silent` says nothing, `/` answers at once."""

    def __init__(self) -> None:
        limits = StreamLimits(streams_max=1, seconds_max=10 * PATIENCE_S, alive_every_seconds=10 * PATIENCE_S)
        self.streams = EventStreams(limits, ApiErrors("the server", str), "streams")
        self.begun = threading.Event()
        self.ended = threading.Event()

    def app(self) -> Starlette:
        async def hello(request: Request) -> Response:
            return PlainTextResponse("hello")

        async def much() -> Sequence[bytes]:
            return [frame("much", b"x" * 65536)]

        async def nothing() -> Sequence[bytes]:
            self.begun.set()
            await asyncio.Event().wait()
            return ()

        async def events(request: Request) -> Response:
            source = much if request.url.path == "/events" else nothing
            return self.streams.response(source, on_end=self.ended.set)

        return Starlette(routes=[Route("/", hello), Route("/events", events), Route("/silent", events)])


@contextmanager
def serving(application: Application, **changed: Any) -> Iterator[tuple[Server, int]]:
    limits: dict[str, Any] = {"connections_max": 10, "stop_seconds": 600, "idle_seconds": 600, "header_bytes_max": 4096}
    started = threading.Event()
    server = Server(application.app(), ServerSettings(**limits | changed), application.streams.stop, started.set)
    server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
    with bind("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, name="web server")
        thread.start()
        try:
            assert started.wait(PATIENCE_S)
            yield server, port
        finally:
            server.stop()
            thread.join(PATIENCE_S)
            assert not thread.is_alive()


def sent(port: int, path: str, headers: str = "") -> socket.socket:
    client = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
    client.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n".encode())
    return client


def status_of(client: socket.socket) -> bytes:
    return client.recv(1000).partition(b"\r\n")[0]


def test_a_client_that_takes_nothing_is_cut_off_and_makes_room() -> None:
    application = Application()
    with serving(application, slow_seconds_max=0.05) as (server, port), sent(port, "/events"):
        assert application.ended.wait(PATIENCE_S)
        wait_until(lambda: not server.server_state.connections, "its connection is gone")
        with sent(port, "/silent") as other:
            assert status_of(other) == b"HTTP/1.1 200 OK", "the one stream there may be is free"


def test_a_client_that_reads_is_not_cut_off() -> None:
    application = Application()
    with serving(application, slow_seconds_max=PATIENCE_S) as (_, port), sent(port, "/events") as reader:
        taken = 0
        while taken < 32 << 20:
            taken += len(reader.recv(1 << 20))
        assert not application.ended.is_set()


def test_headers_are_bounded() -> None:
    with serving(Application()) as (_, port):
        with sent(port, "/", "X: y\r\n") as client:
            assert status_of(client) == b"HTTP/1.1 200 OK"
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as client:
            client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"y" * 4096)
            assert status_of(client) == b"HTTP/1.1 400 Bad Request"


def test_one_connection_too_many_is_refused() -> None:
    with serving(Application(), connections_max=3) as (server, port):
        silent = [socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) for _ in range(2)]
        wait_until(lambda: len(server.server_state.connections) == 2, "both are accepted")
        with sent(port, "/") as client:
            assert status_of(client) == b"HTTP/1.1 503 Service Unavailable"
        for each in silent:
            each.close()
        wait_until(lambda: not server.server_state.connections, "all are gone")
        with sent(port, "/") as client:
            assert status_of(client) == b"HTTP/1.1 200 OK"


def test_a_stop_waits_for_no_stream() -> None:
    application = Application()
    with serving(application) as (server, port), sent(port, "/silent") as client:
        assert application.begun.wait(PATIENCE_S)
        server.stop()
        with client.makefile("rb") as answer:
            assert answer.read().endswith(b"retry: 2000\n\n\r\n0\r\n\r\n"), "it ends as it should"


def test_a_port_in_use_is_an_error_before_anything_starts() -> None:
    with bind("127.0.0.1", 0) as listener:
        listener.listen()
        with pytest.raises(OSError, match="in use"):
            bind("127.0.0.1", listener.getsockname()[1])
