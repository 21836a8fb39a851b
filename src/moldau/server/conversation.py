"""The protocol of one connection, without a socket: bytes in, replies out, in order and within limits.

Each frame is a window on the received bytes and is answered at once, in the order of arrival. A reply that must wait
keeps its place: later replies wait behind it. An incomplete frame is collected in a buffer that grows with the bytes
that arrive, never with the length that the client claims.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable

from moldau.base.connection_settings import ConnectionLimits
from moldau.base.counters import Counters
from moldau.base.errors import MalformedData
from moldau.base.limits import FRAME_TRUSTED_BYTES, REQUESTS_PER_TURN_MAX
from moldau.base.promise import Promise
from moldau.wire.codec import Outgoing

Reply = Outgoing | Promise[Outgoing] | None
"""The result of a request: bytes now, bytes later, or no reply at all (produce with acks=0)."""


_LENGTH = struct.Struct(">i")


class OutOfMemory(MalformedData):
    """The connections together use as much memory as they may."""


class ConnectionBudget:
    """The memory that all connections together may use for incomplete frames and for responses that clients do not
    read, the limits of each connection, and how often they were reached."""

    __slots__ = ("counters", "free", "limits", "unsent_free")

    def __init__(
        self, total_bytes: int, limits: ConnectionLimits | None = None, counters: Counters | None = None
    ) -> None:
        self.free = total_bytes
        self.limits = limits or ConnectionLimits()
        self.unsent_free = self.limits.unsent_budget_bytes
        self.counters = counters or Counters()

    def take(self, size: int) -> None:
        if size > self.free:
            raise OutOfMemory("the memory for requests that are still arriving is used up")
        self.free -= size

    def hold_unsent(self, before: int, now: int) -> bool:
        """Change how many unsent bytes a connection has; return whether all connections together have too many."""
        self.unsent_free -= now - before
        return self.unsent_free < 0 and now > before

    def give(self, size: int) -> None:
        self.free += size


class Conversation:
    """The requests and replies of one client. `answer` is the router; `wake` is called when a late reply is ready."""

    __slots__ = (
        "_answer",
        "_budget",
        "_frame",
        "_frame_bytes_max",
        "_frame_size",
        "_is_closed",
        "_pending",
        "_pending_bytes",
        "_received",
        "_requests_max",
        "_trusted_bytes",
        "_unsent_bytes_max",
        "_wake",
        "held",
        "is_turn_over",
    )

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
        self.limit_frames(frame_bytes_max)
        self._pending: deque[Outgoing | Promise[Outgoing]] = deque()
        self._pending_bytes = 0
        self.held = b""
        """Requests that arrived while too many replies were pending, or too many at once. Nothing more is read until
        they are answered."""
        self.is_turn_over = False
        """Whether requests are held back because other connections must get their turn first."""
        self._frame: bytearray | None = None
        self._received = 0
        self._frame_size = 0
        self._is_closed = False

    @property
    def is_full(self) -> bool:
        """Whether so many replies are pending, or such large ones, that no more requests should be read."""
        return len(self._pending) >= self._requests_max or self._pending_bytes > self._unsent_bytes_max

    @property
    def is_idle(self) -> bool:
        """Whether no reply is pending and no frame is incomplete."""
        return not self._pending and self._frame is None and not self.held

    @property
    def is_answered(self) -> bool:
        return not self._pending and not self.held

    @property
    def arriving(self) -> tuple[bytearray, int] | None:
        """The buffer of the incomplete frame, which is always the same object, and how much of it has arrived."""
        return None if self._frame is None else (self._frame, self._received)

    def limit_frames(self, bytes_max: int, trusted_bytes: int = FRAME_TRUSTED_BYTES) -> None:
        """Set the largest size of a frame, and the size up to which a frame gets its whole buffer at once. It holds
        for the frames after the current one."""
        self._frame_bytes_max = bytes_max
        self._trusted_bytes = trusted_bytes

    def feed(self, view: memoryview) -> None:
        """Handle received bytes. `view` is valid only during the call."""
        assert not self.held, "bytes were read past requests that are held back"
        if self._frame is not None:
            view = self._fill(view)
        size = len(view)
        position = answered = 0
        self.is_turn_over = False
        # Sending a reply may close the connection. The requests after it are then dropped.
        while size - position >= 4 and not self.is_full and not self._is_closed:
            end = position + 4 + self._length(view, position)
            if end > size:
                break
            if answered == REQUESTS_PER_TURN_MAX:
                self.is_turn_over = True
                break
            self._handle(view[position + 4 : end])
            position = end
            answered += 1
        if position < size and not self._is_closed:
            self._keep_rest(view[position:])

    def room(self) -> memoryview | None:
        """Return the buffer for the next bytes of an incomplete frame, so that they are read straight into it."""
        if self._frame is None or self._frame_size < 4:
            return None
        return memoryview(self._frame)[self._received :]

    def filled(self, count: int) -> None:
        """Called when `count` bytes were read into `room()`."""
        self._received += count
        self._advance()

    def resume(self) -> bool:
        """Continue with requests that were held back while too many replies were pending; False if there are none."""
        if not self.held or self.is_full:
            return False
        held, self.held = self.held, b""
        self._budget.give(len(held))
        self.feed(memoryview(bytearray(held)))
        return True

    def next_reply(self) -> Outgoing | None:
        """Return the reply at the head of the queue, or None if it is not ready."""
        pending = self._pending
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
        if self._frame is not None:
            self._budget.give(len(self._frame))
            self._frame = None
        self._budget.give(len(self.held))
        self.held = b""
        self._pending.clear()

    def _handle(self, frame: memoryview) -> None:
        reply = self._answer(frame)
        if reply is not None:
            self._pending.append(reply)
            if isinstance(reply, Promise):
                reply.then(lambda _: self._on_ready(reply))
            else:
                self._pending_bytes += len(reply)

    def _on_ready(self, reply: Promise[Outgoing]) -> None:
        if self._pending and self._pending[0] is reply:
            self._wake()

    def _length(self, view: memoryview | bytearray, position: int) -> int:
        length: int = _LENGTH.unpack_from(view, position)[0]
        if not 0 < length <= self._frame_bytes_max:
            raise MalformedData(f"a frame of {length} bytes; the limit is {self._frame_bytes_max}")
        return length

    def _keep_rest(self, rest: memoryview) -> None:
        """Store the bytes after the last complete frame: the start of the next frame, or requests that are held
        back."""
        if self.is_full or self.is_turn_over:
            self._budget.take(len(rest))
            self.held = bytes(rest)
            return
        self._frame_size = 4 + self._length(rest, 0) if len(rest) >= 4 else 0
        capacity = min(self._frame_size, max(self._trusted_bytes, 2 * len(rest))) or 4
        self._budget.take(capacity)
        self._frame = bytearray(capacity)
        self._frame[: len(rest)] = rest
        self._received = len(rest)

    def _fill(self, view: memoryview) -> memoryview:
        """Move bytes into the incomplete frame until it is complete; return the bytes that are left."""
        while self._frame is not None and len(view):
            count = min(len(view), len(self._frame) - self._received)
            self._frame[self._received : self._received + count] = view[:count]
            self._received += count
            view = view[count:]
            self._advance()
        return view

    def _advance(self) -> None:
        """After the incomplete frame got more bytes: read its length, grow the buffer, or answer the whole frame."""
        frame = self._frame
        assert frame is not None
        if self._received < len(frame):
            return
        if self._frame_size == 0:
            self._frame_size = 4 + self._length(frame, 0)
        if self._received < self._frame_size:
            capacity = min(self._frame_size, max(self._trusted_bytes, 2 * self._received))
            self._budget.take(capacity - len(frame))
            frame.extend(bytes(capacity - len(frame)))
            return
        self._frame = None
        self._budget.give(len(frame))
        self._handle(memoryview(frame)[4:])
