"""A conversation without a socket, for tests: frames to send, and a router whose replies the request itself chooses."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from harness.patience import Patience

from moldau.base.promise import Promise
from moldau.server.conversation import ConnectionBudget, Conversation, Reply
from moldau.wire.codec import NO_REPLY, Outgoing

FRAME_BYTES_MAX = 100_000
BUDGET_BYTES = 10_000_000

NOW, LATER, NEVER = "now", "later", "never"
"""The first word of a request says when it is answered: at once, later, or never (acks=0)."""


def frame(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


def request(number: int, reply_time: str, size: int = 0) -> bytes:
    """Return a request that names its number and when it is answered, padded to `size` bytes."""
    return f"{reply_time} {number} ".encode().ljust(size, b".")


def reply_to(body: bytes) -> bytes:
    return b"re: " + body[:24]


class ScriptedConversation:
    """A conversation that records its requests, replies and wake-ups."""

    def __init__(self, budget_bytes: int = BUDGET_BYTES, frame_bytes_max: int = FRAME_BYTES_MAX) -> None:
        self.budget_bytes = budget_bytes
        self.budget = ConnectionBudget(budget_bytes)
        self.requests: list[bytes] = []
        self.late: list[tuple[bytes, Promise[Outgoing]]] = []
        self.replies: list[bytes] = []
        self.wakes = 0
        self.on_wake: Callable[[], None] = lambda: None
        self.conversation = Conversation(self._answer, self._wake, frame_bytes_max, self.budget)

    def _answer(self, view: memoryview) -> Reply:
        body = bytes(view)
        self.requests.append(body)
        if body.startswith(NEVER.encode()):
            return NO_REPLY
        if body.startswith(LATER.encode()):
            promise: Promise[Outgoing] = Promise()
            self.late.append((body, promise))
            return promise
        return Outgoing(reply_to(body))

    def _wake(self) -> None:
        self.wakes += 1
        self.on_wake()

    def feed(self, data: bytes) -> None:
        """Feed bytes as a socket would: the buffer is overwritten after the call. Turns follow at once."""
        scratch = bytearray(data)
        self.conversation.feed(memoryview(scratch))
        scratch[:] = b"\xee" * len(scratch)
        while self.conversation.is_turn_over and self.conversation.resume():
            pass

    def read(self, data: bytes) -> None:
        """Like `feed`, but write bytes of a half-received frame directly into its buffer where there is one."""
        while data:
            room = self.conversation.room()
            if room is None:
                self.feed(data)
                return
            count = min(len(room), len(data))
            room[:count] = data[:count]
            room.release()
            self.conversation.filled(count)
            data = data[count:]

    def settle(self, index: int = 0) -> None:
        """Complete one of the late replies."""
        body, promise = self.late.pop(index)
        promise.complete(Outgoing(reply_to(body)))

    def collect(self) -> list[bytes]:
        """Take the replies that are ready and resume the conversation, until nothing changes any more."""
        replies: list[bytes] = []
        while True:
            before = len(replies), len(self.requests)
            while (reply := self.conversation.next_reply()) is not None:
                replies.append(bytes(reply))
            self.conversation.resume()
            if before == (len(replies), len(self.requests)):
                break
        self.replies += replies
        return replies


async def until(condition: Callable[[], object]) -> None:
    """Run the event loop until the condition holds. Fail once the condition's value has not changed for PATIENCE_S."""
    patience = Patience("a condition of the event loop")
    while not (value := condition()):
        patience.check(value)
        await asyncio.sleep(0)
    Patience.awaited = ""


def expected_replies(bodies: Iterable[bytes]) -> list[bytes]:
    return [reply_to(body) for body in bodies if not body.startswith(NEVER.encode())]
