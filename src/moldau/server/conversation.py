"""What a connection thinks, without a socket: bytes in, replies out, in order and within limits.

Frames are cut as windows on the bytes received and answered at once, in the order they came. A reply that must wait
keeps its place: those behind it wait too. A frame that is not whole yet is gathered in a buffer that grows with what
really arrives, never with what a length claims.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable

from moldau.base.errors import MalformedData
from moldau.base.limits import FRAME_TRUSTED_BYTES, REQUESTS_IN_FLIGHT_MAX, UNSENT_BYTES_MAX
from moldau.base.promise import Promise
from moldau.wire.codec import Outgoing

Reply = Outgoing | Promise[Outgoing] | None
"""What a request comes to: bytes now, bytes later, or nothing at all (produce with acks=0)."""


_LENGTH = struct.Struct(">i")


class ReceiveBudget:
    """How much memory all connections together may hold in frames that are not whole yet."""

    __slots__ = ("free",)

    def __init__(self, total_bytes: int) -> None:
        self.free = total_bytes

    def take(self, size: int) -> None:
        if size > self.free:
            raise MalformedData("the memory for requests that are still arriving is used up")
        self.free -= size

    def give(self, size: int) -> None:
        self.free += size


class Conversation:
    """One client's requests and replies. `answer` is the router; `wake` is called when a late reply is ready."""

    __slots__ = (
        "_answer",
        "_budget",
        "_due",
        "_due_bytes",
        "_frame",
        "_frame_bytes_max",
        "_have",
        "_is_closed",
        "_need",
        "_wake",
        "held",
    )

    def __init__(
        self,
        answer: Callable[[memoryview], Reply],
        wake: Callable[[], None],
        frame_bytes_max: int,
        budget: ReceiveBudget,
    ) -> None:
        self._answer = answer
        self._wake = wake
        self._frame_bytes_max = frame_bytes_max
        self._budget = budget
        self._due: deque[Outgoing | Promise[Outgoing]] = deque()
        self._due_bytes = 0
        self.held = b""
        """Requests that came while too many replies were owed; nothing more is read until they are answered."""
        self._frame: bytearray | None = None
        self._have = 0
        self._need = 0
        self._is_closed = False

    @property
    def is_full(self) -> bool:
        """So many replies are owed, or such large ones, that no more requests should be read."""
        return len(self._due) >= REQUESTS_IN_FLIGHT_MAX or self._due_bytes > UNSENT_BYTES_MAX

    @property
    def is_idle(self) -> bool:
        """Nothing is owed and nothing is half received."""
        return not self._due and self._frame is None and not self.held

    @property
    def is_answered(self) -> bool:
        return not self._due and not self.held

    def feed(self, view: memoryview) -> None:
        """Bytes that arrived; `view` is ours only during the call."""
        assert not self.held, "bytes were read past requests that are held back"
        if self._frame is not None:
            view = self._fill(view)
        size = len(view)
        position = 0
        # A reply that is sent at once may end the connection: what stands behind its request is then nobody's.
        while size - position >= 4 and not self.is_full and not self._is_closed:
            end = position + 4 + self._length(view, position)
            if end > size:
                break
            self._ask(view[position + 4 : end])
            position = end
        if position < size and not self._is_closed:
            self._keep(view[position:])

    def room(self) -> memoryview | None:
        """Where the next bytes of a half-received frame belong, for reading them straight to their place."""
        if self._frame is None or self._need < 4:
            return None
        return memoryview(self._frame)[self._have :]

    def filled(self, count: int) -> None:
        """`count` bytes were read into `room()`."""
        self._have += count
        self._advance()

    def resume(self) -> bool:
        """Goes on with requests that were held back while too many replies were owed; False if there are none."""
        if not self.held or self.is_full:
            return False
        held, self.held = self.held, b""
        self._budget.give(len(held))
        self.feed(memoryview(bytearray(held)))
        return True

    def next_reply(self) -> Outgoing | None:
        """The reply at the head of the queue, if it is ready."""
        due = self._due
        if not due:
            return None
        head = due[0]
        if isinstance(head, Promise):
            if not head.done:
                return None
            due.popleft()
            return head.value()
        due.popleft()
        self._due_bytes -= len(head)
        return head

    def close(self) -> None:
        """Gives back what was held; late replies find nobody and are dropped."""
        self._is_closed = True
        if self._frame is not None:
            self._budget.give(len(self._frame))
            self._frame = None
        self._budget.give(len(self.held))
        self.held = b""
        self._due.clear()

    def _ask(self, frame: memoryview) -> None:
        reply = self._answer(frame)
        if reply is not None:
            self._due.append(reply)
            if isinstance(reply, Promise):
                reply.then(lambda _: self._ready(reply))
            else:
                self._due_bytes += len(reply)

    def _ready(self, reply: Promise[Outgoing]) -> None:
        if self._due and self._due[0] is reply:
            self._wake()

    def _length(self, view: memoryview | bytearray, position: int) -> int:
        length: int = _LENGTH.unpack_from(view, position)[0]
        if not 0 < length <= self._frame_bytes_max:
            raise MalformedData(f"a frame of {length} bytes; the limit is {self._frame_bytes_max}")
        return length

    def _keep(self, rest: memoryview) -> None:
        """The bytes behind the last whole frame: the beginning of the next, or requests held back."""
        if self.is_full:
            self._budget.take(len(rest))
            self.held = bytes(rest)
            return
        self._need = 4 + self._length(rest, 0) if len(rest) >= 4 else 0
        capacity = min(self._need, max(FRAME_TRUSTED_BYTES, 2 * len(rest))) or 4
        self._budget.take(capacity)
        self._frame = bytearray(capacity)
        self._frame[: len(rest)] = rest
        self._have = len(rest)

    def _fill(self, view: memoryview) -> memoryview:
        """Moves bytes to the half-received frame until it is whole; gives what is left of them."""
        while self._frame is not None and len(view):
            count = min(len(view), len(self._frame) - self._have)
            self._frame[self._have : self._have + count] = view[:count]
            self._have += count
            view = view[count:]
            self._advance()
        return view

    def _advance(self) -> None:
        """The half-received frame got more bytes: learn its length, make room, or answer it when it is whole."""
        frame = self._frame
        assert frame is not None
        if self._have < len(frame):
            return
        if self._need == 0:
            self._need = 4 + self._length(frame, 0)
        if self._have < self._need:
            capacity = min(self._need, max(FRAME_TRUSTED_BYTES, 2 * self._have))
            self._budget.take(capacity - len(frame))
            frame.extend(bytes(capacity - len(frame)))
            return
        self._frame = None
        self._budget.give(len(frame))
        self._ask(memoryview(frame)[4:])
