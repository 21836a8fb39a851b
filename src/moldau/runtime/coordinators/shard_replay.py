"""The interface of a shard's state machine, and its replay from the log when a node becomes the leader."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any, Protocol, runtime_checkable

from moldau.base.buffers import Buffer
from moldau.base.errors import MalformedData
from moldau.base.promise import Promise
from moldau.base.steps import Steps, TurnItems
from moldau.base.turns import ITEMS_A_TURN
from moldau.coordinator.machine import CoordinatorRecord, Deadlines
from moldau.log.segment import Segment
from moldau.log.walk import walk_batches
from moldau.replica.partition import Partition
from moldau.runtime.internal_errors import INTERNAL_ERRORS
from moldau.wire.batch import BatchHeader, has_valid_crc
from moldau.wire.records import Record, decode_records, read_end_txn_marker

log = logging.getLogger("moldau.coordinator")


class Machine(Protocol):
    """What a shard needs from its state machine."""

    def encode(self, record: CoordinatorRecord) -> tuple[bytes, bytes | None]: ...

    def apply_all(self, records: Sequence[CoordinatorRecord]) -> None: ...

    def replay(self, key: Buffer, value: Buffer | None) -> None: ...

    def loaded(self) -> None:
        """Called once when the whole log was replayed: starts the deadlines."""

    @property
    def deadlines(self) -> Deadlines: ...

    def waiting(self) -> Iterator[Promise[Any]]:
        """The promises to complete with an error if the machine is dropped."""


@runtime_checkable
class TransactionalMachine(Machine, Protocol):
    """A machine whose records may be part of a producer's transaction: they take effect when it commits."""

    def apply_transactional(self, producer_id: int, record: CoordinatorRecord) -> None: ...

    def replay_transactional(self, producer_id: int, key: Buffer, value: Buffer | None) -> None: ...

    def end_transaction(self, producer_id: int, committed: bool) -> None: ...


def replay_log(partition: Partition, machine: Machine) -> Steps[None]:
    """Replay the log into the machine, and yield after each part so that other work can run. Damaged records are
    skipped: groups then find older offsets and read some records again, which is better than not loading at all."""
    transactional = machine if isinstance(machine, TransactionalMachine) else None
    segments = partition.log.segments
    position = start = 0
    turn, is_over = TurnItems(ITEMS_A_TURN), False
    segment: Segment | None = None
    # What is below the log start offset was deleted, and may be in the first segment still.
    offset: int | None = max(segments.first.base_offset, partition.log.start_offset)
    while offset is not None:
        # Looked up again after each turn: the cleaner may have replaced segments.
        place = segments.floor(offset)
        if segments.at(place) is not segment:
            segment, start = segments.at(place), offset
            position = segment.offset_index.lookup(offset)[1] if offset > segment.base_offset else 0
        next_base = segments.next_base(place)
        end = partition.log.end_offset if next_base is None else next_base
        try:
            for header, batch in walk_batches(segment.file, position, segment.size):
                position += len(batch)
                if header.last_offset < start:
                    continue
                is_sound = _replay(partition, machine, transactional, header, batch)
                # The header of a damaged batch may claim anything, and a base offset has no CRC.
                if is_sound and offset < header.next_offset <= end:
                    offset = header.next_offset
                is_over = turn.ends_after(header.record_count if is_sound else 1)
                if is_over:
                    break
            else:
                offset = next_base
        except MalformedData as error:
            log.error("%s: skipped the damaged rest of the segment from offset %d: %s", partition.name, offset, error)
            offset = next_base
        if is_over:
            is_over = False
            yield


def _replay(
    partition: Partition,
    machine: Machine,
    transactional: TransactionalMachine | None,
    header: BatchHeader,
    batch: memoryview,
) -> bool:
    """Return False if the batch is damaged; then it is skipped."""
    name, last = partition.name, header.last_offset
    try:
        if not has_valid_crc(batch):
            raise MalformedData("the CRC does not match")
        records = decode_records(batch, header)
    except MalformedData as error:
        log.error("%s: skipped the damaged batch at offsets %d to %d: %s", name, header.base_offset, last, error)
        return False
    for record in records:
        try:
            _replay_record(machine, transactional, header, record)
        except MalformedData as error:
            log.error("%s: skipped the record at offset %d, which cannot be decoded: %s", name, record.offset, error)
        except Exception:  # such as a record that contradicts an earlier one
            INTERNAL_ERRORS.log(log, f"{name}: skipped the record at offset {record.offset}")
    return True


def _replay_record(
    machine: Machine, transactional: TransactionalMachine | None, header: BatchHeader, record: Record
) -> None:
    if not (header.is_control or header.is_transactional):
        machine.replay(record.key or b"", record.value)
        return
    if transactional is None:
        raise MalformedData("a transactional record in a topic that has no transactions")
    if not header.is_control:
        transactional.replay_transactional(header.producer_id, record.key or b"", record.value)
    elif (marker := read_end_txn_marker(record)) is not None:
        transactional.end_transaction(header.producer_id, marker.committed)
