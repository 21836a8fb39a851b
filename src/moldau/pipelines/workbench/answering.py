"""Answers the questions of `validate`, `test` and `preview` in a `dev`; questions.py describes their format."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from moldau.pipelines.cases.files import find_cases
from moldau.pipelines.planning.sql_errors import SPARK_ERRORS
from moldau.pipelines.problems import PipelineError
from moldau.pipelines.running.failures import failure_of
from moldau.pipelines.workbench.answers import problem_to_json, result_to_json
from moldau.pipelines.workbench.bench import Bench
from moldau.pipelines.workbench.previewing import Sampled


def answer(
    question: Mapping[str, Any],
    spark: SparkSession,
    empty_broker: Callable[[], AbstractContextManager[str]],
    on_phase: Callable[[str], None],
) -> Mapping[str, Any]:
    """Answer with the settings and the environment of the caller. Raises PipelineError with a message for its user."""
    bench = Bench(Path(question["file"]), spark, question["settings"], question["environ"])
    try:
        if question["do"] == "check":
            on_phase("checking SQL and schemas")
            return {"problems": [problem_to_json(problem) for problem in bench.problems()]}
        if question["do"] == "test":
            cases = find_cases(bench.file.absolute(), question["cases"])
            results = bench.results(cases, empty_broker, on_phase, question["update"])
            return {"results": [result_to_json(result) for result in results]}
        case = find_cases(bench.file.absolute(), [question["case"]])[0] if question["case"] else None
        with Sampled(bench.pipeline(question["bootstrap"]), spark, case) as sampled:
            return {"previews": [asdict(each) for each in sampled.previews(question["steps"], question["rows"])]}
    except SPARK_ERRORS as error:
        raise PipelineError(f"Spark: {failure_of(str(error)).message}") from error
