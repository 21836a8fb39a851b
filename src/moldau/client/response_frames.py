"""Splits the bytes of one connection into responses. It knows lengths, not messages.

A small response is complete in the first read and is copied out of a reused buffer. A large one is received straight
into memory of its own: only the bytes of the first read are copied, and the memory stays valid for as long as it is
referenced.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, cast

from moldau.base.errors import MalformedData

RESPONSE_BYTES_MAX: Final = 128 << 20
"""More than the largest request of a node (`socket.request.max.bytes`), which may be one batch and come back."""
RESPONSE_TRUSTED_BYTES: Final = 16 << 20
"""A response up to this size gets all its memory at once: a replica requests 10 MiB. The buffer of a larger one
doubles as its bytes arrive, so that a wrong length costs no memory."""
FIRST_READ_BYTES: Final = 8 << 10
LENGTH_BYTES: Final = 4
RESPONSE_BYTES_MIN: Final = 4
"""A response is at least its correlation id."""


class ResponseFrames(asyncio.BufferedProtocol):
    """Calls `on_frame` with each response without its length, and `on_end` once, when there will be no more."""

    def __init__(self, on_frame: Callable[[memoryview], None], on_end: Callable[[str, bool], None]) -> None:
        """`on_end` gets the reason, and whether it is an error: the bytes were not a valid response."""
        self._on_frame = on_frame
        self._on_end: Callable[[str, bool], None] | None = on_end
        self._first = bytearray(FIRST_READ_BYTES)
        self._first_view = memoryview(self._first)
        self._frame: bytearray | None = None
        """An incomplete response. If there is none, bytes are received into the first buffer."""
        self._frame_size = 0
        self._received = 0
        """How many bytes have arrived: of `_frame`, or in `_first` if `_frame` is None."""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(str(exc) if exc else "the connection was closed", False)

    def end(self) -> None:
        """Close the connection; no callback is called any more."""
        self._on_end = None
        if self._transport is not None:
            self._transport.abort()

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._frame is None:
            return self._first_view[self._received :]
        return memoryview(self._frame)[self._received :]

    def buffer_updated(self, nbytes: int) -> None:
        if self._on_end is None:
            return
        self._received += nbytes
        try:
            if self._frame is None:
                self._deliver_complete()
            else:
                self._grow_or_deliver(self._frame)
        except MalformedData as error:
            self._end(str(error), True)

    def _deliver_complete(self) -> None:
        """Deliver all complete responses in the first buffer; move the start of an incomplete one to its own memory or
        to the front."""
        position, received, first = 0, self._received, self._first
        while received - position >= LENGTH_BYTES and self._on_end is not None:
            size = int.from_bytes(first[position : position + LENGTH_BYTES], "big", signed=True)
            if not RESPONSE_BYTES_MIN <= size <= RESPONSE_BYTES_MAX:
                raise MalformedData(f"response of {size} bytes: the peer is not a Kafka broker, or expects TLS")
            start = position + LENGTH_BYTES
            if received - start < size:
                self._start_frame(size, self._first_view[start:received])
                return
            position = start + size
            self._on_frame(memoryview(first[start:position]))
        self._received = received - position
        first[: self._received] = first[position:received]

    def _start_frame(self, size: int, arrived: memoryview) -> None:
        self._frame = bytearray(min(size, RESPONSE_TRUSTED_BYTES))
        self._frame[: len(arrived)] = arrived
        self._frame_size, self._received = size, len(arrived)

    def _grow_or_deliver(self, frame: bytearray) -> None:
        if self._received < len(frame):
            return
        if self._received < self._frame_size:
            grown = bytearray(min(self._frame_size, 2 * len(frame)))
            grown[: self._received] = frame
            self._frame = grown
            return
        self._frame, self._received = None, 0
        self._on_frame(memoryview(frame))

    def _end(self, reason: str, is_error: bool) -> None:
        on_end = self._on_end
        self.end()
        if on_end is not None:
            on_end(reason, is_error)
