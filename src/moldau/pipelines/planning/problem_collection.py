"""Problems found while a pipeline is planned: what Spark or a schema file says, put at the word in the pipeline's file.

One place collects them, so that planning can go on after the first and tell everything that is wrong. A view that
failed makes those that read it fail too; only the first of them is told.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
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
    """What is needed here has failed before, and was told."""


class Problems:
    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self.found: list[Problem] = []
        self.failed: set[str] = set()
        """Sources and steps that have no view."""

    @contextmanager
    def at(self, path: str, who: str, text: str | None = None, view: str | None = None) -> Iterator[None]:
        """Collects what goes wrong inside. `text` is the SQL or DDL at `path`; `view` then has no view."""
        try:
            with quiet():
                yield
            return
        except FailedBefore:
            pass
        except Refused as error:
            self.tell(error.path, f"{who}: {error}", error.hint)
        except TOLD as error:
            self.tell(path, f"{who}: {error}")
        except PySparkException as error:
            self._tell_spark(error, path, who, text)
        if view is not None:
            self.failed.add(view)

    def tell(self, path: str, message: str, hint: str | None = None) -> None:
        self.found.append(Problem(message, self._pipeline.place_of(path), hint))

    def _tell_spark(self, error: PySparkException, path: str, who: str, text: str | None) -> None:
        relation = _missing_relation(error)
        if relation in self.failed:
            return
        said = sql_error(error, text or "")
        near = did_you_mean(relation, self._names()) if relation else ""
        place = self._pipeline.place_of(path)
        if text is not None and said.line is not None and said.column is not None:
            place = self._pipeline.place_in(path, said.line, said.column)
        self.found.append(Problem(f"{who}: {said.message}{near}", place))

    def _names(self) -> list[str]:
        return [*self._pipeline.sources, *(step.name for step in self._pipeline.steps)]


def _missing_relation(error: PySparkException) -> str | None:
    if (error.getCondition() or "") != "TABLE_OR_VIEW_NOT_FOUND":
        return None
    return (error.getMessageParameters() or {}).get("relationName", "").replace("`", "")


def in_file(path: Path | None, error: PySparkException) -> UnusableSchema:
    """A schema in a file of its own: the place inside that file is part of the message."""
    said = sql_error(error, "")
    where = f"{path}:{said.line}:{said.column}" if said.line else str(path)
    return UnusableSchema(f"{where}: {said.message}")
