"""What a connection has still to send, in order: bytes, and slices of files."""

from __future__ import annotations

from collections import deque

from moldau.log.reading import Slice
from moldau.wire.codec import Outgoing

Unsent = Outgoing | bytes | memoryview | Slice


def unsent_bytes(out: deque[Unsent]) -> int:
    """Return the bytes of responses in memory; records in files use none."""
    return sum(len(piece) for piece in out if not isinstance(piece, Slice))


def join_head(out: deque[Unsent]) -> bytes:
    """Make one piece of the bytes at the head of the queue and those that follow them directly; return it."""
    run: list[Outgoing | bytes | memoryview] = []
    while out and not isinstance(head := out[0], Slice):
        run.append(head)
        out.popleft()
    joined = b"".join(run)
    out.appendleft(joined)
    return joined
