"""Upserts into a Delta table: the last row of a key wins, marked rows delete, a batch is merged once."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from moldau.spark.lake import BatchTag, LakeError, upsert
from moldau.spark.lake.merging import merge_of


def content(path: Path) -> dict[object, object]:
    return {row["id"]: row["name"] for row in DeltaTable(str(path)).to_pyarrow_table().to_pylist()}


def changes(*rows: tuple[object, str | None, bool | None]) -> pa.Table:
    ids, names, gone = zip(*rows, strict=True)
    return pa.table({"id": pa.array(ids, pa.int64()), "name": list(names), "gone": pa.array(gone, pa.bool_())})


def test_rows_are_inserted_updated_and_deleted(tmp_path: Path) -> None:
    path = tmp_path / "users"

    def apply(rows: pa.Table, batch: int) -> bool:
        return upsert(str(path), "delta", rows, ["id"], "gone", BatchTag("q", batch))

    assert apply(changes((1, "a", None), (2, "b", False), (9, "never", True)), 0)
    assert content(path) == {1: "a", 2: "b"}
    assert apply(changes((2, "old", False), (3, "c", False), (2, "new", False), (1, None, True)), 1)
    assert content(path) == {2: "new", 3: "c"}
    assert not apply(changes((2, "old", False)), 1), "a replay changes nothing"
    assert content(path) == {2: "new", 3: "c"}
    assert DeltaTable(str(path)).schema().to_arrow().names == ["id", "name"]


@pytest.mark.parametrize("deletes", [False, True])
def test_an_older_row_in_a_later_batch_changes_nothing(tmp_path: Path, deletes: bool) -> None:
    path = tmp_path / "users"

    def apply(batch: int, *rows: tuple[int, str, int | None, bool]) -> None:
        ids, names, at, gone = zip(*rows, strict=True)
        table = {"id": list(ids), "name": list(names), "at": pa.array(at, pa.int64()), "gone": pa.array(gone)}
        if not deletes:
            del table["gone"]
        mark = "gone" if deletes else None
        upsert(str(path), "delta", pa.table(table), ["id"], mark, BatchTag("q", batch), order_by="at")

    apply(0, (1, "a", 10, False), (2, "b", 10, False), (3, "c", None, False), (4, "d", 10, False))
    apply(1, (1, "older", 9, False), (2, "as old", 10, False), (3, "first", 1, False), (4, "none", None, False))
    assert content(path) == {1: "a", 2: "as old", 3: "first", 4: "d"}
    if deletes:
        apply(2, (1, "older", 9, True), (2, "newer", 11, True))
        assert content(path) == {1: "a", 3: "first", 4: "d"}


def test_null_is_a_key_like_others(tmp_path: Path) -> None:
    path = tmp_path / "users"
    for batch, name in enumerate(("a", "b")):
        upsert(str(path), "delta", changes((None, name, False), (1, name, False)), ["id"], "gone", BatchTag("q", batch))
    assert content(path) == {None: "b", 1: "b"}


def test_a_new_column_is_added_and_an_absent_one_keeps_its_value(tmp_path: Path) -> None:
    path = str(tmp_path / "users")
    upsert(path, "delta", pa.table({"id": [1, 2], "name": ["a", "b"]}), ["id"], tag=BatchTag("q", 0))
    upsert(path, "delta", pa.table({"id": [2, 3], "age": [40, 50]}), ["id"], tag=BatchTag("q", 1))
    rows = sorted(DeltaTable(path).to_pyarrow_table().to_pylist(), key=lambda row: row["id"])
    assert [(row["id"], row["name"], row["age"]) for row in rows] == [(1, "a", None), (2, "b", 40), (3, None, 50)]


def test_upsert_with_quoted_names_partitions_and_time_zones(tmp_path: Path) -> None:
    path = str(tmp_path / "users")
    at = pa.array([1], pa.timestamp("us", "Etc/UTC"))
    rows = pa.table({'Key "1"': ["k"], "select": [1], "At": at, "day": ["d"]})
    for batch in range(2):
        assert upsert(path, "delta", rows, ['Key "1"'], tag=BatchTag("q", batch), partition_by=["day"])
    table = DeltaTable(path)
    assert table.to_pyarrow_table().num_rows == 1
    assert table.metadata().partition_columns == ["day"]


@pytest.mark.parametrize(
    ("kind", "keys", "delete_when", "message"),
    [
        ("parquet", ["id"], None, "an upsert needs a Delta table, not parquet"),
        ("iceberg", ["id"], None, "an upsert needs a Delta table, not iceberg"),
        ("delta", [], None, "needs the columns that are its keys"),
        ("delta", ["nope"], None, "have no column nope"),
        ("delta", ["id"], "op = 'd'", "have no column op = 'd'"),
        ("delta", ["id"], "name", "must be a boolean"),
        ("delta", ["id", "gone"], "GONE", "gone marks the rows that delete and is not stored: it cannot be a key"),
    ],
)
def test_invalid_upserts_are_refused(
    tmp_path: Path, kind: str, keys: list[str], delete_when: str, message: str
) -> None:
    with pytest.raises(LakeError, match=message):
        upsert(str(tmp_path / "t"), kind, changes((1, "a", False)), keys, delete_when, BatchTag("q", 0))


NESTED = [pa.array([{"a": 1}]), pa.array([[1]]), pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64()))]


@pytest.mark.parametrize("column", NESTED, ids=lambda column: str(column.type))
def test_nested_columns_cannot_be_keys_or_order_by(tmp_path: Path, column: pa.Array) -> None:
    rows = pa.table({"id": [1], "nested": column})
    with pytest.raises(LakeError, match=r"nested is .*, and a key must be"):
        upsert(str(tmp_path / "t"), "delta", rows, ["id", "nested"])
    with pytest.raises(LakeError, match=r"nested is .*, and order_by must be"):
        upsert(str(tmp_path / "t"), "delta", rows, ["id"], order_by="nested")


def test_the_delete_column_cannot_be_order_by(tmp_path: Path) -> None:
    with pytest.raises(LakeError, match="gone marks the rows that delete and is not stored: it cannot be order_by"):
        upsert(str(tmp_path / "t"), "delta", changes((1, "a", False)), ["id"], "gone", order_by="gone")


def test_column_names_are_case_insensitive_as_in_spark(tmp_path: Path) -> None:
    path = tmp_path / "users"
    for batch, name in enumerate(("a", "b")):
        tag = BatchTag("q", batch)
        rows = changes((1, name, False), (2, name, True))
        assert upsert(str(path), "delta", rows, ["ID"], "Gone", tag, order_by="Id", partition_by=["NAME"])
    assert content(path) == {1: "b"}
    assert DeltaTable(str(path)).metadata().partition_columns == ["name"]


def test_an_upsert_without_rows_creates_no_table(tmp_path: Path) -> None:
    assert upsert(str(tmp_path / "t"), "delta", changes((1, "a", False)).slice(1), ["id"], None, BatchTag("q", 0))
    assert not (tmp_path / "t").exists()


ROWS = st.lists(st.tuples(st.integers(0, 3), st.one_of(st.none(), st.integers(0, 3))), min_size=1, max_size=20)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(ROWS)
def test_the_row_with_the_highest_order_and_then_the_latest_wins(rows: list[tuple[int, int | None]]) -> None:
    table = pa.table(
        {
            "key": pa.array([key for key, _ in rows], pa.int64()),
            "order": pa.array([order for _, order in rows], pa.int64()),
            "at": pa.array(range(len(rows)), pa.int64()),
        }
    )

    def last(ordered: bool) -> dict[int, int]:
        best: dict[int, tuple[int, int]] = {}
        for at, (key, order) in enumerate(rows):
            rank = (-1 if order is None else order, at) if ordered else (0, at)
            best[key] = max(best.get(key, rank), rank)
        return {key: at for key, (_, at) in best.items()}

    for order_by in (None, "order"):
        merged = merge_of("t", table, ["key"], None, order_by).rows.to_pylist()
        assert {row["key"]: row["at"] for row in merged} == last(order_by is not None)
        assert len(merged) == len({key for key, _ in rows})
