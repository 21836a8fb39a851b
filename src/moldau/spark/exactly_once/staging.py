"""What a task passes to the driver: record batches without producer id, in its message if small, else in a file.

    <staging location>/<sink id>/<random>.staged        batches one after the other, as the index in the message says

Nothing is synced: if a machine dies before the commit, Spark runs the batch again. Files are read while the driver
writes its transaction; a missing, short or damaged one aborts it.
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from io import BufferedWriter
from typing import Final
from urllib.parse import quote

from moldau.base.ids import TopicPartition
from moldau.spark.sending import RecordBatch
from moldau.wire.batch import has_valid_crc

SUFFIX: Final = ".staged"


class StagingFault(Exception):
    """Staged records cannot be written, or differ from what the task wrote."""


@dataclass(frozen=True, slots=True)
class Staged:
    """The batches of one task, sent from the task to the driver."""

    rows: int
    index: tuple[tuple[TopicPartition, int], ...]
    """(partition, size in bytes) of each batch."""
    inline: bytes
    file: str | None = None
    """The file with the batches, if they are not inline."""

    @property
    def size(self) -> int:
        return sum(size for _, size in self.index)


@dataclass(slots=True)
class Stage:
    """Collects a task's batches: in memory up to a limit, then in a file."""

    directory: str
    inline_bytes_max: int
    rows: int = 0
    _index: list[tuple[TopicPartition, int]] = field(default_factory=list)
    _memory: bytearray = field(default_factory=bytearray)
    _file: BufferedWriter | None = None

    def add(self, batches: Iterable[RecordBatch], rows: int) -> None:
        self.rows += rows
        for batch in batches:
            self._index.append((batch.partition, len(batch.data)))
            if self._file is None and len(self._memory) + len(batch.data) > self.inline_bytes_max:
                self._spill()
            if self._file is None:
                self._memory += batch.data
            else:
                with _faults(self._file.name):
                    self._file.write(batch.data)

    def done(self) -> Staged:
        if self._file is None:
            return Staged(self.rows, tuple(self._index), bytes(self._memory))
        with _faults(self._file.name):
            self._file.close()
        return Staged(self.rows, tuple(self._index), b"", self._file.name)

    def abandon(self) -> None:
        if self._file is not None:
            self._file.close()
            with suppress(FileNotFoundError):
                os.unlink(self._file.name)

    def _spill(self) -> None:
        path = os.path.join(self.directory, f"{uuid.uuid4().hex}{SUFFIX}")
        with _faults(path):
            os.makedirs(self.directory, exist_ok=True)
            self._file = open(path, "xb")  # noqa: SIM115 -- closed by done or abandon
            self._file.write(self._memory)
        self._memory = bytearray()


def read_record_batches(staged: Staged) -> Iterator[RecordBatch]:
    """Yield the record batches in order. Raises StagingFault if one is missing or its CRC is wrong."""
    if staged.file is None:
        yield from _inline(staged)
        return
    with _faults(staged.file), open(staged.file, "rb") as file:
        for partition, size in staged.index:
            data = bytearray(size)
            if file.readinto(data) != size:
                raise StagingFault(f"{staged.file} is shorter than what the task wrote")
            yield _checked(RecordBatch(partition, data), staged.file)


def _inline(staged: Staged) -> Iterator[RecordBatch]:
    position = 0
    for partition, size in staged.index:
        yield _checked(RecordBatch(partition, bytearray(staged.inline[position : position + size])), "a task's message")
        position += size


def _checked(batch: RecordBatch, origin: str) -> RecordBatch:
    if not has_valid_crc(memoryview(batch.data)):
        raise StagingFault(f"{origin}: a staged batch for {batch.partition} is damaged")
    return batch


def directory_of(staging: str, sink_id: str) -> str:
    """Return the directory of a sink. Its id, which users choose, is one segment of the path: `sweep` must never leave
    the staging directory."""
    return os.path.join(staging, quote(sink_id, safe=""))


def sweep(directory: str) -> None:
    """Remove all that tasks staged for a sink, also tasks that died. A query runs one micro-batch at a time."""
    shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def _faults(path: str) -> Iterator[None]:
    """Turn an OSError in the block into a StagingFault that names the file and says what it is for."""
    try:
        yield
    except FileNotFoundError as error:
        raise StagingFault(
            f"{path} does not exist on this machine: driver and executors must share stagingLocation"
        ) from error
    except OSError as error:
        raise StagingFault(f"{path}: records cannot be staged: {error.strerror or error}") from error
