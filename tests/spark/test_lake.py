"""Lake tables in a real Spark: replayed streams, batches, failures, and reading into a DataFrame."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from harness.patience import SPARK_PATIENCE_S

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

pytest.importorskip("deltalake")
pytest.importorskip("pyiceberg")

KINDS = ("parquet", "delta", "iceberg")
SCHEMA = "id bigint, day date, at timestamp, tags array<string>, scores map<string, int>, place struct<city: string>"
ROWS_PER_FILE = 50
FILES = 2


def event(number: int) -> dict[str, object]:
    moment = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(hours=number)
    return {
        "id": number,
        "day": None if number % 7 == 0 else moment.date(),
        "at": moment,
        "tags": None if number % 5 == 0 else ["a", f"t{number}"],
        "scores": {"x": number},
        "place": {"city": "Praha"},
    }


def write_input(folder: Path, file: int) -> None:
    folder.mkdir(exist_ok=True)
    numbers = range(file * ROWS_PER_FILE, (file + 1) * ROWS_PER_FILE)
    lines = [json.dumps(event(number), default=lambda value: value.isoformat()) for number in numbers]
    (folder / f"{file}.json").write_text("\n".join(lines))


def start(spark: SparkSession, root: Path, kind: str) -> StreamingQuery:
    source = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(str(root / "input"))
    sink = source.repartition(2).writeStream.format("moldau-lake").option("format", kind).option("partitionBy", "day")
    return (
        sink.option("checkpointLocation", str(root / f"checkpoint-{kind}"))
        .trigger(availableNow=True)
        .start(str(root / kind))
    )


def run_all(spark: SparkSession, root: Path) -> None:
    """Run a stream for each kind, all at the same time: a small stream mostly waits."""
    for query in [start(spark, root, kind) for kind in KINDS]:
        assert query.awaitTermination(SPARK_PATIENCE_S)
        assert query.exception() is None


def forget_last_commit(checkpoint: Path) -> int:
    """Leave the checkpoint as a driver does that dies after the sink's commit and before Spark's own."""
    last = max(int(file.name) for file in (checkpoint / "commits").iterdir() if file.name.isdecimal())
    for name in (str(last), f".{last}.crc"):
        (checkpoint / "commits" / name).unlink(missing_ok=True)
    return last


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("lake")
    write_input(root / "input", 0)
    run_all(spark, root)
    for kind in KINDS:
        assert forget_last_commit(root / f"checkpoint-{kind}") == 0
    write_input(root / "input", 1)
    run_all(spark, root)
    return root


def read_by_other_library(path: Path, kind: str) -> pa.Table:
    if kind == "parquet":
        return ds.dataset(path, format="parquet", partitioning="hive").to_table()
    if kind == "delta":
        from deltalake import DeltaTable

        return DeltaTable(str(path)).to_pyarrow_table()
    from pyiceberg.catalog.sql import SqlCatalog

    catalog = SqlCatalog("moldau", uri=f"sqlite:///{path}/metadata/catalog.db")
    rows = catalog.load_table("lake.table").scan().to_arrow()
    catalog.close()
    return rows


def table(spark: SparkSession, path: Path, kind: str) -> DataFrame:
    return spark.read.format("moldau-lake").option("format", kind).load(str(path))


@pytest.mark.parametrize("kind", KINDS)
def test_a_replayed_batch_is_stored_once_for_every_reader(spark: SparkSession, lake: Path, kind: str) -> None:
    expected = [event(number) for number in range(FILES * ROWS_PER_FILE)]
    for rows in (read_by_other_library(lake / kind, kind), table(spark, lake / kind, kind).toArrow()):
        found = sorted(rows.to_pylist(), key=lambda row: row["id"])
        for row in found:
            row["scores"] = dict(row["scores"])
            row["day"] = datetime.date.fromisoformat(str(row["day"])) if row["day"] else None  # Hive's are texts
        assert found == expected
    assert not list((lake / kind).rglob("*.staged"))


@pytest.mark.parametrize("kind", KINDS)
def test_columns_are_read_back_with_their_types(spark: SparkSession, lake: Path, kind: str) -> None:
    wanted = spark.createDataFrame([], SCHEMA).schema
    found = table(spark, lake / kind, kind).schema
    assert {field.name: field.dataType for field in found} == {field.name: field.dataType for field in wanted}


def test_spark_itself_reads_the_parquet_directory(spark: SparkSession, lake: Path) -> None:
    assert spark.read.parquet(str(lake / "parquet")).count() == FILES * ROWS_PER_FILE


def write(rows: DataFrame, path: Path, mode: str = "append", **options: str) -> None:
    rows.write.format("moldau-lake").options(format="delta", **options).mode(mode).save(str(path))


def test_batches_are_written_once_and_overwritten(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "numbers"
    for _ in range(2):
        write(spark.range(5), path, queryId="query", batchId="0")
    followed = spark.read.format("moldau-lake").option("format", "delta").option("follow", "true").load(str(path))
    assert followed.count() == 5
    write(spark.range(100, 103), path, mode="overwrite")
    assert followed.count() == 3, "a frame that follows sees the table as it is now"
    assert sorted(row.id for row in table(spark, path, "delta").collect()) == [100, 101, 102]


def test_the_complete_mode_overwrites_the_table(spark: SparkSession, lake: Path, tmp_path: Path) -> None:
    source = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(str(lake / "input"))
    counts = source.groupBy("place.city").count().coalesce(1)
    sink = counts.writeStream.outputMode("complete").format("moldau-lake").option("format", "delta")
    query = sink.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
    assert query.start(str(tmp_path / "counts")).awaitTermination(SPARK_PATIENCE_S)
    assert read_by_other_library(tmp_path / "counts", "delta").to_pylist() == [
        {"city": "Praha", "count": FILES * ROWS_PER_FILE}
    ]


def test_a_failed_task_leaves_no_rows_and_no_files(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.range(0, 100, 1, 2).selectExpr("if(id = 99, raise_error('broken'), id) as id")
    with pytest.raises(Exception, match="broken"):
        write(rows, tmp_path / "t")
    assert read_by_other_library(tmp_path / "t", "delta").num_rows == 0
    assert not list((tmp_path / "t").rglob("*.parquet")), "a task that is just being killed may leave a staged file"


def test_a_write_that_does_not_fit_the_table_is_refused_before_a_task_runs(
    spark: SparkSession, lake: Path, tmp_path: Path
) -> None:
    with pytest.raises(Exception, match="column id is int64 in the table and string in the query"):
        write(spark.sql("select 'x' as id"), lake / "delta")
    with pytest.raises(Exception, match="is an Iceberg table, not a Delta one: set format to iceberg"):
        write(spark.range(1), lake / "iceberg")
    with pytest.raises(Exception, match="queryId and batchId"):
        write(spark.range(1), tmp_path / "t", queryId="query")
    with pytest.raises(Exception, match="there is no table"):
        table(spark, tmp_path / "t", "delta").count()
