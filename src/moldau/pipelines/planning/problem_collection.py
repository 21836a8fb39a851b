"""Collects the problems found while a pipeline is planned, and locates Spark's errors in the pipeline's file.

Planning continues after a problem, so that one run reports everything that is wrong. If a view fails, the views that
read it fail too; only the first failure is reported, with a list of what was not checked because of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from pyspark.errors import PySparkException

from moldau.pipelines.planning.avro_types import UnsuitableAvro
from moldau.pipelines.planning.python_steps import PythonStepError
from moldau.pipelines.planning.record_schemas import UnusableSchema
from moldau.pipelines.planning.record_values import NoValue
from moldau.pipelines.planning.sql_errors import quiet, sql_error
from moldau.pipelines.problems import Problem, did_you_mean
from moldau.pipelines.spec import Pipeline

USER_ERRORS = (PythonStepError, NoValue, UnsuitableAvro, UnusableSchema)
"""Moldau's errors whose text is for the author of the pipeline."""


class Refused(ValueError):
    """Something is wrong with the value at a dotted path of the pipeline's file."""

    def __init__(self, path: str, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.path, self.hint = path, hint


class FailedBefore(Exception):
    """A needed view has failed before, and its problem is already recorded."""

    def __init__(self, view: str) -> None:
        super().__init__(view)
        self.view = view


class Problems:
    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self.found: list[Problem] = []
        self.failed: dict[str, int] = {}
        """Sources and steps without a view, in lower case, and the index in `found` of the problem that caused it."""
        self._unchecked: dict[int, list[str]] = {}

    @contextmanager
    def at(self, path: str, who: str, text: str | None = None, view: str | None = None) -> Iterator[None]:
        """Record errors raised inside. `text` is the SQL or DDL at `path`; after an error, `view` has failed."""
        try:
            with quiet():
                yield
            return
        except FailedBefore as error:
            self.leave_out(who, error.view, view)
        except Refused as error:
            self.add(error.path, f"{who}: {error}", error.hint)
        except USER_ERRORS as error:
            self.add(path, f"{who}: {error}")
        except PySparkException as error:
            relation = _missing_relation(error)
            if self.has_failed(relation):
                self.leave_out(who, relation, view)
            else:
                self._add_spark_error(error, path, who, text, relation)
        if view is not None:
            self.failed.setdefault(view.casefold(), len(self.found) - 1)

    def has_failed(self, view: str) -> bool:
        return view.casefold() in self.failed

    def leave_out(self, who: str, needed: str, view: str | None = None) -> None:
        """Record that `who` is not checked, because it needs a failed view. `view` then fails for the same reason."""
        cause = self.failed[needed.casefold()]
        if view is None or not self.has_failed(view):
            self._unchecked.setdefault(cause, []).append(who)
        if view is not None:
            self.failed.setdefault(view.casefold(), cause)

    def all(self) -> list[Problem]:
        """Return the problems, each with what could not be checked because of it."""
        return [_with_unchecked(problem, self._unchecked.get(at, ())) for at, problem in enumerate(self.found)]

    def add(self, path: str, message: str, hint: str | None = None) -> None:
        self.found.append(Problem(message, self._pipeline.place_of(path), hint))

    def _add_spark_error(self, error: PySparkException, path: str, who: str, text: str | None, relation: str) -> None:
        details = sql_error(error, text or "")
        near = did_you_mean(relation, self._names()) if relation else ""
        place = self._pipeline.place_of(path)
        if text is not None and details.line is not None and details.column is not None:
            place = self._pipeline.place_in(path, details.line, details.column)
        self.found.append(Problem(f"{who}: {details.message}{near}", place))

    def _names(self) -> list[str]:
        return [*self._pipeline.sources, *(step.name for step in self._pipeline.steps)]


def _with_unchecked(problem: Problem, unchecked: Sequence[str]) -> Problem:
    if not unchecked:
        return problem
    hint = f"not checked, as they need it: {', '.join(unchecked)}"
    if len(unchecked) == 1:
        hint = f"not checked, as it needs this: {unchecked[0]}"
    return replace(problem, hint=f"{problem.hint}; {hint}" if problem.hint else hint)


def _missing_relation(error: PySparkException) -> str:
    """Return the name of the missing table or view, or "" for any other error."""
    if (error.getCondition() or "") != "TABLE_OR_VIEW_NOT_FOUND":
        return ""
    return (error.getMessageParameters() or {}).get("relationName", "").replace("`", "")


def in_file(path: Path | None, error: PySparkException) -> UnusableSchema:
    """Return the error about a schema file, with the position in that file as part of the message."""
    details = sql_error(error, "")
    where = f"{path}:{details.line}:{details.column}" if details.line else str(path)
    return UnusableSchema(f"{where}: {details.message}")
