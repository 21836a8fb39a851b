"""`moldau pipeline init` writes a pipeline that loads, and a test case for it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from moldau.pipelines.cases.files import find_cases, read_expected, read_input
from moldau.pipelines.drawing.graph import graph
from moldau.pipelines.problems import PipelineError
from moldau.pipelines.reading.loading import load
from moldau.pipelines.reading.starter import starter_files, write_starter
from moldau.pipelines.spec import TopicSource


def test_the_starter_loads(tmp_path: Path) -> None:
    written = write_starter(tmp_path / "shop", "shop")
    assert written[0] == tmp_path / "shop" / "pipeline.yaml"
    pipeline = load(written[0])
    assert pipeline.name == "shop"
    source = pipeline.sources["orders"]
    assert isinstance(source, TopicSource)
    assert source.dead_letter_topic == "orders.dead"
    edges = {(edge.source, edge.target) for edge in graph(pipeline).edges}
    assert ("source.orders", "step.priced") in edges
    assert ("step.per_minute", "sink.per-minute") in edges


def test_the_test_case_of_the_starter_can_be_read(tmp_path: Path) -> None:
    path = write_starter(tmp_path, "shop")[0]
    pipeline = load(path)
    (case,) = find_cases(path)
    assert set(case.inputs) == set(pipeline.sources)
    assert set(case.expected) == {"per-minute", "orders.dead-letters"}
    assert all(json.loads(record.value or b"") for record in read_input(case.inputs["orders"]))
    counted = sum(record["value"]["orders"] for record in read_expected(case.expected["per-minute"]))
    assert counted == 4


def test_the_sinks_in_comments_load_too(tmp_path: Path) -> None:
    text = starter_files("shop")["pipeline.yaml"]
    before, _, commented = text.partition("  # Other sinks to try:\n")
    assert commented
    path = tmp_path / "pipeline.yaml"
    path.write_text(before + commented.replace("  # ", "  ").replace("  #\n", "\n"))
    assert [sink.name for sink in load(path).sinks] == [
        "per-minute",
        "priced-to-topics",
        "priced-to-orders",
        "per_minute-to-console",
    ]


def test_existing_files_are_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "pipeline.yaml").write_text("mine")
    with pytest.raises(PipelineError, match="is there already"):
        write_starter(tmp_path, "shop")
    assert (tmp_path / "pipeline.yaml").read_text() == "mine"
    assert list(tmp_path.iterdir()) == [tmp_path / "pipeline.yaml"]
