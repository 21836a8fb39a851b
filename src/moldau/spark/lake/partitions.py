"""Partition values in directory names, as in Hive, and the division of a batch of rows by them.

day=2026-01-31/country=C%3Dx/…      null and the empty text: __HIVE_DEFAULT_PARTITION__, as Spark does it

Iceberg tells the two apart: there, only null has this name.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

import pyarrow as pa
import pyarrow.compute as pc

from moldau.spark.lake.tables import LakeError

Partition = tuple[tuple[str, str | None], ...]

NULL = "__HIVE_DEFAULT_PARTITION__"
# Only these: Spark decodes each %xx to one character, so non-ASCII letters must not be escaped.
_ESCAPED = re.compile(r"[\x00-\x1f\"#%'*/:=?\\\x7f{\[\]^]")


def directory_of(partition: Partition) -> str:
    return "/".join(f"{_escape(name)}={NULL if value is None else _escape(value)}" for name, value in partition)


def _escape(text: str) -> str:
    return _ESCAPED.sub(lambda found: f"%{ord(found[0]):02X}", text)


def text_of(value: object, keeps_empty: bool = False) -> str | None:
    """Return a partition value as Hive, Delta and Spark write it: an empty text is null, unless `keeps_empty`."""
    if value is None or (value == "" and not keeps_empty):
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime.date):
        return value.isoformat()
    return str(value)


def cut(
    batch: pa.RecordBatch, columns: Sequence[str], keeps_empty: bool = False
) -> Iterator[tuple[Partition, pa.RecordBatch]]:
    """Yield the rows of each partition: one sort per batch, then slices."""
    if batch.num_rows == 0:
        return
    if columns:
        batch = batch.take(pc.sort_indices(batch, sort_keys=[(name, "ascending") for name in columns]))
    starts = [0, *_changes(batch, columns), batch.num_rows]
    for start, end in pairwise(starts):
        values = tuple((name, text_of(_value(batch, name, start), keeps_empty)) for name in columns)
        yield values, batch.slice(start, end - start)


def _value(batch: pa.RecordBatch, name: str, row: int) -> object:
    try:
        return batch.column(name)[row].as_py()
    except OverflowError:
        raise LakeError(
            f"column {name} has a date outside of the years 1 to 9999, by which no table is partitioned"
        ) from None


def _changes(batch: pa.RecordBatch, columns: Sequence[str]) -> list[int]:
    """Return the rows whose partition differs from that of the row before."""
    rows = batch.num_rows
    differs = pa.repeat(pa.scalar(False), rows - 1)
    for name in columns:
        before, after = batch.column(name).slice(0, rows - 1), batch.column(name).slice(1)
        other_value = pc.fill_null(pc.not_equal(before, after), False)
        differs = pc.or_(differs, pc.or_(other_value, pc.xor(pc.is_null(before), pc.is_null(after))))
    return [int(row) + 1 for row in pc.indices_nonzero(differs).to_pylist()]
