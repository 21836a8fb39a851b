"""A log that was cleaned by Apache Kafka and by us, and the differences that may be between the two.

Each difference that is meant has a function of its own here, which says why, and holds for as little as it can. Any
other is a fault, ours or Kafka's. What may not enter: how a log is cleaned.
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
from moldau.wire.batch import DELETE_HORIZON_BIT, BatchHeader, check_crc, split_batches
from moldau.wire.records import Record, decode_records

NO_HORIZON: Final = -1

END_OF_SEGMENT: Final = "the end of a segment"
RECENT: Final = "one of the last five of a producer"
LAST_WORD: Final = "a marker that alone knows its producer's epoch"
LONGER_LIFE: Final = "a marker of a transaction of which a header more is left"
LONGER_TOLD: Final = "an aborted transaction of which a header more is left"


class Batch(NamedTuple):
    header: BatchHeader
    records: list[Record]
    ends_segment: bool

    @property
    def horizon_ms(self) -> int:
        return self.header.base_timestamp if self.header.attributes & DELETE_HORIZON_BIT else NO_HORIZON


class Content(NamedTuple):
    """A log, read off its files and nothing else."""

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
            assert check_crc(batch)
            batches[header.base_offset] = Batch(header, decode_records(batch), position == len(view))
        stem = f"{directory}/{name.removesuffix(layout.LOG)}"
        aborted += TxnIndex(files, stem + layout.TXN_INDEX).transactions()
    return Content([int(name[:20]) for name in names], batches, aborted)


def face(batch: Batch) -> tuple[object, ...]:
    """What must be the same of a batch. Not its bytes: codecs are of other versions, and in a batch that has lost
    records Kafka counts timestamps from the first one that is left, where we leave the base timestamp as it was."""
    base_timestamp = None if batch.records else batch.header.base_timestamp
    return (*bare_face(batch), batch.horizon_ms, base_timestamp, batch.records)


def bare_face(batch: Batch) -> tuple[object, ...]:
    """As if nobody had asked for what is in it, and until when."""
    header = batch.header
    return (
        header.base_offset, header.last_offset, header.leader_epoch, header.attributes & ~DELETE_HORIZON_BIT,
        header.max_timestamp, header.producer_id, header.producer_epoch, header.base_sequence,
    )  # fmt: skip


@dataclass
class Round:
    """What both were told."""

    up_to: int
    now_ms: int
    producers: Mapping[int, ProducerEntry]
    """Those known while it went on."""


@dataclass
class Comparison:
    """Of one log, round after round."""

    written: Mapping[int, BatchHeader]
    """Every batch as it was written, by base offset."""
    begins_alike: bool
    """Whether both clean the same log in every round: then no earlier round accounts for a difference."""
    outlived: set[int] = field(default_factory=set)
    """Markers of transactions of which ours has, or had after an earlier round, a header that Kafka has not."""
    tally: Counter[str] = field(default_factory=Counter)
    """What has come up."""

    def compare(self, ours: Content, theirs: Content, told: Round) -> None:
        assert not theirs.batches.keys() - ours.batches.keys(), "Kafka has kept more"
        if self.begins_alike:
            assert ours.segments == theirs.segments
        else:
            self._note_outlived(ours, theirs)
        for base_offset, batch in ours.batches.items():
            other = theirs.batches.get(base_offset)
            if other is not None and face(batch) == face(other):
                if base_offset < told.up_to:
                    self._count(batch)
                continue
            reason = self._reason(batch, other, ours, told)
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

    def _reason(self, batch: Batch, other: Batch | None, ours: Content, told: Round) -> str | None:
        if batch.header.base_offset >= told.up_to:
            return None
        if other is None and is_end_of_segment(batch):
            return END_OF_SEGMENT
        if other is None and is_recent(batch, ours, told):
            return RECENT
        if other is not None and is_last_word(batch, other, told):
            return LAST_WORD
        return LONGER_LIFE if self._lives_longer(batch, other) else None

    def _lives_longer(self, batch: Batch, other: Batch | None) -> bool:
        """A marker stays while anything of its transaction does, and gets its horizon when nothing is left. Where ours
        has kept a header more, both come later."""
        if not batch.header.is_control or not batch.records or batch.header.base_offset not in self.outlived:
            return False
        if other is None:
            return True
        is_later = batch.horizon_ms == NO_HORIZON or batch.horizon_ms > other.horizon_ms
        return is_later and bare_face(batch) == bare_face(other)

    def _compare_aborted(self, ours: Content, theirs: Content) -> None:
        """The index tells of aborted transactions of which a round has met something: so of some a bit longer."""
        longer = [txn for txn in ours.aborted if txn not in theirs.aborted]
        assert [txn for txn in ours.aborted if txn not in longer] == theirs.aborted
        assert {txn.last_offset for txn in longer} <= self.outlived
        self.tally[LONGER_TOLD] += len(longer)
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
    """Each of our segments ends where the next one begins, by which recovery tells a hole from a lost tail. Kafka does
    so for the last segment of a round (decision 017)."""
    return batch.ends_segment and not batch.records


def is_recent(batch: Batch, ours: Content, told: Round) -> bool:
    """Of a producer that is known, we keep the headers of its last five batches, Kafka that of the last one: all five
    may be sent again, and a restart should know them."""
    header = batch.header
    known = told.producers.get(header.producer_id)
    if known is None or known.epoch != header.producer_epoch or header.is_control or batch.records:
        return False
    of_epoch = [
        base_offset
        for base_offset, other in ours.batches.items()
        if (other.header.producer_id, other.header.producer_epoch) == (known.producer_id, known.epoch)
        and not other.header.is_control
    ]
    return header.base_offset in of_epoch[-PRODUCER_BATCHES_KEPT:]


def is_last_word(batch: Batch, other: Batch, told: Round) -> bool:
    """A producer that has written nothing since a marker gave it another epoch is fenced by that marker. When it is
    spent Kafka keeps its header and takes its record out, and then passes over it when it opens the log; we leave the
    record in (decision 017)."""
    header = batch.header
    known = told.producers.get(header.producer_id)
    if known is None or known.batches or known.epoch != header.producer_epoch or not header.is_control:
        return False
    is_spent = 0 <= batch.horizon_ms <= told.now_ms
    return is_spent and len(batch.records) == 1 and not other.records and bare_face(batch) == bare_face(other)
