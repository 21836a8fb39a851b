"""The result of a test case, and the expected files written from it. This needs no Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from moldau.pipelines.cases.comparing import Difference, json_or_text
from moldau.pipelines.cases.files import Case, write_expected
from moldau.pipelines.spec import DatabaseSink, Pipeline, TableSink, TopicSink


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseResult:
    case: Case
    seconds: float
    differences: tuple[Difference, ...] = ()
    error: str | None = None
    story: str | None = None
    """The full text of the error from Python, Spark and Java."""
    outputs: Mapping[str, Sequence[Any]]
    """All records or rows of the output, by sink."""
    closed: tuple[str, ...] = ()
    """Queries whose open windows were closed at the end, as if more time had passed."""

    @property
    def has_passed(self) -> bool:
        return self.error is None and bool(self.case.expected) and not any(self.differences)


def update(result: CaseResult, pipeline: Pipeline) -> list[str]:
    """Write the output to expected files, for every sink with such a file or with output. Return their names."""
    assert result.error is None
    tables = {sink.name for sink in pipeline.sinks if isinstance(sink, TableSink | DatabaseSink)}
    written = [name for name, lines in result.outputs.items() if lines or name in result.case.expected]
    for name in written:
        lines = result.outputs[name]
        routed = any(isinstance(sink, TopicSink) and sink.route and sink.name == name for sink in pipeline.sinks)
        expected = lines if name in tables else [_expected_record(record, routed) for record in lines]
        write_expected(result.case.folder, name, expected)
    return written


def _expected_record(record: Mapping[str, Any], routed: bool) -> dict[str, Any]:
    expected: dict[str, Any] = {"key": record["key"]} if record["key"] is not None else {}
    expected["value"] = json_or_text(record["value"])
    headers = {"headers": record["headers"]} if record["headers"] else {}
    return expected | headers | ({"topic": record["topic"]} if routed else {})
