"""read_committed consumers: they read up to the last stable offset and skip aborted records, as clients do."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any

from cluster.consumers import Consumer, Place
from cluster.ledger import name_of

from moldau.base.ids import Uuid
from moldau.wire.batch import BatchHeader
from moldau.wire.records import ControlType, control_type, decode_records

if TYPE_CHECKING:
    from transactions.world import TransactionsWorld

READ_COMMITTED = 1
EPOCH_OF_FOLLOWERS = -1
AGAIN_MS = (500, 3_000)


class AbortedFilter:
    """Applies the aborted transactions of one fetch response to its batches."""

    def __init__(self, aborted: Any) -> None:
        self._to_come = deque(sorted((each.first_offset, each.producer_id) for each in aborted or ()))
        self._producers: set[int] = set()

    def passes(self, header: BatchHeader, batch: memoryview) -> bool:
        """Whether the records of the batch are returned to the application."""
        while self._to_come and self._to_come[0][0] <= header.last_offset:
            self._producers.add(self._to_come.popleft()[1])
        if header.is_control:
            records = decode_records(batch, header)  # none if the marker was compacted away
            if records and control_type(records[0]) == ControlType.ABORT:
                self._producers.discard(header.producer_id)
            return False
        return not (header.is_transactional and header.producer_id in self._producers)


@dataclass(slots=True)
class Session:
    """A part of a partition that was read without a gap."""

    topic_id: Uuid
    partition: int
    begin: int
    end: int
    given: list[tuple[int, bytes]] = field(default_factory=list)
    """Offsets and values returned to the application."""

    def part_of(self, committed: list[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
        """Return what the application must have got."""
        return [each for each in committed if self.begin <= each[0] < self.end]


class CommittedReader(Consumer):
    isolation_level = READ_COMMITTED

    def __init__(self, world: TransactionsWorld, name: str, topic: str, rng: Random) -> None:
        self._history = world.history
        self._new_ledger = world.transactional_ledger
        self._filter = AbortedFilter(())
        self.sessions: list[Session] = []
        self._sessions: dict[tuple[Uuid, int], Session] = {}
        """The current sessions."""
        self._stable: dict[tuple[Uuid, int], tuple[int, int]] = {}
        """The last stable offset, and the leader epoch in which it was returned."""
        super().__init__(world, name, topic, rng)

    def readable_end(self, place: Place, epoch: int, partition_data: Any) -> int:
        self._filter = AbortedFilter(partition_data.aborted_transactions)
        key = (place.topic_id, place.partition)
        known, known_epoch = self._stable.get(key, (-1, EPOCH_OF_FOLLOWERS))
        if epoch == known_epoch != EPOCH_OF_FOLLOWERS and partition_data.last_stable_offset < known:
            self.world.violated(
                f"{self.name}: the last stable offset of {place.partition} goes back from {known} to "
                f"{partition_data.last_stable_offset} in epoch {epoch}"
            )
        self._stable[key] = (partition_data.last_stable_offset, epoch)
        ledger = self._new_ledger(*key)
        ledger.claim(
            self.name, partition_data.last_stable_offset, partition_data.high_watermark, partition_data.log_start_offset
        )
        return int(partition_data.last_stable_offset)

    def was_read(self, place: Place, header: BatchHeader, batch: memoryview) -> None:
        session = self._sessions.get((place.topic_id, place.partition))
        if session is None:
            session = self._begin_session(place, 0)
        session.end = header.next_offset
        if not self._filter.passes(header, batch):
            return
        for record in decode_records(batch, header):
            if record.offset < session.begin:
                continue  # batches are returned whole
            value = name_of(record)
            self._history.was_read(self.name, f"{self.topic}-{place.partition} at {record.offset}", value)
            session.given.append((record.offset, value))

    def skipped(self, place: Place) -> None:
        self._begin_session(place, place.position)

    def _begin_session(self, place: Place, begin: int) -> Session:
        session = Session(place.topic_id, place.partition, begin, begin)
        self._sessions[place.topic_id, place.partition] = session
        self.sessions.append(session)
        return session


class LateReader(CommittedReader):
    """Restarts now and then at the log start offset, as a new consumer would."""

    def __init__(self, world: TransactionsWorld, name: str, topic: str, rng: Random) -> None:
        self._again_at_ms: dict[tuple[Uuid, int], int] = {}
        super().__init__(world, name, topic, rng)

    def take(self, place: Place, epoch: int, partition_data: Any) -> None:
        super().take(place, epoch, partition_data)
        key, now_ms = (place.topic_id, place.partition), self.world.elapsed_ms
        if now_ms >= self._again_at_ms.setdefault(key, now_ms) and not self.world.faults.is_over:
            self._again_at_ms[key] = now_ms + self.rng.randint(*AGAIN_MS)
            self._sessions.pop(key, None)
            place.position, place.last_epoch = 0, -1
