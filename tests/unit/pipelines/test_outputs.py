"""The names of outputs, by which a fresh start finds outputs that it would write a second time."""

from __future__ import annotations

from pathlib import Path

import pytest
from marked_yaml import WHOLE_PIPELINE

from moldau.pipelines.problems import PipelineError
from moldau.pipelines.reading.loading import load
from moldau.pipelines.running import fresh_start
from moldau.pipelines.running.fresh_start import FreshStart
from moldau.pipelines.running.outputs import appended_by, outputs_of, upserted_by
from moldau.pipelines.running.state_directory import StateDirectory, write_json

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
def test_a_local_table_is_named_by_its_path(
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


def test_an_upserted_local_table_is_named_by_its_path(tmp_path: Path, prefix: str) -> None:
    file = tmp_path / "lake.yaml"
    table = f"{prefix}{tmp_path}/rows"
    file.write_text(SPEC.format(table=table, format="delta", mode=", mode: upsert, keys: [id]"))
    assert upserted_by(load(file)) == {"rows": f"{tmp_path}/rows"}


def test_a_remote_table_is_named_by_its_url(tmp_path: Path) -> None:
    file = tmp_path / "lake.yaml"
    file.write_text(SPEC.format(table="s3a://lake/rows", format="parquet", mode=""))
    assert outputs_of(load(file), ["rows"]) == ["table s3a://lake/rows"]
    assert fresh_start._nonempty_tables(["s3a://lake/rows"]) == ("s3a://lake/rows",)


def test_topics_that_only_the_java_client_can_read_are_kept_or_refused(tmp_path: Path) -> None:
    """Moldau's client has no Kerberos, Spark's own connector has: it is unknown whether its topics are empty."""
    file = tmp_path / "shop.yaml"
    file.write_text(
        WHOLE_PIPELINE + "connector: kafka\nkafka: {security.protocol: SASL_PLAINTEXT, sasl.mechanism: GSSAPI}\n",
    )
    pipeline, directory = load(file), StateDirectory(tmp_path / "state")
    write_json(directory.checkpoint("orders-to-big") / "offsets" / "0", {})
    kept = fresh_start.plan_fresh_start(pipeline, directory, None, lambda outputs: "keep")
    assert kept == FreshStart(None)
    with pytest.raises(PipelineError, match="run with --existing keep"):
        fresh_start.plan_fresh_start(pipeline, directory, None, lambda outputs: "clear")
    assert fresh_start.existing_output_warnings(pipeline, ["orders-to-big"]) == []
