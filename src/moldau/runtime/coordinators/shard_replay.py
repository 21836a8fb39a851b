"""The machines that shards are built over, and how one is filled from its log when a node begins to lead it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any, Final, Protocol, runtime_checkable

from moldau.base.errors import MalformedData
from moldau.base.promise import Promise
from moldau.coordinator.machine import Action, CoordinatorRecord
from moldau.log.walk import walk_batches
from moldau.replica.partition import Partition
from moldau.wire.batch import BatchHeader, check_crc
from moldau.wire.records import Record, decode_records, read_end_txn_marker
from moldau.wire.schema import Buffer

log = logging.getLogger("moldau.coordinator")
LOAD_TURN_RECORDS: Final = 2_000
"""Records replayed before others get their turn."""


class Machine(Protocol):
    """What a shard needs of the machine over its log."""

    def encode(self, record: CoordinatorRecord) -> tuple[bytes, bytes | None]: ...

    def apply(self, record: CoordinatorRecord) -> None: ...

    def replay(self, key: Buffer, value: Buffer | None) -> None: ...

    def loaded(self) -> None: ...

    def next_deadline_ms(self) -> int | None: ...

    def due(self, now_ms: int) -> Iterator[Action]: ...

    def waiting(self) -> Iterator[Promise[Any]]: ...


@runtime_checkable
class TransactionalMachine(Machine, Protocol):
    """One whose records may be part of a producer's transaction: they count when that is committed."""

    def apply_transactional(self, producer_id: int, record: CoordinatorRecord) -> None: ...

    def replay_transactional(self, producer_id: int, key: Buffer, value: Buffer | None) -> None: ...

    def end_transaction(self, producer_id: int, committed: bool) -> None: ...


def replayed(partition: Partition, machine: Machine) -> Iterator[None]:
    """Lays the log over the machine. Yields now and then, for others to have their turn. What the disk has spoilt is
    left out: groups find older offsets and read again, which is better than never."""
    transactional = machine if isinstance(machine, TransactionalMachine) else None
    count = 0
    for segment in list(partition.log.segments):
        try:
            for header, batch in walk_batches(segment.file, 0, segment.size):
                _replay(partition, machine, transactional, header, batch)
                count += header.record_count
                if count >= LOAD_TURN_RECORDS:
                    count = 0
                    yield
        except MalformedData as spoilt:
            log.error("%s: the rest of a segment cannot be read and is left out: %s", partition.name, spoilt)


def _replay(
    partition: Partition,
    machine: Machine,
    transactional: TransactionalMachine | None,
    header: BatchHeader,
    batch: memoryview,
) -> None:
    name, last = partition.name, header.last_offset
    try:
        if not check_crc(batch):
            raise MalformedData("the CRC is another")
        records = decode_records(batch, header)
    except MalformedData as spoilt:
        log.error("%s: records up to offset %d cannot be read and are left out: %s", name, last, spoilt)
        return
    for record in records:
        try:
            _replay_record(machine, transactional, header, record)
        except MalformedData as strange:
            log.error("%s: record %d cannot be understood and is left out: %s", name, record.offset, strange)


def _replay_record(
    machine: Machine, transactional: TransactionalMachine | None, header: BatchHeader, record: Record
) -> None:
    if not (header.is_control or header.is_transactional):
        machine.replay(record.key or b"", record.value)
        return
    if transactional is None:
        raise MalformedData("a record of a transaction where there are none")
    if not header.is_control:
        transactional.replay_transactional(header.producer_id, record.key or b"", record.value)
    elif (marker := read_end_txn_marker(record)) is not None:
        transactional.end_transaction(header.producer_id, marker.committed)
