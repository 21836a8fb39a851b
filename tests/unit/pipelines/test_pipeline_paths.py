"""Paths of files and tables in a pipeline file: paths that Spark can read are accepted, others are refused with one
sentence."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from marked_yaml import WHOLE_PIPELINE, load_text

from moldau.pipelines.problems import InvalidPipeline
from moldau.pipelines.reading.paths import Folder
from moldau.pipelines.spec import FileSource, TableSource

NEEDS_PERMISSIONS = pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read all")
SOURCE = "topic: orders\n    schema: id string, amount double, ts timestamp"


def quoted_yaml(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def pipeline(key: str, path: str) -> str:
    return WHOLE_PIPELINE.replace(
        SOURCE, f"{key}: {quoted_yaml(path)}\n    format: {'csv' if key == 'file' else 'parquet'}"
    )


def problems(folder: Path, text: str) -> list[str]:
    with pytest.raises(InvalidPipeline) as raised:
        load_text(folder, text)
    return [each.message.removeprefix("source 'orders': ") for each in raised.value.problems]


def problem(folder: Path, key: str, path: str) -> str:
    (only,) = problems(folder, pipeline(key, path))
    return only


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in (
        "a.csv",
        "b.csv",
        "c1.csv",
        "odd[1].csv",
        "odd{.csv",
        "odd[.csv",
        "comma,.csv",
        "2026/05.csv",
        "2025/12.csv",
        "sp ace/t/x",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x\n1\n")
    return tmp_path


@pytest.mark.parametrize(
    "path",
    [
        "a.csv",
        "*.csv",
        "{a,gone}.csv",
        "{gone,b}.csv",
        "{gone,{far,c1}}.csv",
        "{2026/05,2026/06}.csv",
        "202[56]/{05,06}.csv",
        "c[^a-z].csv",
        "c[!a-z].csv",
        r"odd\[1\].csv",
        r"comma{\,,.}.csv",
        "s3a://bucket/{a,b}.csv",
        "hdfs:/data/a.csv",
    ],
)
def test_hadoop_patterns_are_accepted(folder: Path, path: str) -> None:
    source = load_text(folder, pipeline("file", path)).sources["orders"]
    assert isinstance(source, FileSource)
    assert source.path == (path if ":/" in path else f"{folder}/{path}")


@pytest.mark.parametrize("scheme", ["file:", "file://"])
def test_file_urls_are_accepted(folder: Path, scheme: str) -> None:
    for path in (f"{scheme}{folder}/a.csv", f"{scheme}{folder}/{{a,gone}}.csv"):
        source = load_text(folder, pipeline("file", path)).sources["orders"]
        assert isinstance(source, FileSource)
        assert source.path == path
    table = load_text(folder, pipeline("table", f"{scheme}{folder}/sp%20ace/t")).sources["orders"]
    assert isinstance(table, TableSource)
    gone = f"{scheme}{folder}/d.csv"
    assert re.fullmatch(rf"there is no file '{scheme}/.*', did you mean '[ab].csv'\?", problem(folder, "file", gone))
    assert problem(folder, "table", gone).startswith(f"there is no table '{scheme}/")


def test_a_schema_file_may_be_a_file_url(folder: Path) -> None:
    (folder / "orders.ddl").write_text("id string")
    text = WHOLE_PIPELINE.replace(
        "schema: id string, amount double, ts timestamp", f"schema_file: file:{folder}/orders.ddl"
    )
    source = load_text(folder, text).sources["orders"]
    assert not isinstance(source, TableSource)
    assert source.schema_file == folder / "orders.ddl"


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("{x,y}.csv", "no file matches '{x,y}.csv'"),
        ("{a,b.csv", "no file matches '{a,b.csv'"),
        ("odd{.csv", r"no file matches 'odd{.csv'; before the characters {}[]*?\ of a file's name, write \ "),
        ("odd[.csv", r"no file matches 'odd[.csv'; before the characters {}[]*?\ of a file's name, write \ "),
        ("odd[1].csv", r"no file matches 'odd[1].csv'; before the characters {}[]*?\ of a file's name, write \ "),
        ("file://host/a.csv", "'file://host/a.csv' names a host; a file of this machine is  file:/path"),
        ("file:a.csv", "there is no file 'file:a.csv', did you mean 'a.csv'?"),
        ("a.csv/b.csv", "there is no file 'a.csv/b.csv'"),
        ("loop", "'loop' cannot be read: too many levels of symbolic links"),
    ],
)
def test_an_unreadable_path_is_refused_with_one_sentence(folder: Path, path: str, expected: str) -> None:
    (folder / "loop").symlink_to("loop")
    assert problem(folder, "file", path) == expected.rstrip()


@pytest.mark.parametrize("key", ["file", "table"])
def test_a_file_name_that_is_too_long_is_refused(folder: Path, key: str) -> None:
    assert problem(folder, key, "x" * 5_000).endswith("cannot be read: file name too long")


def test_a_directory_whose_name_is_a_pattern_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "[work]"
    folder.mkdir()
    (folder / "a.csv").write_text("x\n")
    assert problem(folder, "file", "a.csv").startswith("Spark cannot read files in '/")


@NEEDS_PERMISSIONS
def test_files_and_directories_without_permission_are_refused(folder: Path) -> None:
    (folder / "a.csv").chmod(0)
    (folder / "2026").chmod(0)
    assert problem(folder, "file", "a.csv") == "'a.csv' cannot be read: permission denied"
    assert problem(folder, "file", "2026/05.csv") == "'2026/05.csv' cannot be read: permission denied"
    assert problem(folder, "table", "2026") == "'2026' cannot be read: permission denied"
    (folder / "2026").chmod(0o755)


@pytest.mark.parametrize("pattern", ["*/" * 3_000 + "*", "[" * 100_000 + "]", "{a" * 50_000, "*a" * 500])
def test_hostile_patterns_match_nothing(tmp_path: Path, pattern: str) -> None:
    assert str(Folder(tmp_path).files_problem(pattern)).startswith("no file matches")


@pytest.mark.parametrize(
    "pattern", ["{a,b}" * 60, "{" * 3_000 + "}" * 3_000, "{" + "," * 100_000 + "}" + "x" * 100_000]
)
def test_patterns_with_too_many_alternatives_are_not_checked(tmp_path: Path, pattern: str) -> None:
    assert Folder(tmp_path).files_problem(pattern) is None


@pytest.mark.parametrize("name", [".", "pipe"])
def test_a_schema_file_that_is_not_a_regular_file_is_refused(folder: Path, name: str) -> None:
    if hasattr(os, "mkfifo"):
        os.mkfifo(folder / "pipe")
    text = WHOLE_PIPELINE.replace(
        "schema: id string, amount double, ts timestamp", f"schema_file: {name}\n    format: avro"
    )
    assert problems(folder, text) == [f"'{name}' is not a file"]


@pytest.mark.parametrize(
    "path", ["file:{folder}/t", "file://{folder}/x/../t", "{folder}/t/", "FILE://localhost{folder}/%74"]
)
def test_a_table_is_the_same_by_a_path_and_by_a_url(tmp_path: Path, path: str) -> None:
    sinks = "".join(
        f"  - {{name: {name}, from: orders, table: '{table}', format: delta, mode: complete}}\n"
        for name, table in (("first", "t"), ("second", path.format(folder=tmp_path)))
    )
    found = problems(tmp_path, WHOLE_PIPELINE.partition("sinks:\n")[0] + "sinks:\n" + sinks)
    assert [each for each in found if "it writes to the table of sink 'first'" in each]
