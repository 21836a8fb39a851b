"""The options of format "moldau-lake"."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from moldau.spark.lake.source import lake_options
from moldau.spark.lake.tables import KINDS, LakeError, open_table


@pytest.mark.parametrize("kind", KINDS)
def test_the_format_of_a_table_that_is_there_need_not_be_said(tmp_path: Path, kind: str) -> None:
    path = str(tmp_path / "table")
    if kind != "parquet":
        pytest.importorskip("deltalake" if kind == "delta" else "pyiceberg")
    open_table(path, kind).prepare(pa.schema([("id", pa.int64())]), ())
    assert lake_options({"path": path}).kind == kind


def test_a_new_table_is_a_parquet_one(tmp_path: Path) -> None:
    assert lake_options({"path": str(tmp_path / "new")}).kind == "parquet"


def test_what_is_said_is_taken(tmp_path: Path) -> None:
    assert lake_options({"path": str(tmp_path), "format": "Delta", "follow": "TRUE"}).kind == "delta"
    assert lake_options({"path": str(tmp_path), "follow": "TRUE"}).follow


def test_what_cannot_be_meant_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LakeError, match="follow is true or false, not yes; did you mean true"):
        lake_options({"path": str(tmp_path), "follow": "yes"})
