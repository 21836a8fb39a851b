"""What came of a test case, and the expected files that are made of it. No Spark in here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from moldau.pipelines.cases.comparing import Difference, parsed
from moldau.pipelines.cases.files import Case, write_expected
from moldau.pipelines.spec import Pipeline, TableSink, TopicSink

VOLATILE_HEADERS: Final = frozenset({"moldau.timestamp"})
"""Not written into expected files: it differs from run to run unless the input says when its records are from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseResult:
    case: Case
    seconds: float
    differences: tuple[Difference, ...] = ()
    error: str | None = None
    story: str | None = None
    """Of the error: all that Python, Spark and Java said."""
    outputs: Mapping[str, Sequence[Any]]
    """By sink: all records or rows that came out."""
    closed: tuple[str, ...] = ()
    """Queries whose open windows were closed at the end, as if time had gone on."""

    @property
    def has_passed(self) -> bool:
        return self.error is None and bool(self.case.expected) and not any(self.differences)


def update(result: CaseResult, pipeline: Pipeline) -> list[str]:
    """Makes what came out what is expected: every sink that has a file or wrote anything. Names the sinks."""
    assert result.error is None
    tables = {sink.name for sink in pipeline.sinks if isinstance(sink, TableSink)}
    written = [name for name, lines in result.outputs.items() if lines or name in result.case.expected]
    for name in written:
        lines = result.outputs[name]
        routed = any(isinstance(sink, TopicSink) and sink.route and sink.name == name for sink in pipeline.sinks)
        kept = lines if name in tables else [_worth_keeping(record, routed) for record in lines]
        write_expected(result.case.folder, name, kept)
    return written


def _worth_keeping(record: Mapping[str, Any], routed: bool) -> dict[str, Any]:
    kept: dict[str, Any] = {"key": record["key"]} if record["key"] is not None else {}
    kept["value"] = parsed(record["value"])
    headers = {name: text for name, text in record["headers"].items() if name not in VOLATILE_HEADERS}
    return kept | ({"headers": headers} if headers else {}) | ({"topic": record["topic"]} if routed else {})
