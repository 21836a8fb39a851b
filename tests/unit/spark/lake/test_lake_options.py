"""The options of format "moldau-lake"."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest

from moldau.spark.lake import source
from moldau.spark.lake.source import lake_options
from moldau.spark.lake.tables import KINDS, LakeError, open_table


@pytest.mark.parametrize("kind", KINDS)
def test_the_format_of_an_existing_table_is_detected(tmp_path: Path, kind: str) -> None:
    path = str(tmp_path / "table")
    if kind != "parquet":
        pytest.importorskip("deltalake" if kind == "delta" else "pyiceberg")
    open_table(path, kind).prepare(pa.schema([("id", pa.int64())]), ())
    assert lake_options({"path": path}).kind == kind


def test_a_new_table_is_parquet_by_default(tmp_path: Path) -> None:
    assert lake_options({"path": str(tmp_path / "new")}).kind == "parquet"


def test_option_values_are_case_insensitive(tmp_path: Path) -> None:
    assert lake_options({"path": str(tmp_path), "format": "Delta", "follow": "TRUE"}).kind == "delta"
    assert lake_options({"path": str(tmp_path), "follow": "TRUE"}).follow


def test_an_invalid_value_of_follow_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LakeError, match="follow is true or false, not yes; did you mean true"):
        lake_options({"path": str(tmp_path), "follow": "yes"})


def test_the_run_id_of_a_stream_is_its_job_group(monkeypatch: pytest.MonkeyPatch) -> None:
    properties: dict[str, str] = {}
    task = SimpleNamespace(getLocalProperty=properties.get)
    monkeypatch.setattr(source.TaskContext, "get", lambda: task)
    assert source._run_id() is None
    properties |= {source.QUERY_ID: "q", source.RUN_ID: "0b1c2d3e-0000-4000-8000-000000000000"}
    assert source._run_id() == properties[source.RUN_ID]
    for group in ("ingest", "two words", ""):
        properties[source.RUN_ID] = group
        with pytest.raises(LakeError, match="do not call setJobGroup in foreachBatch"):
            source._run_id()
