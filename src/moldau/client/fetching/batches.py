"""The record batches of a fetched partition: where each begins, and which belong to aborted transactions.

Nothing here decodes the records of a batch, but for the markers that end aborted transactions.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from moldau.base.errors import MalformedData
from moldau.wire.batch import BATCH_HEADER_BYTES, LENGTH_PREFIX, MAGIC, MAGIC_POSITION, BatchHeader, read_header
from moldau.wire.records import decode_records, read_end_txn_marker

MARKER_BYTES_MAX: Final = 1 << 20
"""Of a control batch after decompression; a marker has some tens of bytes."""
_LENGTH: Final = struct.Struct(">8xi")


class Aborted(NamedTuple):
    """A transaction that was aborted: where it begins, and whose it was."""

    first_offset: int
    producer_id: int


class AbortedTransactions:
    """Which of the batches that were fetched are of aborted transactions.

    The broker lists where each aborted transaction begins; it ends at the producer's next abort marker. The batches are
    given in the order of their offsets. Those of producers without aborted transactions can be left out.
    """

    def __init__(self, aborted: Iterable[Aborted]) -> None:
        self._to_come = deque(sorted(aborted))
        self._open_producers: set[int] = set()

    def has(self, header: BatchHeader, batch: memoryview) -> bool:
        """Whether a batch is part of an aborted transaction, as its end marker is. MalformedData for a bad marker of
        one; those of other transactions are not read."""
        while self._to_come and self._to_come[0].first_offset <= header.last_offset:
            self._open_producers.add(self._to_come.popleft().producer_id)
        is_aborted = header.is_transactional and header.producer_id in self._open_producers
        if is_aborted and header.is_control and _has_abort_marker(header, batch):
            self._open_producers.remove(header.producer_id)
        return is_aborted


def _has_abort_marker(header: BatchHeader, batch: memoryview) -> bool:
    try:
        markers = map(read_end_txn_marker, decode_records(batch, header, MARKER_BYTES_MAX))
        return any(marker is not None and not marker.committed for marker in markers)
    except MalformedData as error:
        raise malformed(header.base_offset, error) from error


def whole_batches(records: memoryview) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Yield the batches of fetched records. Leave out the last one if it is cut off."""
    positions, rest = batch_positions(records)
    for position in positions:
        header = read_header(records, position)
        if header.magic != MAGIC:
            raise malformed(header.base_offset, other_format(header.magic))
        yield header, records[position : position + header.size_in_bytes]
    if problem := problem_of_rest(records, rest):
        raise problem


def batch_positions(records: memoryview) -> tuple[list[int], int]:
    """Return where each whole batch begins, and the position behind the last. Headers are not checked."""
    positions: list[int] = []
    position, bytes_left = 0, len(records)
    while bytes_left >= LENGTH_PREFIX.size:
        size = LENGTH_PREFIX.size + _LENGTH.unpack_from(records, position)[0]
        if not BATCH_HEADER_BYTES <= size <= bytes_left:
            break
        positions.append(position)
        position += size
        bytes_left -= size
    return positions, position


def problem_of_rest(records: memoryview, position: int) -> MalformedData | None:
    """Return what is wrong with the bytes behind the last whole batch: only a batch that is cut off may follow."""
    if len(records) - position <= MAGIC_POSITION:
        return None
    base_offset, batch_length = LENGTH_PREFIX.unpack_from(records, position)
    # Messages of magic 0 and 1 are shorter than a batch header, so the magic is checked before the size.
    if (magic := records[position + MAGIC_POSITION]) != MAGIC:
        return malformed(base_offset, other_format(magic))
    size: int = LENGTH_PREFIX.size + batch_length
    if size < BATCH_HEADER_BYTES:
        return malformed(base_offset, f"claims to have {size} bytes, less than its header")
    return None


def malformed(base_offset: int, what: str | Exception) -> MalformedData:
    return MalformedData(f"batch at offset {base_offset}: {what}")


def other_format(magic: int) -> str:
    return f"message format {magic}; only record batches (format {MAGIC}) are read"
