"""Those who read only what is committed: up to the last stable offset, without what was aborted, as clients do it."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any

from cluster_consumers import Consumer, Place
from cluster_ledger import name_of

from moldau.base.ids import Uuid
from moldau.wire.batch import BatchHeader
from moldau.wire.records import ControlType, control_type, decode_records

if TYPE_CHECKING:
    from transactions_world import TransactionsWorld

READ_COMMITTED = 1
EPOCH_OF_FOLLOWERS = -1
AGAIN_MS = (500, 3_000)


class AbortedFilter:
    """What one fetch says of aborted transactions, over the batches that came with it."""

    def __init__(self, aborted: Any) -> None:
        self._to_come = deque(sorted((each.first_offset, each.producer_id) for each in aborted or ()))
        self._producers: set[int] = set()

    def passes(self, header: BatchHeader, batch: memoryview) -> bool:
        """Whether the records of the batch are for the application."""
        while self._to_come and self._to_come[0][0] <= header.last_offset:
            self._producers.add(self._to_come.popleft()[1])
        if header.is_control:
            records = decode_records(batch, header)  # none where a marker was cleaned away
            if records and control_type(records[0]) == ControlType.ABORT:
                self._producers.discard(header.producer_id)
            return False
        return not (header.is_transactional and header.producer_id in self._producers)


@dataclass(slots=True)
class Session:
    """A partition, read without a gap."""

    topic_id: Uuid
    partition: int
    begin: int
    end: int
    given: list[tuple[int, bytes]] = field(default_factory=list)
    """To the application: offsets and values."""

    def part_of(self, committed: list[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
        """What it must have been given."""
        return [each for each in committed if self.begin <= each[0] < self.end]


class CommittedReader(Consumer):
    isolation_level = READ_COMMITTED

    def __init__(self, world: TransactionsWorld, name: str, topic: str, rng: Random) -> None:
        self._book = world.book
        self._new_ledger = world.transactional_ledger
        self._filter = AbortedFilter(())
        self.sessions: list[Session] = []
        self._sessions: dict[tuple[Uuid, int], Session] = {}
        """Those that go on."""
        self._stable: dict[tuple[Uuid, int], tuple[int, int]] = {}
        """The last stable offset, and in which leader epoch it was told."""
        super().__init__(world, name, topic, rng)

    def readable_end(self, place: Place, epoch: int, found: Any) -> int:
        self._filter = AbortedFilter(found.aborted_transactions)
        key = (place.topic_id, place.partition)
        known, known_epoch = self._stable.get(key, (-1, EPOCH_OF_FOLLOWERS))
        if epoch == known_epoch != EPOCH_OF_FOLLOWERS and found.last_stable_offset < known:
            self.world.violated(
                f"{self.name}: the last stable offset of {place.partition} goes back from {known} to "
                f"{found.last_stable_offset} in epoch {epoch}"
            )
        self._stable[key] = (found.last_stable_offset, epoch)
        ledger = self._new_ledger(*key)
        ledger.claim(self.name, found.last_stable_offset, found.high_watermark, found.log_start_offset)
        return int(found.last_stable_offset)

    def was_read(self, place: Place, header: BatchHeader, batch: memoryview) -> None:
        session = self._sessions.get((place.topic_id, place.partition))
        if session is None:
            session = self._begin_session(place, 0)
        session.end = header.next_offset
        if not self._filter.passes(header, batch):
            return
        for record in decode_records(batch, header):
            if record.offset < session.begin:
                continue  # a batch comes whole
            value = name_of(record)
            self._book.was_read(self.name, f"{self.topic}-{place.partition} at {record.offset}", value)
            session.given.append((record.offset, value))

    def skipped(self, place: Place) -> None:
        self._begin_session(place, place.position)

    def _begin_session(self, place: Place, begin: int) -> Session:
        session = Session(place.topic_id, place.partition, begin, begin)
        self._sessions[place.topic_id, place.partition] = session
        self.sessions.append(session)
        return session


class LateReader(CommittedReader):
    """Begins anew every now and then, as one who knows nothing: where the log begins by then."""

    def __init__(self, world: TransactionsWorld, name: str, topic: str, rng: Random) -> None:
        self._again_at_ms: dict[tuple[Uuid, int], int] = {}
        super().__init__(world, name, topic, rng)

    def take(self, place: Place, epoch: int, found: Any) -> None:
        super().take(place, epoch, found)
        key, now_ms = (place.topic_id, place.partition), self.world.elapsed_ms
        if now_ms >= self._again_at_ms.setdefault(key, now_ms) and not self.world.faults.is_over:
            self._again_at_ms[key] = now_ms + self.rng.randint(*AGAIN_MS)
            self._sessions.pop(key, None)
            place.position, place.last_epoch = 0, -1
