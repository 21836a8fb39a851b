"""The examples do what they say: their files load, their test cases pass on Spark, and the notebook runs.

`make test` runs two of the pipelines here, and orders-to-mails in test_pipeline_backends.py, whose case `make deep`
runs here; MOLDAU_ALL_EXAMPLES=1 (`make examples`) runs the test cases of all of them.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from harness.depth import few
from harness.patience import PATIENCE_S
from harness.postgresql import postgresql, why_none

from moldau.pipelines.template import write_template
from moldau.testing import broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from moldau.pipelines.running.progress import QueryStatus

EXAMPLES = Path(__file__).parents[2] / "examples"
PIPELINES = sorted([*EXAMPLES.glob("*/pipeline.yaml"), *EXAMPLES.glob("*/*/pipeline.yaml")])
QUICK = few(["commit-log", "stream-processing"], of=["commit-log", "orders-to-mails", "stream-processing"])
"""Between them: an upsert, headers and dead letters, a join of two streams with windows. A template has a backend."""
TEMPLATES = [("topic", "delta"), ("csv", "sqlite"), ("postgres", "mail")]
RUN_ALL = os.environ.get("MOLDAU_ALL_EXAMPLES") == "1"


def test_the_examples_exist() -> None:
    names = {path.parent.name for path in PIPELINES}
    assert names >= {*QUICK, "activity-tracking", "bookstore", "devices", "metrics-and-logs", "orders-to-mails"}
    assert names >= {"shop", "warehouse"}


@pytest.mark.parametrize("path", PIPELINES, ids=lambda path: path.parent.name)
def test_a_pipeline_loads_and_has_a_test_and_a_readme(path: Path) -> None:
    from moldau.pipelines.cases.files import find_cases
    from moldau.pipelines.reading.loading import load

    pipeline = load(path)
    assert pipeline.name == path.parent.name
    assert pipeline.bootstrap == "localhost:9092"
    folder = EXAMPLES / path.relative_to(EXAMPLES).parts[0]
    assert (folder / "README.md").read_text().startswith("# ")
    for case in find_cases(path):
        assert case.inputs
        assert case.expected


@pytest.mark.parametrize(
    "path", [path for path in PIPELINES if RUN_ALL or path.parent.name in QUICK], ids=lambda path: path.parent.name
)
def test_the_cases_of_a_pipeline_pass(path: Path, spark: SparkSession) -> None:
    pass_cases(path, spark)


def pass_cases(path: Path, spark: SparkSession) -> None:
    from moldau.pipelines.cases.case import run_case
    from moldau.pipelines.cases.files import find_cases
    from moldau.pipelines.reading.loading import load

    pipeline = load(path)
    settings = {**pipeline.spark, "spark.sql.shuffle.partitions": "1"}
    for case in find_cases(path):
        with broker() as empty:
            result = run_case(case, replace(pipeline, bootstrap=empty.bootstrap_servers, spark=settings), spark)
        assert result.error is None
        assert [difference for difference in result.differences if difference] == []


@pytest.mark.parametrize(("source", "sink"), few(TEMPLATES[1:], of=TEMPLATES))
def test_the_cases_of_the_templates_pass(source: str, sink: str, tmp_path: Path, spark: SparkSession) -> None:
    """Each source once; that every combination loads is a unit test. `make test` leaves out the topic, which most other
    tests read."""
    pass_cases(write_template(tmp_path, "shop", source, sink)[0], spark)


@pytest.mark.parametrize("folder", ["databases", "orders-to-mails"])
def test_an_example_of_a_few_lines(folder: str) -> None:
    """More than 40 lines are no longer less than what somebody would write by hand."""
    for path in (*(EXAMPLES / folder).rglob("*.yaml"), *(EXAMPLES / folder).rglob("*.py")):
        assert len(path.read_text().splitlines()) <= 40, path


@pytest.mark.skipif(why_none() is not None, reason=why_none() or "")
def test_a_shops_table_reaches_a_warehouse_and_a_lake(tmp_path: Path, spark: SparkSession) -> None:
    import psycopg
    from deltalake import DeltaTable

    from moldau.pipelines.planning.compiling import Mode
    from moldau.pipelines.reading.loading import load
    from moldau.pipelines.running.launching import RunOptions, launch
    from moldau.pipelines.running.silence import Silence
    from moldau.pipelines.running.state_directory import StateDirectory
    from moldau.pipelines.running.stop_request import Stop

    folder = EXAMPLES / "databases"
    with postgresql(tmp_path) as server, broker() as empty:
        with psycopg.connect(server.url, autocommit=True) as connection:
            connection.execute("create database warehouse")

        def run(name: str, database: str) -> QueryStatus:
            variables = {"database": server.url.replace("/postgres", f"/{database}")}
            if name == "warehouse":
                variables["lake"] = str(tmp_path / "lake")
            pipeline = load(folder / name / "pipeline.yaml", variables, empty.bootstrap_servers)
            options, state = RunOptions(mode=Mode.UNTIL_CAUGHT_UP), StateDirectory(tmp_path / name)
            ended = launch(pipeline, state, options, lambda on_phase: spark, Silence(), Stop())
            assert ended.state == "finished", ended.message
            return ended.queries[-1]

        for statement in (folder / "shop" / "orders.sql").read_text().split(";")[:-1]:
            server.query(statement)
        run("shop", "postgres")
        for statement in (folder / "shop" / "changes.sql").read_text().split(";")[:-1]:
            server.query(statement)
        shop = run("shop", "postgres")
        lake = run("warehouse", "warehouse")
        with psycopg.connect(server.url.replace("/postgres", "/warehouse")) as connection:
            sales = connection.execute("select id, customer, item, total::text from sales order by id").fetchall()
    assert sales == [(1, "ann", "book", "37.50"), (3, "eve", "lamp", "39.00"), (4, "dan", "pen", "7.50")]
    source, sink = shop.sources["orders"], shop.sinks["orders"]
    assert (source.rows, sink.rows, source.lag_records) == (3, 3, None), "what this run has read and written"
    assert source.lag_bytes is not None
    assert source.lag_bytes < 1 << 20
    assert abs((source.last_change_ms or 0) / 1000 - time.time()) < PATIENCE_S
    source, sink = lake.sources["orders"], lake.sinks["lake"]
    assert (source.rows, sink.rows, source.lag_records, source.lag_bytes) == (6, 6, 0, None)
    in_lake = DeltaTable(str(tmp_path / "lake" / "sales")).to_pyarrow_table().to_pylist()
    assert sorted((row["id"], row["customer"], row["item"], str(row["total"])) for row in in_lake) == sales


def code_cells(notebook: Path) -> Iterator[tuple[str, str]]:
    for cell in json.loads(notebook.read_text())["cells"]:
        if cell["cell_type"] == "code":
            yield cell["id"], "".join(cell["source"])


def test_the_notebook_runs(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    """Its session is the one of all tests: Spark has one at a time in a process."""
    names: dict[str, Any] = {"__name__": "notebook"}
    for name, source in code_cells(EXAMPLES / "notebook" / "moldau.ipynb"):
        exec(compile(source, name, "exec"), names)
    assert {row["book"]: row["copies"] for row in names["sold"].to_pylist()} == names["before"]
    assert names["after"].keys() == set(names["BOOKS"])
    assert all(names["after"][book] > copies for book, copies in names["before"].items())
    assert "█" in capsys.readouterr().out


def test_the_notebook_is_stored_without_output() -> None:
    cells = json.loads((EXAMPLES / "notebook" / "moldau.ipynb").read_text())["cells"]
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in cells if "outputs" in cell)
