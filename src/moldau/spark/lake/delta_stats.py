"""A file's statistics in Delta's log, by which readers skip files: counts, lowest and highest values.

    {"numRecords": 3, "minValues": {"id": 1, "at": "2026-01-31T12:00:00.000000Z"}, "maxValues": {…}, "nullCount": {…}}

They come from the file's footer, only for types with exact bounds: integers, dates, timestamps. Bounds of strings may
be truncated and floating-point numbers have NaN; a wrong bound would hide rows, a missing one only costs time.
"""

from __future__ import annotations

import datetime
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as kinds


def stats_of(file: str) -> str:
    footer = pq.read_metadata(file)
    lowest: dict[str, object] = {}
    highest: dict[str, object] = {}
    nulls: dict[str, int] = {}
    for name, column in _bounded_columns(footer):
        parts = [footer.row_group(group).column(column).statistics for group in range(footer.num_row_groups)]
        if any(part is None or not part.has_null_count for part in parts):
            continue
        nulls[name] = sum(part.null_count for part in parts)
        try:
            bounds = [(part.min, part.max) for part in parts if part.has_min_max]
        except OverflowError:  # a year before 1 or after 9999, which Python's datetime lacks
            continue
        if bounds and len(bounds) == sum(1 for part in parts if part.num_values):
            lowest[name] = _text(min(low for low, _ in bounds))
            highest[name] = _text(max(high for _, high in bounds))
    stats = {"numRecords": footer.num_rows, "minValues": lowest, "maxValues": highest, "nullCount": nulls}
    return json.dumps(stats)


def _bounded_columns(footer: pq.FileMetaData) -> list[tuple[str, int]]:
    """(name, index among the footer's leaf columns) of each top-level column with exact bounds."""
    schema = footer.schema.to_arrow_schema()
    # With a dot in it, a column's name could be the path of a field inside a struct.
    bounded = {field.name for field in schema if _has_exact_bounds(field.type) and "." not in field.name}
    leaves = (footer.schema.column(leaf) for leaf in range(len(footer.schema)))
    return [(leaf.path, at) for at, leaf in enumerate(leaves) if leaf.path in bounded]


def _has_exact_bounds(kind: pa.DataType) -> bool:
    return bool(kinds.is_integer(kind) or kinds.is_date(kind) or (kinds.is_timestamp(kind) and kind.tz))


def _text(value: object) -> object:
    if isinstance(value, datetime.datetime):
        # Not by strftime, which writes the year 1 as "1".
        return value.astimezone(datetime.UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"
    return value.isoformat() if isinstance(value, datetime.date) else value
