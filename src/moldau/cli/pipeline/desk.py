"""The core of `moldau pipeline dev`: detects changes, shows their effect, answers `validate`, `test`, `preview`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from moldau.cli.pipeline.test import empty_broker, print_results, with_log_file

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from moldau.pipelines.cases.files import Case
    from moldau.pipelines.spec import Pipeline
    from moldau.pipelines.workbench.bench import Bench
    from moldau.pipelines.workbench.preview import Preview

CELL_WIDTH_MAX = 40
SETTLE_S = 0.15
NAMES_MAX = 3
"""How many changed files are named in the headline."""


class Desk:
    """One pipeline file on one Spark session."""

    def __init__(
        self,
        file: Path,
        settings: Mapping[str, str],
        bootstrap: str | None,
        spark: SparkSession,
        rows: int,
        cases: Sequence[str],
    ) -> None:
        from moldau.pipelines.workbench.changes import snapshot

        self._file, self._settings, self._bootstrap = file, settings, bootstrap
        self._spark, self._rows, self._cases = spark, rows, cases
        self._seen = snapshot(file)

    def changes(self) -> list[Path]:
        """Return the files saved, added or removed since the last call, once nothing changes any more: an editor, or
        `test --update`, writes several files, and a file that is being written is empty at first."""
        from moldau.pipelines.workbench.changes import changed, snapshot

        before, now = self._seen, snapshot(self._file)
        while now != self._seen:
            self._seen = now
            time.sleep(SETTLE_S)
            now = snapshot(self._file)
        return changed(before, now)

    def check_all(self, because: Sequence[Path]) -> None:
        """Check, preview and test again, as far as possible, and print what is wrong."""
        from moldau.pipelines.planning.sql_errors import SPARK_ERRORS
        from moldau.pipelines.problems import InvalidPipeline, PipelineError
        from moldau.pipelines.running.failures import failure_of

        click.secho(f"\n{time.strftime('%H:%M:%S')} {_named(because)}", bold=True)
        try:
            pipeline = self._check()
            if self._rows:
                self._preview(pipeline)
            self._test()
        except InvalidPipeline as error:
            click.echo(error.render())
            click.secho(f"{len(error.problems)} problem{'s' if len(error.problems) > 1 else ''}", fg="red")
        except PipelineError as error:
            click.secho(str(error), fg="red")
        except SPARK_ERRORS as error:
            click.secho(f"Spark: {failure_of(str(error)).message}", fg="red")
        click.secho("waiting for a change; Ctrl-C ends", dim=True)

    def answer(self, question: Mapping[str, Any], on_phase: Callable[[str], None]) -> Mapping[str, Any]:
        """Answer a request of `validate`, `test` or `preview` in another terminal."""
        from moldau.pipelines.workbench.answering import answer

        return answer(question, self._spark, empty_broker, on_phase)

    def _check(self) -> Pipeline:
        from moldau.pipelines.problems import InvalidPipeline, of_severity, render

        bench = self._bench()
        with _timed("checked"):
            pipeline = bench.pipeline(self._bootstrap)
            problems = bench.problems()
            if errors := of_severity(problems, "error"):
                raise InvalidPipeline(errors)
        for problem in of_severity(problems, "warning"):
            click.secho(render(problem), fg="yellow")
        return pipeline

    def _preview(self, pipeline: Pipeline) -> None:
        from moldau.pipelines.problems import InvalidPipeline, PipelineError
        from moldau.pipelines.workbench.previewing import Sampled

        case = next(iter(self._find_cases()), None)
        try:
            with Sampled(pipeline, self._spark) as sampled:
                show_previews(sampled.previews(rows=self._rows))
        except InvalidPipeline:
            raise
        except PipelineError as error:
            if case is None:
                click.echo(f"no rows to show: {error}")
                return
            click.secho(f"rows of case {case.name}, as there are none of the topics: {error}", dim=True)
            with Sampled(pipeline, self._spark, case) as sampled:
                show_previews(sampled.previews(rows=self._rows))

    def _test(self) -> None:
        if cases := self._find_cases():
            results = self._bench().results(cases, empty_broker, lambda phase: click.secho(f"{phase} …", dim=True))
            print_results([with_log_file(result, self._file) for result in results])
        else:
            click.echo("no test cases; `moldau pipeline test` says how to make one")

    def _find_cases(self) -> list[Case]:
        from moldau.pipelines.cases.files import BadCase, find_cases

        try:
            return find_cases(self._file.absolute(), self._cases)
        except BadCase:
            if self._cases:
                raise
            return []

    def _bench(self) -> Bench:
        from moldau.pipelines.workbench.bench import Bench

        return Bench(self._file, self._spark, self._settings)


@contextmanager
def _timed(done: str) -> Iterator[None]:
    began_s = time.monotonic()
    yield
    click.secho(f"✔ {done} in {time.monotonic() - began_s:.1f} s", fg="green")


def _named(changes: Sequence[Path]) -> str:
    names = [path.name for path in changes[:NAMES_MAX]]
    more = len(changes) - len(names)
    return ", ".join(names) + (f" and {more} more" if more else "")


def show_previews(previews: Iterable[Preview]) -> list[str]:
    """Print previews as they come; return the names of those that failed."""
    failed = []
    for preview in previews:
        click.echo("\n".join(preview_lines(preview)) + "\n")
        if preview.error:
            failed.append(preview.name)
    return failed


def preview_lines(preview: Preview) -> list[str]:
    """Return a heading, and below it a table."""
    from moldau.pipelines.running.display import plain_rows

    took = f"{preview.seconds:.1f} s"
    if preview.error:
        return [f"{preview.name}: failed after {took}", f"  {preview.error}"]
    if not preview.rows:
        return [f"{preview.name}: no rows, {took}"]
    count = "1 row" if len(preview.rows) == 1 else f"{len(preview.rows)} rows"
    count = f"the first {count}" if preview.has_more else count
    cells = [[_cell(value) for value in row] for row in preview.rows]
    table = plain_rows(preview.columns, cells, left=preview.columns)
    return [f"{preview.name}: {count}, {took}", *(f"  {line}" for line in table)]


def _cell(value: str | None) -> str:
    if value is None:
        return "-"
    flat = " ".join(value.split())
    return flat if len(flat) <= CELL_WIDTH_MAX else flat[: CELL_WIDTH_MAX - 1] + "…"
