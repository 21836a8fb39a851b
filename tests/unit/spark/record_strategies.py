"""What hypothesis draws: records of all shapes, and logs with gaps, codecs, control batches, transactions."""

from __future__ import annotations

from dataclasses import dataclass, field

import hypothesis.strategies as st
from arrow_rows import Row

from moldau.wire.compression import Compression
from moldau.wire.records import NEXT_OFFSET, EndTxnMarker, Record, build_batch, end_txn_marker

short_bytes = st.none() | st.binary(max_size=12)
# Lengths on both sides of where their varint grows; what the bytes are does not matter, their number does.
some_bytes = short_bytes | st.sampled_from([0, 1, 50, 56, 63, 64, 300, 8_170, 8_200]).map(bytes)
# UTF-8 cannot hold half a surrogate pair.
header_keys = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
headers = st.lists(st.tuples(header_keys, short_bytes), max_size=4).map(tuple)
timestamps = st.integers(-1, 1 << 45)
records = st.builds(Record, st.just(NEXT_OFFSET), timestamps, some_bytes, some_bytes, st.just(()) | headers)

PLAIN = -1
PRODUCERS = (PLAIN, 7, 8)
"""One without transactions, two with them."""


@st.composite
def record_lists(draw: st.DrawFn) -> list[Record]:
    """The records of a batch; many with a run of one size, as most real batches are, long enough to be seen as one."""
    drawn = draw(st.lists(records, min_size=1, max_size=10))
    run = [drawn[0]] * draw(st.sampled_from([0, 0, 20, 550]))
    return [record._replace(timestamp=record.timestamp + number) for number, record in enumerate(run)] + drawn


@dataclass
class Log:
    """Batches one after the other, and what is in them."""

    end: int
    data: bytearray = field(default_factory=bytearray)
    everything: list[Row] = field(default_factory=list)
    aborted: list[tuple[int, int]] = field(default_factory=list)
    """(producer id, first offset)"""
    aborted_offsets: set[int] = field(default_factory=set)
    boundaries: list[tuple[int, int]] = field(default_factory=list)
    """Where each batch ends: in bytes, and the offset behind it."""
    offsets_of: dict[int, list[int]] = field(default_factory=dict)
    """What a producer wrote in the transaction it is in."""

    def committed(self) -> list[Row]:
        return [row for row in self.everything if row.record.offset not in self.aborted_offsets]

    def append(self, batch: bytearray, end: int) -> None:
        self.data += batch
        self.end = end
        self.boundaries.append((len(self.data), end))

    def write(self, producer: int, records: list[Record], compression: Compression, is_log_append_time: bool) -> None:
        batch = build_batch(
            records,
            base_offset=self.end,
            compression=compression,
            producer_id=producer,
            is_transactional=producer != PLAIN,
            is_log_append_time=is_log_append_time,
        )
        youngest = max(record.timestamp for record in records)
        for record in records:
            seen = record._replace(timestamp=youngest) if is_log_append_time else record
            self.everything.append(Row(seen, int(is_log_append_time)))
        if producer != PLAIN:
            self.offsets_of.setdefault(producer, []).extend(record.offset for record in records)
        self.append(batch, records[-1].offset + 1)

    def end_transaction(self, producer: int, is_committed: bool) -> None:
        written = self.offsets_of.pop(producer)
        if not is_committed:
            self.aborted.append((producer, written[0]))
            self.aborted_offsets.update(written)
        marker = end_txn_marker(EndTxnMarker(is_committed, 0), 1)
        batch = build_batch(
            [marker], base_offset=self.end, producer_id=producer, is_transactional=True, is_control=True
        )
        self.append(batch, self.end + 1)


@st.composite
def logs(draw: st.DrawFn) -> Log:
    """A log in which producers take turns, write or end a transaction, and compaction has left gaps."""
    log = Log(draw(st.sampled_from([0, 5, 1 << 40])))
    for _ in range(draw(st.integers(1, 6))):
        producer = draw(st.sampled_from(PRODUCERS))
        if producer in log.offsets_of and draw(st.booleans()):
            log.end_transaction(producer, draw(st.booleans()))
        else:
            gap = draw(st.sampled_from([0, 0, 1, 1000]))
            placed = [
                record._replace(offset=log.end + number * (gap + 1))
                for number, record in enumerate(draw(record_lists()))
            ]
            log.write(producer, placed, draw(st.sampled_from(Compression)), draw(st.booleans()))
            log.end += draw(st.sampled_from([0, 0, 50]))
    return log
