"""A directory of Parquet files as a table: any reader of the directory sees each record once.

    <table>/day=2026-01-31/<query>-<batch>-<task>-<random>.parquet     data, for pyarrow, pandas, DuckDB, Spark, …
    <table>/_moldau/table.json                                         {"schema": …, "partitionBy": ["day"]}
    <table>/_moldau/<query id>/<number>.json                           the journal: the commit itself
    <table>/_staging/<query id>/                                       files of the batch that is being written

A batch is committed when its journal entry is written. If the driver dies while files are moved, some of them are
visible; Spark then replays the batch, and the commit of the replay completes the moves of the first attempt and removes
its own files. So visible rows never disappear, and a replay may divide its rows into files differently. Completing an
entry is harmless, whoever does it and however late: a file is moved once, and no name is used again.

A directory has no schema that can grow: readers use the columns of the first file that they meet. So a new column is
rejected here; Delta and Iceberg accept it.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.dataset as ds

from moldau.base.errors import MalformedData
from moldau.spark.lake import disk
from moldau.spark.lake.journal import JOURNALS
from moldau.spark.lake.ownership import Ownership
from moldau.spark.lake.partitions import NULL
from moldau.spark.lake.schemas import aligned, check_partitioning, checked_partitions, lake_schema, new_columns
from moldau.spark.lake.tables import BatchTag, DataFile, LakeError, Split, Target, no_table, split_files


class ParquetTable:
    def __init__(self, path: str) -> None:
        self.path = path
        self._description = os.path.join(path, JOURNALS, "table.json")

    def prepare(self, schema: pa.Schema, partition_by: Sequence[str]) -> Target:
        query_schema = lake_schema(schema, self.path)
        if self._described() is None:
            self._create(query_schema, checked_partitions(self.path, query_schema, partition_by))
        described = self._described()
        assert described is not None, "a description is never removed"
        schema, partitions = described
        if added := new_columns(self.path, schema, query_schema):
            names = ", ".join(field.name for field in added)
            raise LakeError(
                f"{self.path}: the table has no column {names}, and a directory of Parquet files cannot get one; "
                "write to another table, or use delta or iceberg"
            )
        return Target(self.path, schema, check_partitioning(self.path, partitions, partition_by))

    def commit(self, files: Sequence[DataFile], tag: BatchTag, overwrite: bool) -> bool:
        ownership = Ownership(self.path, tag)
        while True:
            state = ownership.look()
            last = None if state is None else state.entry
            if last is not None:
                ownership.staging.roll_forward(last)
            is_new = last is None or last.batch_id < tag.batch_id
            if not is_new or not (files or overwrite):
                break
            if state is None or not ownership.is_owner(state):
                state = ownership.claim(state, files)
                if state is None:
                    continue  # another driver was faster: perhaps it has written this batch
            removes = tuple(self._data_files()) if overwrite else ()
            with ownership.fencing_errors():
                ownership.staging.roll_forward(ownership.begin(state, files, removes))
            break
        ownership.end(state)
        return is_new

    def schema(self) -> pa.Schema:
        if (described := self._described()) is not None:
            return described[0]
        if next(self._data_files(), None) is None:
            raise no_table(self.path, "Parquet")
        return lake_schema(ds.dataset(self.path, format="parquet", partitioning="hive").schema, self.path)

    def splits(self, parts_max: int) -> list[Split]:
        files = sorted(self._data_files())
        return split_files(files, sum(os.path.getsize(os.path.join(self.path, name)) for name in files), parts_max)

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        schema = self.schema()
        found = ds.dataset(
            [os.path.join(self.path, name) for name in split.files],
            schema=schema,
            format="parquet",
            partitioning=ds.HivePartitioning(schema, null_fallback=NULL),
            partition_base_dir=self.path,
        )
        return (aligned(batch, schema) for batch in found.to_batches())

    def _described(self) -> tuple[pa.Schema, tuple[str, ...]] | None:
        content = disk.content_of(self._description)
        if content is None:
            return None
        try:
            description = json.loads(content)
            schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(description["schema"])))
            return schema, tuple(description["partitionBy"])
        except (ValueError, KeyError, TypeError, OSError) as error:
            raise MalformedData(f"{self._description} does not describe a table: {error}") from error

    def _create(self, schema: pa.Schema, partition_by: Sequence[str]) -> None:
        for name in partition_by:
            if name.startswith(("_", ".")):
                raise LakeError(f"{self.path}: readers skip directories that begin with {name[0]}, so rename {name}")
        if next(self._data_files(), None) is not None and self._described() is None:
            raise LakeError(f"{self.path} holds Parquet files of another writer; write to a directory of its own")
        description = {
            "columns": {field.name: str(field.type) for field in schema},  # for people
            "schema": base64.b64encode(schema.serialize().to_pybytes()).decode(),
            "partitionBy": list(partition_by),
        }
        disk.ensure_directory(os.path.dirname(self._description))
        disk.flush_directory(self.path)
        with contextlib.suppress(PermissionError):  # the parent may be writable but not readable
            disk.flush_directory(os.path.dirname(self.path))
        disk.create_content(self._description, json.dumps(description, indent=1).encode())

    def _data_files(self) -> Iterator[str]:
        """Return the files that a reader of the directory sees, relative to the directory."""
        for folder, folders, names in os.walk(self.path, onerror=_raise_unless_missing):
            folders[:] = [name for name in folders if not name.startswith(("_", "."))]
            for name in names:
                if name.endswith(".parquet") and not name.startswith(("_", ".")):
                    yield os.path.relpath(os.path.join(folder, name), self.path)


def _raise_unless_missing(error: OSError) -> None:
    """Raise the error of a directory that cannot be listed: without its files, rows would be missing, or stay after an
    overwrite."""
    if not isinstance(error, FileNotFoundError):
        raise error


TABLE = ParquetTable
