"""The rows of a batch as Arrow files, which its tasks write and the driver reads: neither has all rows in memory.

Driver and executors share the directory, as they share that of checkpoints. A file has a name of its own, so the files
of attempts that failed do not matter; the driver reads those that the tasks' results name.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.udf import UserDefinedFunction
from pyspark.util import PythonEvalType

from moldau.databases.rows import FileRows

_RESULT: Final = "partition long, file string"
Write = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


@contextmanager
def arrow_files(frame: DataFrame, directory: Path) -> Iterator[FileRows | None]:
    """Compute the frame, and yield its rows, in the order of its partitions; None if it has none. What is in the
    directory, from a process that was killed, is removed, and in the end the directory."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    try:
        results = _map_in_arrow(frame, _writer(str(directory)), _RESULT).collect()
        files = tuple(file for _, file in sorted(results))
        yield FileRows(_schema_of(files[0]), files) if files else None
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def quoted_name(column: str) -> str:
    """Return the name of a column as an expression: a dot in it is not one of a path."""
    return f"`{column.replace('`', '``')}`"


def _writer(directory: str) -> Write:
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


def _map_in_arrow(frame: DataFrame, function: Write, schema: str) -> DataFrame:
    """DataFrame.mapInArrow without pandas, which it requires and does not use."""
    make_function: Any = UserDefinedFunction
    udf = make_function(function, returnType=schema, evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
    column = udf(*(F.col(quoted_name(name)) for name in frame.columns))
    java: Any = frame._jdf
    return DataFrame(java.mapInArrow(column._jc, False, None), frame.sparkSession)


def _schema_of(file: str) -> pa.Schema:
    with pa.ipc.open_file(file) as reader:
        schema: pa.Schema = reader.schema
        return schema
