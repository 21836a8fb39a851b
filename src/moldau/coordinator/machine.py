"""The three words of a coordinator: decide, append, apply.

A decision reads the state and names records; the records are appended to a replicated log; `apply` lays them over the
state, live and on replay alike. Whoever asked is answered when the records are committed. What is soft, who waits for
whom and until when, lives in the machine's memory alone and is gone with it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Any, Final, Generic, NamedTuple, TypeVar

from moldau.base.errors import KafkaError
from moldau.base.promise import Promise
from moldau.wire.schema import Message

R = TypeVar("R")


class CoordinatorRecord(NamedTuple):
    """A fact for the log. Without a value it is a tombstone: the fact that was there under the key is no more."""

    key: Message
    value: Message | None


class ProducerIdAndEpoch(NamedTuple):
    """In whose transaction records are written."""

    producer_id: int
    producer_epoch: int


class Answer(NamedTuple):
    """What somebody who waited is told."""

    waiting: Promise[Any]
    response: Any


@dataclass(slots=True)
class Outcome(Generic[R]):
    """What a request, or a deadline, comes to."""

    response: R | Promise[R]
    """A Promise is completed by an answer of this or of a later outcome."""
    records: Sequence[CoordinatorRecord] = ()
    """All of them or none get into the log, unless `is_divisible`."""
    answers: Sequence[Answer] = ()
    """To others who waited, told when the records are committed."""
    refused: Callable[[KafkaError], Outcome[None]] | None = None
    """The log will not take the records, as when they are too large. Without it, whoever asked is told just that."""
    applied: Callable[[], None] | None = None
    """What is soft and follows from the records: called as soon as they lie over the state, if they are taken."""
    is_divisible: bool = False
    """The records need not be one batch: each is true without the others, as when much is forgotten."""
    producer: ProducerIdAndEpoch | None = None
    """The records are one batch of this producer's transaction: true once it commits, and never if it aborts."""
    spare_bytes: int = 0
    """So much less than the log takes they must have: what is to follow from them is longer, and may not be refused."""


NOTHING: Outcome[None] = Outcome(None)


class Client(NamedTuple):
    """Who asks, as far as a coordinator wants to know."""

    client_id: str
    host: str
    """With a slash before it, as Kafka shows it."""
    version: int
    """Of the request."""


Action = Callable[[], Outcome[None]]

PLACES_LEFT_BEHIND_MAX: Final = 1_000
"""Of deadlines that were cancelled or brought forward, beside one for each that is set. Members that come and go would
otherwise leave a place each until their session would have ended."""


class Deadlines:
    """What happens by itself when time has come, by key. Putting off a deadline that was set costs one assignment:
    its place in the heap is looked at again only when the old time comes."""

    def __init__(self) -> None:
        self._set: dict[Hashable, tuple[int, Action]] = {}
        self._heap: list[tuple[int, int, Hashable]] = []
        self._count = 0

    def __contains__(self, key: Hashable) -> bool:
        return key in self._set

    def schedule(self, key: Hashable, at_ms: int, action: Action) -> None:
        """At that time, on the clock that never goes back. A deadline under the same key is replaced."""
        before = self._set.get(key)
        self._set[key] = (at_ms, action)
        if before is None or at_ms < before[0]:
            self._push(at_ms, key)

    def cancel(self, key: Hashable) -> None:
        self._set.pop(key, None)

    def next_ms(self) -> int | None:
        """When to look again; there may be nothing to do then."""
        return self._heap[0][0] if self._heap else None

    def due(self, now_ms: int) -> Iterator[Action]:
        """What is to be done now. Each is taken out when its turn comes and will not come again by itself: what an
        action before it cancelled or put off is not done."""
        reached: deque[Hashable] = deque()
        while self._heap and self._heap[0][0] <= now_ms:
            reached.append(heappop(self._heap)[2])
        try:
            while reached:
                key = reached.popleft()
                at_ms, action = self._set.get(key, (now_ms, None))
                if at_ms > now_ms:
                    self._push(at_ms, key)
                elif action is not None:
                    del self._set[key]
                    yield action
        finally:
            # Whoever stops in between, because an action failed, finds the rest when they come again.
            for key in reached:
                if key in self._set:
                    self._push(self._set[key][0], key)

    def _push(self, at_ms: int, key: Hashable) -> None:
        if len(self._heap) > 2 * len(self._set) + PLACES_LEFT_BEHIND_MAX:
            self._heap = [(at_ms, number, key) for number, (key, (at_ms, _)) in enumerate(self._set.items())]
            self._count = len(self._heap)
            heapify(self._heap)
            return
        self._count += 1
        heappush(self._heap, (at_ms, self._count, key))
