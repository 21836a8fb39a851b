"""A pipeline in a notebook: its steps as DataFrames over a few records, its mistakes as messages."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from moldau.pipelines.problems import InvalidPipeline
from moldau.pipelines.reading.loading import load
from moldau.pipelines.spec import Pipeline

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from moldau.pipelines.workbench.previewing import Sampled


class LoadedPipeline:
    """A pipeline file. Each call reads it again, so that edits take effect."""

    def __init__(self, file: str | os.PathLike[str], bootstrap: str | None, variables: Mapping[str, str]) -> None:
        """Raises InvalidPipeline for what is wrong without Spark."""
        self._file, self._bootstrap, self._variables = Path(file), bootstrap, variables
        self._sampled: Sampled | None = None
        self.pipeline()

    def __repr__(self) -> str:
        pipeline = self.pipeline()
        names = ", ".join([*pipeline.sources, *(step.name for step in pipeline.steps)])
        return f"<pipeline {pipeline.name}: {names}>"

    def pipeline(self) -> Pipeline:
        return load(self._file, self._variables, self._bootstrap).with_bootstrap(self._bootstrap)

    def check(self) -> None:
        """Raise InvalidPipeline with all problems, each with its place; return if there are none."""
        import moldau.spark
        from moldau.pipelines.planning.checking import check

        if problems := check(self.pipeline(), moldau.spark.session()):
            raise InvalidPipeline(problems)

    def preview(self, name: str, case: str | None = None) -> DataFrame:
        """Return the rows of a source or step for the first 1,000 records of each topic, or for those of a test case.

        The DataFrame is an ordinary one. It is valid until the next call.
        """
        import moldau.spark
        from moldau.pipelines.cases.files import find_cases
        from moldau.pipelines.workbench.previewing import Sampled

        pipeline = self.pipeline()
        chosen = None if case is None else find_cases(self._file.absolute(), [case])[0]
        if self._sampled is not None:
            self._sampled.close()
        self._sampled = Sampled(pipeline, moldau.spark.session(), chosen)
        return self._sampled.frame(name)
