"""`PeerConnections`, the connections between nodes, on loopback sockets and both event loops."""

from __future__ import annotations

import asyncio
import errno
import logging
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from scripted_peer import (
    HEARTBEAT,
    VERSIONS,
    Answer,
    ScriptedPeer,
    answer_to,
    framed,
    heartbeat,
    politely,
    run,
    silently,
    until,
    with_bytes,
)

from moldau.base.errors import ErrorCode, KafkaError
from moldau.client.peer_connections import RECONNECT_BACKOFF_S, PeerConnection, PeerConnections
from moldau.wire.apis import ApiKey
from moldau.wire.frames import RequestHeader
from moldau.wire.messages.heartbeat import HeartbeatResponse

Test = Callable[[ScriptedPeer, PeerConnection], Awaitable[None]]
PURPOSE = "test"
LOOPS = pytest.mark.parametrize("uv", [True, False], ids=["uvloop", "asyncio"])


@asynccontextmanager
async def connected(server: ScriptedPeer) -> AsyncIterator[tuple[PeerConnections, PeerConnection]]:
    await server.start()
    peers = PeerConnections(asyncio.get_running_loop())
    try:
        yield peers, peers.to("127.0.0.1", server.port, PURPOSE)
    finally:
        peers.close_all()
        await server.stop()


async def unused_port() -> int:
    """Return a port whose connections are refused."""
    server = await ScriptedPeer().start()
    await server.stop()
    return server.port


async def answered_within(peer: PeerConnection, timeout_ms: int) -> None:
    """Send requests with this timeout until one is answered, which the first may not be on a busy machine."""
    while not isinstance(came := await heartbeat(peer, timeout_ms), HeartbeatResponse):
        assert came is ErrorCode.REQUEST_TIMED_OUT


@LOOPS
def test_the_highest_common_version_is_used(uv: bool) -> None:
    async def talk() -> None:
        server = ScriptedPeer(versions={**VERSIONS, ApiKey.HEARTBEAT: (1, 3)})
        async with connected(server) as (_, peer):
            assert isinstance(await heartbeat(peer), HeartbeatResponse)
            assert isinstance(await heartbeat(peer, version=2), HeartbeatResponse)
        assert [asked.api_version for asked in server.asked] == [3, 2]
        assert {asked.client_id for asked in server.asked} == {PURPOSE}

    run(talk(), uv)


def test_a_node_too_old_for_the_handshake_is_asked_again_in_version_0() -> None:
    async def talk() -> None:
        server = ScriptedPeer(versions={**VERSIONS, ApiKey.API_VERSIONS: (0, 2)})
        async with connected(server) as (_, peer):
            assert isinstance(await heartbeat(peer), HeartbeatResponse)
        assert server.handshakes == [3, 0]

    run(talk())


def test_requests_made_while_connecting_are_sent_in_order_on_one_connection() -> None:
    async def talk() -> None:
        server = ScriptedPeer()
        async with connected(server) as (peers, peer):
            answers = [peer.ask(ApiKey.HEARTBEAT, HEARTBEAT, 5000) for _ in range(200)]
            assert peers.to("127.0.0.1", server.port, PURPOSE) is peer
            await until(lambda: all(answer.done for answer in answers))
        # The server puts the number of the request into its answer.
        numbers = [answer.value().throttle_time_ms for answer in answers]
        assert numbers == [asked.correlation_id for asked in server.asked] == sorted(numbers)
        assert (server.connections, len(server.handshakes)) == (1, 1)

    run(talk())


def test_each_purpose_has_its_own_connection() -> None:
    async def talk() -> None:
        server = ScriptedPeer()
        async with connected(server) as (peers, peer):
            server.answer = silently
            waits = peer.ask(ApiKey.HEARTBEAT, HEARTBEAT, 5000)
            await until(lambda: len(server.asked) == 1)
            server.answer = politely
            assert isinstance(await heartbeat(peers.to("127.0.0.1", server.port, "other")), HeartbeatResponse)
            assert not waits.done
        assert server.connections == 2

    run(talk())


def test_an_unsupported_api_or_version_fails_only_its_own_request() -> None:
    async def talk() -> None:
        server = ScriptedPeer(versions={**VERSIONS, ApiKey.HEARTBEAT: (0, 3)})
        async with connected(server) as (_, peer):
            assert await heartbeat(peer, version=4) is ErrorCode.UNSUPPORTED_VERSION
            unknown = await answer_to(peer.ask(ApiKey.LEAVE_GROUP, HEARTBEAT, 5000))
            assert isinstance(unknown, KafkaError)
            assert unknown.code is ErrorCode.UNSUPPORTED_VERSION
            assert isinstance(await heartbeat(peer), HeartbeatResponse)
        assert server.connections == 1

    run(talk())


@LOOPS
def test_a_refused_connection_fails_at_once_and_later_requests_succeed_when_the_node_is_up(uv: bool) -> None:
    async def talk() -> None:
        port = await unused_port()
        peer = PeerConnections(asyncio.get_running_loop()).to("127.0.0.1", port, PURPOSE)
        assert await heartbeat(peer) is ErrorCode.NETWORK_EXCEPTION
        server = await ScriptedPeer().start(port)
        assert isinstance(await heartbeat(peer), HeartbeatResponse)
        peer.close()
        await server.stop()

    run(talk(), uv)


def test_immediate_retries_do_not_keep_the_event_loop_busy() -> None:
    async def talk() -> None:
        peer = PeerConnections(asyncio.get_running_loop()).to("127.0.0.1", await unused_port(), PURPOSE)
        failures = 0

        def again(came: Any) -> None:
            nonlocal failures
            failures += 1
            if not peer.is_closed:
                peer.ask(ApiKey.HEARTBEAT, HEARTBEAT, 5000).then(again)

        peer.ask(ApiKey.HEARTBEAT, HEARTBEAT, 5000).then(again)
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        await until(lambda: failures >= 4)
        peer.close()
        assert failures <= 2 + (loop.time() - began_s) / RECONNECT_BACKOFF_S

    run(talk())


@pytest.mark.parametrize("host", ["nowhere.invalid", "." * 70, "a" * 70])
def test_a_host_that_does_not_exist_is_a_network_exception(host: str) -> None:
    async def talk() -> None:
        peer = PeerConnections(asyncio.get_running_loop()).to(host, 9092, PURPOSE)
        assert await heartbeat(peer) is ErrorCode.NETWORK_EXCEPTION

    run(talk())


@LOOPS
def test_a_timeout_closes_the_connection_and_the_next_request_opens_another(uv: bool) -> None:
    async def talk() -> None:
        server = ScriptedPeer()
        async with connected(server) as (_, peer):
            assert isinstance(await heartbeat(peer), HeartbeatResponse)
            server.answer = silently
            patient = peer.ask(ApiKey.HEARTBEAT, HEARTBEAT, 9000)
            hurried = peer.ask(ApiKey.HEARTBEAT, HEARTBEAT, 60)
            assert (await answer_to(hurried)).code is ErrorCode.REQUEST_TIMED_OUT
            await until(lambda: patient.done)
            assert patient.value().code is ErrorCode.NETWORK_EXCEPTION
            server.answer = politely
            assert isinstance(await heartbeat(peer), HeartbeatResponse)
        assert server.connections == 2

    run(talk(), uv)


def test_a_node_that_accepts_but_never_answers_times_out() -> None:
    async def talk() -> None:
        server = ScriptedPeer()
        server.answer_handshake = lambda header, writer: None  # type: ignore[method-assign]
        async with connected(server) as (_, peer):
            while server.connections < 2:  # one may time out before it is connected
                assert await heartbeat(peer, timeout_ms=50) is ErrorCode.REQUEST_TIMED_OUT

    run(talk())


def test_an_earlier_deadline_does_not_end_a_later_request() -> None:
    async def talk() -> None:
        async def slowly(header: RequestHeader, writer: asyncio.StreamWriter) -> None:
            await asyncio.sleep(0.15)
            await politely(header, writer)

        server = ScriptedPeer()
        async with connected(server) as (_, peer):
            await answered_within(peer, 100)
            server.answer = slowly
            assert isinstance(await heartbeat(peer), HeartbeatResponse)

    run(talk())


def test_a_deadline_is_kept_although_the_timer_was_set_for_an_earlier_request() -> None:
    async def talk() -> None:
        server = ScriptedPeer()
        async with connected(server) as (_, peer):
            await answered_within(peer, 50)
            server.answer = silently
            before = asyncio.get_running_loop().time()
            assert await heartbeat(peer, timeout_ms=150) is ErrorCode.REQUEST_TIMED_OUT
            assert asyncio.get_running_loop().time() - before > 0.14

    run(talk())


@LOOPS
def test_a_broken_connection_fails_all_requests_in_flight(uv: bool) -> None:
    async def talk() -> None:
        server = ScriptedPeer(silently)
        async with connected(server) as (_, peer):
            answers = [peer.ask(ApiKey.HEARTBEAT, HEARTBEAT, 9000) for _ in range(3)]
            await until(lambda: len(server.asked) == 3)
            server.hang_up()
            await until(lambda: all(answer.done for answer in answers))
            assert {answer.value().code for answer in answers} == {ErrorCode.NETWORK_EXCEPTION}
            server.answer = politely
            assert isinstance(await heartbeat(peer), HeartbeatResponse)

    run(talk(), uv)


def test_a_failure_callback_may_send_the_next_request() -> None:
    async def talk() -> None:
        server = ScriptedPeer(silently)
        async with connected(server) as (_, peer):
            second: list[Any] = []

            def again(came: Any) -> None:
                server.answer = politely
                peer.ask(ApiKey.HEARTBEAT, HEARTBEAT, 9000).then(second.append)

            peer.ask(ApiKey.HEARTBEAT, HEARTBEAT, 9000).then(again)
            await until(lambda: len(server.asked) == 1)
            server.hang_up()
            await until(lambda: bool(second))
            assert isinstance(second[0], HeartbeatResponse)

    run(talk())


def test_an_idle_connection_closed_by_the_peer_is_opened_again() -> None:
    async def talk() -> None:
        server = ScriptedPeer()
        async with connected(server) as (_, peer):
            await heartbeat(peer)
            server.hang_up()
            await until(lambda: peer._frames is None)
            assert isinstance(await heartbeat(peer), HeartbeatResponse)
        assert server.connections == 2

    run(talk())


MALFORMED = {
    "a negative length": with_bytes(struct.pack(">i", -1)),
    "a zero length": with_bytes(struct.pack(">i", 0)),
    "too large a length": with_bytes(struct.pack(">i", (1 << 31) - 1)),
    "another protocol": with_bytes(b"HTTP/1.1 400 Bad Request\r\n\r\n"),
    "another correlation id": with_bytes(struct.pack(">iibihb", 12, 77_777, 0, 0, 0, 0)[:16]),
    "a body that is cut short": with_bytes(struct.pack(">i", 6) + b"%c\0\0"),
    "bytes behind the body": with_bytes(struct.pack(">i", 21) + b"%c" + bytes(17)),
    "header tags without end": with_bytes(struct.pack(">i", 5) + b"%c\xff"),
}


@pytest.mark.parametrize("answer", MALFORMED.values(), ids=MALFORMED.keys())
def test_a_malformed_response_closes_the_connection_and_is_logged_once(
    answer: Answer, caplog: pytest.LogCaptureFixture
) -> None:
    async def talk() -> None:
        server = ScriptedPeer(answer)
        async with connected(server) as (_, peer):
            for _ in range(5):
                assert await heartbeat(peer) is ErrorCode.NETWORK_EXCEPTION
            server.answer = politely
            assert isinstance(await heartbeat(peer), HeartbeatResponse)

    with caplog.at_level(logging.WARNING):
        run(talk())
    assert 1 <= len(caplog.records) <= 2
    assert "closed: " in caplog.text


def test_an_unexpected_response_closes_the_connection() -> None:
    async def talk() -> None:
        async def twice(header: RequestHeader, writer: asyncio.StreamWriter) -> None:
            writer.write(2 * framed(header, HeartbeatResponse()))

        server = ScriptedPeer(twice)
        async with connected(server) as (_, peer):
            assert isinstance(await heartbeat(peer), HeartbeatResponse)
            await until(lambda: peer._frames is None)
            assert isinstance(await heartbeat(peer), HeartbeatResponse)
        assert server.connections == 2

    run(talk())


def test_closing_fails_requests_in_flight_and_the_next_peer_is_a_new_one() -> None:
    async def talk() -> None:
        server = ScriptedPeer(silently)
        async with connected(server) as (peers, peer):
            answer = peer.ask(ApiKey.HEARTBEAT, HEARTBEAT, 9000)
            await until(lambda: len(server.asked) == 1)
            peer.close()
            assert (await answer_to(answer)).code is ErrorCode.NETWORK_EXCEPTION
            assert await heartbeat(peer) is ErrorCode.NETWORK_EXCEPTION
            server.answer = politely
            assert isinstance(await heartbeat(peers.to("127.0.0.1", server.port, PURPOSE)), HeartbeatResponse)
            peers.close_all()
            assert await heartbeat(peers.to("127.0.0.1", server.port, PURPOSE)) is ErrorCode.NETWORK_EXCEPTION
            assert await heartbeat(peers.to("127.0.0.1", server.port, "new")) is ErrorCode.NETWORK_EXCEPTION

    run(talk())


def test_closing_while_connecting_leaves_nothing_behind() -> None:
    async def talk() -> None:
        server = ScriptedPeer()
        async with connected(server) as (_, peer):
            answer = peer.ask(ApiKey.HEARTBEAT, HEARTBEAT, 9000)
            peer.close()
            assert (await answer_to(answer)).code is ErrorCode.NETWORK_EXCEPTION
            await until(lambda: len(asyncio.all_tasks()) <= 2)  # this test and its time limit
        assert not server.asked

    run(talk())


def test_a_socket_that_refuses_options_is_used_without_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """On macOS this fails once the peer has closed the connection, which we notice a moment later."""

    def refuse(self: object, *option: Any) -> None:
        raise OSError(errno.EINVAL, "Invalid argument")

    async def talk() -> None:
        async with connected(ScriptedPeer()) as (_, peer):
            monkeypatch.setattr(asyncio.trsock.TransportSocket, "setsockopt", refuse)
            assert isinstance(await heartbeat(peer), HeartbeatResponse)

    run(talk(), uvloop=False)
