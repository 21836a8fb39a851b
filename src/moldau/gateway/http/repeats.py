"""Requests with an `Idempotency-Key`: one that is sent again within an hour gets the answer of the first, and nothing
is appended. What is remembered is this process's: after a restart of the gateway a repetition is a new request."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from moldau.gateway.http.answers import MAY_BE_THERE, SOME_REFUSED, Answer
from moldau.web.failures import ApiError

HEADER: Final = b"idempotency-key"
KEY_LENGTH_MAX: Final = 200
REMEMBERED_S: Final = 3600.0
BYTES_MAX: Final = 64 << 20
"""Of the answers that are remembered: beyond this the oldest are forgotten before their time."""
ENTRY_BYTES: Final = 600
_Place = tuple[str, str, bytes]
"""User, topic and key."""


@dataclass(slots=True)
class _Request:
    body_hash: bytes
    answer: asyncio.Future[Answer]
    answered_at: float = 0.0
    size: int = ENTRY_BYTES


class Repeats:
    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._under_way: dict[_Place, _Request] = {}
        self._done: OrderedDict[_Place, _Request] = OrderedDict()
        """In the order of their answers."""
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
        earlier = self._under_way.get(place) or self._done.get(place)
        if earlier is not None:
            if earlier.body_hash != hashed:
                raise ApiError(422, "KEY_REUSED", "another body was sent with this Idempotency-Key")
            return await asyncio.shield(earlier.answer)
        request = self._under_way[place] = _Request(hashed, asyncio.get_running_loop().create_future())
        try:
            answer = await do()
        except BaseException as error:
            request.answer.set_exception(_cancelled() if isinstance(error, asyncio.CancelledError) else error)
            request.answer.exception()  # perhaps nobody waits for it
            raise
        finally:
            del self._under_way[place]
        request.answer.set_result(answer)
        if answer.status < 300 or answer.status in (SOME_REFUSED, MAY_BE_THERE):
            self._remember(place, request, answer)
        return answer

    def _remember(self, place: _Place, request: _Request, answer: Answer) -> None:
        request.answered_at = self._clock()
        request.size += len(answer.body)
        self._bytes += request.size
        self._done[place] = request
        self._forget_old()

    def _forget_old(self) -> None:
        before = self._clock() - REMEMBERED_S
        while self._done:
            oldest = next(iter(self._done.values()))
            if oldest.answered_at >= before and self._bytes <= BYTES_MAX:
                return
            self._done.popitem(last=False)
            self._bytes -= oldest.size


def _cancelled() -> ApiError:
    return ApiError(MAY_BE_THERE, "BROKEN_OFF", "the first of these requests was broken off; it may have been appended")
