"""Streams of records: the live view (Server-Sent Events, `live.py` polls it) and exports (one long download)."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import logging
import threading
import time
from collections.abc import Generator, Iterator
from contextlib import ExitStack
from typing import Any, Final

from starlette.responses import StreamingResponse

from moldau.client.cluster import Cluster
from moldau.console.call import Call, Endpoint
from moldau.console.endpoints.records import SEARCH, chosen_partitions, positions_of
from moldau.console.endpoints.topics import require_topic
from moldau.console.listing import whole_number
from moldau.console.live import Event, Feed
from moldau.console.next_steps import API_ERRORS
from moldau.console.records import search
from moldau.console.records.choosing import choice_of
from moldau.console.records.fetching import Fetched, advance, fetch
from moldau.console.records.search import Work, oldest_first
from moldau.console.records.shown import ONE_BYTES_MAX, FoundRecord, record_data
from moldau.web.failures import bad_request, too_many

TAIL_WAIT_MS: Final = 1000
TAIL_RECORDS_PER_SECOND: Final = 200
TAIL_BYTES: Final = 256 << 10
TAIL_SHOWN_BYTES: Final = 4 << 20
"""Of the records of one event."""
EXPORT_LIMIT_DEFAULT: Final = 10_000
EXPORT_LIMIT_MAX: Final = 1_000_000
EXPORT_SECONDS_MAX: Final = 600.0
EXPORT_SENDING_SECONDS_MAX: Final = EXPORT_SECONDS_MAX + 60
"""A client that takes no more bytes keeps its connection: then this ends the export."""
EXPORTS_MAX: Final = 4
FORMATS: Final = {"jsonl": "application/x-ndjson", "csv": "text/csv"}

log = logging.getLogger(__name__)
_exports = threading.BoundedSemaphore(EXPORTS_MAX)


class Tail:
    """Follows a topic from its end. Each poll waits for up to a second. It may be closed while a poll is under way: the
    connection goes back when the poll has ended."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._topic = call.path["topic"]
        self._choice = choice_of(call.query, call.match)
        self._committed = call.flag("committed", True)
        self._held = ExitStack()
        self._lock = threading.Lock()
        self._closed = False
        self._cluster: Cluster | None = None
        self._positions: dict[int, int] = {}
        self._second, self._sent, self._scanned = 0, 0, 0

    def poll(self) -> list[Event]:
        with self._lock:
            if self._closed:
                return []
            if self._cluster is None:
                self._begin()
                return [("idle", {"scanned": 0})]
            return self._read(self._cluster)

    def _read(self, cluster: Cluster) -> list[Event]:
        def attempt() -> dict[int, Fetched]:
            return fetch(
                cluster, self._topic, self._positions,
                partition_bytes=TAIL_BYTES, committed=self._committed, wait_ms=TAIL_WAIT_MS, where=self._choice.where,
            )  # fmt: skip

        fetched = cluster.retry(attempt, 10_000)
        records: list[FoundRecord] = []
        advance(self._positions, fetched)
        for part in fetched.values():
            self._scanned += part.seen
            records += [each for each in part.records if self._choice.wants(each)]
        if not records:
            return [("idle", {"scanned": self._scanned})]
        records.sort(key=lambda each: each.record.timestamp)
        shown = _last(records, self._room())
        self._sent += len(shown)
        skipped = len(records) - len(shown)
        return [("records", {"records": [record_data(each) for each in shown], "skipped": skipped})]

    def _room(self) -> int:
        """Return how many records may still be sent in this second, at least one."""
        second = int(time.monotonic())
        if second != self._second:
            self._second, self._sent = second, 0
        return max(1, TAIL_RECORDS_PER_SECOND - self._sent)

    def _begin(self) -> None:
        self._cluster = cluster = self._held.enter_context(self._call.access.cluster())
        require_topic(cluster, self._topic)
        indexes = chosen_partitions(cluster, self._topic, self._call.query.get("partition"))
        begin = self._call.query.get("from", "end")
        self._positions = positions_of(cluster, self._topic, indexes, begin)

    def close(self) -> None:
        self._closed = True
        with self._lock:
            if self._cluster is not None:
                self._cluster.close()  # a poll may have failed: what it asked for may still come
            self._held.close()


def _last(records: list[FoundRecord], most: int) -> list[FoundRecord]:
    """Return the last records, as many as an event may have; at least one."""
    begin, size = len(records) - 1, records[-1].size_bytes
    while begin > 0 and len(records) - begin < most and size + records[begin - 1].size_bytes <= TAIL_SHOWN_BYTES:
        begin -= 1
        size += records[begin].size_bytes
    return records[begin:]


def live_records(call: Call) -> Feed:
    tail = Tail(call)
    return Feed(tail.poll, close=tail.close)


def export(call: Call) -> StreamingResponse:
    """Stream records as a file. The first page is read before the answer begins, so that most errors are answers."""
    topic, kind = call.path["topic"], call.query.get("format", "jsonl")
    if kind not in FORMATS:
        raise bad_request("format: expected jsonl or csv")
    limit = whole_number(call.query, "limit", EXPORT_LIMIT_DEFAULT, 1, EXPORT_LIMIT_MAX)
    choice, committed = choice_of(call.query, call.match), call.flag("committed", True)
    if not _exports.acquire(blocking=False):
        raise too_many(f"{EXPORTS_MAX} exports are under way, which is the most; try again in a moment")

    stopped: list[str] = []

    def pages() -> Generator[list[FoundRecord], None, None]:
        work = Work(records_max=10 * EXPORT_LIMIT_MAX, bytes_max=1 << 40, seconds_max=EXPORT_SECONDS_MAX)
        with call.access.cluster() as cluster:
            require_topic(cluster, topic)
            indexes = chosen_partitions(cluster, topic, call.query.get("partition"))
            starts, ends = search.bounds(cluster, topic, indexes, committed)
            at = positions_of(cluster, topic, indexes, call.query.get("from", "start"))
            positions: dict[int, int] | None = {index: max(starts[index], each) for index, each in at.items()}
            left = limit
            while positions is not None and left > 0:
                found = oldest_first(cluster, topic, positions, ends, choice, min(500, left), work, committed)
                left -= len(found.records)
                yield found.records
                positions = found.next
                if found.stopped == "work":
                    stopped.append(f"{_bound_of(work)}, which is the most for one export")
                    return
            if positions is not None and any(at < ends[index] for index, at in positions.items()):
                stopped.append(f"the limit of {limit} records is reached")

    def lines() -> Iterator[bytes]:
        try:
            if kind == "csv":
                yield csv_line(CSV_COLUMNS)
            yield from (line for page in [first] if page for line in _lines(page, kind))
            for page in rest:
                yield from _lines(page, kind)
            for reason in stopped:
                yield _last_line(kind, "stopped", f"{reason}: there may be more", {})
        except Exception as error:
            known = API_ERRORS.of(error)
            yield _last_line(kind, "error", known.message, known.body()["error"])
        finally:
            rest.close()

    rest = pages()
    try:
        first = next(rest, [])
    except BaseException:
        _exports.release()
        raise
    name = "".join(letter if letter.isascii() and (letter.isalnum() or letter in "._-") else "_" for letter in topic)
    return _Export(lines(), FORMATS[kind], f"{name}.{kind}")


def _bound_of(work: Work) -> str:
    if work.records >= work.records_max:
        return f"{work.records} records were looked at"
    return f"it took {work.seconds_max:.0f} seconds"


class _Export(StreamingResponse):
    def __init__(self, lines: Iterator[bytes], media_type: str, name: str) -> None:
        disposition = {"content-disposition": f'attachment; filename="{name}"'}
        super().__init__(_blocks(lines), media_type=media_type, headers=disposition)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            async with asyncio.timeout(EXPORT_SENDING_SECONDS_MAX):
                await super().__call__(scope, receive, send)
        except TimeoutError:
            log.warning(
                "an export was ended: its client did not take it within %.0f seconds", EXPORT_SENDING_SECONDS_MAX
            )
        finally:
            _exports.release()


def _blocks(lines: Iterator[bytes]) -> Iterator[bytes]:
    """Join lines to blocks: each block is one turn of the event loop."""
    block = bytearray()
    for line in lines:
        block += line
        if len(block) >= 64 << 10:
            yield bytes(block)
            block.clear()
    if block:
        yield bytes(block)


CSV_COLUMNS: Final = ("partition", "offset", "timestamp_ms", "key", "value", "headers")


def _lines(records: list[FoundRecord], kind: str) -> Iterator[bytes]:
    for each in records:
        data = record_data(each, ONE_BYTES_MAX)
        if kind == "jsonl":
            yield json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode(errors="replace") + b"\n"
            continue
        headers = {header["name"]: header["value"]["text"] for header in data["headers"]}
        row = (
            data["partition"], data["offset"], data["timestamp_ms"], data["key"]["text"], data["value"]["text"],
            json.dumps(headers, ensure_ascii=False) if headers else "",
        )  # fmt: skip
        yield csv_line(row)


def _last_line(kind: str, name: str, message: str, more: dict[str, Any]) -> bytes:
    """Say that the file has not all records, and why."""
    if kind == "csv":
        return csv_line((f"{name}: {message}",))
    return json.dumps({name: {"message": message, **more}}, ensure_ascii=False).encode(errors="replace") + b"\n"


def csv_line(row: tuple[Any, ...]) -> bytes:
    text = io.StringIO()
    csv.writer(text).writerow(["" if each is None else _harmless(each) for each in row])
    return text.getvalue().encode(errors="replace")


def _harmless(cell: Any) -> Any:
    """A spreadsheet takes a text that begins like this for a formula; records may come from anybody."""
    return f"'{cell}" if isinstance(cell, str) and cell[:1] in ("=", "+", "-", "@", "\t", "\r") else cell


ENDPOINTS: Final = (
    Endpoint("GET", "/api/topics/{topic}/export", export, (*(each for each in SEARCH if each != "cursor"), "format")),
)
STREAMS: Final = (
    Endpoint(
        "GET", "/api/live/records/{topic}", live_records, tuple(e for e in SEARCH if e not in ("cursor", "limit"))
    ),
)
