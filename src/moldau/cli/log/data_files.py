"""The files of a data directory, read without a broker: batches, index entries, and the list of files.

Nothing is locked or written, so a broker may be running on the directory; what it appends after a file was opened is
not seen. `wire` and `log` define the formats; the commands print them.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from contextlib import suppress
from typing import Final, NamedTuple

from moldau.log import layout, offset_index, time_index, txn_index
from moldau.wire.batch import BATCH_HEADER_BYTES, LENGTH_PREFIX, MAGIC, MAGIC_POSITION, BatchHeader, read_header

METADATA_SNAPSHOT: Final = ".checkpoint"
"""A snapshot of the metadata log: batches, like a segment."""
CHECKPOINTS: Final = (
    layout.RECOVERY_POINTS,
    layout.LOG_STARTS,
    layout.HIGH_WATERMARKS,
    layout.CLEANER_OFFSETS,
    layout.LEADER_EPOCH_CHECKPOINT,
)
PROPERTIES: Final = (layout.PARTITION_METADATA, "meta.properties")
_SUFFIXES: Final = (*layout.SEGMENT_FILES, layout.SNAPSHOT, METADATA_SNAPSHOT)


class FileBatch(NamedTuple):
    position: int
    header: BatchHeader
    window: memoryview
    """The whole batch, including its header."""


class BatchFile:
    """A .log file, or a snapshot of the metadata log, as a sequence of batches."""

    def __init__(self, path: str, bytes_max: int | None = None) -> None:
        self.path = path
        content = _map_file(path)
        self.size = len(content)
        self._view = content[:bytes_max]
        self.valid_bytes = 0
        """Where the last complete batch ends. It is set when the iteration over the batches ends."""

    def batches(self, position: int = 0) -> Iterator[FileBatch]:
        """Yield every complete batch from `position` on; then set `valid_bytes` to the end of the last."""
        end = len(self._view)
        while end - position >= BATCH_HEADER_BYTES:
            header = read_header(self._view, position)
            size = LENGTH_PREFIX.size + header.batch_length
            if header.magic != MAGIC or not BATCH_HEADER_BYTES <= size <= end - position:
                break
            yield FileBatch(position, header, self._view[position : position + size])
            position += size
        self.valid_bytes = position

    def batch_at(self, position: int) -> FileBatch | None:
        return next(self.batches(position), None)

    def trailing(self) -> str | None:
        """Describe the bytes after the last complete batch. Return None if the file ends with that batch."""
        rest = self.size - self.valid_bytes
        if not rest:
            return None
        if rest > MAGIC_POSITION and self._view[self.valid_bytes + MAGIC_POSITION] in (0, 1):
            return f"{rest} bytes at {self.valid_bytes} are zeros or of a message format before Kafka 0.11"
        return f"{rest} bytes at {self.valid_bytes} are not a complete batch"


def _map_file(path: str) -> memoryview:
    """Map a file, so that bytes are read on access. The mapping stays valid until the last slice of it is dropped."""
    with open(path, "rb") as file:
        is_empty = os.fstat(file.fileno()).st_size == 0  # an empty file cannot be mapped
        return memoryview(b"" if is_empty else mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def base_offset_of(path: str) -> int:
    """Return the offset in the name of a segment's file; raise ValueError if the name contains none."""
    digits = os.path.basename(path).partition(".")[0]
    if not digits.isdigit():
        raise ValueError("a segment's file is named after its first offset, like 00000000000000000000.log")
    return int(digits)


def sibling(path: str, suffix: str) -> str:
    """Return the file of the same segment with another suffix."""
    directory, name = os.path.split(path)
    return os.path.join(directory, name.partition(".")[0] + suffix)


def read_offset_index(path: str) -> offset_index.OffsetIndex:
    """Return the entries without the zeros after the last: Kafka preallocates index files at full size."""
    entries = _map_file(path)
    written = _written_bytes(entries, offset_index.ENTRY_BYTES, relative_offset_at=0)
    return offset_index.OffsetIndex(base_offset_of(path), bytes(entries[:written]))


def read_time_index(path: str) -> time_index.TimeIndex:
    entries = _map_file(path)
    written = _written_bytes(entries, time_index.ENTRY_BYTES, relative_offset_at=8)
    return time_index.TimeIndex(base_offset_of(path), bytes(entries[:written]))


def _written_bytes(entries: memoryview, entry_bytes: int, relative_offset_at: int) -> int:
    """Return the bytes before the first entry, after the very first, whose relative offset is 0."""
    for start in range(entry_bytes, len(entries), entry_bytes):
        at = start + relative_offset_at
        if entries[at : at + 4] == bytes(4):
            return start
    return len(entries)


def read_txn_index(path: str) -> list[tuple[int, ...]]:
    """Return (version, producer id, first offset, last offset, last stable offset) of each aborted transaction."""
    content = _map_file(path)
    whole = len(content) - len(content) % txn_index.ENTRY_BYTES
    return list(txn_index.ENTRY.iter_unpack(content[:whole]))


def is_known(path: str) -> bool:
    name = os.path.basename(path)
    return name.endswith(_SUFFIXES) or name in CHECKPOINTS or name in PROPERTIES


def holds_batches(path: str) -> bool:
    return path.endswith((layout.LOG, METADATA_SNAPSHOT))


def find_files(path: str) -> list[str]:
    """Return the file itself, or all known files of a partition or data directory, in reading order."""
    if not os.path.isdir(path):
        return [path]
    files: list[str] = []
    for name in sorted(os.listdir(path)):
        child = os.path.join(path, name)
        if os.path.isdir(child):
            if layout.partition_of(name) is not None or layout.is_deleted_directory(name):
                with suppress(FileNotFoundError):  # a running broker may delete it meanwhile
                    files += find_files(child)
        elif is_known(child):
            files.append(child)
    return files
