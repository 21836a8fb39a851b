"""Compares a log cleaned by Apache Kafka with one cleaned by Moldau, and lists the allowed differences.

Each intended difference has a function of its own here, which says why, and allows as little as it can. Any other is a
fault, ours or Kafka's. How a log is cleaned is not known here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from moldau.base.limits import PRODUCER_BATCHES_KEPT
from moldau.log import layout
from moldau.log.files import Files
from moldau.log.producers import ProducerEntry
from moldau.log.txn_index import AbortedTxn, TxnIndex
from moldau.wire.batch import DELETE_HORIZON_BIT, BatchHeader, has_valid_crc, split_batches
from moldau.wire.records import Record, decode_records

NO_HORIZON: Final = -1

END_OF_SEGMENT: Final = "the end of a segment"
RECENT: Final = "one of the last five of a producer"
ONLY_BATCH_WITH_EPOCH: Final = "a marker that alone knows its producer's epoch"
MARKER_KEPT_LONGER: Final = "a marker of a transaction of which a header more is left"
ABORTED_KEPT_LONGER: Final = "an aborted transaction of which a header more is left"


class Batch(NamedTuple):
    header: BatchHeader
    records: list[Record]
    ends_segment: bool

    @property
    def horizon_ms(self) -> int:
        return self.header.base_timestamp if self.header.attributes & DELETE_HORIZON_BIT else NO_HORIZON


class Content(NamedTuple):
    """A log, read from its files only."""

    segments: list[int]
    batches: dict[int, Batch]
    """By base offset, in order."""
    aborted: list[AbortedTxn]


def content_of(files: Files, directory: str) -> Content:
    names = sorted(name for name in files.names(directory) if name.endswith(layout.LOG))
    batches: dict[int, Batch] = {}
    aborted: list[AbortedTxn] = []
    for name in names:
        view = memoryview(files.read(f"{directory}/{name}") or b"")
        position = 0
        for header, batch in split_batches(view):
            position += len(batch)
            assert has_valid_crc(batch)
            batches[header.base_offset] = Batch(header, decode_records(batch), position == len(view))
        stem = f"{directory}/{name.removesuffix(layout.LOG)}"
        aborted += TxnIndex(files, stem + layout.TXN_INDEX).transactions()
    return Content([int(name[:20]) for name in names], batches, aborted)


def comparable_fields(batch: Batch) -> tuple[object, ...]:
    """Return what must be equal in two batches. Not the bytes: codecs differ in version, and in a batch that has lost
    records Kafka counts timestamps from the first one left, where we keep the base timestamp."""
    base_timestamp = None if batch.records else batch.header.base_timestamp
    return (*comparable_header(batch), batch.horizon_ms, base_timestamp, batch.records)


def comparable_header(batch: Batch) -> tuple[object, ...]:
    """Like `comparable_fields`, but without the records and the delete horizon."""
    header = batch.header
    return (
        header.base_offset, header.last_offset, header.leader_epoch, header.attributes & ~DELETE_HORIZON_BIT,
        header.max_timestamp, header.producer_id, header.producer_epoch, header.base_sequence,
    )  # fmt: skip


@dataclass
class Round:
    """The inputs of both cleaners."""

    up_to: int
    now_ms: int
    producers: Mapping[int, ProducerEntry]
    """Producers known during the round."""


@dataclass
class Comparison:
    """Compares one log, round after round."""

    written: Mapping[int, BatchHeader]
    """Every batch as it was written, by base offset."""
    begins_alike: bool
    """Whether both clean the same log in every round: then no earlier round explains a difference."""
    outlived: set[int] = field(default_factory=set)
    """Markers of transactions of which ours has, or had after an earlier round, a header that Kafka lacks."""
    tally: Counter[str] = field(default_factory=Counter)
    """Counts of the differences."""

    def compare(self, ours: Content, theirs: Content, inputs: Round) -> None:
        assert not theirs.batches.keys() - ours.batches.keys(), "Kafka has kept more"
        if self.begins_alike:
            assert ours.segments == theirs.segments
        else:
            self._note_outlived(ours, theirs)
        for base_offset, batch in ours.batches.items():
            other = theirs.batches.get(base_offset)
            if other is not None and comparable_fields(batch) == comparable_fields(other):
                if base_offset < inputs.up_to:
                    self._count(batch)
                continue
            reason = self._reason(batch, other, ours, inputs)
            assert reason is not None, f"ours {batch}\nKafka's {other}\nwritten as {self.written[base_offset]}"
            self.tally[reason] += 1
        self._compare_aborted(ours, theirs)
        self.tally["rounds"] += 1

    def _note_outlived(self, ours: Content, theirs: Content) -> None:
        for base_offset, batch in ours.batches.items():
            header = batch.header
            if base_offset not in theirs.batches and header.is_transactional and not header.is_control:
                self.outlived.add(self._end_of_transaction(header))

    def _end_of_transaction(self, header: BatchHeader) -> int:
        return min(
            offset
            for offset, other in self.written.items()
            if other.is_control and other.producer_id == header.producer_id and offset > header.base_offset
        )

    def _reason(self, batch: Batch, other: Batch | None, ours: Content, inputs: Round) -> str | None:
        if batch.header.base_offset >= inputs.up_to:
            return None
        if other is None and is_end_of_segment(batch):
            return END_OF_SEGMENT
        if other is None and is_recent(batch, ours, inputs):
            return RECENT
        if other is not None and is_only_batch_with_epoch(batch, other, inputs):
            return ONLY_BATCH_WITH_EPOCH
        return MARKER_KEPT_LONGER if self._is_kept_longer(batch, other) else None

    def _is_kept_longer(self, batch: Batch, other: Batch | None) -> bool:
        """Whether the marker is kept longer: it stays while any batch of its transaction does, and gets its horizon
        when none is left. Where ours has kept one more header, both happen later."""
        if not batch.header.is_control or not batch.records or batch.header.base_offset not in self.outlived:
            return False
        if other is None:
            return True
        is_later = batch.horizon_ms == NO_HORIZON or batch.horizon_ms > other.horizon_ms
        return is_later and comparable_header(batch) == comparable_header(other)

    def _compare_aborted(self, ours: Content, theirs: Content) -> None:
        """Compare the aborted transactions: the index lists those of which a round found something, so some longer in
        ours."""
        longer = [txn for txn in ours.aborted if txn not in theirs.aborted]
        assert [txn for txn in ours.aborted if txn not in longer] == theirs.aborted
        assert {txn.last_offset for txn in longer} <= self.outlived
        self.tally[ABORTED_KEPT_LONGER] += len(longer)
        self.tally["aborted transactions alike"] += len(theirs.aborted)

    def _count(self, batch: Batch) -> None:
        was = self.written[batch.header.base_offset]
        kind = "markers" if was.is_control else "batches"
        self.tally[f"{kind} alike"] += 1
        self.tally[f"{kind} with a horizon"] += batch.horizon_ms != NO_HORIZON
        self.tally[f"{kind} without records"] += not batch.records
        self.tally[f"{kind} with fewer records"] += 0 < len(batch.records) < was.record_count
        self.tally["records alike"] += len(batch.records)


def is_end_of_segment(batch: Batch) -> bool:
    """Each of our segments ends where the next one begins, so that recovery can tell a hole from a lost tail. Kafka
    does so only for the last segment of a round (decision 017)."""
    return batch.ends_segment and not batch.records


def is_recent(batch: Batch, ours: Content, inputs: Round) -> bool:
    """Of a known producer we keep the headers of its last five batches, Kafka only the last one: all five may be sent
    again, and must be recognised after a restart."""
    header = batch.header
    known = inputs.producers.get(header.producer_id)
    if known is None or known.epoch != header.producer_epoch or header.is_control or batch.records:
        return False
    of_epoch = [
        base_offset
        for base_offset, other in ours.batches.items()
        if (other.header.producer_id, other.header.producer_epoch) == (known.producer_id, known.epoch)
        and not other.header.is_control
    ]
    return header.base_offset in of_epoch[-PRODUCER_BATCHES_KEPT:]


def is_only_batch_with_epoch(batch: Batch, other: Batch, inputs: Round) -> bool:
    """A producer that has written nothing since a marker raised its epoch is fenced by that marker. When the marker
    expires, Kafka keeps its header without the record, and then ignores it when it opens the log; we keep the record
    (decision 017)."""
    header = batch.header
    known = inputs.producers.get(header.producer_id)
    if known is None or known.batches or known.epoch != header.producer_epoch or not header.is_control:
        return False
    is_expired = 0 <= batch.horizon_ms <= inputs.now_ms
    return (
        is_expired
        and len(batch.records) == 1
        and not other.records
        and comparable_header(batch) == comparable_header(other)
    )
