"""An Iceberg table in a directory of its own, catalog included, without a JVM: pyiceberg writes the metadata.

    <table>/metadata/catalog.db                       a SQLite catalog named "moldau" with one table, lake.table
    <table>/metadata/<n>-<uuid>.metadata.json, *.avro snapshots
    <table>/metadata/version-hint.text                names the newest metadata, for readers without the catalog
    <table>/data/day=…/….parquet                      files with Iceberg's field ids

The batch id of each query is in the table property `moldau.batch.<query id>`, and its driver's epoch in
`moldau.epoch.<query id>`, set in the transaction that adds the batch's files: unlike a snapshot's summary, they stay
when snapshots expire. The summary has the batch too, for humans. The transaction requires that the two are still what
it has read; the catalog checks that against the metadata that it then replaces, by compare-and-swap.
Iceberg stores whole paths, so the directory cannot be moved.

    SqlCatalog("moldau", uri="sqlite:////data/lake/events/metadata/catalog.db").load_table("lake.table")    pyiceberg
    StaticTable.from_metadata("/data/lake/events")                            pyiceberg, to read only
    SELECT * FROM iceberg_scan('/data/lake/events')                           DuckDB, by the hint
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Literal

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchTableError,
    TableAlreadyExistsError,
    ValidationException,
)
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan, parquet_file_to_data_file
from pyiceberg.manifest import DataFile as IcebergDataFile
from pyiceberg.table import Table, TableProperties, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import ValidatableTableRequirement
from pyiceberg.types import DateType, TimestampType, TimestamptzType
from sqlalchemy.exc import IntegrityError, OperationalError

from moldau.spark.lake import disk, transactions
from moldau.spark.lake.schemas import aligned, check_partitioning, checked_partitions, lake_schema, new_columns
from moldau.spark.lake.tables import BatchTag, DataFile, LakeError, Split, Target, no_table, split_files
from moldau.spark.lake.transactions import Conflict, LastBatch

CATALOG = "moldau"
NAMESPACE = "lake"
NAME = f"{NAMESPACE}.table"
BATCH_PROPERTY = "moldau.batch."
EPOCH_PROPERTY = "moldau.epoch."
LOCK_TIMEOUT_SECONDS = 30
_METADATA_SUFFIX = ".metadata.json"
_TIMES = (DateType, TimestampType, TimestamptzType)
_PROPERTIES = {
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
    "commit.manifest-merge.enabled": "true",
}


class IcebergTable:
    def __init__(self, path: str) -> None:
        self.path = path
        self._metadata = os.path.join(path, "metadata")

    def prepare(self, schema: pa.Schema, partition_by: Sequence[str]) -> Target:
        query_schema = lake_schema(schema, self.path, widen_small_ints=True)
        transactions.retry_conflicts(self.path, lambda: self._create_or_extend(query_schema, partition_by))
        with self._table() as table:
            partitions = check_partitioning(self.path, _partitions_of(table), partition_by)
            return Target(self.path, self._schema_of(table), partitions, "data", keeps_partition_columns=True)

    def commit(self, files: Sequence[DataFile], tag: BatchTag, overwrite: bool) -> bool:
        if not files and not overwrite:
            return transactions.is_new(self, tag)
        return transactions.commit(self, files, tag, lambda epoch: self.transact(files, tag, epoch, overwrite))

    def last_batch(self, query_id: str) -> LastBatch | None:
        with self._table() as table:
            return _last_batch(table.properties, query_id)

    def transact(self, files: Sequence[DataFile], tag: BatchTag, epoch: int, overwrite: bool) -> LastBatch | None:
        with self._table() as table:
            last = None if tag.once else _last_batch(table.properties, tag.query_id)
            transactions.check_new(last, tag)
            with table.transaction() as transaction:
                if not tag.once:
                    required = _RequiredLastBatch(query_id=tag.query_id, last=last)
                    transaction._apply((), (required,))  # type: ignore[arg-type]  # it names only its own
                    transaction.set_properties(
                        {BATCH_PROPERTY + tag.query_id: str(tag.batch_id), EPOCH_PROPERTY + tag.query_id: str(epoch)}
                    )
                self._add(table, transaction, files, tag, overwrite)
            self._write_hint(table)
        return last

    def schema(self) -> pa.Schema:
        with self._table() as table:
            return self._schema_of(table)

    def splits(self, parts_max: int) -> list[Split]:
        with self._table() as table:
            snapshot = table.current_snapshot()
            files = {task.file.file_path: task.file.file_size_in_bytes for task in table.scan().plan_files()}
        version = None if snapshot is None else snapshot.snapshot_id
        return split_files(sorted(files), sum(files.values()), parts_max, version)

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        with self._table() as table:
            scan = table.scan(snapshot_id=split.version)
            paths = set(split.files)
            tasks = [task for task in scan.plan_files() if task.file.file_path in paths]
            schema = self._schema_of(table)
            rows = ArrowScan(table.metadata, table.io, table.schema(), AlwaysTrue())
        for batch in rows.to_record_batches(tasks):
            yield aligned(batch, schema)

    @contextmanager
    def _catalog(self, create: bool = False) -> Iterator[SqlCatalog]:
        file = os.path.join(self._metadata, "catalog.db")
        if create:
            disk.ensure_directory(self._metadata)
        elif not os.path.isfile(file):
            raise no_table(self.path, "Iceberg")
        with _translated_errors():
            # Its tables are created separately: if another process creates them meanwhile, the catalog must be closed.
            uri = f"sqlite:///{file}?timeout={LOCK_TIMEOUT_SECONDS}"
            catalog = SqlCatalog(CATALOG, uri=uri, warehouse=self.path, init_catalog_tables="false")
            try:
                catalog.create_tables()
                yield catalog
            finally:
                catalog.close()

    @contextmanager
    def _table(self) -> Iterator[Table]:
        with self._catalog() as catalog:
            try:
                table = catalog.load_table(NAME)
            except NoSuchTableError:
                raise no_table(self.path, "Iceberg") from None
            yield table

    def _create_or_extend(self, query_schema: pa.Schema, partition_by: Sequence[str]) -> None:
        """Create the table, or add new columns."""
        partitions = checked_partitions(self.path, query_schema, partition_by)
        with self._catalog(create=True) as catalog:
            if not catalog.table_exists(NAME):
                self._create(catalog, query_schema, partitions)
            table = catalog.load_table(NAME)
            if added := new_columns(self.path, self._schema_of(table), query_schema):
                with table.update_schema() as update:
                    update.union_by_name(pa.schema(added))
            self._write_hint(table)

    def _create(self, catalog: SqlCatalog, schema: pa.Schema, partition_by: Sequence[str]) -> None:
        """Create the table with its partitioning in one transaction: a crash must not leave an unpartitioned table."""
        catalog.create_namespace_if_not_exists(NAMESPACE)
        creation = catalog.create_table_transaction(NAME, schema, location=self.path, properties=_PROPERTIES)
        with creation as transaction:
            if partition_by:
                with transaction.update_spec() as spec:
                    for name in partition_by:
                        spec.add_identity(name)

    def _add(
        self, table: Table, transaction: Transaction, files: Sequence[DataFile], tag: BatchTag, overwrite: bool
    ) -> None:
        summary = {} if tag.once else {"moldau.query-id": tag.query_id, "moldau.batch-id": str(tag.batch_id)}
        change = transaction.update_snapshot(snapshot_properties=summary)
        with change.overwrite() if overwrite else change.merge_append() as snapshot:
            if overwrite:
                for task in table.scan().plan_files():
                    snapshot.delete_data_file(task.file)
            for file in files:
                place = os.path.join(self.path, file.name)
                snapshot.append_data_file(_data_file(table, transaction.table_metadata, place))

    def _write_hint(self, table: Table) -> None:
        """Write the newest metadata's name, unless another writer wrote a newer one; the name begins with its number.

        Look again afterwards: another writer may have committed before the hint was replaced, and its hint be lost.
        """
        hint = os.path.join(self._metadata, "version-hint.text")
        while True:
            newest = os.path.basename(table.metadata_location).removesuffix(_METADATA_SUFFIX).encode()
            current = disk.content_of(hint)
            if current is not None and int(current.split(b"-")[0]) >= int(newest.split(b"-")[0]):
                return
            disk.replace_content(hint, newest)
            table.refresh()

    def _schema_of(self, table: Table) -> pa.Schema:
        return lake_schema(table.schema().as_arrow(), self.path)


def _data_file(table: Table, metadata: TableMetadata, place: str) -> IcebergDataFile:
    """Return the file's entry in the metadata, with the bounds of its columns as far as Python can hold them."""
    try:
        return parquet_file_to_data_file(table.io, metadata, place)
    except OverflowError:  # a year before 1 or after 9999, which Python's datetime lacks
        partitioned_by = {field.source_id for field in metadata.spec().fields}
        unbounded = {
            f"{TableProperties.METRICS_MODE_COLUMN_CONF_PREFIX}.{field.name}": "counts"
            for field in metadata.schema().fields
            if isinstance(field.field_type, _TIMES) and field.field_id not in partitioned_by
        }
        properties = {**metadata.properties, **unbounded}
        return parquet_file_to_data_file(table.io, metadata.model_copy(update={"properties": properties}), place)


class _ChangedLastBatch(ValidationException):
    """Another driver of the query has committed. (pyiceberg repeats a transaction after a CommitFailedException, and
    removes its manifests after a ValidationException.)"""


class _RequiredLastBatch(ValidatableTableRequirement):
    """A requirement of a transaction: the query's last batch is the one that the driver has read."""

    type: Literal["moldau-last-batch"] = "moldau-last-batch"
    query_id: str
    last: LastBatch | None

    def validate(self, base_metadata: TableMetadata | None) -> None:  # type: ignore[override]
        found = None if base_metadata is None else _last_batch(base_metadata.properties, self.query_id)
        if found != self.last:
            raise _ChangedLastBatch(f"the last batch of query {self.query_id} was {self.last} and is {found}")


def _last_batch(properties: Mapping[str, str], query_id: str) -> LastBatch | None:
    batch_id = properties.get(BATCH_PROPERTY + query_id)
    return None if batch_id is None else LastBatch(int(batch_id), int(properties.get(EPOCH_PROPERTY + query_id, 0)))


@contextmanager
def _translated_errors() -> Iterator[None]:
    """Raise Conflict for errors caused by another writer, OSError for those of the disk: SQLite has one class for
    both."""
    try:
        yield
    except (
        CommitFailedException,
        _ChangedLastBatch,
        NamespaceAlreadyExistsError,
        TableAlreadyExistsError,
        IntegrityError,
    ) as error:
        raise Conflict(str(error)) from error
    except OperationalError as error:
        message = str(error.orig)
        if "locked" in message or "already exists" in message:
            raise Conflict(message) from error
        raise OSError(errno.EIO, message) from error


def _partitions_of(table: Table) -> list[str]:
    names = []
    for field in table.spec().fields:
        if str(field.transform) != "identity":
            raise LakeError(f"{table.location()} is partitioned by {field.transform}({field.name}), not by a column")
        names.append(table.schema().find_column_name(field.source_id) or field.name)
    return names


TABLE = IcebergTable
