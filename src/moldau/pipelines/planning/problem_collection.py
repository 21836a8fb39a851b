"""Problems found while a pipeline is planned: what Spark or a schema file says, put at the word in the pipeline's file.

One place collects them, so that planning can go on after the first and tell everything that is wrong. A view that
failed makes those that read it fail too; only the first of them is told, and with it what was not checked therefore.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from pyspark.errors import PySparkException

from moldau.pipelines.planning.avro_types import UnsuitableAvro
from moldau.pipelines.planning.python_steps import FailedStep
from moldau.pipelines.planning.record_schemas import UnusableSchema
from moldau.pipelines.planning.record_values import NoValue
from moldau.pipelines.planning.sql_errors import quiet, sql_error
from moldau.pipelines.problems import Problem, did_you_mean
from moldau.pipelines.spec import Pipeline

TOLD = (FailedStep, NoValue, UnsuitableAvro, UnusableSchema)
"""Errors of ours whose text is meant for the author of the pipeline."""


class Refused(ValueError):
    """Something is wrong with the value at a dotted path of the pipeline's file."""

    def __init__(self, path: str, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.path, self.hint = path, hint


class FailedBefore(Exception):
    """A view that is needed here has failed before, and was told."""

    def __init__(self, view: str) -> None:
        super().__init__(view)
        self.view = view


class Problems:
    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self.found: list[Problem] = []
        self.failed: dict[str, int] = {}
        """Sources and steps that have no view, in lower case, and which of the problems is why."""
        self._unchecked: dict[int, list[str]] = {}

    @contextmanager
    def at(self, path: str, who: str, text: str | None = None, view: str | None = None) -> Iterator[None]:
        """Collects what goes wrong inside. `text` is the SQL or DDL at `path`; `view` then has no view."""
        try:
            with quiet():
                yield
            return
        except FailedBefore as error:
            self.leave_out(who, error.view, view)
        except Refused as error:
            self.tell(error.path, f"{who}: {error}", error.hint)
        except TOLD as error:
            self.tell(path, f"{who}: {error}")
        except PySparkException as error:
            relation = _missing_relation(error)
            if self.has_failed(relation):
                self.leave_out(who, relation, view)
            else:
                self._tell_spark(error, path, who, text, relation)
        if view is not None:
            self.failed.setdefault(view.casefold(), len(self.found) - 1)

    def has_failed(self, view: str) -> bool:
        return view.casefold() in self.failed

    def leave_out(self, who: str, needed: str, view: str | None = None) -> None:
        """A step or sink is not checked, for it needs a view that failed; `view` then fails for the same reason."""
        why = self.failed[needed.casefold()]
        if view is None or not self.has_failed(view):
            self._unchecked.setdefault(why, []).append(who)
        if view is not None:
            self.failed.setdefault(view.casefold(), why)

    def all(self) -> list[Problem]:
        """What was found, each with what could not be checked because of it."""
        return [_with_unchecked(problem, self._unchecked.get(at, ())) for at, problem in enumerate(self.found)]

    def tell(self, path: str, message: str, hint: str | None = None) -> None:
        self.found.append(Problem(message, self._pipeline.place_of(path), hint))

    def _tell_spark(self, error: PySparkException, path: str, who: str, text: str | None, relation: str) -> None:
        said = sql_error(error, text or "")
        near = did_you_mean(relation, self._names()) if relation else ""
        place = self._pipeline.place_of(path)
        if text is not None and said.line is not None and said.column is not None:
            place = self._pipeline.place_in(path, said.line, said.column)
        self.found.append(Problem(f"{who}: {said.message}{near}", place))

    def _names(self) -> list[str]:
        return [*self._pipeline.sources, *(step.name for step in self._pipeline.steps)]


def _with_unchecked(problem: Problem, unchecked: Sequence[str]) -> Problem:
    if not unchecked:
        return problem
    told = f"not checked, as they need it: {', '.join(unchecked)}"
    if len(unchecked) == 1:
        told = f"not checked, as it needs this: {unchecked[0]}"
    return replace(problem, hint=f"{problem.hint}; {told}" if problem.hint else told)


def _missing_relation(error: PySparkException) -> str:
    """The name of the table or view that is missing, if that is what is wrong."""
    if (error.getCondition() or "") != "TABLE_OR_VIEW_NOT_FOUND":
        return ""
    return (error.getMessageParameters() or {}).get("relationName", "").replace("`", "")


def in_file(path: Path | None, error: PySparkException) -> UnusableSchema:
    """A schema in a file of its own: the place inside that file is part of the message."""
    said = sql_error(error, "")
    where = f"{path}:{said.line}:{said.column}" if said.line else str(path)
    return UnusableSchema(f"{where}: {said.message}")
