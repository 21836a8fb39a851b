"""The statistics in Delta's log: readers skip files by them, and no filter may lose a row."""

from __future__ import annotations

import datetime
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from moldau.spark.lake import BatchTag, append
from moldau.spark.lake.delta_stats import stats_of

START = datetime.datetime(2026, 1, 1, 0, 0, 0, 123456, tzinfo=datetime.UTC)


def rows(first: int, count: int, nulls: bool = False) -> pa.Table:
    numbers = [None if nulls else first + row for row in range(count)]
    moments = [None if n is None else START + datetime.timedelta(hours=n, microseconds=n) for n in numbers]
    return pa.table(
        {
            "n": pa.array(numbers, pa.int32()),
            "at": pa.array(moments, pa.timestamp("us", "UTC")),
            "day": pa.array([None if at is None else at.date() for at in moments], pa.date32()),
            "a.b": pa.array(["x"] * count),
            "s": pa.array([{"n": 10**6}] * count, pa.struct([("n", pa.int64())])),
        }
    )


def test_stats_have_bounds_and_null_counts(tmp_path: Path) -> None:
    file = str(tmp_path / "file.parquet")
    pq.write_table(pa.concat_tables([rows(3, 4), rows(0, 2, nulls=True)]), file, row_group_size=2)
    assert json.loads(stats_of(file)) == {
        "numRecords": 6,
        "minValues": {"n": 3, "at": "2026-01-01T03:00:00.123459Z", "day": "2026-01-01"},
        "maxValues": {"n": 6, "at": "2026-01-01T06:00:00.123462Z", "day": "2026-01-01"},
        "nullCount": {"n": 2, "at": 2, "day": 2},
    }


@pytest.mark.parametrize("column", ["n", "at", "day"])
def test_no_filter_loses_a_row(tmp_path: Path, column: str) -> None:
    path = str(tmp_path / "table")
    batches = [rows(0, 30), rows(30, 30), rows(0, 3, nulls=True), rows(-5, 40)]
    for batch, part in enumerate(batches):
        append(path, "delta", part, BatchTag("q", batch))
    everything = pa.concat_tables(batches)
    dataset = DeltaTable(path).to_pyarrow_dataset()
    for value in everything[column].unique().drop_null():
        for compare in (pc.equal, pc.less, pc.greater_equal):
            expected = everything.filter(compare(everything[column], value)).num_rows
            found = dataset.to_table(filter=compare(pc.field(column), value)).num_rows
            assert found == expected, (compare, value)
    assert dataset.to_table(filter=pc.field(column).is_null()).num_rows == 3


OUT_OF_RANGE = {
    "far": pa.array([300_000_000_000_000_000, 0], pa.int64()).cast(pa.timestamp("us", "UTC")),
    "late_day": pa.array([5_000_000, 0], pa.int32()).cast(pa.date32()),
    "early_day": pa.array([-5_000_000, 0], pa.int32()).cast(pa.date32()),
}
"""Years that Spark has and Python's datetime has not: microseconds taken for milliseconds are in the year 11476."""


def test_a_column_with_years_beyond_those_of_pythons_datetime_has_no_bounds(tmp_path: Path) -> None:
    path = str(tmp_path / "table")
    part = pa.table({"n": pa.array([1, 2], pa.int64()), **OUT_OF_RANGE})
    assert append(path, "delta", part)
    dataset = DeltaTable(path).to_pyarrow_dataset()
    assert dataset.to_table().select(part.column_names).sort_by("n").equals(part)
    (file,) = dataset.files
    stats = json.loads(stats_of(str(Path(path) / file)))
    assert (stats["minValues"], stats["maxValues"]) == ({"n": 1}, {"n": 2})
    assert stats["nullCount"] == dict.fromkeys(part.column_names, 0)


def test_a_year_before_1000_has_four_digits(tmp_path: Path) -> None:
    path = str(tmp_path / "table")
    first = datetime.datetime(1, 1, 1, tzinfo=datetime.UTC)
    part = pa.table({"at": pa.array([first, START], pa.timestamp("us", "UTC"))})
    append(path, "delta", part)
    dataset = DeltaTable(path).to_pyarrow_dataset()
    (file,) = dataset.files
    assert json.loads(stats_of(str(Path(path) / file)))["minValues"] == {"at": "0001-01-01T00:00:00.000000Z"}
    assert dataset.to_table(filter=pc.field("at") == first).num_rows == 1
