"""The rows of a batch as Arrow files, which its tasks write and the driver reads: neither has all rows in memory.

Driver and executors share the directory, as they share that of checkpoints. A file has a name of its own, so the files
of attempts that failed do not matter; the driver reads those that the tasks' results name.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame

from moldau.spark.mapped_batches import MapBatches, map_batches

_RESULT: Final = "partition long, file string"


class ArrowFiles(NamedTuple):
    schema: pa.Schema
    files: tuple[str, ...]


@contextmanager
def arrow_files(frame: DataFrame, directory: Path) -> Iterator[ArrowFiles | None]:
    """Compute the frame, and yield its rows, in the order of its partitions; None if it has none. What is in the
    directory, from a process that was killed, is removed, and in the end the directory."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    try:
        results = map_batches(frame, _writer(str(directory)), _RESULT).collect()
        files = tuple(file for _, file in sorted(results))
        yield ArrowFiles(_schema_of(files[0]), files) if files else None
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _writer(directory: str) -> MapBatches:
    """Return the function of a task: it writes its rows to a file and returns the name of it."""

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        file, writer = f"{directory}/{uuid.uuid4().hex}.arrow", None
        for batch in batches:
            if not batch.num_rows:
                continue
            if writer is None:
                writer = pa.ipc.new_file(file, batch.schema, options=pa.ipc.IpcWriteOptions(compression="lz4"))
            writer.write_batch(batch)
        if writer is not None:
            writer.close()
            context: Any = TaskContext.get()
            yield pa.RecordBatch.from_pydict({"partition": [context.partitionId()], "file": [file]})

    return write


def _schema_of(file: str) -> pa.Schema:
    with pa.ipc.open_file(file) as reader:
        schema: pa.Schema = reader.schema
        return schema
