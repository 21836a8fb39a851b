"""The parts that all coordinators share. A coordinator works in three steps: decide, apply, append.

A decision reads the state and returns records; `apply` changes the state by them, live and on replay alike; the records
are appended to a replicated log. The client gets its response when the records are committed. Soft state (who waits
for what, and until when) exists only in memory and is lost with the machine.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from heapq import heapify, heappop, heappush
from typing import Any, Final, Generic, NamedTuple, TypeVar

from moldau.base.errors import KafkaError
from moldau.base.promise import Promise
from moldau.wire.schema import Message

R = TypeVar("R")


class CoordinatorRecord(NamedTuple):
    """One record for the log. Without a value it is a tombstone for its key."""

    key: Message
    value: Message | None


UNWRITABLE: Final = (struct.error, ValueError, OverflowError)
"""Errors of the codec for a string that is too long for its length field."""
new_coordinator_record = partial(tuple.__new__, CoordinatorRecord)
"""Makes a CoordinatorRecord without its own constructor, whose cost every committed offset would pay."""


class ProducerIdAndEpoch(NamedTuple):
    """The producer in whose transaction records are written."""

    producer_id: int
    producer_epoch: int


class Answer(NamedTuple):
    """The response for a request that waited."""

    waiting: Promise[Any]
    response: Any


@dataclass(slots=True)
class Outcome(Generic[R]):
    """The result of a request or of a deadline."""

    response: R | Promise[R]
    """A Promise is completed by an answer of this or of a later outcome."""
    records: Sequence[CoordinatorRecord] = ()
    """Appended all or none, unless `is_divisible`."""
    answers: Sequence[Answer] = ()
    """Responses to other requests that waited; sent when the records are committed. `on_applied` may add some. If the
    log refuses the records, those that are already here get that error."""
    on_refused: OnRefused | None = None
    """Called if the log refuses the records, for example as too large. Without it, the client gets that error. Its
    outcome has the records and answers instead; the response object stays, but may be changed."""
    on_applied: Callable[[], None] | None = None
    """Updates the soft state. Called right after the records were applied; not called if the log refused them."""
    is_divisible: bool = False
    """The records may be split into batches: each is valid without the others, such as tombstones."""
    producer: ProducerIdAndEpoch | None = None
    """The records are one batch of this producer's transaction: they take effect only if and when it commits."""
    spare_bytes: int = 0
    """The records must be this much smaller than the log's limit: a later record is longer and must not be refused."""
    encoded: Sequence[tuple[bytes, bytes | None]] | None = None
    """The bytes of the records' keys and values, if they are encoded already."""


OnRefused = Callable[[KafkaError], Outcome[Any]]
NOTHING: Outcome[None] = Outcome(None)


class Client(NamedTuple):
    """What a coordinator knows of the client that sent a request."""

    client_id: str
    host: str
    """Begins with a slash, as Kafka shows it."""
    version: int
    """The version of the request."""


MayUseTopic = Callable[[str], bool]
"""Whether the client may do what it asks for with the topic of that name, whether the topic exists or not."""


def any_topic(name: str) -> bool:
    """The `MayUseTopic` of clients without restrictions."""
    return True


Action = Callable[[], Outcome[None]]

STALE_ENTRIES_MAX: Final = 1_000
"""How many heap entries of cancelled or earlier rescheduled deadlines may stay, besides one per set deadline. Without
a limit, each member that joins and leaves would keep an entry until its session timeout."""


class Deadlines:
    """Actions to run at a time, by key. Postponing a deadline costs one assignment: its heap entry is looked at again
    only when the old time comes."""

    def __init__(self) -> None:
        self._set: dict[Hashable, tuple[int, Action]] = {}
        self._heap: list[tuple[int, int, Hashable]] = []
        self._reached: deque[Hashable] = deque()
        """Keys whose time has come, and which `due` has not looked at yet."""
        self._count = 0
        self.has_earlier = False
        """Whether a deadline was scheduled since the shard, which sets the timer, set this to False."""

    def __contains__(self, key: Hashable) -> bool:
        return key in self._set

    def schedule(self, key: Hashable, at_ms: int, action: Action) -> None:
        """Run `action` at `at_ms` of the monotonic clock. It replaces a deadline with the same key."""
        previous = self._set.get(key)
        self._set[key] = (at_ms, action)
        if previous is None or at_ms < previous[0]:
            self._push(at_ms, key)

    def postpone(self, key: Hashable, at_ms: int) -> bool:
        """Move a deadline, with its action, to a time that is not earlier. Return False if that is not possible."""
        current = self._set.get(key)
        if current is None or at_ms < current[0]:
            return False
        self._set[key] = (at_ms, current[1])
        return True

    def cancel(self, key: Hashable) -> None:
        self._set.pop(key, None)

    def next_ms(self) -> int | None:
        """Return when to call `due` next; it may yield nothing then. Time 0 is before every deadline."""
        if self._reached:
            return 0
        return self._heap[0][0] if self._heap else None

    def due(self, now_ms: int) -> Iterator[Action]:
        """Yield the actions to run now. Each is removed just before it is yielded, so an earlier action can still
        cancel or postpone it. If the caller stops early, the next call yields the rest."""
        while self._heap and self._heap[0][0] <= now_ms:
            self._reached.append(heappop(self._heap)[2])
        for _ in range(len(self._reached)):
            key = self._reached.popleft()
            at_ms, action = self._set.get(key, (now_ms, None))
            if at_ms > now_ms:
                self._push(at_ms, key)
            elif action is not None:
                del self._set[key]
                yield action

    def _push(self, at_ms: int, key: Hashable) -> None:
        self.has_earlier = True
        if len(self._heap) > 2 * len(self._set) + STALE_ENTRIES_MAX:
            self._heap = [(at_ms, number, key) for number, (key, (at_ms, _)) in enumerate(self._set.items())]
            self._count = len(self._heap)
            heapify(self._heap)
            return
        self._count += 1
        heappush(self._heap, (at_ms, self._count, key))
