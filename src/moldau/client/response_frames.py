"""Cuts the responses of one connection out of its bytes. It knows lengths, not messages.

A small response is whole in the first read and copied out of a buffer that stays. A large one is received straight
into memory of its own: no byte of it but those of the first read is moved again, and what was cut stays valid for as
long as anybody holds it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, cast

from moldau.base.errors import MalformedData

RESPONSE_BYTES_MAX: Final = 128 << 20
"""More than the largest request a node takes (`socket.request.max.bytes`), which may be one batch and come back."""
RESPONSE_TRUSTED_BYTES: Final = 16 << 20
"""A response up to this size gets its whole memory at once: a replica asks for 10 MiB. A larger one grows by doubling
as its bytes arrive: a length alone costs nobody any memory."""
FIRST_READ_BYTES: Final = 8 << 10
LENGTH_BYTES: Final = 4
SMALLEST_BYTES: Final = 4
"""A response is at least its correlation id."""


class ResponseFrames(asyncio.BufferedProtocol):
    """Calls `on_frame` with each response without its length, and `on_end` once, when no more will come."""

    def __init__(self, on_frame: Callable[[memoryview], None], on_end: Callable[[str, bool], None]) -> None:
        """`on_end` is told why, and whether what came was no response at all."""
        self._on_frame = on_frame
        self._on_end: Callable[[str, bool], None] | None = on_end
        self._first = bytearray(FIRST_READ_BYTES)
        self._first_view = memoryview(self._first)
        self._frame: bytearray | None = None
        """A response that is not whole yet; without one, what arrives goes to the first buffer."""
        self._need = 0
        self._have = 0
        """Bytes of that response, or of the first buffer, that have arrived."""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(str(exc) if exc else "the connection was closed", False)

    def end(self) -> None:
        """Lets go of the connection; nothing is called any more."""
        self._on_end = None
        if self._transport is not None:
            self._transport.abort()

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._frame is None:
            return self._first_view[self._have :]
        return memoryview(self._frame)[self._have :]

    def buffer_updated(self, nbytes: int) -> None:
        if self._on_end is None:
            return
        self._have += nbytes
        try:
            if self._frame is None:
                self._cut()
            else:
                self._grow_or_hand_over(self._frame)
        except MalformedData as bad:
            self._end(str(bad), True)

    def _cut(self) -> None:
        """All responses that are whole in the first buffer; the beginning of one that is not moves to its own memory or
        to the front."""
        position, have, first = 0, self._have, self._first
        while have - position >= LENGTH_BYTES and self._on_end is not None:
            size = int.from_bytes(first[position : position + LENGTH_BYTES], "big", signed=True)
            if not SMALLEST_BYTES <= size <= RESPONSE_BYTES_MAX:
                raise MalformedData(f"a response of {size} bytes: not a Kafka broker, or one that speaks TLS")
            start = position + LENGTH_BYTES
            if have - start < size:
                self._begin(size, self._first_view[start:have])
                return
            position = start + size
            self._on_frame(memoryview(first[start:position]))
        self._have = have - position
        first[: self._have] = first[position:have]

    def _begin(self, size: int, arrived: memoryview) -> None:
        self._frame = bytearray(min(size, RESPONSE_TRUSTED_BYTES))
        self._frame[: len(arrived)] = arrived
        self._need, self._have = size, len(arrived)

    def _grow_or_hand_over(self, frame: bytearray) -> None:
        if self._have < len(frame):
            return
        if self._have < self._need:
            grown = bytearray(min(self._need, 2 * len(frame)))
            grown[: self._have] = frame
            self._frame = grown
            return
        self._frame, self._have = None, 0
        self._on_frame(memoryview(frame))

    def _end(self, reason: str, is_nonsense: bool) -> None:
        on_end = self._on_end
        self.end()
        if on_end is not None:
            on_end(reason, is_nonsense)
