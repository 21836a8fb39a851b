"""`moldau pipeline run`: the options of a run, and how it is shown.

moldau.pipelines.running runs the pipeline. Nothing of Spark is imported before it is needed.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from moldau.cli.connect import CommandFailed, key_values_callback
from moldau.cli.pipeline.files import SUFFIXES, Chosen, chosen_options, complete_sinks
from moldau.cli.pipeline.session import SPARK_LOG, Session, phases
from moldau.cli.pipeline.submit import submit_pipeline
from moldau.operations import offsets
from moldau.platforms.support import refusal_text

if TYPE_CHECKING:
    from moldau.pipelines.running.display import Display
    from moldau.pipelines.running.fresh_start import Existing, Outputs
    from moldau.pipelines.spec import Pipeline, Start

ALL = "*"
"""The value of --fresh without a sink."""


@click.command(short_help="Run a pipeline.")
@chosen_options
@click.option("--until-caught-up", is_flag=True, help="Process the current records, then end.")
@click.option(
    "--batch",
    is_flag=True,
    help="Process a range of the past as one batch, without checkpoints. It adds to what its topics and tables hold.",
)
@click.option(
    "--from", "begin", metavar="WHERE", help='With --batch: earliest, @TIME, or offsets: {"topic": {"0": 12}}.'
)
@click.option("--to", "end", metavar="WHERE", help="With --batch: the end; latest, @TIME, or offsets.")
@click.option(
    "--sink",
    "sinks",
    multiple=True,
    shell_complete=complete_sinks,
    help="Only this sink; of sinks that share a query all of them, or the query (a+b). Repeatable.",
)
@click.option(
    "--fresh",
    multiple=True,
    is_flag=False,
    flag_value=ALL,
    metavar="[SINK]",
    shell_complete=complete_sinks,
    help="Start a sink from scratch, or without a name all sinks: everything is written again into its topics and"
    " tables. Its checkpoint is deleted when the run is certain to start. Repeatable.",
)
@click.option(
    "--existing",
    type=click.Choice(["clear", "keep"]),
    help="With --fresh: what to do with earlier output. clear: empty the topics, rename the tables to"
    " NAME.before-TIME (upserted ones too). keep: what is appended is there twice. Default: ask.",
)
@click.option(
    "--master", metavar="URL", help="Spark's master: local[2], spark://host:7077, yarn, k8s://… Default: local[*]"
)
@click.option(
    "--conf", multiple=True, metavar="K=V", callback=key_values_callback, help="A setting of Spark's. Repeatable."
)
@click.option(
    "--metrics",
    metavar="HOST:PORT",
    help="Serve the metrics of the run for Prometheus there, at /metrics, while it goes on.",
)
@click.option(
    "--deploy-mode", type=click.Choice(["client", "cluster"]), default="client", help="Where the driver runs."
)
@click.pass_context
def run(
    ctx: click.Context,
    chosen: Chosen,
    until_caught_up: bool,
    batch: bool,
    begin: str | None,
    end: str | None,
    sinks: tuple[str, ...],
    fresh: tuple[str, ...],
    existing: Existing | None,
    master: str | None,
    conf: dict[str, str],
    metrics: str | None,
    deploy_mode: str,
) -> None:
    """Run a pipeline: until Ctrl-C, until it has caught up, or once over a range of the past.

    It continues where the last run stopped. Ctrl-C lets active batches finish; a second Ctrl-C does not.

    \b
    moldau pipeline run bookstore.yaml
    moldau pipeline run bookstore.yaml --until-caught-up --set lake=/data
    moldau pipeline run bookstore.yaml --batch --from @-7d --to @2026-11-15 --sink daily
    moldau pipeline run bookstore.yaml --metrics localhost:9405
    moldau pipeline run bookstore.yaml --master spark://host:7077 --conf spark.executor.memory=4g
    """
    if line := refusal_text("`moldau pipeline run`"):
        raise CommandFailed(line)
    _check_mode(ctx, until_caught_up, batch, begin or end)
    if any(name.endswith(SUFFIXES) for name in fresh):
        raise click.UsageError("--fresh takes the name of a sink; write the file in front of it", ctx)
    if batch and fresh:
        raise click.UsageError("a --batch has no checkpoints: there is nothing to start from scratch with --fresh", ctx)
    if existing and not fresh:
        raise click.UsageError("--existing needs --fresh: it says what becomes of the output written before", ctx)
    pipeline = chosen.pipeline
    _refuse_same_name(chosen)
    if deploy_mode == "cluster":
        ctx.exit(submit_pipeline(chosen, master, conf, _driver_arguments(ctx)))
    from moldau.pipelines.planning.compiling import Mode, Range
    from moldau.pipelines.running.launching import RunOptions, batch_directory, launch
    from moldau.pipelines.running.stop_request import Stop

    mode = Mode.BATCH if batch else Mode.UNTIL_CAUGHT_UP if until_caught_up else Mode.CONTINUOUS
    options = RunOptions(
        mode=mode,
        over=Range(start=_bound(begin, "--from", pipeline), end=_bound(end, "--to", pipeline)) if batch else None,
        only=sinks or None,
        fresh=None if ALL in fresh else fresh,
        decide=_decide if existing is None else lambda outputs: existing,
        debug=bool(ctx.find_root().params.get("debug")),
    )
    display = _display(metrics)
    stop, log = Stop(), None if options.debug else chosen.directory.path / SPARK_LOG
    failures = (batch_directory(chosen.directory) if batch else chosen.directory).failures
    stat_before = failures.stat() if failures.exists() else None
    with Session(pipeline, master, conf, log, stop) as session:
        ended = launch(pipeline, chosen.directory, options, session.start, display, stop, phases)
    if ended.state == "failed":
        is_new = failures.exists() and failures.stat() != stat_before
        details = [path for path in (failures, log) if path is not None and path.exists()] if is_new else []
        raise CommandFailed(f"{ended.message or 'the run failed'}{_details(details)}")


def _decide(outputs: Outputs) -> Existing:
    """Ask the user on a terminal; a script has to use --existing."""
    from moldau.pipelines.running.fresh_start import refuse_to_decide

    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return refuse_to_decide(outputs)
    click.echo(f"{outputs.consequences}.", err=True)
    question = "clear (empty the topics, rename the tables), or keep and write everything once more?"
    try:
        answer: Existing = click.prompt(question, type=click.Choice(["clear", "keep"]), err=True)
    except click.Abort as error:
        if isinstance(error.__context__, EOFError):  # Ctrl-D: there is no answer
            return refuse_to_decide(outputs)
        raise KeyboardInterrupt from error
    return answer


def _details(files: Sequence[Path]) -> str:
    return f" (all of it: {', '.join(map(str, files))})" if files else ""


def _driver_arguments(ctx: click.Context) -> list[str]:
    """Return the options of this command that the driver in the cluster needs too."""
    params = ctx.params
    words = [f"--{name.replace('_', '-')}" for name in ("until_caught_up", "batch") if params[name]]
    for option, name in (("--from", "begin"), ("--to", "end")):
        words += [option, params[name]] if params[name] else []
    for sink in params["sinks"]:
        words += ["--sink", sink]
    for sink in params["fresh"]:
        words += ["--fresh"] if sink == ALL else ["--fresh", sink]
    for option in ("existing", "metrics"):
        words += [f"--{option}", params[option]] if params[option] else []
    return words


def _refuse_same_name(chosen: Chosen) -> None:
    """Refuse a file whose state directory belongs to another existing file with the same pipeline name."""
    from moldau.pipelines.problems import InvalidPipeline
    from moldau.pipelines.running.state_directory import StateRefused

    try:
        last = (chosen.directory.read_status() or {}).get("file")
    except StateRefused:  # damaged: the run replaces it
        return
    if last is None or not Path(last).exists() or Path(last).samefile(chosen.pipeline.file):
        return
    try:
        name = Chosen(Path(last), {}, None, None).unconnected.name
    except InvalidPipeline:
        return
    if name == chosen.pipeline.name:
        raise CommandFailed(
            f"{last} is called {name} too, and the checkpoints here are its own; give one of the two another name, or"
            " this run a directory of its own with --state DIR"
        )


def _check_mode(ctx: click.Context, until_caught_up: bool, batch: bool, has_range: object) -> None:
    if until_caught_up and batch:
        raise click.UsageError("--until-caught-up and --batch are two ways to run; give one", ctx)
    if has_range and not batch:
        raise click.UsageError("--from and --to say what a --batch reads; other runs go on from their checkpoint", ctx)


def _bound(text: str | None, option: str, pipeline: Pipeline) -> Start | None:
    """Parse where a batch begins or ends, and make the checks that do not need Spark."""
    from moldau.pipelines.problems import did_you_mean
    from moldau.pipelines.spec import TopicSource

    if (option, text) in (("--from", "latest"), ("--to", "earliest")):
        raise click.BadParameter(f"there is nothing to read {option.removeprefix('--')} {text}", param_hint=option)
    start = _parse_start(text, option)
    sources = [source for source in pipeline.sources.values() if isinstance(source, TopicSource)]
    topics = [topic for source in sources for topic in source.topics]
    for topic in start if isinstance(start, Mapping) and not any(source.pattern for source in sources) else ():
        if topic not in topics:
            suggestion = did_you_mean(topic, topics) or f"; there are {', '.join(topics)}"
            raise click.BadParameter(f"no source reads a topic {topic}{suggestion}", param_hint=option)
    return start


def _parse_start(text: str | None, option: str) -> Start | None:
    """Parse earliest, latest, a time with or without @, or offsets as JSON."""
    if text is None or text in ("earliest", "latest"):
        return text  # type: ignore[return-value]
    try:
        if text.startswith("{"):
            return {
                topic: {int(partition): _offset(offset) for partition, offset in partitions.items()}
                for topic, partitions in json.loads(text).items()
            }
        moment = offsets.parse_moment(text.removeprefix("@"), time.time_ns() // 1_000_000)
        return datetime.fromtimestamp(moment.value / 1000, UTC)
    except (ValueError, OverflowError, AttributeError, RecursionError) as error:
        message = f"{text!r} is not a position: earliest, latest, a time such as @-1h or 2026-11-15T08:00:00Z, or"
        raise click.BadParameter(message + ' offsets as {"topic": {"0": 12}}', param_hint=option) from error


def _offset(value: object) -> int:
    if not isinstance(value, int | str) or isinstance(value, bool):
        raise ValueError(f"{value!r} is no offset")
    return int(value)


def _display(metrics: str | None) -> Display:
    from moldau.pipelines.running.display import LiveDisplay, PlainDisplay
    from moldau.pipelines.running.run import utc_now

    display: Display = PlainDisplay(sys.stdout, sys.stderr, utc_now)
    if sys.stdout.isatty():
        from rich.console import Console

        display = LiveDisplay(Console())
    if metrics is None:
        return display
    from moldau.cli.pipeline.metrics import ServedDisplay

    return ServedDisplay(display, metrics)
