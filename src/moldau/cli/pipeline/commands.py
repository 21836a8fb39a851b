"""`moldau pipeline`: write, check, draw, run, watch, stop and test data pipelines on Spark.

This module has the commands that only read a file; run.py and status.py those about runs, dev.py and test.py those for
developing a pipeline. Spark is imported only by the commands that need it.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from moldau.cli.connect import CommandFailed
from moldau.cli.pipeline.dev import dev, preview
from moldau.cli.pipeline.files import DEFAULT_FILE, Chosen, PipelineGroup, chosen_options, existing
from moldau.cli.pipeline.prepare import prepare
from moldau.cli.pipeline.run import run
from moldau.cli.pipeline.session import Session, ask_dev, phases, quiet_log
from moldau.cli.pipeline.status import list_pipelines, status, stop
from moldau.cli.pipeline.test import test
from moldau.pipelines.template_flows import SINKS, SOURCES

if TYPE_CHECKING:
    from moldau.pipelines.problems import Problem
    from moldau.pipelines.spec import Pipeline

FORMS: Final = {".svg": "svg", ".mmd": "mermaid", ".mermaid": "mermaid", ".md": "mermaid"}
TEXT_SUFFIXES: Final = ("", ".txt")
PLAIN_WIDTH: Final = 100


@click.group(cls=PipelineGroup)
def pipeline() -> None:
    """Data pipelines on Spark: topics in, SQL, topics and lake tables out.

    \b
    moldau pipeline init shop                     a commented pipeline to begin with (--from, --to)
    moldau pipeline dev shop/pipeline.yaml        at each save: mistakes, rows of each step, test cases
    moldau pipeline validate shop/pipeline.yaml   every mistake, with line and word
    moldau pipeline run shop/pipeline.yaml        run it until Ctrl-C
    moldau pipeline status shop/pipeline.yaml     what it is doing, from another terminal
    """


@pipeline.command(short_help="Check a pipeline without running it.")
@chosen_options
@click.option("--yaml-only", is_flag=True, help="Do not start Spark: leave SQL, schemas and topics unchecked.")
@click.option("--strict", is_flag=True, help="Fail for warnings, too.")
def validate(chosen: Chosen, yaml_only: bool, strict: bool) -> None:
    """Check the YAML, the SQL and the schemas of a pipeline without running it, and point at each mistake.

    If a broker answers, topics that do not exist are warnings, and so is what runs but is probably not meant.

    \b
    moldau pipeline validate bookstore.yaml
    moldau pipeline validate bookstore.yaml --strict
    moldau pipeline validate bookstore.yaml --yaml-only
    """
    pipeline = chosen.pipeline
    if yaml_only:
        click.echo(f"{chosen.file}: {pipeline.name} is fine as far as YAML goes")
        return
    warnings = show_problems(
        [*_check_with_spark(chosen), *_missing_topics(pipeline), *_missing_tables(pipeline)], strict
    )
    would_start = f"would start, with {warnings} warning{'s' if warnings > 1 else ''}"
    click.echo(f"{chosen.file}: {pipeline.name} {would_start if warnings else 'is fine'}")


def show_problems(problems: list[Problem], strict: bool) -> int:
    """Print warnings and hints, and return the number of warnings. Raise InvalidPipeline if there are errors; with
    `strict` a warning counts as one."""
    from moldau.pipelines.problems import InvalidPipeline, of_severity, render

    warnings = of_severity(problems, "warning")
    errors = of_severity(problems, "error")
    if errors or (strict and warnings):
        raise InvalidPipeline([*errors, *warnings])
    for problem in [*warnings, *of_severity(problems, "hint")]:
        click.echo(render(problem), err=True)
    return len(warnings)


def _missing_topics(pipeline: Pipeline) -> list[Problem]:
    """Return a warning for each topic that does not exist; without a broker none, and say so."""
    from moldau.pipelines.problems import PipelineError
    from moldau.pipelines.running.topics import missing_topics

    try:
        return missing_topics(pipeline)
    except PipelineError as error:
        click.echo(f"it was not checked whether the topics exist: {error}", err=True)
        return []


def _missing_tables(pipeline: Pipeline) -> list[Problem]:
    """Return a warning for each database whose changes cannot be read, as far as it answers. A source without `schema`
    and `key` has been looked up already."""
    from moldau.pipelines.database_changes import database_sources

    found: list[Problem] = []
    for source in database_sources(pipeline):
        if source.schema and source.key and source.growing is None:
            from moldau.pipelines.running.database_watch import why_unreadable

            try:
                found += why_unreadable(pipeline, source)
            except ConnectionError as error:
                click.echo(f"it was not checked whether the changes of {source.table} can be read: {error}", err=True)
    return found


def _check_with_spark(chosen: Chosen) -> list[Problem]:
    """Check on the Spark session of a `dev` of the same file, if one is running, else on a new one."""
    with phases("looking for Spark") as on_phase:
        problems = _problems_from_dev(chosen, on_phase)
        return _check_on_own_session(chosen, on_phase) if problems is None else problems


def _problems_from_dev(chosen: Chosen, on_phase: Callable[[str], None]) -> list[Problem] | None:
    file = existing(chosen.file)
    answer = ask_dev(file, "check", chosen.settings, on_phase)
    if answer is None:
        return None
    from moldau.pipelines.workbench.answers import problem_from_json

    problems = [problem_from_json(item) for item in answer["problems"]]
    return [_with_path_of_user(problem, file) for problem in problems]


def _with_path_of_user(problem: Problem, file: Path) -> Problem:
    """Replace the absolute path, which `dev` uses, by the path on the command line."""
    if problem.place is None or problem.place.file != str(file.absolute()):
        return problem
    return replace(problem, place=replace(problem.place, file=str(file)))


def _check_on_own_session(chosen: Chosen, on_phase: Callable[[str], None]) -> list[Problem]:
    with Session(chosen.pipeline, None, {}, quiet_log(existing(chosen.file)), quick_start=True) as session:
        spark = session.start(on_phase)
        from moldau.pipelines.planning.checking import check

        on_phase("checking SQL and schemas")
        return check(chosen.pipeline, spark)


@pipeline.command(short_help="Write a commented pipeline to begin with.")
@click.argument("folder", metavar="[DIR]", default=".", type=click.Path(file_okay=False, path_type=Path))
@click.option("--from", "source", type=click.Choice(SOURCES), help="Read from there. Default with --to: topic.")
@click.option("--to", "sink", type=click.Choice(SINKS), help="Write to there. Default with --from: topic.")
def init(folder: Path, source: str | None, sink: str | None) -> None:
    """Write a small working pipeline with explanatory comments, and a test of it. Nothing is overwritten.

    With --from and --to it is a short one that says what to change; without them it shows most of what there is.

    \b
    moldau pipeline init shop
    moldau pipeline init shop --from postgres --to delta
    moldau pipeline test shop/pipeline.yaml
    """
    from moldau.pipelines.template import write_template

    name = re.sub(r"[^a-z0-9]+", "-", folder.absolute().name.lower()).strip("-") or "pipeline"
    for path in write_template(folder, name, source, sink):
        click.echo(f"wrote {path}")
    click.echo(f"next: moldau pipeline test {shlex.quote(str(folder / DEFAULT_FILE))}")


@pipeline.command(short_help="Write it as a project for Spark's Declarative Pipelines.")
@chosen_options
@click.option(
    "--to",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    default="declarative",
    show_default=True,
    help="The project's folder. Nothing in it is overwritten.",
)
def export(chosen: Chosen, folder: Path) -> None:
    """Write the pipeline as a project for Spark's Declarative Pipelines (spark-pipelines), to go on with there.

    What has no counterpart there is listed: dead letters, upserts, databases, backends.

    \b
    moldau pipeline export bookstore.yaml --to bookstore-declarative
    """
    from moldau.pipelines.declarative import project

    made = project(chosen.unconnected, (folder.absolute() / "storage").as_uri())
    paths = {folder / name: text for name, text in made.files.items()}
    if existing_ones := [path for path in paths if path.exists()]:
        raise click.ClickException(f"{existing_ones[0]} exists already: nothing was written")
    for path, text in paths.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        click.echo(f"wrote {path}")
    for each in made.left_out:
        click.echo(f"not taken over: {each}", err=True)


@pipeline.command(short_help="Draw the flow of a pipeline.")
@chosen_options
@click.option(
    "--format",
    "form",
    type=click.Choice(["terminal", "mermaid", "svg"]),
    help="How to draw it. Default: by the name of the output file, or for the terminal.",
)
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="A file to write to.")
def graph(chosen: Chosen, form: str | None, output: Path | None) -> None:
    """Draw how data flows through a pipeline: sources, steps, sinks.

    \b
    moldau pipeline graph bookstore.yaml
    moldau pipeline graph bookstore.yaml -o flow.svg
    moldau pipeline graph bookstore.yaml --format mermaid >> README.md
    """
    from moldau.pipelines.drawing.draw import draw
    from moldau.pipelines.drawing.graph import graph as graph_of
    from moldau.pipelines.drawing.terminal import draw_terminal

    flow = graph_of(chosen.unconnected)
    form = form or _form_of(output)
    if form == "terminal" and output is None and sys.stdout.isatty():
        from rich.console import Console

        console = Console()
        console.print(draw_terminal(flow, console.width))
        return
    drawn = draw(flow, form, PLAIN_WIDTH)  # type: ignore[arg-type]
    if output is None:
        click.echo(drawn)
    else:
        output.write_text(drawn if drawn.endswith("\n") else drawn + "\n", encoding="utf-8")
        click.echo(f"wrote {output}")


def _form_of(output: Path | None) -> str:
    """Return the form that the file's name asks for; text for a terminal without a file or for .txt."""
    if output is None or output.suffix in TEXT_SUFFIXES:
        return "terminal"
    if output.suffix not in FORMS:
        known = ", ".join([*FORMS, *filter(None, TEXT_SUFFIXES)])
        raise CommandFailed(f"{output}: a graph is written as {known}; or choose with --format")
    return FORMS[output.suffix]


for command in (run, status, stop, test, dev, preview, list_pipelines, prepare):
    pipeline.add_command(command)
