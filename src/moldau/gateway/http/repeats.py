"""Requests with an `Idempotency-Key`: one that is sent again within an hour gets the answer of the first, and nothing
is appended. What is remembered is this process's: after a restart of the gateway a repetition is a new request."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from moldau.gateway.http.answers import SOME_REFUSED, Answer
from moldau.web.failures import ApiError

HEADER: Final = b"idempotency-key"
KEY_LENGTH_MAX: Final = 200
REMEMBERED_S: Final = 3600.0
BYTES_MAX: Final = 64 << 20
"""Of the answers that are remembered: beyond this the oldest are forgotten before their time."""
ENTRY_BYTES: Final = 600
MAY_BE_THERE: Final = 504


@dataclass(slots=True)
class _Request:
    body_hash: bytes
    answer: asyncio.Future[Answer]
    since: float
    size: int = ENTRY_BYTES


class Repeats:
    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._requests: OrderedDict[tuple[str, str, bytes], _Request] = OrderedDict()
        """By user, topic and key, oldest first."""
        self._bytes = 0

    async def once(
        self, user: str, topic: str, key: bytes, body: bytes | bytearray, do: Callable[[], Awaitable[Answer]]
    ) -> Answer:
        """Do it, unless the same request was done or is being done: then return its answer. An answer that says that
        nothing was appended is not remembered: the next request tries again."""
        if not key or len(key) > KEY_LENGTH_MAX:
            raise ApiError(400, "BAD_REQUEST", f"Idempotency-Key must have 1 to {KEY_LENGTH_MAX} bytes")
        self._forget_old()
        place, hashed = (user, topic, key), sha256(body).digest()
        earlier = self._requests.get(place)
        if earlier is not None:
            if earlier.body_hash != hashed:
                raise ApiError(422, "KEY_REUSED", "another body was sent with this Idempotency-Key")
            return await asyncio.shield(earlier.answer)
        request = _Request(hashed, asyncio.get_running_loop().create_future(), self._clock())
        self._requests[place] = request
        self._bytes += request.size
        try:
            answer = await do()
        except BaseException as error:
            self._drop(place)
            request.answer.set_exception(_cancelled() if isinstance(error, asyncio.CancelledError) else error)
            request.answer.exception()  # perhaps nobody waits for it
            raise
        request.answer.set_result(answer)
        if answer.status >= 300 and answer.status not in (SOME_REFUSED, MAY_BE_THERE):
            self._drop(place)
        else:
            self._grow(request, len(answer.body))
        return answer

    def _grow(self, request: _Request, size: int) -> None:
        request.size += size
        self._bytes += size
        self._forget_old()

    def _forget_old(self) -> None:
        before = self._clock() - REMEMBERED_S
        while self._requests:
            place, oldest = next(iter(self._requests.items()))
            if oldest.since >= before and self._bytes <= BYTES_MAX:
                return
            self._drop(place)

    def _drop(self, place: tuple[str, str, bytes]) -> None:
        request = self._requests.pop(place, None)
        if request is not None:
            self._bytes -= request.size


def _cancelled() -> ApiError:
    return ApiError(503, "TRY_AGAIN", "the first of these requests was broken off; try again")
