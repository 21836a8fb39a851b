"""What waits for one partition. At most one batch of it is under way, so that its records stay in order and a batch
that is sent again is recognised by its sequence. Without I/O.

A batch that a leader refuses has used no number of the sequence. If nobody knows what became of a batch, the partition
goes on with a new producer id: a number that may be taken is not used again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import partial
from typing import Final

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import ProducerIdAndEpoch, TopicPartition
from moldau.client.cluster import RETRIABLE
from moldau.gateway.kafka.chunks import BATCH_BYTES, BATCH_RECORDS, Chunk
from moldau.gateway.ports import Place
from moldau.wire.batch import next_sequence, stamp_producer
from moldau.wire.records import NEXT_OFFSET, Record, build_batch, build_value_batch

ACCEPTED: Final = (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
PRODUCER_LOST: Final = (
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.UNKNOWN_PRODUCER_ID,
    ErrorCode.INVALID_PRODUCER_EPOCH,
)
"""The leader no longer knows this producer, which gets a new id."""
MAY_BE_THERE: Final = (
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.KAFKA_STORAGE_ERROR,
)
"""After these the records may be in the log: a leader also answers the last two if it ceases to be one, or its disk
fails, while it waits for its followers."""
TOO_LATE: Final = KafkaError(ErrorCode.REQUEST_TIMED_OUT, "it waited too long for earlier records")
OF_RECORDS: Final = (ErrorCode.INVALID_RECORD, ErrorCode.INVALID_TIMESTAMP)
"""A record is wrong, which is no fault of those in the same batch."""
TOO_LARGE: Final = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)
BACKOFF_S_FIRST: Final = 0.05
BACKOFF_S_MAX: Final = 1.0
MISSING_FAILURES_MAX: Final = 5
"""A broker may know a new topic a moment later than others; after so many answers it is missing."""

_place = partial(tuple.__new__, Place)


class Next(Enum):
    """What to do after an answer."""

    GO_ON = auto()
    """Send the next batch, if there is one."""
    AGAIN = auto()
    """Send again after `backoff_s`, to the leader of then."""


@dataclass(slots=True)
class Batch:
    chunks: list[Chunk]
    data: bytearray
    count: int
    deadline: float
    is_under_way: bool = True
    may_be_there: bool = False


@dataclass(slots=True)
class PartitionQueue:
    partition: TopicPartition
    waiting: deque[Chunk] = field(default_factory=deque)
    batch: Batch | None = None
    """Under way, or to be sent again."""
    producer: ProducerIdAndEpoch | None = None
    """None: a new one is needed."""
    sequence: int = 0
    backoff_s: float = 0.0
    missing_failures: int = 0
    """How many brokers in a row did not know the topic: the owner counts them."""
    is_busy: bool = False
    """A request is under way, or it waits before it sends again: the owner sets it."""
    _alone: int = 0
    """So many chunks go into batches of their own: together with others one was refused."""

    def prepare(self, now_ms: int) -> Batch:
        """Return the batch to send now: something waits, and the owner has set the producer id."""
        if self.batch is None:
            assert self.producer is not None
            chunks = self._take()
            data, count = _encode(chunks, now_ms)
            stamp_producer(memoryview(data), *self.producer, self.sequence)
            self.batch = Batch(chunks, data, count, min(chunk.call.deadline for chunk in chunks))
        self.batch.is_under_way = True
        return self.batch

    def on_answer(self, code: ErrorCode, base_offset: int, message: str | None, now: float) -> Next:
        """Note what a leader answered, or that it did not."""
        batch = self.batch
        assert batch is not None
        batch.is_under_way = False
        batch.may_be_there |= code in MAY_BE_THERE
        if code in ACCEPTED:
            self._accepted(batch, base_offset)
        elif code in RETRIABLE and now < batch.deadline:
            return self._pause()
        elif code in RETRIABLE or batch.may_be_there:
            self._give_up(batch, code, message)
        elif code in PRODUCER_LOST:
            self._anew(batch)
            self._expire(now, KafkaError(code, message))
            return self._pause()
        elif code in TOO_LARGE and batch.count > 1:
            self._divide(batch)
        elif code in OF_RECORDS and len(batch.chunks) > 1:
            self._separate(batch)
        else:
            self._refused(batch, KafkaError(code, message))
        self._expire(now)
        self.backoff_s = 0.0
        return Next.GO_ON

    def on_obstacle(self, error: KafkaError, now: float) -> Next:
        """Note that nothing could be sent: there is no leader, or no producer id."""
        if self.batch is not None:
            return self.on_answer(error.code, -1, error.message, now)
        self._expire(now, error)
        return self._pause()

    def _pause(self) -> Next:
        self.backoff_s = min(BACKOFF_S_MAX, 2 * self.backoff_s or BACKOFF_S_FIRST)
        return Next.AGAIN

    def _expire(self, now: float, why: KafkaError = TOO_LATE) -> None:
        """Fail what has waited too long."""
        while self.waiting and self.waiting[0].call.deadline <= now:
            self._fail(self.waiting.popleft(), _not_appended(why.code, why.message))

    def fail(self, error: KafkaError) -> None:
        """Fail all that waits: nobody will send it. A batch that may be there is said to be so."""
        if self.batch is not None:
            self.batch.may_be_there |= self.batch.is_under_way
            self._give_up(self.batch, error.code, error.message)
        while self.waiting:
            self._fail(self.waiting.popleft(), error)
        self._alone = 0

    def _take(self) -> list[Chunk]:
        chunks = [self.waiting.popleft()]
        size, count = chunks[0].size, len(chunks[0].indexes)
        if self._alone:
            self._alone -= 1
            return chunks
        while self.waiting:
            size += self.waiting[0].size
            count += len(self.waiting[0].indexes)
            if size > BATCH_BYTES or count > BATCH_RECORDS:
                break
            chunks.append(self.waiting.popleft())
        return chunks

    def _accepted(self, batch: Batch, base_offset: int) -> None:
        self.batch = None
        self.sequence = next_sequence(self.sequence, batch.count)
        partition, offset = self.partition.partition, base_offset
        for chunk in batch.chunks:
            count = len(chunk.indexes)
            # Of a repetition that is too old to be looked up, the leader does not say where it is.
            offsets = range(offset, offset + count) if base_offset >= 0 else (-1,) * count
            chunk.call.settle(chunk.indexes, [_place((partition, each)) for each in offsets])
            offset += count

    def _divide(self, batch: Batch) -> None:
        """Send the two halves of a batch that is too large for the topic."""
        self.batch = None
        if len(batch.chunks) > 1:
            self._return(batch.chunks, len(batch.chunks))
        else:
            self._return(batch.chunks[0].halves(), 2)

    def _separate(self, batch: Batch) -> None:
        """Send the chunks one by one: what is wrong with one is no fault of the others."""
        self.batch = None
        self._return(batch.chunks, len(batch.chunks))

    def _return(self, chunks: Sequence[Chunk], alone: int) -> None:
        self.waiting.extendleft(reversed(chunks))
        self._alone += alone

    def _anew(self, batch: Batch) -> None:
        """Send the chunks of a batch that is surely not in the log as those of a new producer."""
        self.batch = None
        self._return(batch.chunks, 0)
        self._reset()

    def _refused(self, batch: Batch, error: KafkaError) -> None:
        self.batch = None
        for chunk in batch.chunks:
            self._fail(chunk, error)

    def _give_up(self, batch: Batch, code: ErrorCode, message: str | None) -> None:
        """Nobody took the batch in time, or it is not known whether somebody did."""
        if batch.may_be_there:
            self._reset()
            why = message or code.name
            text = f"not acknowledged, but it may have been appended: {why}"
            self._refused(batch, KafkaError(ErrorCode.REQUEST_TIMED_OUT, text))
        else:
            self._refused(batch, _not_appended(code, message))

    @staticmethod
    def _fail(chunk: Chunk, error: KafkaError) -> None:
        chunk.call.fail(chunk.indexes, error)

    def _reset(self) -> None:
        self.producer, self.sequence = None, 0


def _not_appended(code: ErrorCode, message: str | None) -> KafkaError:
    return KafkaError(code, f"not appended: {message or code.name}")


def _encode(chunks: Sequence[Chunk], now_ms: int) -> tuple[bytearray, int]:
    """Return the chunks as one batch without a producer, and its number of records."""
    if all(chunk.values is not None for chunk in chunks):
        values = [value for chunk in chunks for value in chunk.values or ()]
        return build_value_batch(values, now_ms, -1), len(values)
    records: list[Record] = []
    for chunk in chunks:
        records += [Record(NEXT_OFFSET, now_ms, None, value) for value in chunk.values or ()]
        records += [
            Record(
                NEXT_OFFSET,
                now_ms if each.timestamp_ms is None else each.timestamp_ms,
                each.key,
                each.value,
                each.headers,
            )
            for each in chunk.records
        ]
    return build_batch(records), len(records)
