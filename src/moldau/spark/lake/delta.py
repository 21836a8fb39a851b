"""A Delta table without a JVM: the deltalake package reads and writes the log, tasks write the files.

A micro-batch is one transaction with the action `txn {appId: query id, version: batch id}`, by which Delta prevents
writing a batch twice: of two transactions with one appId that start from the same version, one fails. A second one,
`txn {appId: <query id>.epoch, …}`, says which driver wrote it. The log keeps the last version of each appId through
checkpoints and clean-ups.

    DeltaTable("lake/events").to_pyarrow_table()            deltalake
    SELECT * FROM delta_scan('lake/events')                 DuckDB
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import CommitProperties, DeltaTable, Schema
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction, Transaction

from moldau.spark.lake import transactions
from moldau.spark.lake.delta_stats import stats_of
from moldau.spark.lake.merging import Merge, quoted
from moldau.spark.lake.schemas import aligned, check_partitioning, checked_partitions, lake_schema, new_columns
from moldau.spark.lake.tables import BatchTag, DataFile, Split, Target, no_table, split_files
from moldau.spark.lake.transactions import Conflict, LastBatch

EPOCH_SUFFIX = ".epoch"


class DeltaLakeTable:
    def __init__(self, path: str) -> None:
        self.path = path

    def prepare(self, schema: pa.Schema, partition_by: Sequence[str]) -> Target:
        query_schema = lake_schema(schema, self.path)
        if not DeltaTable.is_deltatable(self.path):
            self._create(query_schema, checked_partitions(self.path, query_schema, partition_by))
        transactions.retry_conflicts(self.path, lambda: self._add_columns(query_schema))
        table = self._open()
        existing_partitions = table.metadata().partition_columns
        return Target(
            self.path, self._schema_of(table), check_partitioning(self.path, existing_partitions, partition_by)
        )

    def commit(self, files: Sequence[DataFile], tag: BatchTag, overwrite: bool) -> bool:
        if not files and not overwrite:
            return transactions.is_new(self, tag)
        return transactions.commit(self, files, tag, lambda epoch: self.transact(files, tag, epoch, overwrite))

    def last_batch(self, query_id: str) -> LastBatch | None:
        return _last_batch(self._open(), query_id)

    def transact(self, files: Sequence[DataFile], tag: BatchTag, epoch: int, overwrite: bool) -> LastBatch | None:
        table = self._open()
        last = _checked_last_batch(table, tag)
        mode = "overwrite" if overwrite else "append"
        adds = [self._add(file) for file in files]
        try:
            table.create_write_transaction(
                list(adds),
                mode,
                table.schema(),
                partition_by=table.metadata().partition_columns,
                commit_properties=_tagged(tag, epoch),
            )
        except CommitFailedError as error:
            raise Conflict(str(error)) from error
        return last

    def merge(self, merge: Merge, tag: BatchTag) -> bool:
        """Update, insert and delete by keys in one tagged transaction."""
        return transactions.commit(self, (), tag, lambda epoch: self._merge_once(merge, tag, epoch))

    def schema(self) -> pa.Schema:
        return self._schema_of(self._open())

    def splits(self, parts_max: int) -> list[Split]:
        table = self._open()
        names = sorted(fragment.path for fragment in table.to_pyarrow_dataset().get_fragments())
        size = sum(pa.table(table.get_add_actions()).column("size_bytes").to_pylist())
        return split_files(names, size, parts_max, table.version())

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        table = DeltaTable(self.path, version=split.version)
        whole = table.to_pyarrow_dataset()
        paths = set(split.files)
        fragments = [fragment for fragment in whole.get_fragments() if fragment.path in paths]
        part = ds.FileSystemDataset(fragments, whole.schema, whole.format, whole.filesystem)
        schema = self._schema_of(table)
        return (aligned(batch, schema) for batch in part.to_batches())

    def _open(self) -> DeltaTable:
        if not DeltaTable.is_deltatable(self.path):
            raise no_table(self.path, "Delta")
        return DeltaTable(self.path)

    def _create(self, schema: pa.Schema, partition_by: Sequence[str]) -> None:
        os.makedirs(self.path, exist_ok=True)
        try:
            DeltaTable.create(self.path, Schema.from_arrow(schema), mode="ignore", partition_by=list(partition_by))
        except DeltaError:
            if not DeltaTable.is_deltatable(self.path):  # otherwise another query has created it
                raise

    def _add_columns(self, query_schema: pa.Schema) -> None:
        table = self._open()
        if added := new_columns(self.path, self._schema_of(table), query_schema):
            try:
                table.alter.add_columns(list(Schema.from_arrow(pa.schema(added)).fields))
            except CommitFailedError as error:
                raise Conflict(str(error)) from error

    def _add(self, file: DataFile) -> AddAction:
        place = os.path.join(self.path, file.name)
        changed_ms = os.stat(place).st_mtime_ns // 1_000_000
        return AddAction(file.name, file.size, dict(file.partition), changed_ms, True, stats_of(place))

    def _schema_of(self, table: DeltaTable) -> pa.Schema:
        return lake_schema(pa.schema(table.schema().to_arrow()), self.path)

    def _merge_once(self, merge: Merge, tag: BatchTag, epoch: int) -> LastBatch | None:
        table = self._open()
        last = _checked_last_batch(table, tag)
        merger = table.merge(
            merge.rows,
            predicate=merge.join_condition("target", "source"),
            source_alias="source",
            target_alias="target",
            commit_properties=_tagged(tag, epoch),
        )
        values = {quoted(name): f"source.{quoted(name)}" for name in merge.columns}
        newer = merge.newer_condition("target", "source")
        if merge.delete_column is not None:
            mark = f"source.{quoted(merge.delete_column)}"
            condition = f" AND {newer}" if newer else ""
            merger = merger.when_matched_delete(predicate=f"{mark}{condition}")
            merger = merger.when_matched_update(values, predicate=f"NOT {mark}{condition}")
            merger = merger.when_not_matched_insert(values, predicate=f"NOT {mark}")
        else:
            merger = merger.when_matched_update(values, predicate=newer).when_not_matched_insert(values)
        try:
            merger.execute()
        except CommitFailedError as error:
            raise Conflict(str(error)) from error
        return last


def _last_batch(table: DeltaTable, query_id: str) -> LastBatch | None:
    batch_id = table.transaction_version(query_id)
    return None if batch_id is None else LastBatch(batch_id, table.transaction_version(query_id + EPOCH_SUFFIX) or 0)


def _checked_last_batch(table: DeltaTable, tag: BatchTag) -> LastBatch | None:
    """Return the query's last batch in the version from which a transaction starts; raise Repeated if it is new no
    more."""
    last = None if tag.once else _last_batch(table, tag.query_id)
    transactions.check_new(last, tag)
    return last


def _tagged(tag: BatchTag, epoch: int) -> CommitProperties:
    versions = {} if tag.once else {tag.query_id: tag.batch_id, tag.query_id + EPOCH_SUFFIX: epoch}
    return CommitProperties(app_transactions=[Transaction(*version) for version in versions.items()])


TABLE = DeltaLakeTable
