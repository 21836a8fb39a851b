"""Selects the record batches of a fetch that hold rows: whole, of magic 2, in the requested range, not aborted.

Only headers are read, and the control batches of producers with an aborted transaction; records are not decoded.
Headers are columns: a fetch may have a hundred thousand batches of one record each, from producers that do not linger.
Malformed bytes raise MalformedData, which begins with the batch's base offset.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from moldau.base.errors import MalformedData
from moldau.base.limits import OFFSET_MAX
from moldau.columns.varints import Mask, Numbers
from moldau.wire.batch import (
    BATCH_HEADER_BYTES,
    CODEC_MASK,
    CONTROL_BIT,
    LENGTH_PREFIX,
    LOG_APPEND_TIME_BIT,
    MAGIC,
    MAGIC_POSITION,
    TRANSACTIONAL_BIT,
    read_header,
)
from moldau.wire.records import ControlType, control_type, decode_records

_LENGTH: Final = struct.Struct(">8xi")
_HEADER: Final = np.dtype(
    [
        ("base_offset", ">i8"),
        ("batch_length", ">i4"),
        ("leader_epoch", ">i4"),
        ("magic", "i1"),
        ("crc", ">u4"),
        ("attributes", ">i2"),
        ("last_offset_delta", ">i4"),
        ("base_timestamp", ">i8"),
        ("max_timestamp", ">i8"),
        ("producer_id", ">i8"),
        ("producer_epoch", ">i2"),
        ("base_sequence", ">i4"),
        ("record_count", ">i4"),
    ]
)
"""The fields of `wire.batch.BATCH_HEADER`, packed."""


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


@dataclass(frozen=True)
class Batches:
    """Whole batches of fetched records: every array has an entry for each."""

    positions: Numbers
    """Where they begin in the fetched records."""
    headers: npt.NDArray[np.void]

    def __len__(self) -> int:
        return self.positions.size

    def __getitem__(self, which: slice | Mask) -> Batches:
        return Batches(self.positions[which], self.headers[which])

    def numbers(self, field: str) -> Numbers:
        return self.headers[field].astype(np.int64)

    @property
    def sizes(self) -> Numbers:
        return self.numbers("batch_length") + LENGTH_PREFIX.size

    @property
    def last_offsets(self) -> Numbers:
        return self.numbers("base_offset") + self.numbers("last_offset_delta")

    @property
    def codecs(self) -> Numbers:
        return self.numbers("attributes") & CODEC_MASK

    @property
    def is_log_append_time(self) -> Mask:
        return self._has(LOG_APPEND_TIME_BIT)

    @property
    def is_transactional(self) -> Mask:
        return self._has(TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> Mask:
        return self._has(CONTROL_BIT)

    def _has(self, bit: int) -> Mask:
        return np.bitwise_and(self.numbers("attributes"), bit).astype(np.bool_)

    def malformed(self, index: int, what: str | Exception) -> MalformedData:
        return malformed(int(self.headers["base_offset"][index]), what)


def malformed(base_offset: int, what: str | Exception) -> MalformedData:
    return MalformedData(f"batch at offset {base_offset}: {what}")


def batches_with_rows(fetched: FetchedRecords) -> tuple[Batches, MalformedData | None]:
    """Return the batches with requested rows, by offset, and what is wrong with the one that follows them."""
    batches, problem = whole_batches(fetched.records, fetched.end)
    is_wanted = ~batches.is_control & (batches.last_offsets >= fetched.start)
    if fetched.aborted:
        is_wanted &= ~_aborted(batches, fetched)
    return batches if is_wanted.all() else batches[is_wanted], problem


def next_offset(records: memoryview, position: int) -> int:
    """Return the offset after the last complete batch, where the next fetch begins; without a batch, `position`."""
    batches, problem = whole_batches(records)
    if problem is not None:
        raise problem
    return max(position, int(batches.last_offsets[-1]) + 1) if len(batches) else position


def whole_batches(records: memoryview, end: int = OFFSET_MAX) -> tuple[Batches, MalformedData | None]:
    """Return the complete batches that begin before the offset `end`, up to the first that is malformed, and what is
    wrong with that one. It may be the fault of the batch before it, so CRCs are checked before it is reported."""
    positions, rest = _walk(records)
    headers = np.empty(0, _HEADER)
    if positions:
        # A header may begin at any byte. Only the headers are copied.
        headers = np.ndarray((len(records) - BATCH_HEADER_BYTES + 1,), _HEADER, records, strides=(1,))[positions]
    batches = Batches(np.array(positions, np.int64), headers)
    good, problem = _in_order(batches)
    behind = np.flatnonzero(headers["base_offset"][:good] >= end)
    if behind.size:
        return batches[: int(behind[0])], None
    return batches[:good], problem or _problem_of_rest(records, rest)


def _walk(records: memoryview) -> tuple[list[int], int]:
    """Return where each batch begins, and the position behind the last complete one."""
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


def _in_order(batches: Batches) -> tuple[int, MalformedData | None]:
    """Return how many batches have the right magic and increasing offsets, which the CRC does not cover, and what is
    wrong with the next one."""
    base_offsets, deltas = batches.numbers("base_offset"), batches.numbers("last_offset_delta")
    expected = np.zeros_like(base_offsets)
    # A sum that overflows is that of a bad batch, and only the first bad one counts.
    expected[1:] = (base_offsets + deltas + 1)[:-1]
    is_magic_good = batches.headers["magic"] == MAGIC
    is_good = is_magic_good & (base_offsets >= expected) & (deltas >= 0) & (base_offsets < OFFSET_MAX - deltas)
    if is_good.all():
        return len(batches), None
    first = int(np.argmin(is_good))
    if not is_magic_good[first]:
        return first, batches.malformed(first, _other_format(int(batches.headers["magic"][first])))
    last_offset = int(base_offsets[first]) + int(deltas[first])
    return first, batches.malformed(first, f"ends at offset {last_offset}, where {expected[first]} comes next")


def _problem_of_rest(records: memoryview, position: int) -> MalformedData | None:
    """Return what is wrong with the bytes behind the last complete batch: only a batch that is cut off may follow."""
    if len(records) - position <= MAGIC_POSITION:
        return None
    base_offset, batch_length = LENGTH_PREFIX.unpack_from(records, position)
    # Messages of magic 0 and 1 are shorter than a batch header, so the magic is checked before the size.
    if (magic := records[position + MAGIC_POSITION]) != MAGIC:
        return malformed(base_offset, _other_format(magic))
    size: int = LENGTH_PREFIX.size + batch_length
    if size < BATCH_HEADER_BYTES:
        return malformed(base_offset, f"claims to have {size} bytes, less than its header")
    return None


def _other_format(magic: int) -> str:
    return f"message format {magic}; only record batches (format {MAGIC}) are read"


def _aborted(batches: Batches, fetched: FetchedRecords) -> Mask:
    """Return which batches belong to aborted transactions.

    The broker lists where each aborted transaction begins; it ends at the producer's next abort marker.
    """
    to_come = deque(sorted(fetched.aborted, key=lambda transaction: transaction[1]))
    open_producers: set[int] = set()
    is_aborted = np.zeros(len(batches), np.bool_)
    producer_ids, last_offsets, is_control = batches.numbers("producer_id"), batches.last_offsets, batches.is_control
    is_concerned = batches.is_transactional & np.isin(producer_ids, [producer_id for producer_id, _ in to_come])
    for index in np.flatnonzero(is_concerned).tolist():
        while to_come and to_come[0][1] <= last_offsets[index]:
            open_producers.add(to_come.popleft()[0])
        producer_id = int(producer_ids[index])
        is_aborted[index] = producer_id in open_producers
        if is_aborted[index] and is_control[index] and _is_abort_marker(batches, index, fetched.records):
            open_producers.remove(producer_id)
    return is_aborted


def _is_abort_marker(batches: Batches, index: int, records: memoryview) -> bool:
    position = int(batches.positions[index])
    header = read_header(records, position)
    try:
        decoded = decode_records(records[position : position + header.size_in_bytes], header)
        return bool(decoded) and control_type(decoded[0]) == ControlType.ABORT
    except MalformedData as error:
        raise batches.malformed(index, error) from error
