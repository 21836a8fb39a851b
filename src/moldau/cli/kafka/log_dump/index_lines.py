"""Index files as kafka-dump-log prints them, and the mismatches it finds.

Like Kafka, it prints the mismatches after all files, on stderr, by kind; the exit status stays 0.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final

from moldau.base.errors import MalformedData
from moldau.cli.log import data_files
from moldau.cli.log.data_files import BatchFile, FileBatch
from moldau.log import layout, offset_index, time_index
from moldau.wire.batch import NO_TIMESTAMP
from moldau.wire.records import decode_records

_KINDS: Final = (
    ("Mismatches in :{path}", "  Index offset: {0}, log offset: {1}"),
    ("Found timestamp mismatch in :{path}", "  Index timestamp: {0}, log timestamp: {1}"),
    ("Found out of order timestamp in :{path}", "  Index timestamp: {0}, Previously indexed timestamp: {1}"),
    ("The following indexed offsets are not found in the log.", "Indexed offset: {0}, found log offset: {1}"),
    ("Non-consecutive offsets in {path}", "  {0} is followed by {1}"),
)
_OFFSET, _TIMESTAMP, _ORDER, _MISSING, _CONSECUTIVE = range(len(_KINDS))


class Findings:
    """Mismatches: pairs of numbers that do not fit together, by kind of mismatch and file."""

    def __init__(self) -> None:
        self._pairs: dict[tuple[int, str], list[tuple[int, int]]] = {}

    def add(self, kind: int, path: str, first: int, second: int) -> None:
        self._pairs.setdefault((kind, os.path.abspath(path)), []).append((first, second))

    def not_consecutive(self, path: str, first: int, second: int) -> None:
        self.add(_CONSECUTIVE, path, first, second)

    def lines(self) -> Iterator[str]:
        for (kind, path), pairs in sorted(self._pairs.items()):
            headline, line = _KINDS[kind]
            yield headline.format(path=path)
            # Kafka prints this kind latest first, and only this kind.
            for pair in reversed(pairs) if kind == _OFFSET else pairs:
                yield line.format(*pair)


def dump_offset_index(path: str, sanity_only: bool, prints_entries: bool, findings: Findings) -> None:
    size = os.path.getsize(path)
    if size < offset_index.ENTRY_BYTES:
        print(f"{path} is empty.")
        return
    if sanity_only:
        _check_size(path, size, offset_index.ENTRY_BYTES)
        print(f"{path} passed sanity check.")
        return
    index = data_files.read_offset_index(path)
    segment = BatchFile(data_files.sibling(path, layout.LOG))
    for number in range(len(index)):
        offset, position = index.entry(number)
        batch = segment.batch_at(position)
        if batch is None:
            raise MalformedData(f"entry {number} points at {position}, where the log has no batch")
        if batch.header.last_offset != offset:
            findings.add(_OFFSET, path, offset, batch.header.last_offset)
        if prints_entries:
            print(f"offset: {offset} position: {position}")


def _check_size(path: str, size: int, entry_bytes: int) -> None:
    if size % entry_bytes:
        raise MalformedData(f"the index is corrupt: {size} bytes are not a multiple of {entry_bytes}")


def _check_last_timestamp(path: str) -> None:
    """Fail if the last entry is older than the first. Kafka checks the last bytes of the file, even if they are the
    zeros after the entries of an active segment: such a file fails."""
    with open(path, "rb") as file:
        first = file.read(time_index.ENTRY_BYTES)
        if not first:
            return
        file.seek(-time_index.ENTRY_BYTES, os.SEEK_END)
        last = file.read()
    (first_timestamp, _), (last_timestamp, _) = time_index.ENTRY.unpack(first), time_index.ENTRY.unpack(last)
    if last_timestamp < first_timestamp:
        raise MalformedData(
            f"the index is corrupt: its last timestamp is {last_timestamp}, less than its first, {first_timestamp}"
        )


def dump_time_index(path: str, sanity_only: bool, prints_entries: bool, findings: Findings) -> None:
    if sanity_only:
        _check_size(path, os.path.getsize(path), time_index.ENTRY_BYTES)
        _check_last_timestamp(path)
        print(f"{path} passed sanity check.")
        return
    times = data_files.read_time_index(path)
    offsets = data_files.read_offset_index(data_files.sibling(path, layout.OFFSET_INDEX))
    segment = BatchFile(data_files.sibling(path, layout.LOG))
    previous = NO_TIMESTAMP
    for number in range(len(times)):
        timestamp, offset, _ = times.entry(number)
        _compare(path, timestamp, offset, previous, _find_batch(segment, offsets, offset), findings)
        if prints_entries:
            print(f"timestamp: {timestamp} offset: {offset}")
        previous = timestamp


def _find_batch(segment: BatchFile, offsets: offset_index.OffsetIndex, offset: int) -> FileBatch | None:
    """Return the first batch that ends at or after `offset`, or None. Search from the position in the offset index; if
    that finds no batch that ends with the offset, search from the start of the segment."""
    match: FileBatch | None = None
    for position in (offsets.lookup(offset)[1], 0):
        match = next((batch for batch in segment.batches(position) if batch.header.last_offset >= offset), None)
        if match is not None and match.header.last_offset == offset:
            break
    return match


def _compare(
    path: str, timestamp: int, offset: int, previous: int, batch: FileBatch | None, findings: Findings
) -> None:
    if batch is None or batch.header.last_offset != offset:
        findings.add(_MISSING, path, offset, batch.header.last_offset if batch else -1)
        return
    youngest = max((record.timestamp for record in decode_records(batch.window, batch.header)), default=NO_TIMESTAMP)
    if youngest != timestamp:
        findings.add(_TIMESTAMP, path, timestamp, youngest)
    if previous >= timestamp:
        findings.add(_ORDER, path, timestamp, previous)
