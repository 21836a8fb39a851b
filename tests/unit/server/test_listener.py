"""The listener: connection limits, idle connections and an orderly stop, on a real event loop and loopback sockets."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import Coroutine
from typing import Any

import pytest
from harness.patience import PATIENCE_S
from scripted_conversation import until

from moldau.base.connection_settings import ConnectionLimits, ConnectionMaxima, ListenerMaxima
from moldau.base.counters import (
    ACCEPT_PAUSED_MAX_CONNECTIONS,
    ACCEPT_PAUSED_RATE,
    CLOSED_EVICTED,
    CLOSED_IDLE,
    CONNECTIONS_ACCEPTED,
    CONNECTIONS_REFUSED_IP_RATE,
    CONNECTIONS_REFUSED_PER_IP,
)
from moldau.base.promise import Promise
from moldau.platforms.addresses import is_own_host
from moldau.security.quotas.connections import ConnectionQuotas
from moldau.security.quotas.entities import CONNECTION_CREATION_RATE, entity
from moldau.security.quotas.rates import Window
from moldau.server import listener as listener_module
from moldau.server.conversation import ConnectionBudget
from moldau.server.handler import Caller, Handler
from moldau.server.listener import Listener, bound_socket
from moldau.server.router import Router
from moldau.wire.apis import ApiKey
from moldau.wire.frames import request_frame
from moldau.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

BUDGET_BYTES = 1 << 20
ASK = bytes(request_frame(ApiKey.HEARTBEAT, 4, 1, "c", HeartbeatRequest(group_id="g", member_id="m")))
Client = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Heartbeats(Handler):
    api = ApiKey.HEARTBEAT
    versions = (0, 4)

    def __init__(self) -> None:
        self.late: list[Promise[HeartbeatResponse]] = []
        self.is_late = False

    def answer(self, request: HeartbeatRequest, caller: Caller) -> HeartbeatResponse | Promise[HeartbeatResponse]:
        if not self.is_late:
            return HeartbeatResponse()
        self.late.append(Promise())
        return self.late[-1]


class RunningListener:
    def __init__(
        self,
        counts: ConnectionMaxima | None = None,
        quotas: ConnectionQuotas | None = None,
        name: str = "PLAINTEXT",
        limits: ConnectionLimits | None = None,
        idle_ms_max: int = 600_000,
        **settings: Any,
    ) -> None:
        self.heartbeats = Heartbeats()
        router = Router()
        router.serve([self.heartbeats])
        self.budget = ConnectionBudget(BUDGET_BYTES, limits)
        self.counters = self.budget.counters
        self.quotas = quotas or ConnectionQuotas(counts or ConnectionMaxima(), Window())
        self.listener = Listener(name, router, self.budget, 1 << 20, self.quotas, idle_ms_max, **settings)
        _, self.port = self.listener.bind("127.0.0.1", 0)
        self.listener.start()

    async def connect(self) -> Client:
        return await asyncio.open_connection("127.0.0.1", self.port)


async def is_answered(client: Client) -> bool:
    """Return whether a request is answered rather than the connection closed."""
    reader, writer = client
    writer.write(ASK)
    try:
        size = int.from_bytes(await reader.readexactly(4), "big")
        await reader.readexactly(size)
    except (asyncio.IncompleteReadError, ConnectionError):
        return False
    return True


def run(test: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner() as runner:
        runner.run(asyncio.wait_for(test, PATIENCE_S))


@pytest.mark.parametrize(
    "counts",
    [ConnectionMaxima(per_ip_max=2), ConnectionMaxima(per_ip_overrides={"127.0.0.1": 2})],
    ids=["default", "override"],
)
def test_connections_per_ip_are_limited_until_one_is_closed(counts: ConnectionMaxima) -> None:
    async def scenario() -> None:
        server = RunningListener(counts)
        clients = [await server.connect() for _ in range(2)]
        assert [await is_answered(client) for client in clients] == [True, True]
        refused = await server.connect()
        assert not await is_answered(refused)
        clients[0][1].close()
        await until(lambda: server.listener.connections == 1)
        late = await server.connect()
        assert await is_answered(late)
        assert await is_answered(clients[1])
        assert server.counters[CONNECTIONS_REFUSED_PER_IP] == 1
        assert server.counters[CONNECTIONS_ACCEPTED] == 3
        await server.listener.stop(0)
        for _, writer in (*clients, refused, late):
            writer.close()

    run(scenario())


@pytest.mark.parametrize(
    "counts",
    [ConnectionMaxima(connections_max=2), ConnectionMaxima(listeners={"PLAINTEXT": ListenerMaxima(2)})],
    ids=["node", "listener"],
)
def test_above_max_connections_clients_wait_until_a_connection_is_closed(counts: ConnectionMaxima) -> None:
    async def scenario() -> None:
        server = RunningListener(counts)
        clients = [await server.connect() for _ in range(2)]
        assert [await is_answered(client) for client in clients] == [True, True]
        waiting = await server.connect()
        asked = asyncio.create_task(is_answered(waiting))
        await until(lambda: server.counters[ACCEPT_PAUSED_MAX_CONNECTIONS] == 1)
        assert not asked.done()
        assert await is_answered(clients[1]), "connections that are already open are still served"
        assert server.listener.connections == 2
        clients[0][1].close()
        assert await asked
        await server.listener.stop(0)
        for _, writer in (*clients, waiting):
            writer.close()

    run(scenario())


def test_brokers_connect_above_max_connections_and_the_least_active_client_is_closed() -> None:
    counts = ConnectionMaxima(connections_max=2, listeners={"CLIENTS": ListenerMaxima(), "BROKERS": ListenerMaxima()})
    quotas = ConnectionQuotas(counts, Window(), "BROKERS")

    async def scenario() -> None:
        # The interval of the sweep is a quarter of idle_ms_max.
        client_server = RunningListener(quotas=quotas, name="CLIENTS", idle_ms_max=200_000)
        broker_server = RunningListener(quotas=quotas, name="BROKERS")
        clients = [await client_server.connect() for _ in range(2)]
        assert [await is_answered(client) for client in clients] == [True, True]
        broker = await broker_server.connect()
        assert await is_answered(broker)
        assert quotas.total == 3
        assert await is_answered(clients[0])
        client_server.listener._sweep()
        assert await clients[1][0].read() == b""
        assert await is_answered(clients[0])
        assert client_server.counters[CLOSED_EVICTED] == 1
        for server in (client_server, broker_server):
            await server.listener.stop(0)
        for _, writer in (*clients, broker):
            writer.close()

    run(scenario())


def test_new_connections_above_the_rate_wait_and_existing_ones_do_not() -> None:
    async def scenario() -> None:
        server = RunningListener(quotas=ConnectionQuotas(ConnectionMaxima(new_per_s_max=10), Window(2, 50)))
        first = await server.connect()
        assert await is_answered(first)
        late = [await server.connect() for _ in range(3)]
        assert await is_answered(first)
        assert all([await is_answered(each) for each in late])
        assert server.counters[ACCEPT_PAUSED_RATE] > 0
        await server.listener.stop(0)
        for _, writer in (first, *late):
            writer.close()

    run(scenario())


def test_a_connection_above_the_rate_of_its_ip_is_closed_after_a_pause() -> None:
    async def scenario() -> None:
        server = RunningListener()
        server.quotas.set_quotas({entity(ip="127.0.0.1"): {CONNECTION_CREATION_RATE: 0.1}})
        first, second = await server.connect(), await server.connect()
        assert await is_answered(first)
        await until(lambda: server.counters[CONNECTIONS_REFUSED_IP_RATE] == 1)
        assert server.quotas.total == 1
        assert not await is_answered(second)
        assert await is_answered(first)
        assert not server.listener._throttled
        await server.listener.stop(0)
        for _, writer in (first, second):
            writer.close()

    run(scenario())


def test_idle_connections_are_closed_even_with_half_a_frame() -> None:
    async def scenario() -> None:
        server = RunningListener(idle_ms_max=1)
        silent, half = await server.connect(), await server.connect()
        half[1].write(ASK[:7])
        assert await silent[0].read() == b""
        assert await half[0].read() == b""
        await until(lambda: server.listener.connections == 0)
        assert server.budget.free == BUDGET_BYTES
        assert server.counters[CLOSED_IDLE] == 2
        await server.listener.stop(0)
        for _, writer in (silent, half):
            writer.close()

    run(scenario())


def test_with_a_negative_idle_time_no_connection_is_closed_as_idle() -> None:
    async def scenario() -> None:
        server = RunningListener(idle_ms_max=-1)
        _, writer = await server.connect()
        await until(lambda: server.listener.connections == 1)
        server.listener._sweep()
        assert server.listener.connections == 1
        await server.listener.stop(0)
        writer.close()

    run(scenario())


def test_a_stopping_listener_answers_open_requests_and_accepts_no_connection() -> None:
    async def scenario() -> None:
        server = RunningListener()
        server.heartbeats.is_late = True
        client = await server.connect()
        client[1].write(ASK)
        await until(lambda: len(server.heartbeats.late) == 1)
        stopping = asyncio.create_task(server.listener.stop(PATIENCE_S))
        await asyncio.sleep(0)
        with pytest.raises(OSError):
            await server.connect()
        assert not stopping.done()
        server.heartbeats.late[0].complete(HeartbeatResponse())
        assert len(await client[0].read()) == 4 + 4 + 1 + 4 + 2 + 1
        await stopping
        assert server.listener.connections == 0
        client[1].close()

    run(scenario())


def test_a_stopping_listener_does_not_wait_longer_than_its_limit() -> None:
    async def scenario() -> None:
        server = RunningListener()
        server.heartbeats.is_late = True
        client = await server.connect()
        client[1].write(ASK)
        await until(lambda: len(server.heartbeats.late) == 1)
        await server.listener.stop(0.01)
        assert await client[0].read() == b""
        server.heartbeats.late[0].complete(HeartbeatResponse())
        client[1].close()

    run(scenario())


def test_a_malformed_client_id_is_logged_without_its_line_breaks(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        server = RunningListener()
        client = await server.connect()
        client[1].write((40).to_bytes(4, "big") + b"\xff\xff evil\nline".ljust(40, b"\0"))
        assert await client[0].read() == b""
        await server.listener.stop(0)
        client[1].close()

    run(scenario())
    assert len(caplog.records) == 1
    assert "\n" not in caplog.records[0].getMessage()


class DisconnectedSocket(socket.socket):
    """A client that disconnected before it was accepted: on macOS its socket has no address, or refuses options."""

    def setsockopt(self, *option: Any) -> None:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))


class SocketWithDisconnects:
    """A listening socket that first accepts two clients that have already disconnected."""

    def __init__(self, real: socket.socket) -> None:
        self._real = real
        self._disconnected = [(DisconnectedSocket(), None), (DisconnectedSocket(), ("10.0.0.1", 5))]
        self.accepted = [sock for sock, _ in self._disconnected]

    def accept(self) -> Any:
        return self._disconnected.pop() if self._disconnected else self._real.accept()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


def test_clients_that_disconnect_before_they_are_accepted_do_not_block_others(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        server = RunningListener()
        assert server.listener._socket is not None
        listening = SocketWithDisconnects(server.listener._socket)
        server.listener._socket = listening  # type: ignore[assignment]
        client = await server.connect()
        assert await is_answered(client)
        assert server.listener.connections == 1
        assert [sock.fileno() for sock in listening.accepted] == [-1, -1], "their sockets are closed"
        await server.listener.stop(0)
        client[1].close()

    run(scenario())
    assert [record.getMessage() for record in caplog.records] == [
        "connection from 10.0.0.1 closed: the socket options could not be set: Invalid argument"
    ]


def test_connections_are_refused_when_only_descriptors_for_files_are_left(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        server = RunningListener(descriptor_max=0)
        refused = await server.connect()
        assert not await is_answered(refused)
        await server.listener.stop(0)
        refused[1].close()

    run(scenario())
    assert "refused: too many open files; raise the limit (`ulimit -n`)" in caplog.text


def test_without_file_descriptors_connections_wait_and_one_line_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(listener_module, "ACCEPT_RETRY_S", 0.001)
    turns = 20

    async def scenario() -> None:
        server = RunningListener()
        real = server.listener._socket
        server.listener._socket = exhausted = ExhaustedSocket(real, turns)  # type: ignore[assignment,arg-type]
        client = await server.connect()
        assert await is_answered(client)
        assert exhausted.left == 0
        await server.listener.stop(0)
        client[1].close()

    run(scenario())
    assert [record.message for record in caplog.records] == [
        "listener PLAINTEXT: new connections wait: Too many open files; raise the limit of open files (`ulimit -n`)"
    ]


class ExhaustedSocket:
    """A listening socket whose first accepts fail because the process has no file descriptors left."""

    def __init__(self, real: socket.socket, left: int) -> None:
        self._real = real
        self.left = left

    def accept(self) -> tuple[socket.socket, Any]:
        if self.left:
            self.left -= 1
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return self._real.accept()

    def fileno(self) -> int:
        return self._real.fileno()

    def close(self) -> None:
        self._real.close()


@pytest.mark.skipif(not is_own_host("::1"), reason="this machine has no IPv6")
def test_a_name_that_has_only_an_ipv6_address_is_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    resolve = socket.getaddrinfo
    monkeypatch.setattr(socket, "getaddrinfo", lambda _, *rest, **kind: resolve("::1", *rest, **kind))
    with bound_socket("broker.test", 0) as bound:
        assert bound.getsockname()[0] == "::1"


def test_only_a_shared_port_can_be_bound_twice() -> None:
    with bound_socket("127.0.0.1", 0, is_shared=True) as first:
        port = first.getsockname()[1]
        first.listen()
        with bound_socket("127.0.0.1", port, is_shared=True) as second:
            second.listen()
        with pytest.raises(OSError, match="in use"):
            bound_socket("127.0.0.1", port)
    with bound_socket("127.0.0.1", 0) as own:
        own.listen()
        with pytest.raises(OSError, match="in use"):
            bound_socket("127.0.0.1", own.getsockname()[1], is_shared=True)
