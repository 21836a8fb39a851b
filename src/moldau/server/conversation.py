"""The protocol of one connection, without a socket: bytes in, replies out, in order and within limits.

Each frame is a window on the received bytes and is answered at once, in the order of arrival. A reply that must wait
keeps its place: later replies wait behind it. An incomplete frame is collected in a buffer that grows with the bytes
that arrive, never with the length that the client claims.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from moldau.base.connection_settings import ConnectionLimits
from moldau.base.counters import CLOSED_MEMORY, CLOSED_UNAUTHENTICATED_MEMORY, Counters
from moldau.base.errors import MalformedData
from moldau.base.limits import FRAME_TRUSTED_BYTES, REQUESTS_PER_TURN_MAX
from moldau.base.promise import Promise
from moldau.wire.codec import NO_REPLY, Outgoing

Reply = Outgoing | Promise[Outgoing]
"""The result of a request: bytes now, bytes later, or NO_REPLY."""


_LENGTH = struct.Struct(">i")


class LongReply(Promise[Any]):
    """A promise of the response to a long request, which is decoded in a thread or handled in several turns. Later
    requests of the same connection are handled once `handled` is done, so that they keep their order; the response may
    come later still, and is encoded in a thread. NO_REPLY: there is no response. MalformedData: the connection is
    closed."""

    __slots__ = ("handled", "took_s")

    def __init__(self) -> None:
        super().__init__()
        self.handled: Promise[None] = Promise()
        self.took_s = 0.0
        """The time of all turns after the first, and of work in threads."""


class OutOfMemory(MalformedData):
    """Connections together use as much memory as they may."""

    def __init__(self, reason: str, closed_by: str) -> None:
        super().__init__(reason)
        self.closed_by = closed_by
        """The counter of the connection that is closed for it."""


class ReceiveMemory:
    """The memory that several connections together may use for incomplete frames and for requests that wait."""

    __slots__ = ("_closed_by", "_reason", "free")

    def __init__(self, total_bytes: int, reason: str, closed_by: str) -> None:
        self.free = total_bytes
        self._reason = reason
        self._closed_by = closed_by

    def take(self, size: int) -> None:
        if size > self.free:
            raise OutOfMemory(self._reason, self._closed_by)
        self.free -= size

    def give(self, size: int) -> None:
        self.free += size


class ConnectionBudget:
    """The memory that all connections together may use for incomplete frames and for responses that clients do not
    read, the limits of each connection, and how often they were reached.

    Clients that have not authenticated yet share a small memory of their own: strangers must not use up that of
    users."""

    __slots__ = ("counters", "limits", "of_strangers", "of_users", "unsent_free")

    def __init__(
        self, total_bytes: int, limits: ConnectionLimits | None = None, counters: Counters | None = None
    ) -> None:
        self.limits = limits or ConnectionLimits()
        self.of_users = ReceiveMemory(
            total_bytes, "the memory for requests that are still arriving is used up", CLOSED_MEMORY
        )
        self.of_strangers = ReceiveMemory(
            self.limits.unauthenticated_budget_bytes,
            "the memory for requests of clients that have not authenticated is used up",
            CLOSED_UNAUTHENTICATED_MEMORY,
        )
        self.unsent_free = self.limits.unsent_budget_bytes
        self.counters = counters or Counters()

    @property
    def free(self) -> int:
        return self.of_users.free

    def hold_unsent(self, before: int, now: int) -> bool:
        """Change how many unsent bytes a connection has; return whether all connections together have too many."""
        self.unsent_free -= now - before
        return self.unsent_free < 0 and now > before


def _ignore_request(frame: memoryview) -> Reply:
    """The `answer` of a closed connection."""
    return NO_REPLY


def _ignore_reply() -> None:
    """The `wake` of a closed connection."""


class Conversation:
    """The requests and replies of one client. `answer` is the router; `wake` is called when a late reply is ready."""

    __slots__ = (
        "_answer", "_budget", "_frame_bytes_max", "_frame_size", "_handled_frame", "_incomplete_frames", "_is_closed",
        "_is_handling", "_memory", "_pending_bytes", "_received", "_requests_max", "_trusted_bytes",
        "_unsent_bytes_max", "_wake", "held", "incomplete", "is_turn_over", "pending",
    )  # fmt: skip

    def __init__(
        self,
        answer: Callable[[memoryview], Reply],
        wake: Callable[[], None],
        frame_bytes_max: int,
        budget: ConnectionBudget,
    ) -> None:
        self._answer = answer
        self._wake = wake
        self._budget = budget
        self._requests_max = budget.limits.requests_max
        self._unsent_bytes_max = budget.limits.unsent_bytes_max
        self._memory = budget.of_users
        self._frame_bytes_max = frame_bytes_max
        self._trusted_bytes = FRAME_TRUSTED_BYTES
        self.pending: deque[Outgoing | Promise[Outgoing]] = deque()
        """Replies in the order of the requests; promises of those that are not ready."""
        self._pending_bytes = 0
        self.held = b""
        """Requests that arrived while too many replies were pending, or too many at once. Nothing more is read until
        they are answered."""
        self.is_turn_over = False
        """Whether requests are held back because other connections must get their turn first."""
        self.incomplete: bytearray | None = None
        """The buffer of a frame of which not all bytes have arrived."""
        self._incomplete_frames = 0
        """How many frames did not arrive at once."""
        self._received = 0
        self._frame_size = 0
        self._is_closed = False
        self._is_handling = False
        """Whether a long request is being handled."""
        self._handled_frame: tuple[ReceiveMemory, int] | None = None
        """The memory of its frame, if that arrived in pieces."""

    @property
    def is_full(self) -> bool:
        """Whether so many replies are pending, or such large ones, that no more requests should be read; or a long
        request must be handled first."""
        return (
            self._is_handling or len(self.pending) >= self._requests_max or self._pending_bytes > self._unsent_bytes_max
        )

    @property
    def is_idle(self) -> bool:
        """Whether no reply is pending and no frame is incomplete."""
        return not self.pending and self.incomplete is None and not self.held

    @property
    def is_answered(self) -> bool:
        return not self.pending and not self.held

    @property
    def arriving(self) -> tuple[int, int] | None:
        """The number of the incomplete frame, and how much of it has arrived."""
        return None if self.incomplete is None else (self._incomplete_frames, self._received)

    def limit_frames(self, bytes_max: int, trusted_bytes: int, is_stranger: bool) -> None:
        """Set the largest size of a frame, and the size up to which a frame gets its whole buffer at once, for the
        frames after the current one; and whether the client's memory is that of clients that have not
        authenticated."""
        self._frame_bytes_max = bytes_max
        self._trusted_bytes = trusted_bytes
        memory = self._budget.of_strangers if is_stranger else self._budget.of_users
        used = len(self.held) + (len(self.incomplete) if self.incomplete is not None else 0)
        self._memory.give(used)
        memory.free -= used  # not refused: it is at most one small frame
        self._memory = memory

    def feed_single(self, view: memoryview) -> Outgoing | None:
        """Like `feed`, but return the reply to a request that came alone, if it is ready and no other is pending: it
        need not be queued."""
        size = len(view)
        if (
            self.pending
            or self.held
            or self._is_handling
            or self.incomplete is not None
            or size <= 4
            or _LENGTH.unpack_from(view)[0] != size - 4
            or size - 4 > self._frame_bytes_max
        ):
            self.feed(view)
            return None
        self.is_turn_over = False
        reply = self._answer(view[4:])
        if isinstance(reply, Promise):
            self.pending.append(reply)
            if isinstance(reply, LongReply):
                self._wait_for(reply)
            reply.then(partial(self._on_ready, reply))
            return None
        return reply

    def feed(self, view: memoryview) -> None:
        """Handle received bytes. `view` is valid only during the call."""
        assert not self.held, "bytes were read past requests that are held back"
        if self.incomplete is not None:
            view = self._fill(view)
        size = len(view)
        position = answered = 0
        self.is_turn_over = False
        pending, requests_max, unsent_bytes_max = self.pending, self._requests_max, self._unsent_bytes_max
        # Every request comes through here: `is_full`, `_length` and `_handle` are written out.
        # Sending a reply may close the connection. The requests after it are then dropped.
        while size - position >= 4 and not self._is_closed:
            if self._is_handling or len(pending) >= requests_max or self._pending_bytes > unsent_bytes_max:
                break
            (length,) = _LENGTH.unpack_from(view, position)
            if not 0 < length <= self._frame_bytes_max:
                raise self._bad_length(length)
            start = position + 4
            end = start + length
            if end > size:
                break
            if answered == REQUESTS_PER_TURN_MAX:
                self.is_turn_over = True
                break
            reply = self._answer(view[start:end])
            position = end
            answered += 1
            if reply is not NO_REPLY:
                pending.append(reply)
                if isinstance(reply, Promise):
                    if isinstance(reply, LongReply):
                        self._wait_for(reply)
                    reply.then(partial(self._on_ready, reply))
                else:
                    self._pending_bytes += len(reply)
        if position < size and not self._is_closed:
            self._keep_rest(view[position:])

    def room(self) -> memoryview | None:
        """Return the buffer for the next bytes of an incomplete frame, so that they are read straight into it."""
        if self.incomplete is None or self._frame_size < 4:
            return None
        return memoryview(self.incomplete)[self._received :]

    def filled(self, count: int) -> None:
        """Called when `count` bytes were read into `room()`."""
        self._received += count
        self._advance()

    def resume(self) -> bool:
        """Continue with requests that were held back while too many replies were pending; False if there are none."""
        if not self.held or self.is_full:
            return False
        held, self.held = self.held, b""
        self._memory.give(len(held))
        self.feed(memoryview(bytearray(held)))
        return True

    def next_reply(self) -> Outgoing | None:
        """Return the reply at the head of the queue, or None if it is not ready."""
        pending = self.pending
        if not pending:
            return None
        head = pending[0]
        if isinstance(head, Promise):
            if not head.done:
                return None
            pending.popleft()
            return head.value()
        pending.popleft()
        self._pending_bytes -= len(head)
        return head

    def close(self) -> None:
        """Return the memory to the budget. Replies that become ready later are dropped."""
        self._is_closed = True
        if self.incomplete is not None:
            self._memory.give(len(self.incomplete))
            self.incomplete = None
        self._memory.give(len(self.held))
        self.held = b""
        self.pending.clear()
        # Break the reference cycles with the connection; don't leave them to the garbage collector.
        self._answer, self._wake = _ignore_request, _ignore_reply

    def _handle(self, frame: memoryview) -> None:
        reply = self._answer(frame)
        if reply is not NO_REPLY:
            self.pending.append(reply)
            if isinstance(reply, Promise):
                if isinstance(reply, LongReply):
                    self._wait_for(reply)
                reply.then(partial(self._on_ready, reply))
            else:
                self._pending_bytes += len(reply)

    def _wait_for(self, reply: LongReply) -> None:
        """Hold back later requests until this one is handled."""
        if not reply.handled.done:
            self._is_handling = True
            reply.handled.then(self._on_handled)

    def _on_handled(self, _: None) -> None:
        self._is_handling = False
        if self._handled_frame is not None:
            memory, size = self._handled_frame
            self._handled_frame = None
            memory.give(size)
        if not self._is_closed:
            self._wake()

    def _on_ready(self, reply: Promise[Outgoing], outgoing: Outgoing) -> None:
        pending = self.pending
        if not pending:
            return
        if pending[0] is reply:
            self._wake()
        elif reply in pending:  # earlier replies are not ready: its bytes count
            pending[pending.index(reply)] = outgoing
            self._pending_bytes += len(outgoing)

    def _length(self, view: memoryview | bytearray, position: int) -> int:
        length: int = _LENGTH.unpack_from(view, position)[0]
        if not 0 < length <= self._frame_bytes_max:
            raise self._bad_length(length)
        return length

    def _bad_length(self, length: int) -> MalformedData:
        return MalformedData(f"a frame of {length} bytes; the limit is {self._frame_bytes_max}")

    def _keep_rest(self, rest: memoryview) -> None:
        """Store the bytes after the last complete frame: the start of the next frame, or requests that are held
        back."""
        if self.is_full or self.is_turn_over:
            self._memory.take(len(rest))
            self.held = bytes(rest)
            return
        self._frame_size = 4 + self._length(rest, 0) if len(rest) >= 4 else 0
        capacity = min(self._frame_size, max(self._trusted_bytes, 2 * len(rest))) or 4
        self._memory.take(capacity)
        self.incomplete = bytearray(capacity)
        self._incomplete_frames += 1
        self.incomplete[: len(rest)] = rest
        self._received = len(rest)

    def _fill(self, view: memoryview) -> memoryview:
        """Move bytes into the incomplete frame until it is complete; return the bytes that are left."""
        while self.incomplete is not None and len(view):
            count = min(len(view), len(self.incomplete) - self._received)
            self.incomplete[self._received : self._received + count] = view[:count]
            self._received += count
            view = view[count:]
            self._advance()
        return view

    def _advance(self) -> None:
        """After the incomplete frame got more bytes: read its length, grow the buffer, or answer the whole frame."""
        frame = self.incomplete
        assert frame is not None
        if self._received < len(frame):
            return
        if self._frame_size == 0:
            self._frame_size = 4 + self._length(frame, 0)
        if self._received < self._frame_size:
            capacity = min(self._frame_size, max(self._trusted_bytes, 2 * self._received))
            self._memory.take(capacity - len(frame))
            frame.extend(bytes(capacity - len(frame)))
            return
        self.incomplete = None
        memory, size = self._memory, len(frame)
        try:
            self._handle(memoryview(frame)[4:])
        finally:
            if self._is_handling:
                self._handled_frame = memory, size
            else:
                memory.give(size)
