"""`moldau pipeline dev`: one Spark session stays up, and each save shows its effect. `preview`: rows, once."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
from click.shell_completion import CompletionItem

from moldau.cli.connect import CommandFailed
from moldau.cli.pipeline.desk import Desk, show_previews
from moldau.cli.pipeline.files import DEFAULT_FILE, Chosen, chosen_options, existing
from moldau.cli.pipeline.session import Session, ask_dev, phases, quiet_log
from moldau.cli.pipeline.test import complete_cases
from moldau.platforms.support import refusal_text

if TYPE_CHECKING:
    from moldau.pipelines.spec import Pipeline

LOOK_EVERY_S: Final = 0.2
DEV_ROWS: Final = 5
LOGGERS_OF_CALLS: Final = (None, "py4j.clientserver", "py4j.java_gateway")
"""Where py4j logs an interrupted call; None is the root. A filter does not hold for the loggers below."""


def complete_steps(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from moldau.pipelines.problems import InvalidPipeline

    try:
        pipeline = Chosen(Path(ctx.params.get("file") or DEFAULT_FILE), {}, None, None).unconnected
    except (InvalidPipeline, CommandFailed, ImportError, OSError):
        return []
    names = [*pipeline.sources, *(step.name for step in pipeline.steps)]
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


@click.command(short_help="Show the first rows of each step.")
@chosen_options
@click.argument("names", metavar="[STEP]...", nargs=-1, shell_complete=complete_steps)
@click.option("-n", "--rows", type=click.IntRange(min=1, max=1000), default=20, show_default=True, help="Rows of each.")
@click.option("--case", "case_name", metavar="CASE", shell_complete=complete_cases, help="Records of a test case.")
def preview(chosen: Chosen, names: tuple[str, ...], rows: int, case_name: str | None) -> None:
    """Show the first rows of sources and steps, computed from the first 1,000 records of each topic.

    Nothing is written anywhere. Without a broker, --case takes the records of a test case.

    \b
    moldau pipeline preview bookstore.yaml enriched
    moldau pipeline preview bookstore.yaml -n 5 --case late-events
    """
    bootstrap = chosen.pipeline.bootstrap
    options = {"steps": list(names), "rows": rows, "case": case_name, "bootstrap": bootstrap}
    with phases("looking for Spark") as on_phase:
        answer = ask_dev(existing(chosen.file), "preview", chosen.settings, on_phase, options)
    if answer is None:
        failed = _preview_on_own_session(chosen, names, rows, case_name)
    else:
        from moldau.pipelines.workbench.answers import preview_from_json

        failed = show_previews(map(preview_from_json, answer["previews"]))
    if failed:
        raise CommandFailed(f"{len(failed)} of the steps failed: {', '.join(failed)}")


def _preview_on_own_session(chosen: Chosen, names: Sequence[str], rows: int, case_name: str | None) -> list[str]:
    """Preview on a Spark session of its own; return the steps that failed."""
    from moldau.pipelines.cases.files import find_cases

    file = existing(chosen.file).absolute()
    case = find_cases(file, [case_name])[0] if case_name else None
    with Session(chosen.pipeline, None, {}, quiet_log(file), quick_start=True) as session:
        with phases("looking for Java") as on_phase:
            spark = session.start(on_phase)
        from moldau.pipelines.workbench.previewing import Sampled

        with Sampled(chosen.pipeline, spark, case) as sampled:
            return show_previews(sampled.previews(names, rows))


@click.command(short_help="At each save: mistakes, rows, test cases.")
@chosen_options
@click.option("-n", "--rows", type=click.IntRange(min=0, max=100), default=DEV_ROWS, show_default=True,
              help="Rows of each step; 0 for none.")  # fmt: skip
@click.option("--case", "case_names", multiple=True, metavar="CASE", shell_complete=complete_cases,
              help="Only this test case. Repeatable.")  # fmt: skip
def dev(chosen: Chosen, rows: int, case_names: tuple[str, ...]) -> None:
    """Work on a pipeline: Spark starts once, and at each save the file is checked, the first rows of each step are
    shown, and the test cases run.

    Rows come from the real topics, or where no broker answers from the first test case. `moldau pipeline validate` and
    `test` of the same file use this Spark too, from any terminal. Ctrl-C ends it.

    \b
    moldau pipeline dev bookstore.yaml
    moldau pipeline dev bookstore.yaml -n 0 --case late-events
    """
    if line := refusal_text("`moldau pipeline dev`"):
        raise CommandFailed(line)
    file = existing(chosen.file)
    from moldau.pipelines.workbench.questions import answer_one, listening

    with (
        listening(file) as listener,
        Session(_if_valid(chosen), None, {}, quiet_log(file), quick_start=True) as session,
    ):
        with phases("looking for Java") as on_phase:
            spark = session.start(on_phase)
        desk = Desk(file, chosen.settings, chosen.bootstrap, spark, rows, case_names)
        pause = threading.Event()
        with _until_interrupted():
            desk.check_all([file])
            while True:
                if changes := desk.changes():
                    desk.check_all(changes)
                elif listener is None:
                    pause.wait(LOOK_EVERY_S)
                else:
                    answer_one(listener, desk.answer, LOOK_EVERY_S)


@contextmanager
def _until_interrupted() -> Iterator[None]:
    """Let Ctrl-C end the block, also in the middle of a call to Java.

    Spark's own handler would call Java from inside that call. What the interrupted call logs or raises is no failure.
    """
    is_interrupted = False

    def interrupt(number: int, frame: object) -> None:
        nonlocal is_interrupted
        is_interrupted = True
        raise KeyboardInterrupt

    def is_of_failure(record: logging.LogRecord) -> bool:
        return not is_interrupted

    before = signal.signal(signal.SIGINT, interrupt)
    loggers = [logging.getLogger(name) for name in LOGGERS_OF_CALLS]
    for logger in loggers:
        logger.addFilter(is_of_failure)
    try:
        yield
    except (KeyboardInterrupt, Exception):
        if not is_interrupted:
            raise
        click.echo("\nended")
    finally:
        signal.signal(signal.SIGINT, before)
        for logger in loggers:
            logger.removeFilter(is_of_failure)


def _if_valid(chosen: Chosen) -> Pipeline | None:
    """Return the pipeline, whose Spark settings apply at the start; None if it has mistakes, which are shown later."""
    from moldau.pipelines.problems import InvalidPipeline

    try:
        return chosen.pipeline
    except InvalidPipeline:
        return None
