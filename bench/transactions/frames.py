"""Requests of transactional producers as bytes, and what of a reply is looked at.

Producers say which partitions they write to before they do (transaction.version 1: AddPartitionsToTxn v1, Produce v7,
EndTxn v1, all of plain layout), or add them by writing and get a new epoch with every end (transaction.version 2,
KIP-890: Produce v12, EndTxn v5, both compact). InitProducerId v1 and FindCoordinator v1 serve both. A reply is read
behind its size, so it begins with the correlation id.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from bench.brokers.frames import ACKS_ALL, PRODUCE, batch_of, request
from bench.groups.frames import FIND_COORDINATOR, NO_TAGS, compact, string, unsigned_varint

INIT_PRODUCER_ID: Final = 22
ADD_PARTITIONS_TO_TXN: Final = 24
END_TXN: Final = 26
TRANSACTION_KEY: Final = b"\1"
TRANSACTION_TIMEOUT_MS: Final = 60_000
PRODUCE_TIMEOUT_MS: Final = 30_000
TRANSACTIONAL: Final = 0x10
ADDED_BYTES: Final = 6
"""An int32 index and the int16 error behind it."""
PRODUCED_BYTES: Final = 30
COMPACT_PRODUCED_BYTES: Final = 33
"""Three bytes more, where nothing went wrong: no errors of records, no message, no tags."""


class Producer(NamedTuple):
    transactional_id: str
    producer_id: int
    epoch: int

    @property
    def plain(self) -> bytes:
        return string(self.transactional_id) + struct.pack(">qh", self.producer_id, self.epoch)


def find_coordinator_frame(transactional_id: str) -> bytes:
    return request(FIND_COORDINATOR, 1, string(transactional_id) + TRANSACTION_KEY)


def init_frame(transactional_id: str) -> bytes:
    return request(INIT_PRODUCER_ID, 1, string(transactional_id) + struct.pack(">i", TRANSACTION_TIMEOUT_MS))


def add_frame(producer: Producer, topic: str, partitions: Sequence[int]) -> bytes:
    indexes = struct.pack(f">{len(partitions)}i", *partitions)
    body = producer.plain + struct.pack(">i", 1) + string(topic) + struct.pack(">i", len(partitions)) + indexes
    return request(ADD_PARTITIONS_TO_TXN, 1, body)


def end_frame(producer: Producer) -> bytes:
    """A commit; its reply has int32 throttle and int16 error."""
    return request(END_TXN, 1, producer.plain + b"\1")


def compact_end_frame(producer: Producer) -> bytes:
    """A commit whose reply has int64 producer id and int16 epoch behind throttle and error."""
    body = compact(producer.transactional_id) + struct.pack(">qhb", producer.producer_id, producer.epoch, 1)
    return request(END_TXN, 5, NO_TAGS + body + NO_TAGS)


def transactional_batch(producer: Producer, sequence: int, record: bytes) -> bytes:
    return batch_of([record], TRANSACTIONAL, (producer.producer_id, producer.epoch, sequence))


def produce_frame(transactional_id: str, topic: str, batches: Mapping[int, bytes]) -> bytes:
    body = string(transactional_id) + struct.pack(">hii", ACKS_ALL, PRODUCE_TIMEOUT_MS, 1) + string(topic)
    body += struct.pack(">i", len(batches))
    body += b"".join(struct.pack(">ii", index, len(batch)) + batch for index, batch in batches.items())
    return request(PRODUCE, 7, body)


def compact_produce_frame(transactional_id: str, topic: str, batches: Mapping[int, bytes]) -> bytes:
    body = compact(transactional_id) + struct.pack(">hi", ACKS_ALL, PRODUCE_TIMEOUT_MS)
    body += unsigned_varint(2) + compact(topic) + unsigned_varint(len(batches) + 1)
    for index, batch in batches.items():
        body += struct.pack(">i", index) + unsigned_varint(len(batch) + 1) + batch + NO_TAGS
    return request(PRODUCE, 12, NO_TAGS + body + NO_TAGS + NO_TAGS)


def added_error(reply: memoryview, topic: str, partitions: int) -> int:
    """The first error of a partition, or 0: behind throttle, one topic, its name and the number of partitions."""
    return _first_error(reply, 4 + 4 + 4 + 2 + len(topic) + 4, ADDED_BYTES, partitions)


def produced_error(reply: memoryview, topic: str, partitions: int) -> int:
    return _first_error(reply, 4 + 4 + 2 + len(topic) + 4, PRODUCED_BYTES, partitions)


def compact_produced_error(reply: memoryview, topic: str, partitions: int) -> int:
    return _first_error(reply, 4 + 1 + 1 + 1 + len(topic) + 1, COMPACT_PRODUCED_BYTES, partitions)


def _first_error(reply: memoryview, at: int, stride: int, count: int) -> int:
    """Of partitions that follow each other from there on, each beginning with its index; up to the first error they
    are of one size."""
    for start in range(at, at + stride * count, stride):
        if error := int.from_bytes(reply[start + 4 : start + 6], "big", signed=True):
            return error
    return 0
