"""The steps of a write on the driver, each with its errors in one line: `prepare`, `commit`, `abort`.

Spark's sink (source.py) calls them around its tasks, which write the files. `append`, `overwrite` and `upsert` do all
steps in this process, with Arrow rows.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence

import pyarrow as pa

from moldau.spark.lake.files import storage_faults, write_files
from moldau.spark.lake.merging import Mergeable, merge_of
from moldau.spark.lake.ownership import Ownership
from moldau.spark.lake.tables import BatchTag, DataFile, LakeError, Target, local_path, open_table


def prepare(path: str, kind: str, schema: pa.Schema, partition_by: Sequence[str]) -> Target:
    with storage_faults(path):
        return open_table(path, kind).prepare(schema, partition_by)


def commit(path: str, kind: str, files: Sequence[DataFile], tag: BatchTag, overwrite: bool = False) -> bool:
    with storage_faults(path):
        return open_table(path, kind).commit(files, tag, overwrite)


def abort(path: str, tag: BatchTag) -> None:
    """Remove the files of a failed batch, except those of a commit that has begun."""
    with storage_faults(path):
        Ownership(local_path(path), tag).abort()


def once() -> BatchTag:
    """Return a tag for a write that is never replayed."""
    return BatchTag(f"once-{uuid.uuid4()}", 0, once=True)


def append(path: str, kind: str, rows: pa.Table, tag: BatchTag | None = None, partition_by: Sequence[str] = ()) -> bool:
    """Add the rows as one batch; return False if the table already has that batch."""
    return _write(path, kind, rows, tag or once(), partition_by, overwrite=False)


def overwrite(
    path: str, kind: str, rows: pa.Table, tag: BatchTag | None = None, partition_by: Sequence[str] = ()
) -> bool:
    """Replace all rows of the table, as the complete output mode does; return False if that was already done.

    Readers of a Delta or Iceberg table see the old rows or the new ones; readers of a Parquet directory may meanwhile
    see only some of the new rows.
    """
    return _write(path, kind, rows, tag or once(), partition_by, overwrite=True)


def upsert(
    path: str,
    kind: str,
    rows: pa.Table,
    keys: Sequence[str],
    delete_when: str | None = None,
    tag: BatchTag | None = None,
    *,
    order_by: str | None = None,
    partition_by: Sequence[str] = (),
) -> bool:
    """Merge the rows into a Delta table by their keys, in one transaction; False if the table already has that batch.

    Of the rows of one key only the last one counts: the one with the highest `order_by`, or without it the one that
    is last in `rows`. With `order_by` a row that is older than the one in the table is ignored; for a deleted key there
    is nothing to compare with.

    `delete_when` names a boolean column of `rows`: where it is true the key is deleted. That column is not stored. It
    is a column and not a predicate, because a pipeline's predicates are Spark SQL and must be evaluated by Spark.
    """
    table = open_table(path, kind)
    if not isinstance(table, Mergeable):
        raise LakeError(f"{path}: an upsert needs a Delta table, not {kind}")
    if not rows.num_rows:
        return True
    with storage_faults(path):
        merge = merge_of(path, rows, keys, delete_when, order_by)
        target = table.prepare(rows.select(list(merge.columns)).schema, partition_by)
        return table.merge(merge.cast_to(target.schema), tag or once())


def _write(path: str, kind: str, rows: pa.Table, tag: BatchTag, partition_by: Sequence[str], overwrite: bool) -> bool:
    target = prepare(path, kind, rows.schema, partition_by)
    files = write_files(target, tag, 0, rows.to_batches())
    try:
        return commit(path, kind, files, tag, overwrite)
    except Exception:
        abort(path, tag)
        raise
