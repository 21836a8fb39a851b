"""Finds the first record of a log that is not older than a timestamp.

The search has steps, because it may be long. A batch is opened in a thread, since that may take a while.

What a batch may cost is limited. A batch of a few kilobytes may hold millions of records, and a header may promise a
timestamp that no record has. The answer is then the batch itself, by its header: its base offset and its largest
timestamp. A consumer that begins there misses nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import Final, NamedTuple

from moldau.base.errors import MalformedData
from moldau.base.limits import OPENED_RECORDS_MAX
from moldau.base.steps import Steps, WaitingSteps
from moldau.base.turns import CHECKS_A_TURN
from moldau.log.files import File
from moldau.log.segments import Segments
from moldau.log.time_index import TimestampOffset
from moldau.log.walk import walk_headers
from moldau.wire.batch import CRC_POSITION, CRC_START, BatchHeader
from moldau.wire.compression import DecompressedTooLarge
from moldau.wire.crc import crc32c
from moldau.wire.records import iterate_records

BATCHES_OPENED_MAX: Final = 8
"""Batches whose headers promise a record that they do not have, before one is believed."""

TimeSearch = WaitingSteps[TimestampOffset | None]
InThread = Callable[[Callable[[], TimestampOffset | None]], TimeSearch]
"""Waits for the result of a function that opens a batch."""


class _Batch(NamedTuple):
    """A batch that has the record, if its header is right. Holding it keeps the file open."""

    file: File
    position: int
    header: BatchHeader


def search_time(
    segments: Segments, target_ms: int, start_offset: int, decompressed_bytes_max: int, in_thread: InThread
) -> TimeSearch:
    """Search for the first record from `start_offset` on that is not older than `target_ms`. After each `yield` the
    segments may be others, so that the search goes on from an offset."""
    from_offset, opened = start_offset, 0
    while True:
        batch = _next_batch(segments, target_ms, from_offset)
        if batch is None:
            return None
        if isinstance(batch, int):
            from_offset = batch
            yield None
            continue
        header = batch.header
        opened += 1
        if header.record_count > OPENED_RECORDS_MAX or opened > BATCHES_OPENED_MAX:
            return _by_header(header, from_offset)
        found = yield from in_thread(partial(_first_record, batch, target_ms, from_offset, decompressed_bytes_max))
        if found is not None:
            return found
        from_offset = header.next_offset


def find_largest_timestamp(segments: Segments) -> Steps[int]:
    """Return the largest timestamp of all segments, -1 without timestamps. After a restart it is read from the indexes,
    those of one segment in a turn. After each `yield` the segments may be others."""
    while any(segment.load_largest_timestamp() for segment in segments):
        yield
    return max(segment.largest_timestamp.timestamp for segment in segments)


def _next_batch(segments: Segments, target_ms: int, from_offset: int) -> _Batch | int | None:
    """Return the first batch that reaches `from_offset` and has a timestamp that is not too old, by its header. Return
    the offset from which to go on if that takes too long, None if there is no such batch."""
    headers = 0
    first_place = segments.floor(from_offset)
    for place, each in enumerate(islice(segments, first_place, None), first_place):
        if each.load_largest_timestamp():
            # The indexes of a large segment have megabytes: those of one are enough for a turn.
            return max(each.base_offset, from_offset)
        if each.largest_timestamp.timestamp < target_ms:
            continue
        segment = segments.at(place)
        first = max(segment.time_index.lookup(target_ms), from_offset)
        _, start = segment.offset_index.lookup(first)
        for position, header in walk_headers(segment.file, start, segment.size):
            if header.last_offset < from_offset:
                continue
            if header.max_timestamp >= target_ms and header.record_count:
                return _Batch(segment.file, position, header)
            headers += 1
            if headers == CHECKS_A_TURN:
                return header.next_offset
    return None


def _first_record(
    batch: _Batch, target_ms: int, from_offset: int, decompressed_bytes_max: int
) -> TimestampOffset | None:
    """Return the first record of a batch that is not too old. This runs in a thread."""
    file, position, header = batch
    content = file.pread(header.size_in_bytes, position)
    if crc32c(memoryview(content)[CRC_START:]) != int.from_bytes(content[CRC_POSITION:CRC_START], "big"):
        raise MalformedData(f"{file.path}: the batch at {position} does not match its CRC")
    try:
        for record in iterate_records(content, header, decompressed_bytes_max):
            if record.timestamp >= target_ms and record.offset >= from_offset:
                return TimestampOffset(record.timestamp, record.offset, header.leader_epoch)
    except DecompressedTooLarge:
        return _by_header(header, from_offset)
    return None


def _by_header(header: BatchHeader, from_offset: int) -> TimestampOffset:
    return TimestampOffset(header.max_timestamp, max(header.base_offset, from_offset), header.leader_epoch)
