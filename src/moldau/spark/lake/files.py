"""Writes a task's rows to staged Parquet files: one file per partition value, as far as memory and open files allow.

Rows are buffered up to BUFFER_BYTES_MAX, then written to the files of their partitions. At most OPEN_FILES_MAX files
stay open; the least recently written one is closed first. So a task with a million partition values writes many small
files, but never runs out of memory or file descriptors.
"""

from __future__ import annotations

import os
import uuid
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq

from moldau.base.errors import StorageFault
from moldau.spark.lake import disk
from moldau.spark.lake.ownership import Ownership
from moldau.spark.lake.partitions import Partition, cut, directory_of
from moldau.spark.lake.schemas import aligned
from moldau.spark.lake.staging import staged_name
from moldau.spark.lake.tables import BatchTag, DataFile, Target

BUFFER_BYTES_MAX = 64 << 20
FILE_BYTES_MAX = 512 << 20
OPEN_FILES_MAX = 16


@contextmanager
def storage_faults(table: str) -> Iterator[None]:
    """Turn OSError (disk full, read-only, missing) into StorageFault, one line that names the table."""
    try:
        yield
    except OSError as error:
        raise StorageFault(table, error) from error


def write_files(target: Target, tag: BatchTag, task: int, batches: Iterable[pa.RecordBatch]) -> list[DataFile]:
    """Write all rows. On failure remove the files of this attempt, so that a full disk has space again."""
    writer = _TaskWriter(target, tag, task)
    with storage_faults(target.path), Ownership(target.path, tag).task_fencing_errors():
        try:
            for batch in batches:
                writer.add(batch)
            return writer.finish()
        except BaseException:
            writer.drop()
            raise


class _OpenFile:
    """A Parquet file that is being written."""

    def __init__(self, place: str, schema: pa.Schema, file: DataFile) -> None:
        self._place, self._file = place, file
        self._rows = 0
        self._sink = pa.OSFile(place, "wb")
        self._writer = pq.ParquetWriter(self._sink, schema, compression="zstd", compression_level=1)

    @property
    def size(self) -> int:
        return int(self._sink.tell())

    def write(self, rows: pa.Table) -> None:
        self._writer.write_table(rows)
        self._rows += rows.num_rows

    def close(self) -> DataFile:
        self._writer.close()
        self._sink.close()
        disk.flush_file(self._place)
        return replace(self._file, rows=self._rows, size=os.path.getsize(self._place))

    def give_up(self) -> None:
        # Otherwise the writer would try to finish the file when it is garbage-collected, on a disk that has just
        # failed.
        self._writer.is_open = False
        self._sink.close()


class _TaskWriter:
    def __init__(self, target: Target, tag: BatchTag, task: int) -> None:
        self._target, self._tag, self._task = target, tag, task
        hidden = () if target.keeps_partition_columns else target.partition_by
        self._stored = [name for name in target.schema.names if name not in hidden]
        self._file_schema = pa.schema([target.schema.field(name) for name in self._stored])
        self._waiting: dict[Partition, list[pa.RecordBatch]] = {}
        self._waiting_bytes = 0
        self._open: OrderedDict[Partition, _OpenFile] = OrderedDict()
        self._done: list[DataFile] = []
        self._created: list[str] = []

    def add(self, batch: pa.RecordBatch) -> None:
        target = self._target
        for partition, rows in cut(aligned(batch, target.schema), target.partition_by, target.keeps_partition_columns):
            stored = rows.select(self._stored)
            self._waiting.setdefault(partition, []).append(stored)
            self._waiting_bytes += stored.nbytes
        if self._waiting_bytes >= BUFFER_BYTES_MAX:
            self._flush()

    def finish(self) -> list[DataFile]:
        self._flush()
        while self._open:
            self._close(next(iter(self._open)))
        return self._done

    def drop(self) -> None:
        for file in self._open.values():
            file.give_up()
        for place in self._created:
            disk.remove(place)

    def _flush(self) -> None:
        while self._waiting:
            partition, batches = self._waiting.popitem()
            file = self._file_of(partition)
            file.write(pa.Table.from_batches(batches, self._file_schema))
            if file.size >= FILE_BYTES_MAX:
                self._close(partition)
        self._waiting_bytes = 0

    def _file_of(self, partition: Partition) -> _OpenFile:
        file = self._open.get(partition)
        if file is None:
            if len(self._open) >= OPEN_FILES_MAX:
                self._close(next(iter(self._open)))
            file = self._open[partition] = self._new_file(partition)
        self._open.move_to_end(partition)
        return file

    def _close(self, partition: Partition) -> None:
        # Keep it in `_open` while it closes: if the disk is full, `drop` must find it.
        self._done.append(self._open[partition].close())
        del self._open[partition]

    def _new_file(self, partition: Partition) -> _OpenFile:
        query, batch = self._tag.query_id[:8], self._tag.batch_id
        base = f"{query}-{batch:06d}-{self._task:05d}-{uuid.uuid4().hex[:16]}.parquet"
        name = os.path.join(self._target.data_folder, directory_of(partition), base)
        staged = staged_name(self._tag, name)
        place = os.path.join(self._target.path, staged)
        disk.ensure_directory(os.path.dirname(place))
        self._created.append(place)
        return _OpenFile(place, self._file_schema, DataFile(staged, name, partition, rows=0, size=0))
