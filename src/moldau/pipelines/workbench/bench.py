"""Checks a pipeline and runs its cases on a Spark session: one that the command starts itself, or that of a running
`dev`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import SparkSession

from moldau.pipelines.cases.case import run_case
from moldau.pipelines.cases.files import Case
from moldau.pipelines.cases.result import CaseResult
from moldau.pipelines.planning.checking import check
from moldau.pipelines.problems import Problem
from moldau.pipelines.reading.loading import load
from moldau.pipelines.spec import Pipeline


@dataclass(frozen=True, slots=True)
class Bench:
    """One pipeline file with its --set values and environment, on one Spark session."""

    file: Path
    spark: SparkSession
    settings: Mapping[str, str] = field(default_factory=dict)
    environ: Mapping[str, str] | None = None

    def pipeline(self, bootstrap: str | None = None) -> Pipeline:
        return load(self.file, self.settings, bootstrap, environ=self.environ).with_bootstrap(bootstrap)

    def problems(self) -> list[Problem]:
        """Return what Spark does not accept. Raises InvalidPipeline for what is wrong without Spark."""
        return check(self.pipeline(), self.spark)

    def results(
        self,
        cases: Sequence[Case],
        broker: Callable[[], AbstractContextManager[str]],
        on_phase: Callable[[str], None] = lambda phase: None,
        is_update: bool = False,
    ) -> Iterator[CaseResult]:
        """Run the cases. `broker` starts an empty broker for a case and returns its address. A case without expected
        files is run only for an update."""
        for case in cases:
            if not (case.expected or is_update):
                yield CaseResult(case=case, seconds=0.0, outputs={})
                continue
            on_phase(f"case {case.name}")
            with broker() as bootstrap:
                yield run_case(case, self._test_pipeline(bootstrap), self.spark)

    def _test_pipeline(self, bootstrap: str) -> Pipeline:
        return load(self.file, self.settings, bootstrap, environ=self.environ, check_files=False, connects=False)
