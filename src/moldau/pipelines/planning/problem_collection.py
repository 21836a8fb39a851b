"""Collects the problems found while a pipeline is planned, and locates Spark's errors in the pipeline's file.

Planning continues after a problem, so that one run reports everything that is wrong. If a view fails, the views that
read it fail too; only the first failure is reported, with a list of what was not checked because of it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from moldau.pipelines.ddl_columns import ddl_columns
from moldau.pipelines.planning.avro_types import UnsuitableAvro
from moldau.pipelines.planning.python_steps import PythonStepError
from moldau.pipelines.planning.record_schemas import UnusableSchema
from moldau.pipelines.planning.record_values import UnwritableRows
from moldau.pipelines.planning.sql_errors import message_of, quiet, sql_error, unresolved_routine
from moldau.pipelines.problems import Problem, did_you_mean
from moldau.pipelines.spec import Pipeline, Place

USER_ERRORS = (PythonStepError, UnwritableRows, UnsuitableAvro, UnusableSchema)
"""Moldau's errors whose text is for the author of the pipeline."""


class InvalidSetting(ValueError):
    """The value at a dotted path of the pipeline's file is invalid, or with `at_key` the key itself, or in a schema the
    last column of the name `column`."""

    def __init__(
        self, path: str, message: str, hint: str | None = None, at_key: bool = False, column: str | None = None
    ) -> None:
        super().__init__(message)
        self.path, self.hint, self.at_key, self.column = path, hint, at_key, column


class NeededViewFailed(Exception):
    """A view that is needed has failed before, and the problem of that view is already recorded."""

    def __init__(self, view: str) -> None:
        super().__init__(view)
        self.view = view


class ProblemCollection:
    """The problems of one pipeline, in the order in which they were found."""

    def __init__(self, pipeline: Pipeline, functions: Callable[[], Collection[str]] = tuple) -> None:
        """`functions` returns the names of all SQL functions, one of which a message may suggest."""
        self._pipeline, self._functions = pipeline, functions
        self.found: list[Problem] = []
        self.failed: dict[str, int] = {}
        """Sources and steps without a view, in lower case, and the index in `found` of the problem that caused it."""
        self._unchecked: dict[int, list[str]] = {}
        """What could not be checked, by the index in `found` of the problem that caused it."""

    @contextmanager
    def recording(self, path: str, subject: str, sql: str | None = None, view: str | None = None) -> Iterator[None]:
        """Record an error raised in the block as a problem of `subject` ("step counts") instead of raising it.

        `sql` is the SQL or DDL at `path`, in which Spark's errors have their position. On an error, `view` is marked
        as failed.
        """
        try:
            with quiet():
                yield
            return
        except NeededViewFailed as error:
            self.skip_dependent(subject, error.view, view)
        except InvalidSetting as error:
            place = self._column_place(error.path, error.column) if error.column else None
            self.add(error.path, f"{subject}: {error}", error.hint, error.at_key, place)
        except USER_ERRORS as error:
            self.add(path, f"{subject}: {error}")
        except PySparkException as error:
            relation = _missing_relation(error)
            if self.has_failed(relation):
                self.skip_dependent(subject, relation, view)
            else:
                self._add_spark_error(error, path, subject, sql, relation, view)
        except Py4JJavaError as error:
            self.add(path, f"{subject}: {message_of(error)}")
        if view is not None:
            self.failed.setdefault(view.casefold(), len(self.found) - 1)

    def has_failed(self, view: str) -> bool:
        return view.casefold() in self.failed

    def skip_dependent(self, subject: str, needed_view: str, view: str | None = None) -> None:
        """Record that `subject` is not checked because it needs a failed view. `view`, which `subject` would have made,
        fails for the same reason."""
        cause = self.failed[needed_view.casefold()]
        if view is None or not self.has_failed(view):
            self._unchecked.setdefault(cause, []).append(subject)
        if view is not None:
            self.failed.setdefault(view.casefold(), cause)

    def all(self) -> list[Problem]:
        """Return the problems, each with a hint that lists what could not be checked because of it."""
        return [_with_unchecked(problem, self._unchecked.get(index, ())) for index, problem in enumerate(self.found)]

    def add(
        self, path: str, message: str, hint: str | None = None, at_key: bool = False, place: Place | None = None
    ) -> None:
        place = self._pipeline.key_places.get(path) if at_key else place
        self.found.append(Problem(message, place or self._pipeline.place_of(path), hint))

    def _column_place(self, path: str, column: str) -> Place | None:
        """Return where the last column of this name begins in the DDL at `path`; None if the file has no such DDL."""
        text = self._pipeline.texts.get(path)
        offsets = [each.offset for each in ddl_columns(text.text) if each.name == column] if text else []
        return text.at(offsets[-1]) if text and offsets else None

    def _add_spark_error(
        self, error: PySparkException, path: str, subject: str, sql: str | None, relation: str, view: str | None
    ) -> None:
        details = sql_error(error, sql or "")
        message = details.message
        if routine := unresolved_routine(error):
            message += did_you_mean(routine, self._functions())
        if relation:
            message = later_step_message(relation, self._names(), view) or message + did_you_mean(
                relation, self._names()
            )
        place = self._pipeline.place_of(path)
        if sql is not None and details.line is not None and details.column is not None:
            place = self._pipeline.place_in(path, details.line, details.column)
        self.found.append(Problem(f"{subject}: {message}", place))

    def _names(self) -> list[str]:
        return [*self._pipeline.sources, *(step.name for step in self._pipeline.steps)]


def _with_unchecked(problem: Problem, unchecked: Sequence[str]) -> Problem:
    if not unchecked:
        return problem
    hint = (
        f"not checked because {'it depends' if len(unchecked) == 1 else 'they depend'} on this: {', '.join(unchecked)}"
    )
    return replace(problem, hint=f"{problem.hint}; {hint}" if problem.hint else hint)


def later_step_message(relation: str, names: Sequence[str], view: str | None) -> str | None:
    """If the missing view is a step of this pipeline, say that it comes later (or is the step itself); else None."""
    if view is not None and relation.casefold() == view.casefold():
        return "it reads itself"
    later = next((name for name in names if name.casefold() == relation.casefold()), None)
    return None if later is None else f"it reads step {later}, which comes after it; move {later} up"


def _missing_relation(error: PySparkException) -> str:
    """Return the name of the missing table or view, or "" for any other error."""
    if (error.getCondition() or "") != "TABLE_OR_VIEW_NOT_FOUND":
        return ""
    return (error.getMessageParameters() or {}).get("relationName", "").replace("`", "")


def schema_file_error(file: Path, error: PySparkException) -> UnusableSchema:
    """Return Spark's error about the DDL in a schema file, with file, line and column at the start of its message."""
    details = sql_error(error, "")
    position = f"{file}:{details.line}:{details.column}" if details.line else str(file)
    return UnusableSchema(f"{position}: {details.message}")
