"""What a batch means to its producer's state: whether it repeats another, may be written, and what it changes. The log
calls `repetition_of`, `check`, and `record` when the batch is written. Whoever refuses a batch calls `note_refusal`.
"""

from __future__ import annotations

from typing import Final

from moldau.base.errors import ErrorCode, KafkaError, MalformedData
from moldau.log.producers import BatchMetadata, CompletedTxn, Producers
from moldau.log.rebuild import batches_before, marker_in
from moldau.log.segments import Segments
from moldau.log.validate import HeaderFields, Origin
from moldau.wire.batch import (
    BATCH_HEADER,
    BATCH_HEADER_BYTES,
    CONTROL_BIT,
    MAGIC,
    SEQUENCE_MAX,
    TRANSACTIONAL_BIT,
)
from moldau.wire.records import EndTxnMarker

SENT_AGAIN: Final = frozenset(
    {
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""Errors that have nothing to do with the batch: the client sends it again, and the next one may be accepted."""


def repetition_of(producers: Producers, segments: Segments, fields: HeaderFields) -> BatchMetadata | None:
    """The batch in the log that this one repeats. After a restart a few older batches are looked up in the segments, as
    far as `batches_before` goes; raise KafkaError if they cannot be read, or if the repeated batch is of a transaction
    that has ended. No client waits for that one any more: some give the sequence of a record that they threw away at
    an abort to another one, which would count as written, and be none of its transaction."""
    attributes, last_offset_delta, producer_id, producer_epoch, base_sequence = fields[5], fields[6], *fields[9:12]
    last_sequence = (base_sequence + last_offset_delta) & SEQUENCE_MAX
    found = producers.find_repeat(producer_id, producer_epoch, base_sequence, last_sequence)
    if found is None:
        offset = producers.forgotten_before(producer_id, producer_epoch, base_sequence)
        if offset is not None:
            try:
                earlier = batches_before(segments, producer_id, producer_epoch, offset)
            except MalformedData as error:
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
            producers.recall(producer_id, earlier)
            found = producers.find_repeat(producer_id, producer_epoch, base_sequence, last_sequence)
    if found is not None and attributes & TRANSACTIONAL_BIT and producers.has_ended(producer_id, found.first_offset):
        raise KafkaError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"Producer {producer_id} sent sequence {base_sequence} again, which is of a transaction that has ended.",
        )
    return found


def check(
    producers: Producers, batch: memoryview, fields: HeaderFields, origin: Origin, transaction_version: int
) -> EndTxnMarker | None:
    """Raise KafkaError if the producer or the coordinator is fenced, on a sequence gap, or for a write outside the open
    transaction; return the marker if the batch is one."""
    attributes, producer_id, epoch, sequence = fields[5], *fields[9:12]
    if attributes & CONTROL_BIT:
        marker = marker_in(batch)
        if marker is not None:
            producers.check_marker(producer_id, epoch, marker, transaction_version)
        return marker
    producers.check(
        producer_id,
        epoch,
        sequence,
        bool(attributes & TRANSACTIONAL_BIT),
        check_sequence=origin in (Origin.CLIENT, Origin.OPENED),
        transaction_version=transaction_version,
    )
    return None


def record(
    producers: Producers, fields: HeaderFields, base_offset: int, marker: EndTxnMarker | None
) -> CompletedTxn | None:
    """Bring the producer's state up to a batch that was written; return the transaction that it ended."""
    attributes, delta, max_timestamp, producer_id, epoch, sequence = *fields[5:7], *fields[8:12]
    if marker is not None:
        return producers.end_transaction(producer_id, epoch, marker, base_offset, max_timestamp)
    if not attributes & CONTROL_BIT:
        last_sequence = (sequence + delta) & SEQUENCE_MAX if sequence >= 0 else -1
        batch = BatchMetadata(sequence, last_sequence, base_offset, base_offset + delta, max_timestamp)
        producers.record(producer_id, epoch, batch, bool(attributes & TRANSACTIONAL_BIT))
    return None


def note_refusal(producers: Producers, batch: memoryview, code: ErrorCode, now_ms: int) -> None:
    """Remember a batch that was refused, if its client will send it again: the batches in flight behind it must not be
    accepted first, and must not look like a gap. The batch may not have been checked yet."""
    if code not in SENT_AGAIN or len(batch) < BATCH_HEADER_BYTES:
        return
    fields: HeaderFields = BATCH_HEADER.unpack_from(batch)
    magic, producer_id, epoch, sequence = fields[3], *fields[9:12]
    if magic == MAGIC and producer_id >= 0 and epoch >= 0 and sequence >= 0:
        producers.refuse(producer_id, epoch, sequence, code, now_ms)
