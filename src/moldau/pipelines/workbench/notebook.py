"""A pipeline in a notebook: its steps as DataFrames over a few records, its mistakes as sentences."""

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
    """A pipeline's file, read anew by each call: what is edited counts."""

    def __init__(self, file: str | os.PathLike[str], bootstrap: str | None, variables: Mapping[str, str]) -> None:
        """InvalidPipeline for what is wrong without asking Spark."""
        self._file, self._bootstrap, self._variables = Path(file), bootstrap, variables
        self._sampled: Sampled | None = None
        self.pipeline()

    def __repr__(self) -> str:
        found = self.pipeline()
        names = ", ".join([*found.sources, *(step.name for step in found.steps)])
        return f"<pipeline {found.name}: {names}>"

    def pipeline(self) -> Pipeline:
        return load(self._file, self._variables).at(self._bootstrap)

    def check(self) -> None:
        """InvalidPipeline with all that is wrong, each with its place."""
        import moldau.spark
        from moldau.pipelines.planning.checking import check

        if problems := check(self.pipeline(), moldau.spark.session()):
            raise InvalidPipeline(problems)

    def preview(self, name: str, case: str | None = None) -> DataFrame:
        """The rows that a source or step makes of the first 1,000 records of each topic, or of those of a test case.

        The DataFrame is an ordinary one. It holds until the next call.
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
