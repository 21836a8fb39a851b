"""Which record batches of a fetch hold rows: whole, of magic 2, in the range asked for, of no aborted transaction.

Only headers are read here, and the control batches of producers with an aborted transaction. Records stay closed.
Bytes that break the format are MalformedData that begins with the batch's base offset.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from moldau.base.errors import MalformedData
from moldau.wire.batch import (
    BATCH_HEADER_BYTES,
    CODEC_MASK,
    LENGTH_PREFIX,
    MAGIC,
    MAGIC_POSITION,
    BatchHeader,
    read_header,
)
from moldau.wire.records import ControlType, control_type, decode_records

OFFSET_MAX: Final = (1 << 63) - 1


class FetchedRecords(NamedTuple):
    """What one partition of a Fetch response holds, and which of it is wanted: start <= offset < end."""

    topic: str
    partition: int
    records: memoryview
    """Whole batches, the last of them perhaps cut off: a broker fills its answer up to the last byte."""
    start: int
    end: int
    aborted: Sequence[tuple[int, int]] = ()
    """(producer id, first offset) of aborted transactions; empty when uncommitted records are read too."""


class Batch(NamedTuple):
    """One whole batch: its header, all of its bytes, and where they begin in those fetched."""

    header: BatchHeader
    view: memoryview
    position: int

    @property
    def is_compressed(self) -> bool:
        return bool(self.header.attributes & CODEC_MASK)

    def malformed(self, what: str | Exception) -> MalformedData:
        return malformed(self.header.base_offset, what)


def malformed(base_offset: int, what: str | Exception) -> MalformedData:
    return MalformedData(f"batch at offset {base_offset}: {what}")


def wanted_batches(fetched: FetchedRecords) -> Iterator[Batch]:
    """The batches with rows to give, in the order of their offsets."""
    transactions = _AbortedTransactions(fetched.aborted)
    for batch in whole_batches(fetched.records):
        header = batch.header
        if header.base_offset >= fetched.end:
            return
        is_aborted = transactions.hold(batch)
        if not is_aborted and not header.is_control and header.last_offset >= fetched.start:
            yield batch


def next_offset(records: memoryview, position: int) -> int:
    """The offset behind the last whole batch, where the next fetch begins; `position` if there is none."""
    for batch in whole_batches(records):
        position = max(position, batch.header.next_offset)
    return position


def whole_batches(records: memoryview) -> Iterator[Batch]:
    """Every batch that is there whole. Offsets must go up from batch to batch: they lie outside the CRC."""
    expected = position = 0
    while (size := _whole_size(records, position)) is not None:
        header = read_header(records, position)
        last_offset = header.last_offset
        if header.base_offset < expected or header.last_offset_delta < 0 or last_offset >= OFFSET_MAX:
            raise malformed(header.base_offset, f"ends at offset {last_offset}, where {expected} comes next")
        expected = last_offset + 1
        yield Batch(header, records[position : position + size], position)
        position += size


def _whole_size(records: memoryview, position: int) -> int | None:
    """The size of the batch at `position`; None if its end is not there."""
    left = len(records) - position
    if left <= MAGIC_POSITION:
        return None
    base_offset, batch_length = LENGTH_PREFIX.unpack_from(records, position)
    # Messages of magic 0 and 1 are shorter than a batch header: their age is told before their size.
    if (magic := records[position + MAGIC_POSITION]) != MAGIC:
        raise malformed(base_offset, f"message format {magic}; only record batches (format {MAGIC}) are read")
    size: int = LENGTH_PREFIX.size + batch_length
    if size < BATCH_HEADER_BYTES:
        raise malformed(base_offset, f"claims to have {size} bytes, less than its header")
    return size if size <= left else None


class _AbortedTransactions:
    """Walks along with the batches and knows which producers are, at that point, in a transaction that was aborted.

    The broker tells where each aborted transaction begins; its end is the producer's next abort marker.
    """

    def __init__(self, aborted: Sequence[tuple[int, int]]) -> None:
        self._to_come = deque(sorted(aborted, key=lambda transaction: transaction[1]))
        self._open: set[int] = set()

    def hold(self, batch: Batch) -> bool:
        """Whether the batch belongs to an aborted transaction. To be asked for every batch, in order."""
        header = batch.header
        while self._to_come and self._to_come[0][1] <= header.last_offset:
            self._open.add(self._to_come.popleft()[0])
        if not header.is_transactional or header.producer_id not in self._open:
            return False
        if header.is_control and _is_abort_marker(batch):
            self._open.remove(header.producer_id)
        return True


def _is_abort_marker(batch: Batch) -> bool:
    try:
        records = decode_records(batch.view, batch.header)
        return bool(records) and control_type(records[0]) == ControlType.ABORT
    except MalformedData as error:
        raise batch.malformed(error) from error
