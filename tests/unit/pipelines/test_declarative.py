"""Pipelines as projects of Spark's Declarative Pipelines: the texts. A test of tests/spark runs one."""

from __future__ import annotations

import ast
from pathlib import Path
from textwrap import dedent

import pytest

from moldau.pipelines.declarative import PROJECT, TRANSFORMATIONS, Project, project, streaming
from moldau.pipelines.reading.loading import load

PIPELINE = """
    name: shop
    bootstrap: localhost:9092
    kafka: {sasl.jaas.config: secret line}
    sources:
      orders: {topic: orders, schema: "id string, amount int"}
      lines: {topic: lines, format: text}
      users: {file: users.csv, schema: "id string, country string"}
    steps:
      - {name: large, sql: "select o.*, _key from orders o join users using (id) where amount > 100"}
      - {name: marked, python: "marks:mark", inputs: [large, users], args: {threshold: 5}}
    sinks:
      - {name: to-topic, from: large, topic: large, key: id}
      - {name: to-table, from: lines, table: lake/lines}
      - {name: upserts, from: marked, table: lake/marked, format: delta, mode: upsert, keys: [id]}
"""


def exported(folder: Path, text: str = PIPELINE) -> Project:
    (folder / "users.csv").write_text("id,country\n")
    (folder / "marks.py").write_text("def mark(large, users, threshold): return large\n")
    file = folder / "pipeline.yaml"
    file.write_text(dedent(text))
    return project(load(file), "file:///srv/storage")


def test_sources_steps_and_sinks_become_views_flows_and_tables(tmp_path: Path) -> None:
    made = exported(tmp_path)
    code = made.files[TRANSFORMATIONS]
    functions = [node.name for node in ast.parse(code).body if isinstance(node, ast.FunctionDef)]
    assert functions == ["orders", "lines", "users", "large", "marked", "to_topic_flow", "to_table_table"]
    assert "from STREAM(orders) o join users using (id)" in code
    assert "mark(spark.readStream.table('large'), spark.read.table('users'), threshold=5)" in code
    assert "'cast((id) as string) as key'" in code
    assert "storage: file:///srv/storage" in made.files[PROJECT]


def test_secrets_come_from_the_environment(tmp_path: Path) -> None:
    code = exported(tmp_path).files[TRANSFORMATIONS]
    assert "secret line" not in code
    assert 'os.environ["KAFKA_SASL_JAAS_CONFIG"]' in code


def test_what_has_no_counterpart_is_listed_in_the_project_too(tmp_path: Path) -> None:
    made = exported(tmp_path)
    text = "\n".join(made.left_out)
    for expected in ("dead letters of source orders", "sink upserts: mode upsert", "the module marks"):
        assert expected in text
    assert all(each in made.files[TRANSFORMATIONS] for each in made.left_out)


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("select * from a, b", "select * from STREAM(a), b"),
        ("select 'from a' from `a` x", "select 'from a' from STREAM(`a`) x"),
        ("select * from stream(a)", "select * from stream(a)"),
        ("select * from STREAM a", "select * from STREAM a"),
        ("with b as (select * from A) select * from b", "with b as (select * from STREAM(A)) select * from b"),
    ],
)
def test_stream_is_written_around_views_that_are_streams(sql: str, expected: str) -> None:
    assert streaming(sql, {"a"}) == expected
