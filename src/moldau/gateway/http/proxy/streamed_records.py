"""v3's records in: one JSON object for each, as many in a request as the client likes, and an answer for each. A
request may last for hours: what it has sent is appended and answered before more is read."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import lru_cache, partial
from typing import Any, Final, NamedTuple

import msgspec

from moldau.base.errors import ErrorCode, KafkaError
from moldau.gateway.http.intake import LOOP_BYTES_MAX, Intake, off_the_loop
from moldau.gateway.http.proxy.appending import appended
from moldau.gateway.http.proxy.clusters import Clusters
from moldau.gateway.http.proxy.failures import (
    PARTITION_NOT_FOUND,
    PAYLOAD,
    TOO_MANY,
    ProxyError,
    partition_not_found,
    proxy_error,
    schemas_needed,
    unprocessable,
)
from moldau.gateway.http.proxy.json_objects import JsonObjects
from moldau.gateway.http.proxy.records import NULL, as_sent
from moldau.gateway.http.proxy.requests import JSON, Request, parsed
from moldau.gateway.http.query import timestamp_ms
from moldau.gateway.ports import NewRecord, Place
from moldau.web.failures import ApiError

STREAMS_MAX: Final = 1_000
APPEND_RECORDS: Final = 500
"""So many are appended together while others come."""
LINE_BYTES: Final = 200
"""Of an answer to a record."""
LINE_END: Final = b"\r\n"
TYPES: Final = ("BINARY", "JSON", "STRING")
WITH_SCHEMAS: Final = ("AVRO", "JSONSCHEMA", "PROTOBUF")
OF_SCHEMAS: Final = ("subject", "subject_name_strategy", "schema_id", "schema_version", "schema")


class Data(msgspec.Struct, forbid_unknown_fields=True):
    """A key or a value."""

    data: msgspec.Raw = NULL
    type: str | None = None
    subject: str | None = None
    subject_name_strategy: str | None = None
    schema_id: int | None = None
    schema_version: int | None = None
    schema: str | None = None


class Header(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    value: bytes | None = None


class Record(msgspec.Struct, forbid_unknown_fields=True):
    partition_id: int | None = None
    headers: list[Header] | None = None
    key: Data | None = None
    value: Data | None = None
    timestamp: str | None = None


_record: Final = msgspec.json.Decoder(Record)
_bytes: Final = msgspec.json.Decoder(bytes)
_text: Final = msgspec.json.Decoder(str)


class Sent(NamedTuple):
    """A record, and the types of its key and value, which are part of the answer."""

    record: NewRecord
    timestamp_ms: int
    key_type: str | None
    value_type: str | None


class Streams:
    """The requests that send records now."""

    def __init__(self, clusters: Clusters) -> None:
        self._clusters = clusters
        self._count = 0

    async def append(self, request: Request) -> None:
        """Append the records of a request, and answer it."""
        if self._count >= STREAMS_MAX:
            raise ProxyError(429, TOO_MANY, f"{STREAMS_MAX} requests send records already", [(b"retry-after", b"1")])
        request.require_type(JSON)
        self._count += 1
        try:
            cluster_id = await self._clusters.checked_id(request)
            request.intake.counters.requests += 1
            await _Stream(request, cluster_id, request.names[1]).run()
        finally:
            self._count -= 1


class _Stream:
    def __init__(self, request: Request, cluster_id: str, topic: str) -> None:
        self._request, self._cluster_id, self._topic = request, cluster_id, topic
        self._intake: Intake = request.intake
        self._objects = JsonObjects()
        self._is_whole = False
        """Whether the body has ended."""
        self._has_begun = False
        """Whether something is answered."""
        self._room_taken = 0

    async def run(self) -> None:
        """Answer each record until the body ends. What ends it before is answered too: raised, or in a last line."""
        try:
            error = await self._run()
        except asyncio.CancelledError:  # the server stops
            error = ProxyError(503, 503, "the gateway stops; what has no answer may be appended")
        except Exception as failure:
            error = proxy_error(failure)
        finally:
            self._intake.give_back(self._room_taken)
        if error is not None and not self._has_begun:
            raise error
        if error is not None:
            self._intake.counters.refused += 1
        await self._send([] if error is None else [_error_line(error)], is_last=True)

    async def _run(self) -> ProxyError | None:
        """Append and answer until the body ends; return what is wrong with it."""
        while not self._is_whole:
            if (error := await self._receive() or await self._append_whole_objects()) is not None:
                return error
            self._bound()
        if not self._objects.is_empty:
            return ProxyError(400, 400, "the body ended within an object")
        if not self._has_begun:
            return unprocessable("Payload error. Request body is empty. Data is required.", PAYLOAD)
        return None

    async def _receive(self) -> ProxyError | None:
        """Wait for more of the body."""
        seconds = self._intake.limits.body_seconds
        try:
            async with asyncio.timeout(seconds):
                message = await self._request.receive()
        except TimeoutError:
            return ProxyError(408, 408, f"nothing was sent for {seconds:g} s")
        if message["type"] != "http.request":
            return ProxyError(400, 400, "the body ended early")  # nobody reads this: the client is gone
        self._is_whole = not message.get("more_body", False)
        self._objects.feed(message.get("body", b""))
        return None

    async def _append_whole_objects(self) -> ProxyError | None:
        """Append what has come. Return why the rest is not read, if it is not JSON."""
        read: list[Sent | ProxyError] = []
        while self._objects.has_more:
            objects = self._objects.take()
            size = sum(map(len, objects))
            new, is_broken = await off_the_loop(size, partial(_read, objects))
            read += new
            self._intake.counters.bytes += size
            is_broken = is_broken or self._objects.is_broken
            if is_broken or len(read) >= APPEND_RECORDS:
                await self._append(read)
                read = []
            if is_broken:
                return ProxyError(400, 400, "the body is not JSON objects, one behind the other; no more is read")
            await asyncio.sleep(0)
        await self._append(read)
        return None

    def _bound(self) -> None:
        """Refuse an object that is too large; one that is large needs room, as a whole body does."""
        size, limit = self._objects.held_bytes, self._intake.limits.body_bytes
        if size > limit:
            raise ProxyError(413, 413, f"a record has at most {limit} bytes", [(b"connection", b"close")])
        if size > LOOP_BYTES_MAX and not self._room_taken:
            self._intake.take(limit)
            self._room_taken = limit
        elif size <= LOOP_BYTES_MAX:
            self._intake.give_back(self._room_taken)
            self._room_taken = 0

    async def _append(self, read: Sequence[Sent | ProxyError]) -> None:
        if read:
            sent = [each for each in read if isinstance(each, Sent)]
            self._intake.counters.records += len(sent)
            outcomes = await self._outcomes(sent) if sent else []
            lines = await off_the_loop(len(read) * LINE_BYTES, lambda: self._lines(read, outcomes))
            await self._send(lines)

    async def _outcomes(self, sent: Sequence[Sent]) -> list[Place | ProxyError]:
        try:
            outcomes = await appended(self._request.account, self._topic, [each.record for each in sent])
        except KafkaError as error:
            return [proxy_error(error)] * len(sent)
        return [each if isinstance(each, Place) else _refused(each) for each in outcomes]

    def _lines(self, read: Sequence[Sent | ProxyError], outcomes: Sequence[Place | ProxyError]) -> list[bytes]:
        """Return the answers, in the order of the records."""
        remaining = iter(outcomes)
        lines: list[bytes] = []
        for each in read:
            outcome = next(remaining) if isinstance(each, Sent) else each
            if isinstance(each, Sent) and isinstance(outcome, Place):
                lines.append(self._line(each, outcome))
            elif isinstance(outcome, ProxyError):
                lines.append(_error_line(outcome))
        return lines

    def _line(self, sent: Sent, place: Place) -> bytes:
        record = sent.record
        answer: dict[str, Any] = {
            "error_code": 200,
            "cluster_id": self._cluster_id,
            "topic_name": self._topic,
            "partition_id": place.partition,
            "offset": place.offset,
            "timestamp": _written(sent.timestamp_ms),
        }
        if sent.key_type is not None:
            answer["key"] = {"type": sent.key_type, "size": len(record.key or b"")}
        if sent.value_type is not None:
            answer["value"] = {"type": sent.value_type, "size": len(record.value or b"")}
        return msgspec.json.encode(answer)

    async def _send(self, lines: Sequence[bytes], is_last: bool = False) -> None:
        """Wait until the client takes answers."""
        send = self._request.send
        if not self._has_begun:
            self._has_begun = True
            close = [] if self._is_whole else [(b"connection", b"close")]  # a rest may not be read
            head = [(b"content-type", JSON.encode()), *close]
            await send({"type": "http.response.start", "status": 200, "headers": head})
        body = b"".join([line + LINE_END for line in lines])
        await send({"type": "http.response.body", "body": body, "more_body": not is_last})


def _error_line(error: ProxyError) -> bytes:
    return msgspec.json.encode(error.body())


def _refused(error: KafkaError) -> ProxyError:
    if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return ProxyError(404, PARTITION_NOT_FOUND, error.message or "Partition not found.")
    return proxy_error(error)


@lru_cache(1_000)
def _written(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _read(objects: Sequence[bytes]) -> tuple[list[Sent | ProxyError], bool]:
    """Return the records, or what is wrong with each; and whether one is no JSON, so that those behind it are not
    read."""
    now_ms = time.time_ns() // 1_000_000
    read: list[Sent | ProxyError] = []
    for each in objects:
        try:
            record = parsed(_record, each)
        except ProxyError as error:
            if error.status == 400:
                return read, True
            read.append(_bad_record(error))
            continue
        try:
            read.append(_sent(record, now_ms))
        except (ProxyError, ApiError) as error:
            read.append(_bad_record(proxy_error(error)))
    return read, False


def _bad_record(error: ProxyError) -> ProxyError:
    return ProxyError(400, 400, error.message) if error.code == 422 else error


def _sent(record: Record, now_ms: int) -> Sent:
    partition = record.partition_id
    if partition is not None and not 0 <= partition < 1 << 31:
        raise partition_not_found(partition)
    headers = tuple((each.name, each.value) for each in record.headers or ())
    time_ms = now_ms if record.timestamp is None else timestamp_ms(record.timestamp)
    key, key_type = _data(record.key)
    value, value_type = _data(record.value)
    return Sent(NewRecord(value, key, headers, time_ms, partition), time_ms, key_type, value_type)


def _data(data: Data | None) -> tuple[bytes | None, str | None]:
    """Return a key or a value, and its type."""
    if data is None:
        return None, None
    if data.type is None or data.type in WITH_SCHEMAS:
        raise schemas_needed(f"The type {data.type}" if data.type else "A key or value without a type")
    if data.type not in TYPES:
        raise unprocessable(f"the type {data.type[:40]!r} is none of {', '.join(TYPES)}")
    for name in OF_SCHEMAS:
        if getattr(data, name) is not None:
            raise unprocessable(f"'type={data.type}' cannot be used with '{name}'.")
    raw = as_sent(data.data)
    if raw is None or data.type == "JSON":
        return raw, data.type
    return (parsed(_bytes, raw) if data.type == "BINARY" else parsed(_text, raw).encode()), data.type
