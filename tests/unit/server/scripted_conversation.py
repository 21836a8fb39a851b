"""One side of a conversation, for tests: frames to send, a router that does as it is told, a shell without a socket."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from moldau.base.promise import Promise
from moldau.server.conversation import Conversation, ReceiveBudget, Reply
from moldau.wire.codec import Outgoing

FRAME_BYTES_MAX = 100_000
BUDGET_BYTES = 10_000_000

NOW, LATER, NEVER = "now", "later", "never"
"""What a request asks for with its first byte: a reply at once, a reply later, or none (acks=0)."""


def frame(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


def request(number: int, mood: str, size: int = 0) -> bytes:
    """A request that tells its number and how it wants to be answered, filled up to that size."""
    return f"{mood} {number} ".encode().ljust(size, b".")


def reply_to(body: bytes) -> bytes:
    return b"re: " + body[:24]


class ScriptedConversation:
    """A conversation with everything that happened in it."""

    def __init__(self, budget_bytes: int = BUDGET_BYTES, frame_bytes_max: int = FRAME_BYTES_MAX) -> None:
        self.budget_bytes = budget_bytes
        self.budget = ReceiveBudget(budget_bytes)
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
            return None
        if body.startswith(LATER.encode()):
            promise: Promise[Outgoing] = Promise()
            self.late.append((body, promise))
            return promise
        return Outgoing(reply_to(body))

    def _wake(self) -> None:
        self.wakes += 1
        self.on_wake()

    def feed(self, data: bytes) -> None:
        """As a socket would: the bytes are ours only during the call, then the buffer is used again."""
        scratch = bytearray(data)
        self.conversation.feed(memoryview(scratch))
        scratch[:] = b"\xee" * len(scratch)

    def read(self, data: bytes) -> None:
        """The same, but bytes of a half-received frame go straight to their place where there is one."""
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

    def settle(self, place: int = 0) -> None:
        """Completes one of the late replies."""
        body, promise = self.late.pop(place)
        promise.complete(Outgoing(reply_to(body)))

    def collect(self) -> list[bytes]:
        """Takes the replies that are ready, then lets the conversation go on, until nothing moves."""
        taken: list[bytes] = []
        while True:
            before = len(taken), len(self.requests)
            while (reply := self.conversation.next_reply()) is not None:
                taken.append(bytes(reply))
            self.conversation.resume()
            if before == (len(taken), len(self.requests)):
                break
        self.replies += taken
        return taken


async def until(condition: Callable[[], object]) -> None:
    """Lets a real loop turn until something is so; whoever calls bounds the time."""
    while not condition():  # noqa: ASYNC110 - what is waited for has no event
        await asyncio.sleep(0)


def expected_replies(bodies: Iterable[bytes]) -> list[bytes]:
    return [reply_to(body) for body in bodies if not body.startswith(NEVER.encode())]
