"""Clients of a table: writers of keys and tombstones, in transactions and without, and consumers that read it from its
beginning again and again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any

from cluster.consumers import Place
from cluster.ledger import NAME_HEADER, name_of
from cluster.producers import Batch, Lane, Producer, produced
from transactions.producer import TransactionalProducer
from transactions.reader import EPOCH_OF_FOLLOWERS, CommittedReader

from compaction.ledger import CompactedLedger, Deleted
from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import Uuid
from moldau.wire.batch import BatchHeader
from moldau.wire.messages.produce import ProduceResponse
from moldau.wire.records import NEXT_OFFSET, Record, decode_records

if TYPE_CHECKING:
    from compaction.world import CompactionWorld

KEYS = 12
TOMBSTONES = 0.25
CLOCK_JUMPS = "a clock jumps"
REST_MS = (100, 1_200)


def keyed(rng: Random, now_ms: int, name: bytes) -> Record:
    key = f"key-{min(int(rng.expovariate(0.3)), KEYS)}".encode()
    value = None if rng.random() < TOMBSTONES else name
    return Record(NEXT_OFFSET, now_ms, key, value, ((NAME_HEADER, name),))


class KeyedProducer(Producer):
    def record(self, name: bytes) -> Record:
        return keyed(self.rng, self.world.clock.now_ms(), name)

    def _replied(
        self, lane: Lane, batch: Batch, attempt: int, node_id: int, reply: ProduceResponse | KafkaError
    ) -> None:
        code, _ = produced(reply)
        if code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and batch in lane.queue and self._was_deleted(lane, batch):
            self.trace_result(f"{lane.partition}@{batch.first} is deleted already", code)
            lane.queue.remove(batch)
        else:
            super()._replied(lane, batch, attempt, node_id, reply)

    def _was_deleted(self, lane: Lane, batch: Batch) -> bool:
        """Whether the record was there and is deleted: after a restart no broker may know it any more."""
        ledger = self.world.audit.ledger(lane.topic_id, lane.partition)
        return batch.values[0] in ledger.values[: ledger.start]


class KeyedTransactionalProducer(TransactionalProducer):
    def record(self, name: bytes) -> Record:
        return keyed(self.rng, self.world.clock.now_ms(), name)


@dataclass(slots=True)
class Reading:
    """One reading of a table from its beginning."""

    began_ms: int
    jumps: int
    until: int = -1
    """The last stable offset at the start of the reading."""
    start: int = 0
    """The last log start offset that was returned."""
    epochs: set[int] = field(default_factory=set)
    last: dict[bytes, int] = field(default_factory=dict)
    """The last offset read of each key."""
    count: int = 0
    again_at_ms: int = -1
    """When to begin again, once it is read."""


class TableReader(CommittedReader):
    """Reads a table again and again: each time it must see the last record of every key."""

    may_skip = True

    def __init__(self, world: CompactionWorld, name: str, topic: str, rng: Random) -> None:
        self._retention_ms = world.delete_retention_ms
        self._processes_ended = world.processes_ended
        self._readings: dict[tuple[Uuid, int], Reading] = {}
        self._starts: dict[tuple[Uuid, int], tuple[int, int]] = {}
        """The log start offset, and the leader epoch in which it was returned."""
        self._deleted: dict[int, Deleted] = {}
        """The last confirmed DeleteRecords at the time of the request, for each partition."""
        self.readings = 0
        super().__init__(world, name, topic, rng)

    def _reading(self, place: Place) -> Reading:
        key = (place.topic_id, place.partition)
        partition_data = self._readings.get(key)
        if partition_data is None:
            jumps = self.world.faults.counts[CLOCK_JUMPS]
            partition_data = self._readings[key] = Reading(self.world.elapsed_ms, jumps)
        return partition_data

    def _compacted(self, place: Place) -> CompactedLedger:
        ledger = self._new_ledger(place.topic_id, place.partition)
        assert isinstance(ledger, CompactedLedger)
        return ledger

    # --- the log start offset -------------------------------------------------------------------------------------

    def _fetch(self, node_id: int, places: list[Place]) -> None:
        for place in places:
            self._deleted[place.partition] = self._compacted(place).deleted
        super()._fetch(node_id, places)

    def skipped(self, place: Place) -> None:
        reading = self._reading(place)
        reading.start = max(reading.start, place.position)

    def begins(self, place: Place, epoch: int, start_offset: int) -> None:
        super().begins(place, epoch, start_offset)
        key, ledger = (place.topic_id, place.partition), self._compacted(place)
        reading = self._reading(place)
        reading.start = max(reading.start, start_offset)
        if epoch == EPOCH_OF_FOLLOWERS:
            return
        known, known_epoch = self._starts.get(key, (0, EPOCH_OF_FOLLOWERS))
        if epoch == known_epoch and start_offset < known:
            self.world.violated(
                f"{self.name}: {ledger.name} starts at {start_offset}, before in epoch {epoch} at {known}"
            )
        self._starts[key] = (start_offset, epoch)
        deleted = self._deleted[place.partition]
        if (
            start_offset < deleted.below
            and epoch >= deleted.epoch
            and self._processes_ended() == deleted.processes_ended
        ):
            self.world.violated(f"{self.name}: {ledger.name} starts at {start_offset}, {deleted} was acknowledged")

    # --- the records ----------------------------------------------------------------------------------------------

    def readable_end(self, place: Place, epoch: int, partition_data: Any) -> int:
        reading = self._reading(place)
        reading.epochs.add(epoch)
        if reading.until < 0:
            reading.until = partition_data.last_stable_offset
        return super().readable_end(place, epoch, partition_data)

    def take(self, place: Place, epoch: int, partition_data: Any) -> None:
        super().take(place, epoch, partition_data)
        reading = self._reading(place)
        if reading.again_at_ms >= 0:
            if self.world.elapsed_ms >= reading.again_at_ms:
                del self._readings[place.topic_id, place.partition]
                place.position, place.last_epoch = 0, -1
        elif place.position >= max(reading.until, partition_data.last_stable_offset) > 0:
            self._judge_reading(place, reading)
            reading.again_at_ms = self.world.elapsed_ms + self.rng.randint(*REST_MS)

    def was_read(self, place: Place, header: BatchHeader, batch: memoryview) -> None:
        if not self._filter.passes(header, batch):
            return
        reading = self._reading(place)
        for record in decode_records(batch, header):
            assert record.key is not None
            self._history.was_read(self.name, f"{self.topic}-{place.partition} at {record.offset}", name_of(record))
            reading.last[record.key] = record.offset
            reading.count += 1

    def _judge_reading(self, place: Place, reading: Reading) -> None:
        self.readings += 1
        ledger = self._compacted(place)
        is_short = self.world.elapsed_ms - reading.began_ms < self._retention_ms
        is_of_one = len(reading.epochs) == 1 and -1 not in reading.epochs
        is_strict = is_short and is_of_one and reading.jumps == self.world.faults.counts[CLOCK_JUMPS]
        self.world.trace(f"{self.name} has read {ledger.name}: {reading.count} records up to {place.position}")
        for key, last in ledger.last_of_each_key(min(reading.until, ledger.end)).items():
            seen = reading.last.get(key, -1)
            if last < reading.start or seen >= last or (seen < 0 and ledger.has_tombstone_from(last)):
                continue
            if is_strict or not ledger.has_tombstone_from(last):
                self.world.violated(
                    f"{self.name} has read all of {ledger.name} and found {key!r} last at {seen}, it is at {last}"
                )
