"""The whole of a write for one that has its rows in hand: prepare the table, write the files, commit them once."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

import pyarrow as pa

from moldau.spark.lake.files import storage_faults, write_files
from moldau.spark.lake.journal import Journal
from moldau.spark.lake.merging import Mergeable, merge_of
from moldau.spark.lake.tables import BatchTag, DataFile, LakeError, Target, local_path, open_table


def prepare(path: str, kind: str, schema: pa.Schema, partition_by: Sequence[str]) -> Target:
    with storage_faults(path):
        return open_table(path, kind).prepare(schema, partition_by)


def commit(path: str, kind: str, files: Sequence[DataFile], tag: BatchTag, overwrite: bool = False) -> bool:
    with storage_faults(path):
        return open_table(path, kind).commit(files, tag, overwrite)


def abort(path: str, files: Sequence[DataFile], tag: BatchTag) -> None:
    """Drop what the tasks of a failed batch have written, but nothing that a commit has already promised."""
    with storage_faults(path):
        journal = Journal(local_path(path), tag.query_id)
        journal.discard(files)
        if tag.once and journal.entry() is None:
            journal.sweep()  # also what killed tasks left: no later batch of this query will


def once() -> BatchTag:
    """The tag of a write that will not be replayed."""
    return BatchTag(f"once-{uuid.uuid4()}", 0, once=True)


def append(path: str, kind: str, rows: pa.Table, tag: BatchTag | None = None, partition_by: Sequence[str] = ()) -> bool:
    """Add the rows as one batch; False if the table holds that batch already."""
    return _write(path, kind, rows, tag or once(), partition_by, overwrite=False)


def overwrite(
    path: str, kind: str, rows: pa.Table, tag: BatchTag | None = None, partition_by: Sequence[str] = ()
) -> bool:
    """Make the rows the whole content of the table, as the complete output mode does; False if that was done already.

    Readers of a Delta or Iceberg table see the old rows or the new ones; those of a Parquet directory may come in
    between, when the old files are gone and the new ones are not all there.
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
    """Merge the rows into a Delta table by their keys, in one transaction; False if the table holds that batch already.

    Of the rows of one key only the last one counts: the one with the highest `order_by`, or without it the one that
    stands last in `rows`. With `order_by` a row that is older than the one in the table changes nothing; a key that was
    deleted has left nothing to compare with.

    `delete_when` names a boolean column of `rows`: where it is true the key is deleted. That column is not stored. It
    is a column and not a predicate because a pipeline's predicates are Spark's SQL, and Spark shall evaluate them.
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
        abort(path, files, tag)
        raise
