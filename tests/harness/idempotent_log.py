"""The log of one partition with Kafka's rules for idempotent producers, as its leader applies them. Without I/O.

Written from KIP-98 and Kafka's ProducerAppendInfo, not from the broker of this project: it judges producers.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from moldau.base.errors import ErrorCode, KafkaError
from moldau.wire.batch import BatchHeader, has_valid_crc, read_header
from moldau.wire.records import Record, decode_records

SEQUENCES = 1 << 31
BATCHES_KEPT = 5
INVALID = b"invalid"
"""A record whose value begins so is one that the broker does not take."""


class _Appended(NamedTuple):
    first_sequence: int
    last_sequence: int
    base_offset: int


@dataclass
class _Producer:
    epoch: int
    batches: deque[_Appended] = field(default_factory=lambda: deque(maxlen=BATCHES_KEPT))


@dataclass(eq=False)
class IdempotentLog:
    records: list[Record] = field(default_factory=list)
    """Their index is their offset."""
    batches: list[tuple[int, int, bytes]] = field(default_factory=list)
    """Base offset, number of records, and the batch as it was sent."""
    batch_bytes_max: int = 1 << 20
    producers: dict[int, _Producer] = field(default_factory=dict)

    def append(self, batch: bytes) -> int:
        """Return the offset of the first record: the earlier one if the batch is there. KafkaError if it is refused."""
        header = read_header(batch)
        assert header.size_in_bytes == len(batch)
        assert has_valid_crc(memoryview(batch))
        if len(batch) > self.batch_bytes_max:
            raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE)
        records = decode_records(batch, header)
        if any((record.value or b"").startswith(INVALID) for record in records):
            raise KafkaError(ErrorCode.INVALID_RECORD)
        assert [record.offset for record in records] == list(range(len(records)))
        last_sequence = (header.base_sequence + len(records) - 1) % SEQUENCES
        repeated = self._repeated(header, last_sequence)
        if repeated is not None:
            return repeated.base_offset
        self._check(header)
        producer = self.producers.setdefault(header.producer_id, _Producer(header.producer_epoch))
        if producer.epoch != header.producer_epoch:
            producer = self.producers[header.producer_id] = _Producer(header.producer_epoch)
        producer.batches.append(_Appended(header.base_sequence, last_sequence, len(self.records)))
        return self.write(batch)

    def write(self, batch: bytes) -> int:
        """Append a batch without any checks, and return the offset of its first record."""
        base_offset, records = len(self.records), decode_records(batch)
        self.batches.append((base_offset, len(records), batch))
        self.records += [record._replace(offset=base_offset + record.offset) for record in records]
        return base_offset

    def batches_from(self, offset: int, bytes_max: int = 1_000) -> bytearray:
        """Return the batches from the one with this offset on, as a leader returns them."""
        data = bytearray()
        for base_offset, count, batch in self.batches:
            if base_offset + count > offset and (not data or len(data) + len(batch) <= bytes_max):
                data += base_offset.to_bytes(8, "big") + batch[8:]
        return data

    def forget_producers(self) -> None:
        """As after `producer.id.expiration.ms`."""
        self.producers.clear()

    def fence(self, producer_id: int) -> None:
        """Another one writes with a higher epoch of this id."""
        self.producers[producer_id] = _Producer(self.producers[producer_id].epoch + 1)

    def offsets_of(self, value: bytes) -> list[int]:
        return [record.offset for record in self.records if record.value == value]

    def _repeated(self, header: BatchHeader, last_sequence: int) -> _Appended | None:
        producer = self.producers.get(header.producer_id)
        if producer is None or producer.epoch != header.producer_epoch:
            return None
        for each in producer.batches:
            if (each.first_sequence, each.last_sequence) == (header.base_sequence, last_sequence):
                return each
        return None

    def _check(self, header: BatchHeader) -> None:
        assert header.producer_id >= 0, "the producer is idempotent"
        producer = self.producers.get(header.producer_id)
        if producer is None:
            if header.base_sequence:  # as brokers before 2.5 say; later ones take what comes
                raise KafkaError(ErrorCode.UNKNOWN_PRODUCER_ID)
        elif header.producer_epoch < producer.epoch:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH)
        elif header.producer_epoch > producer.epoch or not producer.batches:
            if header.base_sequence:
                raise KafkaError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
        elif header.base_sequence != (producer.batches[-1].last_sequence + 1) % SEQUENCES:
            raise KafkaError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
