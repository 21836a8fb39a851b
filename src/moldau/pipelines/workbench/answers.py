"""Converts problems, results of cases and previews to JSON and back; questions.py describes the format."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from moldau.pipelines.cases.comparing import Difference
from moldau.pipelines.cases.files import Case
from moldau.pipelines.cases.result import CaseResult
from moldau.pipelines.problems import Problem
from moldau.pipelines.spec import Place
from moldau.pipelines.workbench.preview import Preview


def problem_to_json(problem: Problem) -> dict[str, Any]:
    at = problem.place
    place = None if at is None else [at.file, at.line, at.column]
    return {"message": problem.message, "place": place, "hint": problem.hint, "severity": problem.severity}


def problem_from_json(fields: Mapping[str, Any]) -> Problem:
    at = fields["place"]
    place = None if at is None else Place(file=at[0], line=at[1], column=at[2])
    return Problem(fields["message"], place, fields["hint"], fields["severity"])


def result_to_json(result: CaseResult) -> dict[str, Any]:
    return {
        "case": result.case.name,
        "seconds": result.seconds,
        "error": result.error,
        "story": result.story,
        "closed": list(result.closed),
        "outputs": {sink: list(lines) for sink, lines in result.outputs.items()},
        "differences": [
            {"sink": each.sink, "missing": list(each.missing), "unexpected": list(each.unexpected)}
            for each in result.differences
        ],
    }


def results_from_json(results: Iterable[Mapping[str, Any]], cases: Sequence[Case]) -> list[CaseResult]:
    """Return the results; `cases` are those of the question."""
    by_name = {case.name: case for case in cases}
    return [
        CaseResult(
            case=by_name[each["case"]],
            seconds=each["seconds"],
            error=each["error"],
            story=each["story"],
            closed=tuple(each["closed"]),
            outputs=each["outputs"],
            differences=tuple(
                Difference(one["sink"], tuple(one["missing"]), tuple(one["unexpected"])) for one in each["differences"]
            ),
        )
        for each in results
    ]


def preview_from_json(fields: Mapping[str, Any]) -> Preview:
    """Return the preview from the fields that `asdict` returned."""
    return Preview(**{**fields, "columns": tuple(fields["columns"]), "rows": tuple(map(tuple, fields["rows"]))})
