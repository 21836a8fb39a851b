"""A socket connection around a conversation, on a real socket pair and event loop."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine
from contextlib import suppress
from functools import partial
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from connection_pairs import (
    ConnectionPair,
    MakeConnectionPair,
    TlsConnectionPair,
    TlsConnectionPairInSmallSteps,
    open_connection_pair,
)
from harness.patience import PATIENCE_S
from scripted_conversation import LATER, NOW, frame, reply_to, request, until

from moldau.base.connection_settings import ConnectionLimits
from moldau.base.counters import CLOSED_MEMORY
from moldau.base.limits import REQUESTS_IN_FLIGHT_MAX
from moldau.base.promise import Promise
from moldau.log.reading import Slice
from moldau.platforms import page_cache
from moldau.server import socket_connection
from moldau.server.conversation import Reply
from moldau.server.tls_connection import GATHERED_PIECES_MAX
from moldau.wire.codec import Outgoing, Refusal


@pytest.fixture(
    params=[ConnectionPair, TlsConnectionPair, TlsConnectionPairInSmallSteps],
    ids=["plaintext", "tls", "tls-in-small-steps"],
)
def make_pair(request: pytest.FixtureRequest) -> MakeConnectionPair:
    """Both kinds of connections behave the same way."""
    return partial(open_connection_pair, request.param)


def run(test: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner() as runner:
        runner.run(test)


@pytest.mark.parametrize(
    "count", [1, REQUESTS_IN_FLIGHT_MAX, REQUESTS_IN_FLIGHT_MAX + 1, 5 * REQUESTS_IN_FLIGHT_MAX + 3]
)
def test_a_client_may_send_many_requests_at_once(make_pair: MakeConnectionPair, count: int) -> None:
    async def talk() -> None:
        bodies = [request(number, NOW) for number in range(count)]
        wanted = b"".join(map(reply_to, bodies))
        with make_pair() as this:
            await this.send(b"".join(map(frame, bodies)))
            assert await this.receive(len(wanted)) == wanted
            assert this.connection.is_idle
            await this.send(frame(bodies[0]))
            assert await this.receive(len(reply_to(bodies[0]))) == reply_to(bodies[0])

    run(talk())


def test_late_replies_keep_the_order_and_resume_held_back_requests(make_pair: MakeConnectionPair) -> None:
    async def talk() -> None:
        promises: list[tuple[bytes, Promise[Outgoing]]] = []

        def answer(view: memoryview) -> Reply:
            body = bytes(view)
            if not body.startswith(LATER.encode()):
                return Outgoing(reply_to(body))
            promise: Promise[Outgoing] = Promise()
            promises.append((body, promise))
            return promise

        bodies = [request(number, LATER if number % 3 == 0 else NOW) for number in range(4 * REQUESTS_IN_FLIGHT_MAX)]
        with make_pair(answer) as this:
            await this.send(b"".join(map(frame, bodies)))
            received = b""
            wanted = b"".join(map(reply_to, bodies))
            while len(received) < len(wanted):
                await asyncio.sleep(0)
                given, promises[:] = promises[:], []
                for body, promise in reversed(given):
                    promise.complete(Outgoing(reply_to(body)))
                with suppress(TimeoutError):
                    received += await asyncio.wait_for(this.receive_some(1 << 16), 0.001)
            assert received == wanted
            assert this.requests == len(bodies)

    run(asyncio.wait_for(talk(), PATIENCE_S))


def test_a_client_that_does_not_read_is_not_read_from(make_pair: MakeConnectionPair) -> None:
    async def talk() -> None:
        size, count = 100_000, 200
        with make_pair(lambda _: Outgoing(bytes(size))) as this:
            asked = []
            for number in range(count):
                await this.send(frame(request(number, NOW)))
                for _ in range(5):
                    await asyncio.sleep(0)
                asked.append(this.requests)
            assert asked[-1] == asked[count // 2] < count // 2, "the connection stops reading requests"
            assert len(await this.receive(size * count)) == size * count
            assert this.requests == count

    run(talk())


def test_a_slow_reader_of_many_requests_at_once_gets_all_replies_in_order(make_pair: MakeConnectionPair) -> None:
    """More requests arrive while others are held back: none may overtake."""

    async def talk() -> None:
        def answer(view: memoryview) -> Reply:
            return Outgoing(bytes(view).ljust(30_000, b"."))

        bodies = [request(number, NOW) for number in range(6 * REQUESTS_IN_FLIGHT_MAX)]
        wanted = b"".join(body.ljust(30_000, b".") for body in bodies)
        with make_pair(answer) as this:
            received = b""
            for start in range(0, len(bodies), 100):
                await this.send(b"".join(map(frame, bodies[start : start + 100])))
                received += await this.receive(40_000)
            received += await this.receive(len(wanted) - len(received))
            assert received == wanted

    run(talk())


def test_replies_for_a_client_that_does_not_read_are_bounded_to_a_few_megabytes(make_pair: MakeConnectionPair) -> None:
    async def talk() -> None:
        answered = 0

        def answer(view: memoryview) -> Reply:
            nonlocal answered
            answered += 1
            return Outgoing(bytes(100_000))

        with make_pair(answer) as this:
            await this.send(b"".join(frame(request(number, NOW)) for number in range(500)))
            before = -1
            while answered != before:  # until nothing moves any more
                before = answered
                for _ in range(50):
                    await asyncio.sleep(0)
            assert 0 < answered < 100
            assert len(await this.receive(500 * 100_000)) == 500 * 100_000
            assert answered == 500

    run(talk())


def test_records_are_sent_from_their_file_at_the_right_place_of_the_reply(make_pair: MakeConnectionPair) -> None:
    class MemoryFd:
        def __init__(self, content: bytes) -> None:
            self._fd = os.memfd_create("segment")
            os.write(self._fd, content)

        def fileno(self) -> int:
            return self._fd

    async def talk() -> None:
        content = bytes(range(256)) * 4096
        file = MemoryFd(content)

        def answer(_: memoryview) -> Reply:
            out = Outgoing(b"HEAD")
            out.slices = [*out.slices, (4, Slice(file, 100, 900_000))]
            out += b"MIDDLE"
            out.slices = [*out.slices, (10, Slice(file, 0, 3))]
            out.slices = [*out.slices, (10, Slice(file, 5, 3))]
            out += b"TAIL"
            return out

        wanted = b"HEAD" + content[100:900_100] + b"MIDDLE" + content[:3] + content[5:8] + b"TAIL"
        with make_pair(answer) as this:
            await this.send(frame(b"a") + frame(b"b"))
            assert await this.receive(2 * len(wanted)) == wanted * 2
        os.close(file.fileno())

    run(talk())


def test_only_records_that_were_looked_up_in_the_page_cache_are_sent(
    make_pair: MakeConnectionPair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = Random(7).randbytes(700_000)
    (tmp_path / "segment").write_bytes(content)
    looked_up: set[int] = set()
    sent: set[int] = set()
    pread = os.pread

    def note_lookup(fd: int, position: int, length: int) -> bool:
        looked_up.update(range(position, position + length))
        return True

    def send_some(fd: int, file_fd: int, position: int, count: int) -> int:
        sent.update(range(position, position + count))
        return os.sendfile(fd, file_fd, position, min(count, 60_000))

    def note_read(fd: int, count: int, position: int) -> bytes:
        sent.update(range(position, position + count))
        return pread(fd, min(count, 60_000), position)

    monkeypatch.setattr(page_cache, "is_cached", note_lookup)
    monkeypatch.setattr(socket_connection, "SEND_FILE_BYTES", 100_000)
    monkeypatch.setattr(socket_connection, "send_file", send_some)
    monkeypatch.setattr(os, "pread", note_read)

    async def talk() -> None:
        with (tmp_path / "segment").open("rb") as file:

            def answer(_: memoryview) -> Reply:
                out = Outgoing(b"HEAD")
                out.slices = [(4, Slice(file, 0, 300_000)), (4, Slice(file, 350_000, 300_000))]
                return out

            wanted = b"HEAD" + content[:300_000] + content[350_000:650_000]
            with make_pair(answer) as this:
                await this.send(frame(b"a"))
                assert await this.receive(len(wanted)) == wanted

    run(asyncio.wait_for(talk(), PATIENCE_S))
    assert {*range(300_000), *range(350_000, 650_000)} <= sent <= looked_up


def test_records_of_thousands_of_partitions_are_sent_in_turns(
    make_pair: MakeConnectionPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of them takes two system calls: all in one turn blocked the event loop for 200 ms."""

    async def talk() -> None:
        partitions, size = 4_000, 100
        descriptor = os.memfd_create("segment")
        os.write(descriptor, bytes(range(256)))
        file = SimpleNamespace(fileno=lambda: descriptor)

        def answer(_: memoryview) -> Reply:
            out, slices = Outgoing(), []
            for number in range(partitions):
                out += b"%05d" % number
                slices.append((len(out), Slice(file, number % 100, size, True)))
            out.slices = slices
            return out

        content = bytes(range(256))
        wanted = b"".join(b"%05d" % each + content[each % 100 : each % 100 + size] for each in range(partitions))
        with make_pair(answer) as this:
            connection, left = this.connection, []
            pump = connection._pump

            def counted() -> None:
                before = len(connection._out)
                pump()
                left.append(before - len(connection._out))

            monkeypatch.setattr(type(connection), "_pump", lambda _: counted())
            # The socket of the test takes only some hundred pieces: the limit must be reached before.
            monkeypatch.setattr(type(connection), "TURN_PIECES", 2)
            await this.send(frame(b"a"))
            assert await this.receive(len(wanted)) == wanted
            assert max(left) <= 2 * GATHERED_PIECES_MAX
            assert len(left) >= partitions / GATHERED_PIECES_MAX
        os.close(descriptor)

    run(talk())


def test_an_invalid_length_closes_the_connection_with_a_reason(make_pair: MakeConnectionPair) -> None:
    async def talk() -> None:
        with make_pair() as this:
            await this.send(b"\x7f\xff\xff\xff")
            assert "2147483647" in await this.wait_for_close()

    run(talk())


def test_an_invalid_length_behind_held_back_requests_closes_the_connection_too(make_pair: MakeConnectionPair) -> None:
    async def talk() -> None:
        with make_pair() as this:
            fine = b"".join(frame(request(number, NOW)) for number in range(REQUESTS_IN_FLIGHT_MAX + 5))
            await this.send(fine + b"\0\0\0\0")
            await until(lambda: this.close_reasons)
            assert this.requests == REQUESTS_IN_FLIGHT_MAX + 5
            assert "0 bytes" in this.close_reasons[0]

    run(asyncio.wait_for(talk(), PATIENCE_S))


def test_a_disconnect_is_no_fault_and_late_replies_are_dropped(make_pair: MakeConnectionPair) -> None:
    async def talk() -> None:
        promise: Promise[Outgoing] = Promise()
        with make_pair(lambda _: promise) as this:
            await this.send(frame(b"x") + b"\0\0\0\x10half")
            await until(lambda: this.requests)
            assert not this.connection.is_answered
            this.client.close()
            await until(lambda: this.close_reasons)
            promise.complete(Outgoing(b"too late"))
            assert this.close_reasons == [""]

    run(asyncio.wait_for(talk(), PATIENCE_S))


def test_a_reply_that_could_not_be_encoded_closes_the_connection_after_the_earlier_replies(
    make_pair: MakeConnectionPair,
) -> None:
    async def talk() -> None:
        promises: list[Promise[Outgoing]] = []

        def answer(_: memoryview) -> Reply:
            promises.append(Promise())
            return promises[-1]

        with make_pair(answer) as this:
            await this.send(frame(b"one") + frame(b"two") + frame(b"three"))
            await until(lambda: len(promises) == 3)
            promises[0].complete(Outgoing(b"first"))
            promises[2].complete(Outgoing(b"third"))
            promises[1].complete(Outgoing())
            assert await this.receive(5) == b"first"
            assert "could not be written" in await this.wait_for_close()

    run(asyncio.wait_for(talk(), PATIENCE_S))


def test_replies_that_are_ready_are_sent_before_a_refusal_behind_them_closes_the_connection(
    make_pair: MakeConnectionPair,
) -> None:
    async def talk() -> None:
        promises: list[Promise[Outgoing]] = []

        def answer(_: memoryview) -> Reply:
            promises.append(Promise())
            return promises[-1]

        with make_pair(answer) as this:
            await this.send(frame(b"one") + frame(b"two"))
            await until(lambda: len(promises) == 2)
            promises[1].complete(Refusal("unreadable"))
            promises[0].complete(Outgoing(b"first"))
            assert await this.receive(5) == b"first"
            assert await this.wait_for_close() == "unreadable"

    run(asyncio.wait_for(talk(), PATIENCE_S))


def test_after_stop_reading_open_requests_are_answered_and_no_more_are_read(make_pair: MakeConnectionPair) -> None:
    async def talk() -> None:
        promises: list[Promise[Outgoing]] = []

        def answer(_: memoryview) -> Reply:
            promises.append(Promise())
            return promises[-1]

        with make_pair(answer) as this:
            await this.send(frame(b"one"))
            await until(lambda: promises)
            this.connection.stop_reading()
            await this.send(frame(b"two"))
            promises[0].complete(Outgoing(b"first"))
            assert await this.receive(5) == b"first"
            for _ in range(20):
                await asyncio.sleep(0)
            assert this.requests == 1
            assert this.connection.is_answered

    run(asyncio.wait_for(talk(), PATIENCE_S))


def test_a_paused_connection_sends_its_reply_and_reads_nothing_until_the_pause_is_over(
    make_pair: MakeConnectionPair,
) -> None:
    def pausing(view: memoryview) -> Reply:
        reply = Outgoing(reply_to(bytes(view)))
        reply.pause_ms = 3_600_000
        return reply

    async def talk() -> None:
        body = request(0, NOW)
        expected = reply_to(body)
        with make_pair(pausing) as this:
            await this.send(frame(body))
            assert await this.receive(len(expected)) == expected
            await this.send(frame(body))
            for _ in range(10):
                await asyncio.sleep(0)
            assert this.requests == 1
            assert this.connection.reading_since is None
            this.connection._unmute()
            assert this.connection.reading_since is not None
            assert await this.receive(len(expected)) == expected
            assert this.requests == 2
            this.connection.close()
            assert this.connection._muted is not None
            assert this.connection._muted.cancelled()

    run(talk())


def test_clients_that_do_not_read_use_bounded_memory_together(make_pair: MakeConnectionPair) -> None:
    """The response of one is larger than all clients together may leave unread: it is closed, and the memory is free
    again. Another client is served."""

    async def talk() -> None:
        limits = ConnectionLimits(unsent_budget_bytes=8 << 20)

        def large(view: memoryview) -> Reply:
            return Outgoing(bytes(32 << 20))

        with make_pair(large) as greedy, make_pair() as other:
            for each in (greedy, other):
                each.budget.limits = limits
                each.budget.unsent_free = limits.unsent_budget_bytes
            await greedy.send(frame(request(1, NOW)))
            await until(lambda: greedy.close_reasons)
            assert greedy.close_reasons == ["the memory for responses that clients do not read is used up"]
            assert greedy.connection.closed_by == CLOSED_MEMORY
            assert greedy.budget.unsent_free == limits.unsent_budget_bytes
            await other.send(frame(request(2, NOW)))
            assert await other.receive(len(reply_to(request(2, NOW)))) == reply_to(request(2, NOW))

    run(talk())


def test_memory_of_a_slow_reader_is_freed_after_it_has_read(make_pair: MakeConnectionPair) -> None:
    async def talk() -> None:
        def large(view: memoryview) -> Reply:
            return Outgoing(bytes(8 << 20))

        with make_pair(large) as this:
            free = this.budget.unsent_free
            await this.send(frame(request(1, NOW)))
            await until(lambda: this.connection.blocked_since is not None)
            assert this.budget.unsent_free < free
            assert len(await this.receive(8 << 20)) == 8 << 20
            await until(lambda: this.connection.blocked_since is None)
            assert this.budget.unsent_free == free

    run(talk())
