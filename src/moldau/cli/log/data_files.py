"""The files of a data directory, read from outside: batches, index entries, and which files there are.

Nothing is locked or written, so a running broker may own the directory; what it appends after a file was opened is
not seen. Formats are those of `wire` and `log`; how they are shown is the commands'.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
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
    """The whole batch, its header too."""


class BatchFile:
    """A .log file, or a snapshot of the metadata log, as the batches in it."""

    def __init__(self, path: str, bytes_max: int | None = None) -> None:
        self.path = path
        whole = _mapped(path)
        self.size = len(whole)
        self._view = whole[:bytes_max]
        self.valid_bytes = 0
        """Where the whole batches end: known once they were gone through."""

    def batches(self, position: int = 0) -> Iterator[FileBatch]:
        """Every whole batch from `position` on. Ends where the bytes are no batch any more, and says where."""
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
        """What is behind the last whole batch, in words; None if nothing is."""
        rest = self.size - self.valid_bytes
        if not rest:
            return None
        if rest > MAGIC_POSITION and self._view[self.valid_bytes + MAGIC_POSITION] in (0, 1):
            return f"{rest} bytes at {self.valid_bytes} are zeros or of a message format before Kafka 0.11"
        return f"{rest} bytes at {self.valid_bytes} are no whole batch"


def _mapped(path: str) -> memoryview:
    """A file's bytes, read as they are looked at. The mapping outlives its descriptor and goes with its last window."""
    with open(path, "rb") as file:
        is_empty = os.fstat(file.fileno()).st_size == 0  # which cannot be mapped
        return memoryview(b"" if is_empty else mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def base_offset_of(path: str) -> int:
    """The offset in the name of a segment's file; ValueError if there is none."""
    digits = os.path.basename(path).partition(".")[0]
    if not digits.isdigit():
        raise ValueError("a segment's file is named by its first offset, like 00000000000000000000.log")
    return int(digits)


def sibling(path: str, suffix: str) -> str:
    """The file of the same segment with another suffix."""
    directory, name = os.path.split(path)
    return os.path.join(directory, name.partition(".")[0] + suffix)


def read_offset_index(path: str) -> offset_index.OffsetIndex:
    """The entries that were written: Kafka lays index files out at full size, so zeros follow the last one."""
    entries = _mapped(path)
    written = _written(entries, offset_index.ENTRY_BYTES, relative_offset_at=0)
    return offset_index.OffsetIndex(base_offset_of(path), bytes(entries[:written]))


def read_time_index(path: str) -> time_index.TimeIndex:
    entries = _mapped(path)
    written = _written(entries, time_index.ENTRY_BYTES, relative_offset_at=8)
    return time_index.TimeIndex(base_offset_of(path), bytes(entries[:written]))


def _written(entries: memoryview, entry_bytes: int, relative_offset_at: int) -> int:
    """Bytes up to the first entry, but the very first, whose relative offset is 0."""
    for start in range(entry_bytes, len(entries), entry_bytes):
        at = start + relative_offset_at
        if entries[at : at + 4] == bytes(4):
            return start
    return len(entries)


def read_txn_index(path: str) -> list[tuple[int, ...]]:
    """(version, producer id, first offset, last offset, last stable offset) of each aborted transaction."""
    content = _mapped(path)
    whole = len(content) - len(content) % txn_index.ENTRY_BYTES
    return list(txn_index.ENTRY.iter_unpack(content[:whole]))


def is_known(path: str) -> bool:
    name = os.path.basename(path)
    return name.endswith(_SUFFIXES) or name in CHECKPOINTS or name in PROPERTIES


def holds_batches(path: str) -> bool:
    return path.endswith((layout.LOG, METADATA_SNAPSHOT))


def find_files(path: str) -> list[str]:
    """The file itself, or all known files of a partition's directory or of a whole data directory, in reading order."""
    if not os.path.isdir(path):
        return [path]
    found: list[str] = []
    for name in sorted(os.listdir(path)):
        inside = os.path.join(path, name)
        if os.path.isdir(inside):
            if layout.partition_of(name) is not None or layout.is_deleted_directory(name):
                found += find_files(inside)
        elif is_known(inside):
            found.append(inside)
    return found
