"""A pipeline in a notebook: its steps as DataFrames over a few records, its mistakes as messages."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from moldau.pipelines.problems import InvalidPipeline, of_severity, render
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
        """Raise InvalidPipeline with all errors, each with its place; if there are none, print warnings and hints."""
        import moldau.spark
        from moldau.pipelines.planning.checking import check

        problems = check(self.pipeline(), moldau.spark.session())
        if errors := of_severity(problems, "error"):
            raise InvalidPipeline(errors)
        for problem in problems:
            print(render(problem))

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
