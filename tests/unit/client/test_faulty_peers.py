"""`FaultyPeers`: connections between nodes of a testing cluster that are slow or cut."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from scripted_peer import HEARTBEAT, ScriptedPeer, answer_to, heartbeat, run, until

from moldau.base.errors import ErrorCode
from moldau.client.peer_connections import PeerConnection
from moldau.testing.faulty_peers import FaultyPeers
from moldau.wire.apis import ApiKey
from moldau.wire.messages.heartbeat import HeartbeatResponse


class Switch:
    """A connection whose faults the test sets."""

    def __init__(self, delay_ms: int | None = 0) -> None:
        self.delay_ms = delay_ms
        self.asked: set[tuple[str, int]] = set()
        self.polls = 0

    def __call__(self, host: str, port: int) -> int | None:
        self.asked.add((host, port))
        self.polls += 1
        return self.delay_ms


@asynccontextmanager
async def connected(line: Switch) -> AsyncIterator[tuple[ScriptedPeer, PeerConnection]]:
    """Yield a server and a connection to it. Both are closed even if the test fails: uvloop waits for them for ever."""
    server = await ScriptedPeer().start()
    peer = FaultyPeers(asyncio.get_running_loop(), line).to("127.0.0.1", server.port, "test")
    try:
        yield server, peer
    finally:
        peer.close()
        await server.stop()


def test_the_delay_applies_in_each_direction() -> None:
    async def talk() -> None:
        line = Switch()
        async with connected(line) as (server, peer):
            await heartbeat(peer)
            line.delay_ms = 60
            before = asyncio.get_running_loop().time()
            answers = [peer.ask(ApiKey.HEARTBEAT, HEARTBEAT, 5000) for _ in range(5)]
            asked: list[int] = []
            answers[0].then(lambda _: asked.append(len(server.asked)))
            await until(lambda: all(answer.done for answer in answers))
            assert asyncio.get_running_loop().time() - before >= 0.115
            assert asked == [6], "all requests were sent before the first response arrived"
            assert line.asked == {("127.0.0.1", server.port)}

    run(talk())


def test_a_request_over_a_cut_connection_is_delivered_when_it_is_restored() -> None:
    async def talk() -> None:
        line = Switch()
        async with connected(line) as (server, peer):
            await heartbeat(peer)
            line.delay_ms = None
            answer = peer.ask(ApiKey.HEARTBEAT, HEARTBEAT, 5000)
            polls = line.polls
            await until(lambda: answer.done or line.polls >= polls + 3)  # the request is held each time
            assert len(server.asked) == 1
            assert not answer.done
            line.delay_ms = 0
            assert isinstance(await answer_to(answer), HeartbeatResponse)
            assert server.connections == 1

    run(talk())


def test_a_response_over_a_cut_connection_is_not_delivered() -> None:
    async def talk() -> None:
        line = Switch()
        async with connected(line) as (server, peer):
            await heartbeat(peer)
            answer = peer.ask(ApiKey.HEARTBEAT, HEARTBEAT, 150)
            line.delay_ms = None
            assert (await answer_to(answer)).code is ErrorCode.REQUEST_TIMED_OUT
            assert len(server.asked) == 2

    run(talk())


def test_connecting_over_a_cut_connection_fails() -> None:
    async def talk() -> None:
        line = Switch(None)
        async with connected(line) as (server, peer):
            assert await heartbeat(peer, timeout_ms=60) is ErrorCode.REQUEST_TIMED_OUT
            assert server.connections == 0
            line.delay_ms = 0
            assert isinstance(await heartbeat(peer), HeartbeatResponse)

    run(talk())


def test_closing_a_cut_connection_leaves_nothing_behind() -> None:
    async def talk() -> None:
        line = Switch(None)
        peer = FaultyPeers(asyncio.get_running_loop(), line).to("127.0.0.1", 1, "test")
        answer = peer.ask(ApiKey.HEARTBEAT, HEARTBEAT, 5000)
        await until(lambda: line.polls > 1)
        peer.close()
        assert (await answer_to(answer)).code is ErrorCode.NETWORK_EXCEPTION
        await until(lambda: len(asyncio.all_tasks()) <= 2)  # this test and its time limit

    run(talk())
