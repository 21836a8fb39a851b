"""Selects the record batches of a fetch that hold rows: whole, of magic 2, in the requested range, not aborted.

Only headers are read, and the control batches of producers with an aborted transaction; records are not decoded.
Malformed bytes raise MalformedData, which begins with the batch's base offset.
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
    """The records of one partition of a Fetch response, of which start <= offset < end are requested."""

    topic: str
    partition: int
    records: memoryview
    """Whole batches, the last perhaps cut off: a broker fills its response up to the limit."""
    start: int
    end: int
    aborted: Sequence[tuple[int, int]] = ()
    """(producer id, first offset) of aborted transactions; empty when uncommitted records are read too."""


class Batch(NamedTuple):
    """One whole batch: its header, its bytes, and their position in the fetched records."""

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


def batches_with_rows(fetched: FetchedRecords) -> Iterator[Batch]:
    """Return the batches with requested rows, by offset."""
    transactions = _AbortedTransactions(fetched.aborted)
    for batch in whole_batches(fetched.records):
        header = batch.header
        if header.base_offset >= fetched.end:
            return
        is_aborted = transactions.is_aborted(batch)
        if not is_aborted and not header.is_control and header.last_offset >= fetched.start:
            yield batch


def next_offset(records: memoryview, position: int) -> int:
    """Return the offset after the last complete batch, where the next fetch begins; without a batch, `position`."""
    for batch in whole_batches(records):
        position = max(position, batch.header.next_offset)
    return position


def whole_batches(records: memoryview) -> Iterator[Batch]:
    """Yield every complete batch. Check that their offsets increase, because the CRC does not cover offsets."""
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
    """Return the size of the batch at `position`, or None if the batch is incomplete."""
    left = len(records) - position
    if left <= MAGIC_POSITION:
        return None
    base_offset, batch_length = LENGTH_PREFIX.unpack_from(records, position)
    # Messages of magic 0 and 1 are shorter than a batch header, so the magic is checked before the size.
    if (magic := records[position + MAGIC_POSITION]) != MAGIC:
        raise malformed(base_offset, f"message format {magic}; only record batches (format {MAGIC}) are read")
    size: int = LENGTH_PREFIX.size + batch_length
    if size < BATCH_HEADER_BYTES:
        raise malformed(base_offset, f"claims to have {size} bytes, less than its header")
    return size if size <= left else None


class _AbortedTransactions:
    """Tracks which producers are in an aborted transaction at the current batch.

    The broker lists where each aborted transaction begins; it ends at the producer's next abort marker.
    """

    def __init__(self, aborted: Sequence[tuple[int, int]]) -> None:
        self._to_come = deque(sorted(aborted, key=lambda transaction: transaction[1]))
        self._open: set[int] = set()

    def is_aborted(self, batch: Batch) -> bool:
        """Return whether the batch belongs to an aborted transaction. Must be called for every batch, in order."""
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
