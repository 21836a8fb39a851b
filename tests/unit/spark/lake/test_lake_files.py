"""A task's files: split by partition values, few open at once, deleted if the task fails. The file operations of `disk`
and `staging`, also when the file system fails."""

from __future__ import annotations

import errno
import os
import random
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.spark.lake import BatchTag, disk, files
from moldau.spark.lake.files import write_files
from moldau.spark.lake.journal import Entry
from moldau.spark.lake.partitions import cut, directory_of
from moldau.spark.lake.staging import Staging
from moldau.spark.lake.tables import DataFile, Target

TAG = BatchTag("query", 3)
SCHEMA = pa.schema([("id", pa.int64()), ("part", pa.int64())])


def batches(count: int, rows: int, values: int) -> list[pa.RecordBatch]:
    chance = random.Random(7)
    return [
        pa.record_batch({"id": list(range(rows)), "part": [chance.randrange(values) for _ in range(rows)]})
        for _ in range(count)
    ]


def rows_by_partition(path: Path, written: list[DataFile]) -> Counter[tuple[int, int]]:
    found: Counter[tuple[int, int]] = Counter()
    for file in written:
        table = pq.read_table(path / file.staged)
        assert (table.num_rows, (path / file.staged).stat().st_size) == (file.rows, file.size)
        part = int(dict(file.partition)["part"] or -1)
        found.update((row, part) for row in table["id"].to_pylist())
    return found


def expected_rows(source: list[pa.RecordBatch]) -> Counter[tuple[int, int]]:
    return Counter((row["id"], row["part"]) for batch in source for row in batch.to_pylist())


def test_one_file_for_each_partition_while_the_rows_fit_into_memory(tmp_path: Path) -> None:
    source = batches(20, 100, values=40)
    written = write_files(Target(str(tmp_path), SCHEMA, ("part",)), TAG, 5, source)
    assert len(written) == 40
    assert rows_by_partition(tmp_path, written) == expected_rows(source)
    assert written[0].name.startswith("part=")
    assert "/query-000003-00005-" in written[0].name


def test_memory_and_open_files_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "BUFFER_BYTES_MAX", 2_000)
    monkeypatch.setattr(files, "OPEN_FILES_MAX", 4)
    most_open = 0
    add = files._TaskWriter.add

    def watched(self: files._TaskWriter, batch: pa.RecordBatch) -> None:
        nonlocal most_open
        add(self, batch)
        most_open = max(most_open, len(self._open))
        assert self._waiting_bytes < 2_000

    monkeypatch.setattr(files._TaskWriter, "add", watched)
    source = batches(12, 60, values=90)
    written = write_files(Target(str(tmp_path), SCHEMA, ("part",)), TAG, 0, source)
    assert most_open == 4
    assert rows_by_partition(tmp_path, written) == expected_rows(source)


def test_a_file_that_reaches_its_maximum_size_is_followed_by_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "BUFFER_BYTES_MAX", 1)
    monkeypatch.setattr(files, "FILE_BYTES_MAX", 5_000)
    source = batches(40, 500, values=1)
    written = write_files(Target(str(tmp_path), SCHEMA, ("part",)), TAG, 0, source)
    assert len(written) > 2
    assert all(file.size < 20_000 for file in written)
    assert rows_by_partition(tmp_path, written) == expected_rows(source)


def test_a_task_that_fails_leaves_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "BUFFER_BYTES_MAX", 1)

    def broken_rows() -> Iterator[pa.RecordBatch]:
        yield from batches(3, 100, values=30)
        raise ValueError("the query broke")

    with pytest.raises(ValueError, match="the query broke"):
        write_files(Target(str(tmp_path), SCHEMA, ("part",)), TAG, 0, broken_rows())
    assert not [file for file in tmp_path.rglob("*") if file.is_file()]


def test_without_rows_no_files_are_written(tmp_path: Path) -> None:
    assert write_files(Target(str(tmp_path), SCHEMA, ("part",)), TAG, 0, batches(2, 0, values=1)) == []
    assert write_files(Target(str(tmp_path), SCHEMA), TAG, 0, []) == []


VALUES = st.one_of(st.none(), st.sampled_from(["", "a", "b", "c"]))


@given(st.lists(st.tuples(VALUES, st.one_of(st.none(), st.integers(0, 2))), max_size=30))
def test_cut_keeps_every_row_and_groups_equal_partition_values(values: list[tuple[str | None, int | None]]) -> None:
    batch = pa.record_batch(
        {
            "id": pa.array(range(len(values)), pa.int64()),
            "a": pa.array([a for a, _ in values], pa.string()),
            "b": pa.array([b for _, b in values], pa.int32()),
        }
    )
    parts = list(cut(batch, ("a", "b")))
    assert sorted(row for _, part in parts for row in part["id"].to_pylist()) == list(range(len(values)))
    assert len(parts) == len(set(values))
    for partition, part in parts:
        for row in part.to_pylist():
            stored = dict(partition)
            assert stored["a"] == (row["a"] or None)
            assert stored["b"] == (None if row["b"] is None else str(row["b"]))


def test_directory_names_are_those_of_hive() -> None:
    assert directory_of((("day", "2026-01-31"), ("k", None))) == "day=2026-01-31/k=__HIVE_DEFAULT_PARTITION__"
    assert directory_of((("a:b", "x/y=z%é "),)) == "a%3Ab=x%2Fy%3Dz%25é "
    assert directory_of(()) == ""


def failing(call: Callable[..., Any], error: OSError, paths: Collection[str], times: int = 1_000) -> Callable[..., Any]:
    """Return a function that raises the error for these paths, at most so many times."""
    left = times

    def failing_call(path: str, *args: Any, **named: Any) -> Any:
        nonlocal left
        if path in paths and left:
            left -= 1
            raise error
        return call(path, *args, **named)

    return failing_call


def test_exists_raises_if_stat_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = str(tmp_path / "file")
    assert not disk.exists(place)
    assert disk.create_content(place, b"")
    assert disk.exists(place)
    assert not disk.exists(os.path.join(place, "below"))
    monkeypatch.setattr(os, "stat", failing(os.stat, OSError(errno.EIO, "Input/output error"), [place]))
    with pytest.raises(OSError, match="Input/output error"):
        disk.exists(place)


def test_a_commit_moves_its_files_even_if_stat_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    staging = Staging(str(tmp_path), "query", "run")
    staged, name = "_staging/query/epoch-1/a.parquet.staged", "day=1/a.parquet"
    for path in (staged, name):
        disk.ensure_directory(os.path.dirname(str(tmp_path / path)))
    assert disk.create_content(str(tmp_path / staged), b"rows")
    with monkeypatch.context() as patch:
        stale = OSError(errno.ESTALE, "Stale file handle")
        patch.setattr(os, "stat", failing(os.stat, stale, [str(tmp_path / staged)]))
        synced: list[str] = []
        patch.setattr(disk, "sync_directory", synced.append)
        staging.roll_forward(Entry(1, 0, ((staged, name),)))
    assert (tmp_path / name).read_bytes() == b"rows"
    assert synced == [str(tmp_path / "day=1")]


def test_a_directory_removed_during_its_creation_is_created_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = str(tmp_path / "day=1")
    monkeypatch.setattr(os, "makedirs", failing(os.makedirs, FileExistsError(place), [place], times=1))
    disk.ensure_directory(place)
    assert disk.exists(place)


def test_a_file_is_created_once_and_replaced_whole(tmp_path: Path) -> None:
    place = str(tmp_path / "stored.json")
    assert disk.create_content(place, b"first")
    assert not disk.create_content(place, b"second")
    assert disk.content_of(place) == b"first"
    disk.replace_content(place, b"third")
    assert disk.content_of(place) == b"third"
    assert [file.name for file in tmp_path.iterdir()] == ["stored.json"], "no temporary file is left"
