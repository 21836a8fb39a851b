"""Records in: `POST /topics/TOPIC`. It answers without a framework: this is the path that thousands of devices take."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar
from urllib.parse import unquote

from starlette.types import Message, Receive, Scope, Send

from moldau.gateway.http.answers import MAY_BE_THERE, Answer, answer_of
from moldau.gateway.http.bodies import Options, options_of, records_of, values_of
from moldau.gateway.http.credentials import CHALLENGE
from moldau.gateway.http.limits import HttpLimits
from moldau.gateway.http.repeats import HEADER as REPEAT_HEADER
from moldau.gateway.http.repeats import Repeats
from moldau.gateway.http.visitors import Visitors, headers_of
from moldau.gateway.http.words import API_ERRORS
from moldau.gateway.ports import Account, Appended, NewRecord
from moldau.web.failures import ApiError, bad_request
from moldau.web.requests import NAME_LENGTH_MAX
from moldau.web.responses import json_bytes

LOOP_BYTES_MAX: Final = 64 << 10
"""A larger body is cut into records in a thread."""
T = TypeVar("T")
BUSY: Final = "BUSY"
TOO_SLOW: Final = "TOO_SLOW"
TOO_LARGE: Final = "TOO_LARGE"
UNREAD: Final = (BUSY, TOO_SLOW, TOO_LARGE)
"""Errors after which the rest of a body is not read."""
Pair = tuple[bytes, bytes]
_JSON: Final[Pair] = (b"content-type", b"application/json")


@dataclass(slots=True)
class HttpCounters:
    """Since the start; metrics read them."""

    requests: int = 0
    """That appended records, or tried to."""
    records: int = 0
    bytes: int = 0
    refused: int = 0
    """Requests that were answered with an error."""


class Intake:
    def __init__(self, visitors: Visitors, limits: HttpLimits, repeats: Repeats, counters: HttpCounters) -> None:
        self._visitors, self.limits, self._repeats, self.counters = visitors, limits, repeats, counters
        self.receiving = 0
        """Bytes of the bodies that are being received."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send, topic: str) -> None:
        """Answer a request for this topic, as its path has it."""
        more: Sequence[Pair] = ()
        self.counters.requests += 1
        try:
            answer = await self._answer(scope, receive, topic)
        except asyncio.CancelledError:  # the server stops
            answer = _told(ApiError(MAY_BE_THERE, "STOPPING", "the gateway stops; the records may have been appended"))
        except Exception as error:
            failed = API_ERRORS.of(error)
            answer, more = _told(failed), headers_of_failure(failed)
        if answer.status >= 300:
            self.counters.refused += 1
        head = [_JSON, (b"content-length", b"%d" % len(answer.body)), *more]
        await send({"type": "http.response.start", "status": answer.status, "headers": head})
        await send({"type": "http.response.body", "body": answer.body})

    async def _answer(self, scope: Scope, receive: Receive, path: str) -> Answer:
        headers = headers_of(scope)
        account = await self._visitors.account(scope, headers)
        topic = topic_name(path)
        options = options_of(scope["query_string"], scope["headers"])
        body = await self.body(receive, headers)
        content_type = headers.get(b"content-type", b"").partition(b";")[0].strip().lower().decode("latin-1")
        key = headers.get(REPEAT_HEADER)

        async def append() -> Answer:
            appended = await self._append(account, topic, content_type, body, options)
            return answer_of(appended, API_ERRORS.of)

        if key is None:
            return await append()
        return await self._repeats.once(account.user, topic, key, body, append)

    async def _append(self, account: Account, topic: str, content_type: str, body: bytes, options: Options) -> Appended:
        values, records = await off_the_loop(len(body), lambda: _read(content_type, body, options))
        self.counters.records += len(values)
        self.counters.bytes += len(body)
        if records is None:
            return await account.append_values(topic, values)
        return await account.append(topic, records)

    async def body(self, receive: Receive, headers: Mapping[bytes, bytes]) -> bytes:
        """Return the whole body. ApiError if it is too large, or comes too slowly."""
        declared = headers.get(b"content-length", b"0")
        if len(declared) > 18 or not declared.isdigit() or int(declared) > self.limits.body_bytes:
            raise self._too_large()
        try:
            async with asyncio.timeout(self.limits.body_seconds):
                message = await receive()
                if message["type"] != "http.request" or message.get("more_body"):
                    return await self._in_pieces(receive, message, int(declared) or self.limits.body_bytes)
        except TimeoutError:
            raise ApiError(408, TOO_SLOW, f"the body took more than {self.limits.body_seconds:g} s") from None
        whole: bytes = message.get("body", b"")
        if len(whole) > self.limits.body_bytes:
            raise self._too_large()
        return whole

    async def _in_pieces(self, receive: Receive, first: Message, size: int) -> bytes:
        self.take(size)
        try:
            return await self._rest(receive, bytearray(first.get("body", b"")), first["type"])
        finally:
            self.give_back(size)

    def take(self, size: int) -> None:
        """Make room for a body that is being received. ApiError if there is none; else call `give_back` at its end."""
        if self.receiving + size > self.limits.bodies_bytes:
            raise ApiError(503, BUSY, "too many large bodies are being received; try again in a moment")
        self.receiving += size

    def give_back(self, size: int) -> None:
        self.receiving -= size

    async def _rest(self, receive: Receive, data: bytearray, kind: str) -> bytes:
        has_more = True
        while has_more:
            if kind != "http.request":
                raise ApiError(400, "BROKEN_OFF", "the body ended early")  # nobody reads this: the client is gone
            if len(data) > self.limits.body_bytes:
                raise self._too_large()
            message = await receive()
            kind, has_more = message["type"], message.get("more_body", False)
            data += message.get("body", b"")
        if kind != "http.request" or len(data) > self.limits.body_bytes:
            raise self._too_large()
        return bytes(data)

    def _too_large(self) -> ApiError:
        return ApiError(413, TOO_LARGE, f"a body has at most {self.limits.body_bytes} bytes")


def _read(content_type: str, body: bytes, options: Options) -> tuple[list[bytes], list[NewRecord] | None]:
    values = values_of(content_type, body)
    return values, None if options.is_plain else records_of(values, options)


async def off_the_loop(size: int, work: Callable[[], T]) -> T:
    """Do it in a thread if it is much."""
    return await asyncio.to_thread(work) if size > LOOP_BYTES_MAX else work()


def topic_name(path: str) -> str:
    """Return the name of a topic as a path has it."""
    name = unquote(path, errors="replace")
    if not name or len(name) > NAME_LENGTH_MAX or "\0" in name or "/" in name:
        raise bad_request("the path must be /topics/TOPIC")
    return name


def headers_of_failure(error: ApiError) -> Sequence[Pair]:
    """Return what goes with an error: how to log in, when to come again, and that the rest of a body is not read."""
    if error.status == 401:
        return [(b"www-authenticate", CHALLENGE.encode())]
    again = [(b"retry-after", b"1")] if error.status in (429, 503) else []
    return [*again, (b"connection", b"close")] if error.code in UNREAD else again


def _told(error: ApiError) -> Answer:
    return Answer(error.status, json_bytes(error.body()))
