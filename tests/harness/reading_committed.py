"""A consumer with `isolation.level=read_committed`, which filters aborted transactions out of a log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from moldau.log.log import Log
from moldau.wire.batch import BATCH_HEADER_BYTES, BatchHeader, read_header
from moldau.wire.records import Record, decode_records, read_end_txn_marker


def whole_batches(content: bytes) -> Iterator[tuple[BatchHeader, bytes]]:
    """The whole batches of a fetch; the last one may be partial and is left out."""
    position = 0
    while len(content) - position >= BATCH_HEADER_BYTES:
        header = read_header(content, position)
        if header.size_in_bytes > len(content) - position:
            return
        yield header, content[position : position + header.size_in_bytes]
        position += header.size_in_bytes


def visible(content: bytes, aborted: Iterable[tuple[int, int]]) -> Iterator[tuple[BatchHeader, list[Record]]]:
    """Each batch of one fetch with its committed records; `aborted` are (first offset, producer id) in order."""
    ahead = list(aborted)
    assert ahead == sorted(ahead), "consumers rely on the order"
    dropped: set[int] = set()
    for header, batch in whole_batches(content):
        while ahead and ahead[0][0] <= header.last_offset:
            dropped.add(ahead.pop(0)[1])
        records = decode_records(batch)
        if header.is_control:
            marker = read_end_txn_marker(records[0]) if records else None
            if marker is not None and not marker.committed:
                dropped.discard(header.producer_id)
            records = []
        elif header.is_transactional and header.producer_id in dropped:
            records = []
        yield header, records


def read_committed(log: Log, high_watermark: int, max_bytes: int = 1 << 20) -> list[Record]:
    """All that a consumer sees from the start of the log on, fetch by fetch."""
    offset, up_to = log.start_offset, log.last_stable_offset(high_watermark)
    found: list[Record] = []
    while (piece := log.read(offset, max_bytes, up_to)) is not None:
        transactions = [(each.first_offset, each.producer_id) for each in log.aborted_in(piece, offset, up_to)]
        begin = offset
        for header, records in visible(piece.read(), transactions):
            assert header.last_offset < up_to, "a batch of an open transaction was returned"
            found += [record for record in records if record.offset >= begin]
            offset = header.next_offset
    return found
