"""The names of outputs, by which a fresh start finds what it would double."""

from __future__ import annotations

from pathlib import Path

import pytest

from moldau.pipelines.reading.loading import load
from moldau.pipelines.running import fresh_start
from moldau.pipelines.running.outputs import appended_by, outputs_of, upserted_by

SPEC = """
name: lake
sources:
  orders: {{topic: orders, schema: id string}}
sinks:
  - {{name: rows, from: orders, table: "{table}", format: {format}{mode}}}
"""


@pytest.fixture(params=["", "file:", "file://", "file://localhost"])
def prefix(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("end", ["", "/"])
def test_a_table_on_this_machine_is_its_path(
    tmp_path: Path, prefix: str, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "pipelines" / "lake.yaml"
    file.parent.mkdir()
    file.write_text(SPEC.format(table=f"{prefix}{tmp_path}/lake/rows{end}", format="parquet", mode=""))
    for folder in (tmp_path, file.parent):
        monkeypatch.chdir(folder)
        assert outputs_of(load(file), ["rows"]) == ["table ../lake/rows"]
    _, table = appended_by(load(file))["rows"]
    assert fresh_start._nonempty_tables([table]) == ()
    (tmp_path / "lake" / "rows").mkdir(parents=True)
    (tmp_path / "lake" / "rows" / "part").touch()
    assert fresh_start._nonempty_tables([table]) == (f"{tmp_path}/lake/rows",)
    (line,) = fresh_start._rename_tables([table])
    assert line.startswith(f"renamed table {tmp_path}/lake/rows to ")
    assert not (tmp_path / "lake" / "rows").exists()


def test_so_is_an_upserted_one(tmp_path: Path, prefix: str) -> None:
    file = tmp_path / "lake.yaml"
    table = f"{prefix}{tmp_path}/rows"
    file.write_text(SPEC.format(table=table, format="delta", mode=", mode: upsert, keys: [id]"))
    assert upserted_by(load(file)) == {"rows": f"{tmp_path}/rows"}


def test_a_table_elsewhere_is_its_url(tmp_path: Path) -> None:
    file = tmp_path / "lake.yaml"
    file.write_text(SPEC.format(table="s3a://lake/rows", format="parquet", mode=""))
    assert outputs_of(load(file), ["rows"]) == ["table s3a://lake/rows"]
    assert fresh_start._nonempty_tables(["s3a://lake/rows"]) == ("s3a://lake/rows",)
