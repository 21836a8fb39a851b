"""Live tails of records: closed during a poll, bounded in size, exceptions logged."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import pytest
from harness.patience import PATIENCE_S
from kept_batches import KeptBatches, log_of

from moldau.console.access import Access
from moldau.console.call import Call
from moldau.console.daemon_pool import Threads
from moldau.console.endpoints import tails
from moldau.console.endpoints.tails import TAIL_BYTES, TAIL_SHOWN_BYTES, Tail
from moldau.console.live import Event, Feed, Streams
from moldau.console.options import ConsoleOptions
from moldau.console.records.fetching import Fetched
from moldau.console.records.shown import FoundRecord
from moldau.wire.records import Record


class Connection:
    """A model of a borrowed cluster connection and of the access that lends it."""

    def __init__(self) -> None:
        self.events: list[str] = []

    @contextmanager
    def cluster(self) -> Iterator[Connection]:
        self.events.append("lent")
        yield self
        self.events.append("returned")

    def retry(self, attempt: Any, timeout_ms: int) -> Any:
        return attempt()

    def close(self) -> None:
        self.events.append("closed")


@pytest.fixture
def connection(monkeypatch: pytest.MonkeyPatch) -> Connection:
    monkeypatch.setattr(tails, "require_topic", lambda *words: None)
    monkeypatch.setattr(tails, "chosen_partitions", lambda *words: [0])
    monkeypatch.setattr(tails, "positions_of", lambda *words: {0: 0})
    return Connection()


def tail_of(connection: Connection) -> Tail:
    return Tail(Call(ConsoleOptions("b"), cast(Access, connection), {"topic": "orders"}))


def test_close_returns_the_connection_after_the_running_poll(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading, may_end = threading.Event(), threading.Event()

    def fetch(*words: Any, **settings: Any) -> dict[int, Fetched]:
        reading.set()
        assert may_end.wait(PATIENCE_S)
        connection.events.append("read")
        return {0: Fetched(next_offset=0)}

    monkeypatch.setattr(tails, "fetch", fetch)
    tail = tail_of(connection)
    tail.poll()
    poller = threading.Thread(target=tail.poll)
    poller.start()
    assert reading.wait(PATIENCE_S)
    closer = threading.Thread(target=tail.close)
    closer.start()
    closer.join(0.05)
    may_end.set()
    closer.join(PATIENCE_S)
    poller.join(PATIENCE_S)
    assert connection.events == ["lent", "read", "closed", "returned"]
    assert tail.poll() == [], "a poll after close borrows no connection"
    assert connection.events == ["lent", "read", "closed", "returned"]


def test_a_tail_closed_before_its_first_poll_borrows_no_connection(connection: Connection) -> None:
    tail = tail_of(connection)
    tail.close()
    assert tail.poll() == []
    assert connection.events == []


def test_an_event_has_only_the_last_records_that_fit(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    large = [FoundRecord(0, Record(at, at, None, bytes(1 << 20)), False) for at in range(10)]
    monkeypatch.setattr(tails, "fetch", lambda *words, **settings: {0: Fetched(large, 10)})
    tail = tail_of(connection)
    tail.poll()
    ((kind, data),) = tail.poll()
    assert kind == "records"
    assert [each["offset"] for each in data["records"]] == list(range(10))[-(TAIL_SHOWN_BYTES >> 20) :]
    assert data["skipped"] == 10 - len(data["records"])


class BusyTopic(Connection, KeptBatches):
    def __init__(self, batches: dict[int, Sequence[bytes]]) -> None:
        Connection.__init__(self)
        KeptBatches.__init__(self, batches)


def test_every_partition_advances_with_batches_larger_than_its_share(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Brokers return such a batch only of the first partition of a request."""
    monkeypatch.setattr(tails, "positions_of", lambda *words: {0: 0, 1: 0, 2: 0})
    batches = log_of(10, TAIL_BYTES + 1, per_batch=1)
    tail = tail_of(BusyTopic({0: batches, 1: batches, 2: []}))
    tail.poll()
    shown = [record for _ in range(6) for _, data in tail.poll() for record in data["records"]]
    assert [(each["partition"], each["offset"]) for each in shown] == [(0, 0), (1, 0), (0, 1), (1, 1), (0, 2), (1, 2)]


def test_an_exception_in_a_live_stream_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    def poll() -> list[Event]:
        raise ZeroDivisionError("of the test")

    async def read() -> bytes:
        streams = Streams(Threads())
        response = streams.response(Feed(poll))
        frames = [bytes(cast(bytes, each)) async for each in response.body_iterator]
        streams.stop()
        streams.close()
        return b"".join(frames)

    with caplog.at_level(logging.ERROR):
        events = asyncio.run(read())
    assert b"event: problem" in events
    assert b"INTERNAL" in events
    assert "of the test" in caplog.text


def test_an_export_whose_client_takes_no_more_bytes_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tails, "EXPORT_SENDING_SECONDS_MAX", 0)
    monkeypatch.setattr(tails, "_exports", threading.BoundedSemaphore(1))

    async def never(*_: Any) -> Any:
        await asyncio.Event().wait()

    async def export_to_a_stalled_client() -> None:
        assert tails._exports.acquire(blocking=False)
        export = tails._Export(iter([b"record"]), "text/csv", "orders.csv")
        async with asyncio.timeout(PATIENCE_S):
            await export({"type": "http", "asgi": {"spec_version": "2.3"}}, never, never)

    asyncio.run(export_to_a_stalled_client())
    assert tails._exports.acquire(blocking=False)
