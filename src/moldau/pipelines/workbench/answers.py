"""Problems, results of cases and rows as JSON and back: see questions.py for the form."""

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
    return {"message": problem.message, "place": place, "hint": problem.hint}


def problem_from_json(told: Mapping[str, Any]) -> Problem:
    at = told["place"]
    place = None if at is None else Place(file=at[0], line=at[1], column=at[2])
    return Problem(told["message"], place, told["hint"])


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


def results_from_json(told: Iterable[Mapping[str, Any]], cases: Sequence[Case]) -> list[CaseResult]:
    """`cases` are those that were asked about."""
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
        for each in told
    ]


def preview_from_json(told: Mapping[str, Any]) -> Preview:
    """What `asdict` made of one."""
    return Preview(**{**told, "columns": tuple(told["columns"]), "rows": tuple(map(tuple, told["rows"]))})
