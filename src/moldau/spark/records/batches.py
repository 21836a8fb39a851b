"""Selects the record batches of a fetch that hold rows: whole, of magic 2, in the requested range, not aborted.

Only headers are read, and the control batches of producers with an aborted transaction; records are not decoded.
Headers are columns: a fetch may have a hundred thousand batches of one record each, from producers that do not linger.
Malformed bytes raise MalformedData, which begins with the batch's base offset.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from moldau.base.errors import MalformedData
from moldau.base.limits import OFFSET_MAX
from moldau.client.fetching.batches import (
    Aborted,
    AbortedTransactions,
    batch_positions,
    malformed,
    other_format,
    problem_of_rest,
)
from moldau.columns.varints import Mask, Numbers
from moldau.wire.batch import (
    BATCH_HEADER_BYTES,
    CODEC_MASK,
    CONTROL_BIT,
    LENGTH_PREFIX,
    LOG_APPEND_TIME_BIT,
    MAGIC,
    TRANSACTIONAL_BIT,
    read_header,
)

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
    aborted: Sequence[Aborted] = ()
    """Empty when uncommitted records are read too."""


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


def batches_with_rows(fetched: FetchedRecords) -> tuple[Batches, MalformedData | None]:
    """Return the batches with requested rows, by offset, and what is wrong with the one that follows them."""
    batches, problem = header_columns(fetched.records, fetched.end)
    is_wanted = ~batches.is_control & (batches.last_offsets >= fetched.start)
    if fetched.aborted:
        is_wanted &= ~_aborted(batches, fetched)
    return batches if is_wanted.all() else batches[is_wanted], problem


def next_offset(records: memoryview, position: int) -> int:
    """Return the offset after the last complete batch, where the next fetch begins; without a batch, `position`."""
    batches, problem = header_columns(records)
    if problem is not None:
        raise problem
    return max(position, int(batches.last_offsets[-1]) + 1) if len(batches) else position


def header_columns(records: memoryview, end: int = OFFSET_MAX) -> tuple[Batches, MalformedData | None]:
    """Return the complete batches that begin before the offset `end`, up to the first that is malformed, and what is
    wrong with that one. It may be the fault of the batch before it, so CRCs are checked before it is reported."""
    positions, rest = batch_positions(records)
    headers = np.empty(0, _HEADER)
    if positions:
        # A header may begin at any byte. Only the headers are copied.
        headers = np.ndarray((len(records) - BATCH_HEADER_BYTES + 1,), _HEADER, records, strides=(1,))[positions]
    batches = Batches(np.array(positions, np.int64), headers)
    good, problem = _in_order(batches)
    behind = np.flatnonzero(headers["base_offset"][:good] >= end)
    if behind.size:
        return batches[: int(behind[0])], None
    return batches[:good], problem or problem_of_rest(records, rest)


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
        return first, batches.malformed(first, other_format(int(batches.headers["magic"][first])))
    last_offset = int(base_offsets[first]) + int(deltas[first])
    return first, batches.malformed(first, f"ends at offset {last_offset}, where {expected[first]} comes next")


def _aborted(batches: Batches, fetched: FetchedRecords) -> Mask:
    """Return which batches belong to aborted transactions."""
    transactions = AbortedTransactions(fetched.aborted)
    is_aborted = np.zeros(len(batches), np.bool_)
    producer_ids = [each.producer_id for each in fetched.aborted]
    is_concerned = batches.is_transactional & np.isin(batches.numbers("producer_id"), producer_ids)
    for index in np.flatnonzero(is_concerned).tolist():
        position = int(batches.positions[index])
        header = read_header(fetched.records, position)
        is_aborted[index] = transactions.has(header, fetched.records[position : position + header.size_in_bytes])
    return is_aborted
