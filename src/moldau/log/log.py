"""The append-only log of one partition: offsets are given here, and batches go in and out here.

What a batch must be like is validate.py's, how the log is kept local_log.py's, opening and recovering recovery.py's.
High watermarks and followers are not known here.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import partial
from itertools import islice
from typing import Final, NamedTuple

from moldau.base.errors import ErrorCode, KafkaError, MalformedData, StorageFault
from moldau.log.compacted_log import CompactedLog
from moldau.log.config import LOG_APPEND_TIME, LogConfig
from moldau.log.files import File
from moldau.log.producers import SEQUENCE_MAX, BatchMemory, CompletedTxn
from moldau.log.rebuild import aborted_txn, batches_before, ended_since, marker_in, replay_batch
from moldau.log.segment import Segment
from moldau.log.time_index import TimestampOffset
from moldau.log.txn_index import AbortedTxn
from moldau.log.validate import LENGTH_PREFIX_BYTES, HeaderFields, Origin, check_batch, check_keys, recompress
from moldau.wire.batch import (
    BATCH_HEADER,
    BATCH_HEADER_BYTES,
    CODEC_MASK,
    CONTROL_BIT,
    LENGTH_PREFIX,
    TRANSACTIONAL_BIT,
    check_crc,
    read_header,
    stamp_log_append_time,
)
from moldau.wire.records import EndTxnMarker

_STAMP: Final = struct.Struct(">qii")
"""Base offset, batch length and leader epoch lie side by side: the middle one is written as it was."""

NO_LOG_APPEND_TIME: Final = -1


class Appended(NamedTuple):
    first_offset: int
    last_offset: int
    log_append_time_ms: int = NO_LOG_APPEND_TIME
    duplicate: bool = False


class Slice(NamedTuple):
    """A run of bytes in a segment's file, whole batches but perhaps the last. Holding it keeps the file open."""

    file: File
    position: int
    length: int
    is_hot: bool = False
    """Written lately by this process: in the page cache as surely as one can know without asking."""

    def read(self) -> bytes:
        return self.file.pread(self.length, self.position)


class Log(CompactedLog):
    _has_aborted: bool | None = None
    """Whether a transaction may have been aborted here; None until a reader asks. Most logs have none: then no index is
    looked at."""

    def update_config(self, config: LogConfig) -> None:
        super().update_config(config)
        self._target_compression = config.target_compression
        self._stamps_time = config.message_timestamp_type == LOG_APPEND_TIME
        self._changes_batches = self._stamps_time or config.is_compacted or self._target_compression is not None

    # --- append -------------------------------------------------------------------------------------------------

    def append(
        self,
        batches: memoryview,
        *,
        leader_epoch: int,
        now_ms: int,
        origin: Origin = Origin.CLIENT,
        transaction_version: int = 0,
    ) -> Appended:
        """Checks, stamps in place and writes one batch (from a leader, any number); all of it or nothing.

        `transaction_version` is that of the transaction which a marker ends, or in which a client writes.
        Raises KafkaError for what may not enter, StorageFault for what the disk would not take.
        """
        if self._refusal is not None:
            raise self._refusal
        if origin is Origin.REPLICATION:
            return self._append_as_follower(batches, now_ms)
        fields = check_batch(batches, self.config, now_ms, origin)
        _, batch_length, _, _, _, _, last_offset_delta, _, max_timestamp, producer_id, _, _, _ = fields
        batch = batches[: LENGTH_PREFIX_BYTES + batch_length]
        log_append_time_ms = NO_LOG_APPEND_TIME
        if producer_id >= 0 and origin is Origin.CLIENT and (repeat := self._repeat_of(fields)) is not None:
            stamped_ms = repeat.timestamp if self._stamps_time else NO_LOG_APPEND_TIME
            return Appended(repeat.first_offset, repeat.last_offset, stamped_ms, duplicate=True)
        if self._changes_batches:
            batch, fields, log_append_time_ms = self._change(batch, fields, now_ms, origin)
            batch_length, max_timestamp = fields[1], fields[8]
        if len(batch) > self.config.segment_bytes:
            raise self._larger_than_a_segment(len(batch))
        base_offset = self.end_offset
        last_offset = base_offset + last_offset_delta
        _STAMP.pack_into(batch, 0, base_offset, batch_length, leader_epoch)
        if producer_id < 0:
            self._store(batch, base_offset, last_offset, max_timestamp, leader_epoch, now_ms)
        else:
            marker = self._check_producer(batch, fields, origin, transaction_version)
            self._store(batch, base_offset, last_offset, max_timestamp, leader_epoch, now_ms)
            self._note_producer(fields, base_offset, marker)
        return Appended(base_offset, last_offset, log_append_time_ms)

    def _store(
        self, batch: memoryview, base_offset: int, last_offset: int, max_timestamp: int, leader_epoch: int, now_ms: int
    ) -> None:
        """Writes a batch that is ready; every path in ends here."""
        config = self.config
        size = len(batch)
        segment = self.segments.active
        if segment.should_roll(size, last_offset, max_timestamp, now_ms, config, self._jitter_ms):
            segment = self._roll_for(base_offset, last_offset, now_ms)
        try:
            position = segment.write(batch)
        except StorageFault as fault:
            self._refuse_if_torn(segment, fault)
            raise
        segment.note_batch(base_offset, last_offset, max_timestamp, size, position, config.index_interval_bytes)
        self.end_offset = last_offset + 1
        if leader_epoch != self.epochs.latest:
            self.epochs.assign(leader_epoch, base_offset)

    def _repeat_of(self, fields: HeaderFields) -> BatchMemory | None:
        last_offset_delta, producer_id, producer_epoch, base_sequence = fields[6], *fields[9:12]
        last_sequence = (base_sequence + last_offset_delta) & SEQUENCE_MAX
        producers = self.producers
        found = producers.find_repeat(producer_id, producer_epoch, base_sequence, last_sequence)
        if found is None:
            offset = producers.forgotten_before(producer_id, producer_epoch, base_sequence)
            if offset is not None:
                producers.recall(producer_id, batches_before(self.segments, producer_id, producer_epoch, offset))
                found = producers.find_repeat(producer_id, producer_epoch, base_sequence, last_sequence)
        return found

    def _check_producer(
        self, batch: memoryview, fields: HeaderFields, origin: Origin, transaction_version: int
    ) -> EndTxnMarker | None:
        """Refuses what its producer or its coordinator may not write any more; gives the marker, if it is one."""
        attributes, producer_id, epoch, sequence = fields[5], *fields[9:12]
        if attributes & CONTROL_BIT:
            marker = marker_in(batch)
            if marker is not None:
                self.producers.check_marker(producer_id, epoch, marker, transaction_version)
            return marker
        self.producers.check(
            producer_id,
            epoch,
            sequence,
            bool(attributes & TRANSACTIONAL_BIT),
            check_sequence=origin is Origin.CLIENT,
            transaction_version=transaction_version,
        )
        return None

    def _note_producer(self, fields: HeaderFields, base_offset: int, marker: EndTxnMarker | None) -> None:
        """What is in the log now says of its producer."""
        attributes, delta, max_timestamp, producer_id, epoch, sequence = *fields[5:7], *fields[8:12]
        if marker is not None:
            ended = self.producers.end_transaction(producer_id, epoch, marker, base_offset, max_timestamp)
            self._note_completed(ended)
        elif not attributes & CONTROL_BIT:
            last_sequence = (sequence + delta) & SEQUENCE_MAX if sequence >= 0 else -1
            memory = BatchMemory(sequence, last_sequence, base_offset, base_offset + delta, max_timestamp)
            self.producers.record(producer_id, epoch, memory, bool(attributes & TRANSACTIONAL_BIT))

    def _note_completed(self, completed: CompletedTxn | None) -> None:
        """The marker is in the log already: if the index will not take it, the log must go through recovery."""
        if completed is None or not completed.aborted:
            return
        self._has_aborted = True
        try:
            self.segments.active.txn_index.append(aborted_txn(self.producers, completed))
        except StorageFault as fault:
            self._refusal = fault
            raise

    def _change(
        self, batch: memoryview, fields: HeaderFields, now_ms: int, origin: Origin
    ) -> tuple[memoryview, HeaderFields, int]:
        """Topics that ask for more than the bytes as sent: keys, another codec, the broker's own time."""
        attributes = fields[5]
        if origin is Origin.CLIENT and self.config.is_compacted:
            check_keys(batch)
        target = self._target_compression
        if target is not None and target != attributes & CODEC_MASK and not attributes & CONTROL_BIT:
            batch = memoryview(recompress(batch, target, self.config))
        if self._stamps_time:
            stamp_log_append_time(batch, now_ms)
        changed: HeaderFields = BATCH_HEADER.unpack_from(batch)
        return batch, changed, now_ms if self._stamps_time else NO_LOG_APPEND_TIME

    def _append_as_follower(self, batches: memoryview, now_ms: int) -> Appended:
        """Takes a leader's bytes as they are. A batch cut short at the end of a fetch is left for the next one."""
        first_offset = -1
        position = 0
        while len(batches) - position >= BATCH_HEADER_BYTES:
            header = read_header(batches, position)
            if header.size_in_bytes > len(batches) - position:
                break
            batch = batches[position : position + header.size_in_bytes]
            if header.size_in_bytes < BATCH_HEADER_BYTES or not check_crc(batch):
                raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"A leader's batch at {header.base_offset} is broken.")
            if header.base_offset < self.end_offset or header.last_offset_delta < 0:
                raise KafkaError(
                    ErrorCode.CORRUPT_MESSAGE,
                    f"A leader sent offset {header.base_offset}, {self.end_offset} was to come.",
                )
            self._store(
                batch, header.base_offset, header.last_offset, header.max_timestamp, header.leader_epoch, now_ms
            )
            self._note_completed(replay_batch(self.producers, header, partial(bytes, batch)))
            first_offset = header.base_offset if first_offset < 0 else first_offset
            position += header.size_in_bytes
        return Appended(first_offset, self.end_offset - 1)

    def _larger_than_a_segment(self, size: int) -> KafkaError:
        return KafkaError(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"The record batch has {size} bytes, a segment holds {self.config.segment_bytes}.",
        )

    def _refuse_if_torn(self, segment: Segment, fault: StorageFault) -> None:
        """After a write that failed: if half of it could not be cut off again, the log takes no more."""
        try:
            if segment.file.size() != segment.size:
                self._refusal = fault
        except StorageFault:
            self._refusal = fault

    # --- read ---------------------------------------------------------------------------------------------------

    def read(self, offset: int, max_bytes: int, up_to: int, *, at_least_one: bool = True) -> Slice | None:
        """Batches from the one that holds `offset`, none that reaches `up_to`; None if there is nothing to read.

        Bounded by `max_bytes`, which may cut the last batch, never the first (KIP-74): if that alone is too long it
        comes whole, or without `at_least_one` not at all. Never crosses a segment.
        """
        end_offset = self.end_offset
        if offset > end_offset or offset < self.start_offset:
            raise self._out_of_range(offset)
        if up_to > end_offset:
            up_to = end_offset
        if offset >= up_to:
            return None
        segment = self.segments.active
        position = segment.marks.get(offset)
        first_size = 0
        if position is None or offset < segment.base_offset:
            try:
                segment, position, first_size, limit = self._find(offset, up_to)
            except MalformedData as error:
                raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
        elif up_to == end_offset:
            limit = segment.size
        else:
            limit = self._limit(segment, up_to)
        length = limit - position
        if length > max_bytes:
            length = self._cut(segment, position, first_size, max_bytes, at_least_one)
        if length <= 0:
            return None
        return Slice(segment.file, position, length, segment.is_hot(position))

    def _find(self, offset: int, up_to: int) -> tuple[Segment, int, int, int]:
        """(segment, position and size of the batch with `offset`, end of what may be read) by way of the indexes."""
        segments = self.segments
        for place in range(segments.floor(offset), len(segments)):
            segment = segments.at(place)
            found = segment.locate(offset)
            if found is not None:
                next_base = segments.next_base(place)
                is_whole = up_to >= (self.end_offset if next_base is None else next_base)
                return segment, found[0], found[2], segment.size if is_whole else self._limit(segment, up_to)
        return segments.active, 0, 0, 0

    def _limit(self, segment: Segment, up_to: int) -> int:
        limit = segment.position_of(up_to)
        return segment.size if limit is None else limit

    def _cut(self, segment: Segment, position: int, first_size: int, max_bytes: int, at_least_one: bool) -> int:
        """What fits, and the first batch whole. Its size is asked of the file where nobody knows it yet."""
        if not first_size:
            _, batch_length = LENGTH_PREFIX.unpack(segment.file.pread(LENGTH_PREFIX.size, position))
            first_size = LENGTH_PREFIX.size + batch_length
        if first_size <= max_bytes:
            return max_bytes
        return first_size if at_least_one else 0

    def _out_of_range(self, offset: int) -> KafkaError:
        return KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"Offset {offset} is not within {self.start_offset}..{self.end_offset} of {self.partition}.",
        )

    def offset_for_time(self, target_ms: int, up_to: int) -> TimestampOffset | None:
        """The first record not older than `target_ms`, if it lies below `up_to`."""
        try:
            for place, segment in enumerate(self.segments):
                if segment.largest_timestamp.timestamp >= target_ms:
                    found = self.segments.at(place).offset_for_time(target_ms, self.start_offset)
                    if found is not None:
                        return found if found.offset < up_to else None
        except MalformedData as error:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
        return None

    def max_timestamp_offset(self) -> TimestampOffset | None:
        """The first record with the largest timestamp of all."""
        largest = max(segment.largest_timestamp.timestamp for segment in self.segments)
        return self.offset_for_time(largest, self.end_offset) if largest >= 0 else None

    def last_stable_offset(self, high_watermark: int) -> int:
        """Below it every transaction is decided, and the decision replicated. StorageFault where that has to be looked
        up in the log, as after a restart, and cannot be."""
        producers = self.producers
        if high_watermark < producers.ended_known_from:
            known_from = producers.ended_known_from
            ended = ended_since(self._files, self.directory, self.segments, high_watermark, known_from)
            producers.recall_ended(ended, high_watermark)
        unstable = producers.first_unstable_offset(high_watermark)
        if unstable is None:
            return high_watermark
        # The first records of an open transaction may be deleted already, the transaction is not.
        return min(max(unstable, self.start_offset), high_watermark)

    def aborted_in(self, piece: Slice, offset: int, up_to: int) -> Sequence[AbortedTxn]:
        """Those with records in a slice that was read from `offset`, and perhaps a few that begin right behind it."""
        if self._has_aborted is None:
            self._has_aborted = any(segment.txn_index.transactions() for segment in self.segments)
        if not self._has_aborted:
            return ()
        return self.aborted_transactions(offset, min(up_to, self._bound(piece, offset)))

    def _bound(self, piece: Slice, offset: int) -> int:
        """An offset that a slice does not reach: the last one of the first indexed batch behind it."""
        segments = self.segments
        for place in range(segments.floor(offset), len(segments)):
            segment = segments.at(place)
            if segment.log_path == piece.file.path:
                found = segment.offset_index.first_from(piece.position + piece.length)
                next_base = segments.next_base(place)
                return found or (self.end_offset if next_base is None else next_base)
        return self.end_offset

    def aborted_transactions(self, offset: int, up_to: int) -> list[AbortedTxn]:
        """Those with records in offset..up_to-1, by first offset: clients rely on that order."""
        found = []
        for segment in islice(self.segments, self.segments.floor(offset), None):
            found += segment.txn_index.overlapping(offset, up_to)
            if segment.txn_index.tells_all_before(up_to):
                break
        return sorted(found, key=lambda txn: txn.first_offset)
