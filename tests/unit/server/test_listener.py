"""The listener: connection limits, idle connections and an orderly stop, on a real event loop and loopback sockets."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import Coroutine
from typing import Any

import pytest
from patience import PATIENCE_S
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
from moldau.security.quotas.connections import ConnectionQuotas
from moldau.security.quotas.entities import CONNECTION_CREATION_RATE, entity
from moldau.security.quotas.rates import Window
from moldau.server import listener as listener_module
from moldau.server.conversation import ConnectionBudget
from moldau.server.listener import Listener, bound_socket
from moldau.server.router import Caller, Router
from moldau.wire.apis import ApiKey
from moldau.wire.frames import request_frame
from moldau.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

BUDGET_BYTES = 1 << 20
ASK = bytes(request_frame(ApiKey.HEARTBEAT, 4, 1, "c", HeartbeatRequest(group_id="g", member_id="m")))
Client = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Heartbeats:
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

    async def come_in(self) -> Client:
        return await asyncio.open_connection("127.0.0.1", self.port)


async def answered(client: Client) -> bool:
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
def test_connections_of_an_address_are_limited_and_a_closed_one_makes_place(counts: ConnectionMaxima) -> None:
    async def visit() -> None:
        door = RunningListener(counts)
        guests = [await door.come_in() for _ in range(2)]
        assert [await answered(guest) for guest in guests] == [True, True]
        refused = await door.come_in()
        assert not await answered(refused)
        guests[0][1].close()
        await until(lambda: door.listener.connections == 1)
        late = await door.come_in()
        assert await answered(late)
        assert await answered(guests[1])
        assert door.counters[CONNECTIONS_REFUSED_PER_IP] == 1
        assert door.counters[CONNECTIONS_ACCEPTED] == 3
        await door.listener.stop(0)
        for _, writer in (*guests, refused, late):
            writer.close()

    run(visit())


@pytest.mark.parametrize(
    "counts",
    [ConnectionMaxima(connections_max=2), ConnectionMaxima(listeners={"PLAINTEXT": ListenerMaxima(2)})],
    ids=["node", "listener"],
)
def test_above_max_connections_clients_wait_until_another_one_leaves(counts: ConnectionMaxima) -> None:
    async def visit() -> None:
        door = RunningListener(counts)
        guests = [await door.come_in() for _ in range(2)]
        assert [await answered(guest) for guest in guests] == [True, True]
        waiting = await door.come_in()
        asked = asyncio.create_task(answered(waiting))
        await until(lambda: door.counters[ACCEPT_PAUSED_MAX_CONNECTIONS] == 1)
        assert not asked.done()
        assert await answered(guests[1]), "those who are connected notice nothing"
        assert door.listener.connections == 2
        guests[0][1].close()
        assert await asked
        await door.listener.stop(0)
        for _, writer in (*guests, waiting):
            writer.close()

    run(visit())


def test_clients_do_not_keep_brokers_out_and_the_least_active_client_makes_place() -> None:
    counts = ConnectionMaxima(connections_max=2, listeners={"CLIENTS": ListenerMaxima(), "BROKERS": ListenerMaxima()})
    quotas = ConnectionQuotas(counts, Window(), "BROKERS")

    async def visit() -> None:
        # The interval of the sweep is a quarter of idle_ms_max.
        clients = RunningListener(quotas=quotas, name="CLIENTS", idle_ms_max=200_000)
        brokers = RunningListener(quotas=quotas, name="BROKERS")
        guests = [await clients.come_in() for _ in range(2)]
        assert [await answered(guest) for guest in guests] == [True, True]
        broker = await brokers.come_in()
        assert await answered(broker)
        assert quotas.total == 3
        assert await answered(guests[0])
        clients.listener._sweep()
        assert await guests[1][0].read() == b""
        assert await answered(guests[0])
        assert clients.counters[CLOSED_EVICTED] == 1
        for door in (clients, brokers):
            await door.listener.stop(0)
        for _, writer in (*guests, broker):
            writer.close()

    run(visit())


def test_new_connections_wait_above_their_rate_and_nobody_else_does() -> None:
    async def visit() -> None:
        door = RunningListener(quotas=ConnectionQuotas(ConnectionMaxima(new_per_s_max=10), Window(2, 50)))
        first = await door.come_in()
        assert await answered(first)
        late = [await door.come_in() for _ in range(3)]
        assert await answered(first)
        assert all([await answered(each) for each in late])
        assert door.counters[ACCEPT_PAUSED_RATE] > 0
        await door.listener.stop(0)
        for _, writer in (first, *late):
            writer.close()

    run(visit())


def test_an_address_above_its_rate_is_closed_after_a_pause_and_not_counted() -> None:
    async def visit() -> None:
        door = RunningListener()
        door.quotas.set_quotas({entity(ip="127.0.0.1"): {CONNECTION_CREATION_RATE: 0.1}})
        first, second = await door.come_in(), await door.come_in()
        assert await answered(first)
        await until(lambda: door.counters[CONNECTIONS_REFUSED_IP_RATE] == 1)
        assert door.quotas.total == 1
        assert not await answered(second)
        assert await answered(first)
        assert not door.listener._throttled
        await door.listener.stop(0)
        for _, writer in (first, second):
            writer.close()

    run(visit())


def test_idle_connections_are_closed_even_with_half_a_frame() -> None:
    async def visit() -> None:
        door = RunningListener(idle_ms_max=1)
        silent, half = await door.come_in(), await door.come_in()
        half[1].write(ASK[:7])
        assert await silent[0].read() == b""
        assert await half[0].read() == b""
        await until(lambda: door.listener.connections == 0)
        assert door.budget.free == BUDGET_BYTES
        assert door.counters[CLOSED_IDLE] == 2
        await door.listener.stop(0)
        for _, writer in (silent, half):
            writer.close()

    run(visit())


def test_with_a_negative_idle_time_no_connection_is_closed_as_idle() -> None:
    async def visit() -> None:
        door = RunningListener(idle_ms_max=-1)
        _, writer = await door.come_in()
        await until(lambda: door.listener.connections == 1)
        door.listener._sweep()
        assert door.listener.connections == 1
        await door.listener.stop(0)
        writer.close()

    run(visit())


def test_a_stopping_listener_answers_open_requests_and_accepts_no_connection() -> None:
    async def visit() -> None:
        door = RunningListener()
        door.heartbeats.is_late = True
        guest = await door.come_in()
        guest[1].write(ASK)
        await until(lambda: len(door.heartbeats.late) == 1)
        stopping = asyncio.create_task(door.listener.stop(PATIENCE_S))
        await asyncio.sleep(0)
        with pytest.raises(OSError):
            await door.come_in()
        assert not stopping.done()
        door.heartbeats.late[0].complete(HeartbeatResponse())
        assert len(await guest[0].read()) == 4 + 4 + 1 + 4 + 2 + 1
        await stopping
        assert door.listener.connections == 0
        guest[1].close()

    run(visit())


def test_a_stopping_listener_does_not_wait_longer_than_its_limit() -> None:
    async def visit() -> None:
        door = RunningListener()
        door.heartbeats.is_late = True
        guest = await door.come_in()
        guest[1].write(ASK)
        await until(lambda: len(door.heartbeats.late) == 1)
        await door.listener.stop(0.01)
        assert await guest[0].read() == b""
        door.heartbeats.late[0].complete(HeartbeatResponse())
        guest[1].close()

    run(visit())


def test_a_malformed_client_id_is_logged_without_its_line_breaks(caplog: pytest.LogCaptureFixture) -> None:
    async def visit() -> None:
        door = RunningListener()
        guest = await door.come_in()
        guest[1].write((40).to_bytes(4, "big") + b"\xff\xff evil\nline".ljust(40, b"\0"))
        assert await guest[0].read() == b""
        await door.listener.stop(0)
        guest[1].close()

    run(visit())
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
        self.gone = [(DisconnectedSocket(), None), (DisconnectedSocket(), ("10.0.0.1", 5))]
        self.let_in = [sock for sock, _ in self.gone]

    def accept(self) -> Any:
        return self.gone.pop() if self.gone else self._real.accept()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


def test_clients_that_disconnect_before_they_are_accepted_block_nobody(caplog: pytest.LogCaptureFixture) -> None:
    async def visit() -> None:
        door = RunningListener()
        assert door.listener._socket is not None
        hasty = SocketWithDisconnects(door.listener._socket)
        door.listener._socket = hasty  # type: ignore[assignment]
        guest = await door.come_in()
        assert await answered(guest)
        assert door.listener.connections == 1
        assert [sock.fileno() for sock in hasty.let_in] == [-1, -1], "their sockets are closed"
        await door.listener.stop(0)
        guest[1].close()

    run(visit())
    assert [record.getMessage() for record in caplog.records] == [
        "connection from 10.0.0.1 closed: the socket options could not be set: Invalid argument"
    ]


def test_connections_leave_the_last_file_descriptors_to_files(caplog: pytest.LogCaptureFixture) -> None:
    async def visit() -> None:
        door = RunningListener(descriptor_max=0)
        refused = await door.come_in()
        assert not await answered(refused)
        await door.listener.stop(0)
        refused[1].close()

    run(visit())
    assert "refused: too many open files; raise the limit (`ulimit -n`)" in caplog.text


def test_without_file_descriptors_connections_wait_and_one_line_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(listener_module, "ACCEPT_RETRY_S", 0.001)
    turns = 20

    async def visit() -> None:
        door = RunningListener()
        real = door.listener._socket
        door.listener._socket = exhausted = ExhaustedSocket(real, turns)  # type: ignore[assignment,arg-type]
        guest = await door.come_in()
        assert await answered(guest)
        assert exhausted.left == 0
        await door.listener.stop(0)
        guest[1].close()

    run(visit())
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


def test_a_shared_port_has_several_listeners_and_others_have_one() -> None:
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
