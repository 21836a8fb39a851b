"""`moldau pipeline test`: runs the test cases beside a pipeline's file through the real pipeline on Spark.

Each case has a broker of its own, in this process; one Spark session serves them all.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from moldau.cli.connect import CommandFailed
from moldau.cli.output import Table, show
from moldau.cli.pipeline.files import DEFAULT_FILE, complete_files, existing, set_option
from moldau.cli.pipeline.session import Session, ask_dev, log_folder, phases, quiet_log

if TYPE_CHECKING:
    from moldau.pipelines.cases.files import Case
    from moldau.pipelines.cases.result import CaseResult
    from moldau.pipelines.spec import Pipeline


def complete_cases(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from moldau.pipelines.cases.files import CASES, INPUT

    root = Path(ctx.params.get("file") or DEFAULT_FILE).parent / CASES
    names = sorted(folder.parent.name for folder in root.glob(f"*/{INPUT}"))
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


@click.command(short_help="Test a pipeline with files.")
@click.argument("file", type=click.Path(path_type=Path), shell_complete=complete_files)
@click.argument("names", metavar="[CASE]...", nargs=-1, shell_complete=complete_cases)
@click.option("--update", is_flag=True, help="Write the actual output into the expected files.")
@set_option
def test(file: Path, names: tuple[str, ...], update: bool, settings: dict[str, str]) -> None:
    """Send the input files of test cases through a pipeline and compare the output with expected files.

    A case is a folder beside the pipeline's file: tests/CASE/input/SOURCE.jsonl has the records, one per line, and
    tests/CASE/expected/SINK.jsonl the expected output of a sink, in any order. The test starts a broker of its own.

    \b
    moldau pipeline test bookstore.yaml
    moldau pipeline test bookstore.yaml late-events --update
    """
    from moldau.pipelines.cases.files import find_cases
    from moldau.pipelines.cases.result import CaseResult
    from moldau.pipelines.reading.loading import load

    file = existing(file)
    pipeline = load(file, settings, check_files=False, connects=False)
    cases = find_cases(file.absolute(), names)
    if update or any(case.expected for case in cases):
        with phases("looking for Spark") as on_phase:
            results = _results_of_dev(file, settings, cases, on_phase, update)
            if results is None:
                results = _run_on_own_session(pipeline, settings, cases, on_phase, update)
    else:
        results = [CaseResult(case=case, seconds=0.0, outputs={}) for case in cases]
    results = [with_log_file(result, file) for result in results]
    if update:
        _update(results, pipeline)
    else:
        print_results(results)
    failed = [result for result in results if result.error or not (update or result.has_passed)]
    if failed:
        raise CommandFailed(f"{len(failed)} of {len(results)} cases failed")


def _results_of_dev(
    file: Path, settings: Mapping[str, str], cases: Sequence[Case], on_phase: Callable[[str], None], is_update: bool
) -> list[CaseResult] | None:
    """Run the cases on a `dev` of the same file, if one is running; else return None."""
    options = {"cases": [case.name for case in cases], "update": is_update}
    answer = ask_dev(file, "test", settings, on_phase, options)
    if answer is None:
        return None
    from moldau.pipelines.workbench.answers import results_from_json

    return results_from_json(answer["results"], cases)


def _run_on_own_session(
    pipeline: Pipeline,
    settings: Mapping[str, str],
    cases: Sequence[Case],
    on_phase: Callable[[str], None],
    is_update: bool,
) -> list[CaseResult]:
    with Session(pipeline, None, {}, quiet_log(pipeline.file), quick_start=True) as session:
        spark = session.start(on_phase)
        from moldau.pipelines.workbench.bench import Bench

        return list(Bench(pipeline.file, spark, settings).results(cases, empty_broker, on_phase, is_update))


@contextmanager
def empty_broker() -> Iterator[str]:
    """Yield the address of a broker in this process, for one case. No record is too old for it to keep."""
    from moldau.testing import broker

    with broker(log_retention_ms=-1) as running:
        yield running.bootstrap_servers


def with_log_file(result: CaseResult, file: Path) -> CaseResult:
    """Write the whole error to a log file, and name the file in the result's one-line error."""
    folder = log_folder(file)
    if result.story is None or folder is None:
        return result
    log = folder / f"test-{result.case.name}.log"
    log.write_text(result.story + "\n", encoding="utf-8", errors="backslashreplace")
    return replace(result, error=f"{result.error} (all of it: {log})")


def _update(results: list[CaseResult], pipeline: Pipeline) -> None:
    from moldau.pipelines.cases.result import update

    for result in results:
        if result.error:
            click.echo(f"{result.case.name}: {result.error}", err=True)
        else:
            written = update(result, pipeline)
            click.echo(f"{result.case.name}: wrote {', '.join(written) or 'nothing, as nothing came out'}")
    _print_closed_windows(results)


def print_results(results: list[CaseResult]) -> None:
    from moldau.pipelines.cases.comparing import difference_lines

    rows = [
        (result.case.name, "passed" if result.has_passed else "FAILED", f"{result.seconds:.1f}", _reason(result))
        for result in results
    ]
    show("table", Table(("CASE", "RESULT", "SECONDS", "WHY"), rows))
    for result in results:
        for difference in filter(None, result.differences):
            sink, *lines = difference_lines(difference)
            click.echo("\n".join([f"\n{result.case.name}, {sink} (- expected, + came out)", *lines]))
    _print_closed_windows(results)
    sys.stdout.flush()


def _print_closed_windows(results: list[CaseResult]) -> None:
    """Explain windows in the output that no record has closed."""
    if queries := sorted({query for result in results for query in result.closed}):
        sinks = f"sink{'s' if len(queries) > 1 else ''} {', '.join(queries)}"
        click.echo(f"\nAfter the last record of a case time went on, and closed the windows of {sinks}.")


def _reason(result: CaseResult) -> str | None:
    if result.error:
        return result.error
    if not result.case.expected:
        return "nothing is expected yet: run with --update"
    problems = [
        f"{difference.sink}: {len(difference.missing)} missing, {len(difference.unexpected)} unexpected"
        for difference in result.differences
        if difference
    ]
    return "; ".join(problems) or None
