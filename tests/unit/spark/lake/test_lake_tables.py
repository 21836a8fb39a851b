"""Parquet, Delta and Iceberg tables: each batch is stored once, columns may be added, what does not fit is refused."""

from __future__ import annotations

import datetime
import decimal
import errno
import os
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import StaticTable
from sqlalchemy.exc import OperationalError

from moldau.base.errors import StorageFault
from moldau.pipelines.locations import local_table
from moldau.spark.lake import BatchTag, LakeError, append, overwrite, tables, transactions
from moldau.spark.lake.files import write_files
from moldau.spark.lake.tables import open_table
from moldau.spark.lake.writing import abort, commit, prepare

KINDS = ("parquet", "delta", "iceberg")
LOGGED = ("delta", "iceberg")


def foreign_rows(path: Path, kind: str) -> pa.Table:
    """The table as other libraries read it."""
    match kind:
        case "parquet":
            return ds.dataset(path, format="parquet", partitioning="hive").to_table()
        case "delta":
            return DeltaTable(str(path)).to_pyarrow_table()
        case _:
            return StaticTable.from_metadata(str(path)).scan().to_arrow()


def ids(path: Path, kind: str) -> list[int]:
    if kind == "parquet" and not any(path.rglob("*.parquet")):
        return []
    return sorted(foreign_rows(path, kind)["id"].to_pylist())


def own_rows(path: Path, kind: str) -> pa.Table:
    table = open_table(str(path), kind)
    batches = [batch for split in table.splits(3) for batch in table.read(split)]
    return pa.Table.from_batches(batches, table.schema())


def numbers(*values: int) -> pa.Table:
    return pa.table({"id": pa.array(values, pa.int64())})


def data_files(path: Path) -> set[str]:
    return {file.name for file in path.rglob("*.parquet*")}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_a_replayed_batch_is_stored_once(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "events"
    assert append(str(path), kind, numbers(1, 2), BatchTag("q", 0))
    assert append(str(path), kind, numbers(3), BatchTag("q", 1))
    files = data_files(path)
    assert not append(str(path), kind, numbers(3), BatchTag("q", 1))
    assert not append(str(path), kind, numbers(1, 2), BatchTag("q", 0))
    assert ids(path, kind) == [1, 2, 3]
    assert data_files(path) == files, "a replay of a stored batch leaves no files"


def test_each_query_counts_its_own_batches(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "events"
    for query, value in (("one", 1), ("two", 2)):
        for _ in range(2):
            append(str(path), kind, numbers(value), BatchTag(query, 0))
    assert ids(path, kind) == [1, 2]


def test_writes_without_a_tag_are_never_deduplicated(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "events"
    assert append(str(path), kind, numbers(1))
    assert append(str(path), kind, numbers(1))
    assert ids(path, kind) == [1, 1]
    assert sorted(os.listdir(path / "_moldau")) == (["table.json"] if kind == "parquet" else [])


def test_an_empty_first_batch_creates_an_empty_table(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "events"
    assert append(str(path), kind, numbers(), BatchTag("q", 0))
    assert own_rows(path, kind).equals(numbers())
    append(str(path), kind, numbers(7), BatchTag("q", 1))
    assert ids(path, kind) == [7]


def test_overwrite_replaces_all_rows_and_its_replay_changes_nothing(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "counts"
    assert overwrite(str(path), kind, numbers(1, 2), BatchTag("q", 0))
    assert overwrite(str(path), kind, numbers(3), BatchTag("q", 1))
    assert not overwrite(str(path), kind, numbers(1, 2), BatchTag("q", 0))
    assert ids(path, kind) == [3]
    assert overwrite(str(path), kind, numbers(), BatchTag("q", 2))
    assert ids(path, kind) == []


def test_every_type_is_read_back(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "types"
    moment = datetime.datetime(2026, 1, 31, 12, 30, 15, 123456)
    zone = pa.timestamp("us", "Etc/UTC")
    rows = pa.table(
        {
            "tiny": pa.array([1, None], pa.int8()),
            "small": pa.array([1, None], pa.int16()),
            "real": pa.array([1.5, None], pa.float64()),
            "text": pa.array(["ü", None]),
            "bytes": pa.array([b"\x00\xff", None]),
            "at": pa.array([moment, None], pa.timestamp("us")).cast(pa.timestamp("us", "UTC")).cast(zone),
            "local": pa.array([moment, None], pa.timestamp("us")),
            "money": pa.array([decimal.Decimal("1.25"), None], pa.decimal128(20, 2)),
            "day": pa.array([moment.date(), None], pa.date32()),
            "yes": pa.array([True, None]),
            "list": pa.array([[1, None], None], pa.list_(pa.field("item", pa.int32(), nullable=False))),
            "map": pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int64())),
            "struct": pa.array([{"a": "x", "at": moment}, None], pa.struct([("a", pa.string()), ("at", zone)])),
        }
    )
    rows = rows.set_column(10, "list", pa.array([[1, 2], None], rows.schema.field("list").type))
    append(str(path), kind, rows, BatchTag("q", 0))
    expected = rows.to_pylist()
    for row in expected:
        if row["at"] is not None:
            row["at"] = row["at"].astimezone(datetime.UTC)
            row["struct"]["at"] = row["struct"]["at"].astimezone(datetime.UTC)
    assert own_rows(path, kind).to_pylist() == expected
    assert foreign_rows(path, kind).to_pylist() == expected
    append(str(path), kind, rows, BatchTag("q", 1))  # the types that the table gives back are those that it takes
    assert own_rows(path, kind).num_rows == 4


PARTITIONED = pa.table(
    {
        "id": pa.array([1, 2, 3, 4, 5, 6], pa.int64()),
        "word": ["a/b=c %é", None, "a/b=c %é", "z", "z", "z"],
        "year": pa.array([2026, 2026, 2026, None, 2025, 2025], pa.int32()),
    }
)


def test_partitions_are_hive_directories_that_other_readers_understand(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "events"
    append(str(path), kind, PARTITIONED, BatchTag("q", 0), ["word", "year"])
    expected = PARTITIONED.to_pylist()
    for rows in (own_rows(path, kind), foreign_rows(path, kind)):
        assert sorted(rows.select(["id", "word", "year"]).to_pylist(), key=lambda row: row["id"]) == expected
    files = [file.relative_to(path) for file in path.rglob("*.parquet")]
    assert len(files) == 4, "one file for each pair of values"
    assert any("word=a%2Fb%3Dc %25é/year=2026" in str(file) for file in files)


def test_a_partitioned_table_keeps_its_partitioning(tmp_path: Path, kind: str) -> None:
    path = str(tmp_path / "events")
    append(path, kind, PARTITIONED, BatchTag("q", 0), ["year"])
    assert prepare(path, kind, PARTITIONED.schema, []).partition_by == ("year",)
    with pytest.raises(LakeError, match="is partitioned by year; the query asks for word"):
        prepare(path, kind, PARTITIONED.schema, ["word"])


@pytest.mark.parametrize(
    ("columns", "partition_by", "message"),
    [
        ({"id": [1], "at": [datetime.datetime(2026, 1, 1)]}, ["at"], "column at is timestamp.* such as date"),
        ({"id": [1]}, ["day"], "there is no column day to partition by"),
        ({"id": [1]}, ["id"], "a table needs a column that it is not partitioned by"),
        ({"id": [1], "took": [datetime.timedelta(1)]}, [], "column took has the type duration"),
        ({"id": [1], "void": [None]}, [], "column void has the type null"),
        ({"id": [1], "ID": [1]}, [], "two columns named ID"),
    ],
)
def test_an_invalid_schema_is_refused_before_the_table_is_created(
    tmp_path: Path, kind: str, columns: dict[str, list[object]], partition_by: list[str], message: str
) -> None:
    path = tmp_path / "events"
    with pytest.raises(LakeError, match=message):
        prepare(str(path), kind, pa.table(columns).schema, partition_by)
    assert not data_files(path)
    assert append(str(path), kind, numbers(1), BatchTag("q", 0)), "the path can be used after a refusal"


def test_a_changed_type_is_refused_before_anything_is_written(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "events"
    append(str(path), kind, numbers(1), BatchTag("q", 0))
    before = sorted(path.rglob("*"))
    with pytest.raises(LakeError, match="column id is int64 in the table and string in the query"):
        append(str(path), kind, pa.table({"id": ["x"]}), BatchTag("q", 1))
    with pytest.raises(LakeError, match="column Id is called id in the table"):
        append(str(path), kind, pa.table({"Id": [1]}), BatchTag("q", 1))
    assert sorted(path.rglob("*")) == before


@pytest.mark.parametrize("kind", LOGGED)
def test_a_new_column_is_added_and_an_old_one_may_be_missing(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "events"
    append(str(path), kind, numbers(1), BatchTag("q", 0))
    append(str(path), kind, pa.table({"name": ["b"], "id": [2]}), BatchTag("q", 1))
    append(str(path), kind, pa.table({"name": ["c"]}), BatchTag("q", 2))
    expected = [{"id": 1, "name": None}, {"id": 2, "name": "b"}, {"id": None, "name": "c"}]
    assert sorted(own_rows(path, kind).to_pylist(), key=str) == sorted(expected, key=str)
    assert sorted(foreign_rows(path, kind).to_pylist(), key=str) == sorted(expected, key=str)


def test_a_new_column_in_a_parquet_table_is_refused(tmp_path: Path) -> None:
    path = str(tmp_path / "events")
    append(path, "parquet", numbers(1), BatchTag("q", 0))
    with pytest.raises(LakeError, match="the table has no column name, and a directory of Parquet files"):
        append(path, "parquet", pa.table({"id": [1], "name": ["x"]}), BatchTag("q", 1))


def test_a_parquet_partition_column_with_an_underscore_is_refused(tmp_path: Path) -> None:
    rows = pa.table({"id": [1], "_topic": ["t"]})
    with pytest.raises(LakeError, match="readers skip directories that begin with _, so rename _topic"):
        append(str(tmp_path / "events"), "parquet", rows, BatchTag("q", 0), ["_topic"])


def test_writing_with_another_format_than_that_of_the_table_is_refused(tmp_path: Path, kind: str) -> None:
    path = str(tmp_path / "events")
    append(path, kind, numbers(1), BatchTag("q", 0))
    for other in set(KINDS) - {kind}:
        with pytest.raises(LakeError, match=f"(?i)is an? {kind} table, not an? {other} one: set format to {kind}"):
            append(path, other, numbers(1), BatchTag("q", 1))
    assert ids(Path(path), kind) == [1]


def test_a_directory_with_parquet_files_of_other_writers_is_refused(tmp_path: Path, kind: str) -> None:
    ds.write_dataset(numbers(1), tmp_path / "theirs", format="parquet")
    with pytest.raises(LakeError, match=r"holds (plain )?Parquet files"):
        append(str(tmp_path / "theirs"), kind, numbers(1), BatchTag("q", 0))
    assert own_rows(tmp_path / "theirs", "parquet").equals(numbers(1))


def test_unsupported_paths_and_formats_are_refused(tmp_path: Path) -> None:
    with pytest.raises(LakeError, match="s3://bucket/x: tables are written to local or shared directories"):
        append("s3://bucket/x", "delta", numbers(1))
    with pytest.raises(LakeError, match="s3:/bucket/x: tables are written to local or shared directories"):
        append("s3:/bucket/x", "delta", numbers(1))
    with pytest.raises(LakeError, match="tables are written to local"):
        append("file://elsewhere/x", "delta", numbers(1))
    with pytest.raises(LakeError, match="the format 'orc' is not known; it is one of parquet, delta, iceberg"):
        append(str(tmp_path / "x"), "orc", numbers(1))
    with pytest.raises(LakeError, match="needs the option path"):
        append("", "delta", numbers(1))
    with pytest.raises(LakeError, match="tables are written to local"):
        append("s3a://[x/y", "delta", numbers(1))
    (tmp_path / "file").write_text("x")
    with pytest.raises(LakeError, match="is a file; a table is a directory"):
        append(str(tmp_path / "file"), "parquet", numbers(1))
    assert append(f"file://{tmp_path}/a%20b", "parquet", numbers(1))
    assert ids(tmp_path / "a b", "parquet") == [1]


@pytest.mark.parametrize("path", ["file:///lake/a#eu", "file:/lake/a?b#c", "FILE://localhost/lake/%61", "/lake/a#%20"])
def test_a_path_is_the_same_directory_for_the_lake_and_for_pipelines(path: str) -> None:
    assert tables.local_path(path) == local_table(path)


@pytest.mark.parametrize("name", ["a%41b", "a?b", "a#b", "100%", "a b", "ä"])
def test_a_table_is_in_its_own_directory_or_refused(tmp_path: Path, kind: str, name: str) -> None:
    """To deltalake and SQLAlchemy, %41 is an A: they would use the table of another directory."""
    for other in ("aAb", "a"):
        append(str(tmp_path / other), kind, numbers(1), BatchTag("q", 0))
    path, is_refused = str(tmp_path / name), name in {"delta": ["a%41b"], "iceberg": ["a%41b", "a?b"]}.get(kind, [])
    if is_refused:
        with pytest.raises(LakeError, match=r"table cannot be in a directory with '(%41|[?])' in its path"):
            append(path, kind, numbers(2), BatchTag("q", 1))
    else:
        append(path, kind, numbers(2), BatchTag("q", 1))
        assert own_rows(tmp_path / name, kind).equals(numbers(2))
    assert {each.name for each in tmp_path.iterdir()} == {"aAb", "a"} | ({name} if not is_refused else set())
    assert [own_rows(tmp_path / other, kind).equals(numbers(1)) for other in ("aAb", "a")] == [True, True]


def test_a_directory_that_cannot_be_listed_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise its rows would be missing, or stay after an overwrite. The error is simulated: the tests may run as
    root."""
    path = tmp_path / "events"
    rows = pa.table({"id": pa.array([1, 2], pa.int64()), "day": ["x", "y"]})
    append(str(path), "parquet", rows, BatchTag("q", 0), ["day"])
    scandir = os.scandir

    def refuse(directory: str) -> Any:
        if str(directory).endswith("day=x"):
            raise PermissionError(errno.EACCES, "Permission denied", directory)
        return scandir(directory)

    with monkeypatch.context() as refusing:
        refusing.setattr(os, "scandir", refuse)
        with pytest.raises(PermissionError):
            own_rows(path, "parquet")
        with pytest.raises(StorageFault, match="Permission denied"):
            overwrite(str(path), "parquet", rows.slice(1), BatchTag("q", 1))
    assert ids(path, "parquet") == [1, 2]


def test_reading_a_missing_table_is_an_error(tmp_path: Path, kind: str) -> None:
    (tmp_path / "events").mkdir()
    with pytest.raises(LakeError, match=r"/nothing: there is no table$"):
        own_rows(tmp_path / "nothing", kind)
    with pytest.raises(LakeError, match=r"/evnts: there is no table; did you mean .*/events\?$"):
        own_rows(tmp_path / "evnts", kind)
    with pytest.raises(LakeError, match=r"there is no (Parquet|Delta|Iceberg) table"):
        own_rows(tmp_path / "events", kind)


def test_a_missing_table_in_an_unlistable_directory_gets_no_suggestion(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: str) -> list[str]:
        raise PermissionError(path)

    monkeypatch.setattr(os, "listdir", refuse)
    assert str(tables.no_table(f"{tmp_path}/evnts", "delta")) == f"{tmp_path}/evnts: there is no table"


def test_a_table_is_read_in_splits_of_a_minimum_size(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "events"
    for batch in range(4):
        append(str(path), kind, numbers(batch), BatchTag("q", batch))
    table = open_table(str(path), kind)
    assert [len(split.files) for split in table.splits(3)] == [4]
    monkeypatch.setattr(tables, "SPLIT_BYTES", 1)
    assert sorted(len(split.files) for split in table.splits(3)) == [1, 1, 2]
    planned = table.splits(3)
    append(str(path), kind, numbers(9), BatchTag("q", 9))
    rows = [row for split in planned for batch in table.read(split) for row in batch["id"].to_pylist()]
    assert sorted(rows) == [0, 1, 2, 3], "exactly the planned splits are read"


@pytest.mark.parametrize("kind", tables.KINDS)
def test_a_package_is_missing_only_if_it_is_not_installed(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert tables.missing_package(kind) is None
    monkeypatch.setattr(tables, "find_spec", lambda package: None)
    assert (tables.missing_package(kind) is None) == (kind == "parquet")


@pytest.mark.parametrize("kind", LOGGED)
def test_a_missing_package_is_reported_with_the_install_command(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError(name=kind)

    monkeypatch.setattr(tables, "import_module", missing)
    with pytest.raises(LakeError, match=rf"needs the package {kind}: pip install 'moldau\[lake\]'"):
        append(str(tmp_path / "x"), kind, numbers(1))


@pytest.mark.parametrize("bad", ["", "../up", "a/b", ".hidden", "_x", "a b"])
def test_a_query_id_must_be_a_valid_file_name(bad: str) -> None:
    with pytest.raises(LakeError, match="must be at most 200 letters"):
        BatchTag(bad, 0)


def test_abort_deletes_staged_files_and_keeps_committed_ones(tmp_path: Path, kind: str) -> None:
    path, tag = str(tmp_path / "events"), BatchTag("q", 0)
    target = prepare(path, kind, numbers(1).schema, [])
    write_files(target, tag, 0, numbers(1).to_batches())
    abort(path, tag)
    assert not data_files(tmp_path)
    files = write_files(target, tag, 0, numbers(2).to_batches())
    assert commit(path, kind, files, tag)
    abort(path, tag)
    assert ids(tmp_path / "events", kind) == [2]


@pytest.mark.parametrize("kind", LOGGED)
def test_a_commit_is_retried_after_a_conflict(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "events")
    append(path, kind, numbers(1), BatchTag("q", 0))
    table = open_table(path, kind)
    real, calls = type(table).transact, []  # type: ignore[attr-defined]

    def conflict_twice(self: object, *args: object) -> object:
        calls.append(args)
        if len(calls) < 3:
            raise transactions.Conflict("somebody else")
        return real(self, *args)

    monkeypatch.setattr(transactions, "PAUSE_SECONDS", 0)
    monkeypatch.setattr(type(table), "transact", conflict_twice)
    assert append(path, kind, numbers(2), BatchTag("q", 1))
    assert len(calls) == 3
    assert ids(tmp_path / "events", kind) == [1, 2]

    def always_conflict(self: object, *args: object) -> None:
        raise transactions.Conflict("somebody else")

    monkeypatch.setattr(type(table), "transact", always_conflict)
    with pytest.raises(LakeError, match="the commit failed 8 times because of other writers: somebody else"):
        append(path, kind, numbers(3), BatchTag("q", 2))
    monkeypatch.undo()
    assert append(path, kind, numbers(3), BatchTag("q", 2))
    assert ids(tmp_path / "events", kind) == [1, 2, 3]
    assert len(data_files(tmp_path)) == 3, "the files of the failed commit are deleted"


def test_concurrent_queries_create_and_fill_one_table(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "events"
    batches, queries = 4, ("one", "two", "three")
    together = threading.Barrier(len(queries))

    def run(query: str) -> None:
        together.wait()
        for batch in range(batches):
            assert append(str(path), kind, numbers(batch), BatchTag(query, batch))

    with ThreadPoolExecutor(len(queries)) as pool:
        for done in [pool.submit(run, query) for query in queries]:
            done.result()
    assert ids(path, kind) == sorted(list(range(batches)) * len(queries))


def test_an_iceberg_catalog_created_at_the_same_moment_by_another_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[SqlCatalog] = []
    closed: list[SqlCatalog] = []
    make, close = SqlCatalog.create_tables, SqlCatalog.close

    def create_tables(catalog: SqlCatalog) -> None:
        opened.append(catalog)
        if len(opened) == 1:
            raise OperationalError(
                "CREATE TABLE", None, sqlite3.OperationalError("table iceberg_tables already exists")
            )
        make(catalog)

    def note_close(catalog: SqlCatalog) -> None:
        closed.append(catalog)
        close(catalog)

    monkeypatch.setattr(SqlCatalog, "create_tables", create_tables)
    monkeypatch.setattr(SqlCatalog, "close", note_close)
    assert append(str(tmp_path / "events"), "iceberg", numbers(1), BatchTag("q", 0))
    assert closed == opened


def test_iceberg_remembers_batches_whose_snapshots_have_expired(tmp_path: Path) -> None:
    path = tmp_path / "events"
    for batch in range(3):
        append(str(path), "iceberg", numbers(batch), BatchTag("q", batch))
    catalog = SqlCatalog("moldau", uri=f"sqlite:///{path}/metadata/catalog.db")
    table = catalog.load_table("lake.table")
    summary = table.snapshots()[0].summary
    assert summary is not None
    assert summary.additional_properties["moldau.batch-id"] == "0"
    table.maintenance.expire_snapshots().older_than(datetime.datetime.now() + datetime.timedelta(days=1)).commit()
    assert len(table.refresh().snapshots()) == 1
    append(str(path), "iceberg", numbers(9), BatchTag("other", 0))
    assert not append(str(path), "iceberg", numbers(1), BatchTag("q", 1))
    assert sorted(table.refresh().scan().to_arrow()["id"].to_pylist()) == [0, 1, 2, 9]
    catalog.close()


def test_the_error_for_an_unwritable_directory_names_the_table(tmp_path: Path, kind: str) -> None:
    (tmp_path / "file").write_text("x")
    path = str(tmp_path / "file" / "events")
    with pytest.raises((StorageFault, LakeError), match=path):
        append(path, kind, numbers(1))


@pytest.mark.parametrize("partition_by", [(), ("day",)])
def test_years_beyond_those_of_pythons_datetime_are_stored(
    tmp_path: Path, kind: str, partition_by: tuple[str, ...]
) -> None:
    """A record whose microseconds were taken for milliseconds is in the year 11476."""
    path = tmp_path / "events"
    moments = pa.array([300_000_000_000_000_000, 0], pa.int64()).cast(pa.timestamp("us", "UTC"))
    days = pa.array([0, 1], pa.int32()).cast(pa.date32())
    rows = pa.table({"id": pa.array([1, 2], pa.int64()), "at": moments, "day": days})
    assert append(str(path), kind, rows, BatchTag("q", 0), partition_by)
    stored = own_rows(path, kind).sort_by("id")
    assert stored["at"].cast(pa.int64()).to_pylist() == [300_000_000_000_000_000, 0]


def test_a_date_partition_after_the_year_9999_is_refused(tmp_path: Path, kind: str) -> None:
    rows = pa.table({"id": pa.array([1, 2], pa.int64()), "day": pa.array([0, 5_000_000], pa.int32()).cast(pa.date32())})
    with pytest.raises(LakeError, match="column day has a date outside of the years 1 to 9999"):
        append(str(tmp_path / "events"), kind, rows, BatchTag("q", 0), ["day"])


def test_iceberg_distinguishes_an_empty_string_from_null_in_a_partition(tmp_path: Path) -> None:
    path = tmp_path / "events"
    rows = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "p": ["", None, "a"]})
    append(str(path), "iceberg", rows, BatchTag("q", 0), ["p"])
    table = StaticTable.from_metadata(str(path))
    for condition, ids_found in (("p = ''", [1]), ("p is null", [2]), ("p = 'a'", [3])):
        assert table.scan(row_filter=condition).to_arrow()["id"].to_pylist() == ids_found, condition
    assert ids(path, "iceberg") == [1, 2, 3]
