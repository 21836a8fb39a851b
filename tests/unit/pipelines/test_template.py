"""`moldau pipeline init` writes a pipeline that loads, and a test case for it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from moldau.pipelines.cases.files import find_cases, read_expected, read_input
from moldau.pipelines.drawing.graph import graph
from moldau.pipelines.problems import PipelineError
from moldau.pipelines.reading.loading import load
from moldau.pipelines.spec import TopicSource
from moldau.pipelines.template import template_files, write_template
from moldau.pipelines.template_flows import SINKS, SOURCES

LINES_MAX = 40


def test_the_template_loads(tmp_path: Path) -> None:
    written = write_template(tmp_path / "shop", "shop")
    assert written[0] == tmp_path / "shop" / "pipeline.yaml"
    pipeline = load(written[0])
    assert pipeline.name == "shop"
    source = pipeline.sources["orders"]
    assert isinstance(source, TopicSource)
    assert source.dead_letter_topic == "orders.dead"
    edges = {(edge.source, edge.target) for edge in graph(pipeline).edges}
    assert ("source.orders", "step.priced") in edges
    assert ("step.per_minute", "sink.per-minute") in edges


@pytest.mark.parametrize("name", ["null", "true", "on", "2026", "1e3", "2026-01-31", "0x10"])
def test_a_name_that_yaml_takes_for_another_type_is_quoted(tmp_path: Path, name: str) -> None:
    assert load(write_template(tmp_path, name)[0]).name == name


def test_the_test_case_of_the_template_can_be_read(tmp_path: Path) -> None:
    path = write_template(tmp_path, "shop")[0]
    pipeline = load(path)
    (case,) = find_cases(path)
    assert set(case.inputs) == set(pipeline.sources)
    assert set(case.expected) == {"per-minute", "orders.dead-letters"}
    assert all(json.loads(record.value or b"") for record in read_input(case.inputs["orders"]))
    counted = sum(record["value"]["orders"] for record in read_expected(case.expected["per-minute"]))
    assert counted == 4


def test_the_sinks_in_comments_load_too(tmp_path: Path) -> None:
    text = template_files("shop")["pipeline.yaml"]
    before, _, commented = text.partition("  # Other sinks to try:\n")
    assert commented
    path = tmp_path / "pipeline.yaml"
    path.write_text(before + commented.replace("  # ", "  ").replace("  #\n", "\n"))
    assert [sink.name for sink in load(path).sinks] == [
        "per-minute",
        "priced-to-topics",
        "priced-to-orders",
        "per_minute-to-http",
        "per_minute-to-console",
    ]


def test_existing_files_are_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "pipeline.yaml").write_text("mine")
    with pytest.raises(PipelineError, match="is there already"):
        write_template(tmp_path, "shop")
    assert (tmp_path / "pipeline.yaml").read_text() == "mine"
    assert list(tmp_path.iterdir()) == [tmp_path / "pipeline.yaml"]


@pytest.mark.parametrize("sink", SINKS)
@pytest.mark.parametrize("source", SOURCES)
def test_every_source_goes_with_every_sink(tmp_path: Path, source: str, sink: str) -> None:
    path = write_template(tmp_path / "shop", "shop", source, sink)[0]
    lines = path.read_text().splitlines()
    assert len(lines) <= LINES_MAX
    assert max(map(len, lines)) <= 120
    assert not re.search(r"@[A-Z]+@", "".join(lines)), "a part is missing"
    pipeline = load(path)
    (case,) = find_cases(path)
    assert set(case.inputs) == set(pipeline.sources) == {"orders"}
    assert set(case.expected) == {"totals"} == {each.name for each in pipeline.sinks}
    assert sum("change:" in line for line in lines) >= 5


def test_the_end_that_is_not_given_is_a_topic() -> None:
    assert template_files("shop", source="csv") == template_files("shop", "csv", "topic")
    assert template_files("shop", sink="mail") == template_files("shop", "topic", "mail")
    assert template_files("shop") != template_files("shop", "topic", "topic")
