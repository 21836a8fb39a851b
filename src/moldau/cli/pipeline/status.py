"""`moldau pipeline status`, `stop` and `list`: show and end runs of other terminals, by the state directory only."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import click

from moldau.cli.connect import CommandFailed
from moldau.cli.output import Table, format_option, show
from moldau.cli.pipeline.files import SUFFIXES, Chosen, complete_files, state_option

if TYPE_CHECKING:
    from moldau.pipelines.running.progress import Offsets, RunStatus
    from moldau.pipelines.running.state_directory import StateDirectory
    from moldau.pipelines.spec import Pipeline

LOOK_EVERY_S: Final = 0.2
WATCH_EVERY_S: Final = 1.0
NEVER_RAN: Final = "never ran"
UNKNOWN: Final = "unknown"
"""The state of a pipeline whose status was damaged, or written by another version; `status` says more."""
NOT_RUNNING: Final = "not running"
SHARED_NAME: Final = "shared name"

target_argument = click.argument(
    "target", metavar="[FILE|NAME]", default="pipeline.yaml", shell_complete=complete_files
)


@click.command(short_help="Show what a run is doing.")
@target_argument
@click.option("--watch", "-w", is_flag=True, help="Refresh every second until Ctrl-C.")
@format_option
@state_option
def status(target: str, watch: bool, output_format: str, state: Path | None) -> None:
    """Show what a run of a pipeline is doing, from any terminal: rows per second, lag, state, errors, of each
    query, source and sink.

    If none is running, it shows how the last one ended.

    \b
    moldau pipeline status bookstore.yaml --watch
    moldau pipeline status bookstore --format json | jq '.queries[].lag_records'
    """
    directory = _directory(target, state)
    if watch and output_format == "table" and sys.stdout.isatty():
        _watch(directory)
        return
    while True:
        _show(_with_same_name_note(_current(directory), Path(target)), output_format)
        if not watch:
            return
        threading.Event().wait(WATCH_EVERY_S)


def _with_same_name_note(current: RunStatus, file: Path) -> RunStatus:
    """Add a note if the state is that of another file: two files with one pipeline name share a state directory."""
    last_file = Path(current.file or "")
    if not (file.is_file() and last_file.is_file()) or file.samefile(last_file):
        return current
    return _with_note(current, f"this is the run of {last_file}, which has the same name")


def _watch(directory: StateDirectory) -> None:
    from rich.console import Console
    from rich.live import Live

    from moldau.pipelines.running.display import table

    pause = threading.Event()
    console = Console()
    with Live(console=console, auto_refresh=False) as live:
        while True:
            live.update(table(_current(directory), console.width), refresh=True)
            pause.wait(WATCH_EVERY_S)


def _show(current: RunStatus, output_format: str) -> None:
    if output_format != "table":
        show(output_format, data=current.to_json())
        return
    from moldau.pipelines.running import display

    if sys.stdout.isatty():
        from rich.console import Console

        console = Console()
        console.print(display.table(current, console.width))
        return
    phase = display.phase(current) if current.state == "running" else None  # that of a start is its message
    click.echo(f"{current.pipeline}: {current.state}" + (f", {phase}" if phase else ""))
    waiting = (f"{query.name}: {query.waiting}" for query in current.queries if query.waiting)
    for text in filter(None, (current.message, current.note, *waiting)):
        click.echo(text)
    if current.queries:
        click.echo("\n".join(display.plain_table(current)))


def _current(directory: StateDirectory) -> RunStatus:
    """Return the status of the run; failed, if its process ended without writing one."""
    from moldau.pipelines.running.progress import RunStatus

    content = directory.read_status()
    if content is None:
        raise CommandFailed(f"{directory.path.name} has never been run; `moldau pipeline run` does")
    try:
        current = RunStatus.from_json(content)
    except ValueError as error:
        raise CommandFailed(f"{directory.path}: {error}; `moldau pipeline run` writes a new one") from error
    if directory.holder() is not None:
        return current
    if current.state in ("starting", "running", "stopping"):
        current = _killed(current, directory)
    current = _with_slots(_with_current_lag(_with_queries_of_file(current, directory)), directory)
    return _with_batch_note(current, directory)


def _killed(current: RunStatus, directory: StateDirectory) -> RunStatus:
    """Return the status of a run that was killed: its positions are those of the checkpoints, which went on after the
    last status was written."""
    from moldau.pipelines.running.ends import stopped_sinks, stopped_sources
    from moldau.pipelines.running.launching import waiting_query

    died = f"process {current.pid} on {current.host} was killed or crashed; `moldau pipeline run` continues its work"
    queries = []
    for query in current.queries:
        position = waiting_query(directory, query.name).status.position or query.position
        stopped = replace(query, state="stopped", position=position, rows_in_per_second=0.0, rows_out_per_second=None)
        queries.append(replace(stopped, sources=stopped_sources(query.sources), sinks=stopped_sinks(query.sinks)))
    return replace(current, state="failed", message=died, queries=tuple(queries))


def _with_batch_note(current: RunStatus, directory: StateDirectory) -> RunStatus:
    """Add a note if a --batch ended after this run: it has a state directory of its own."""
    from moldau.pipelines.running.launching import batch_directory, last_run

    batch = last_run(batch_directory(directory))
    if batch is None or batch.updated <= current.updated:
        return current
    note = f"a --batch run since then: {batch.state} at {batch.updated}"
    return _with_note(current, note)


def _with_note(current: RunStatus, note: str) -> RunStatus:
    return replace(current, note=f"{current.note}\n{note}" if current.note else note)


def _with_queries_of_file(current: RunStatus, directory: StateDirectory) -> RunStatus:
    """For a run that is over: add queries that it left out or that are new in the file; they wait for the next run."""
    from moldau.pipelines.running.display import BATCH
    from moldau.pipelines.running.identity import of_pipeline
    from moldau.pipelines.running.launching import waiting_query

    pipeline = _pipeline_of(current, connects=False)
    if pipeline is None or current.mode == BATCH:
        return current
    names = of_pipeline(pipeline)
    names_of_run = {query.name for query in current.queries}
    waiting = [waiting_query(directory, name).status for name in names if name not in names_of_run]
    removed = [query.name for query in current.queries if query.name not in names]
    current = replace(current, queries=(*current.queries, *waiting))
    return _with_note(current, f"no longer in the file: {', '.join(removed)}") if removed else current


def _with_current_lag(current: RunStatus) -> RunStatus:
    """For a run that is over: compute the lag with the current log ends, as records may have come since."""
    from moldau.pipelines.running.broker_watch import ends_now
    from moldau.pipelines.running.progress import behind
    from moldau.spark.offsets import offsets_or_empty

    positions = [offsets_or_empty(query.position) for query in current.queries]
    partitions = {where for position in positions for where in position}
    pipeline = _pipeline_of(current, connects=True)
    ends = ends_now(pipeline, partitions) if partitions and pipeline else None
    queries = tuple(
        replace(
            query,
            lag_records=behind(position, ends),
            lag_seconds=None,
            sources={
                name: replace(source, lag_records=behind(_of_source(position, pipeline, name), ends), lag_seconds=None)
                for name, source in query.sources.items()
            },
        )
        for query, position in zip(current.queries, positions, strict=True)
    )
    return replace(current, queries=queries)


def _of_source(position: Offsets, pipeline: Pipeline | None, name: str) -> Offsets:
    """Return the part of a position that is about the topics of a source."""
    from moldau.pipelines.spec import TopicSource

    source = pipeline.sources.get(name) if pipeline else None
    if not isinstance(source, TopicSource):
        return {}
    return {partition: offset for partition, offset in position.items() if source.reads(partition.topic)}


def _with_slots(current: RunStatus, directory: StateDirectory) -> RunStatus:
    """For a run that is over: add what databases keep of their logs for the pipeline."""
    from moldau.pipelines.database_changes import database_sources

    pipeline = _pipeline_of(current, connects=True)
    if pipeline is None or not any(database_sources(pipeline)):
        return current
    from moldau.pipelines.running.database_watch import slot_states, waiting_lines

    slots = slot_states(pipeline, directory.path)
    lines = waiting_lines(slots)
    behind = {slot: watched.state.behind_bytes for slot, watched in slots.items()}
    queries = tuple(
        replace(
            query,
            sources={
                name: replace(source, lag_bytes=behind.get(source.slot or "")) for name, source in query.sources.items()
            },
        )
        for query in current.queries
    )
    current = replace(current, queries=queries)
    told = (current.message or "").split("\n")  # the end of the run said it, with the sizes of that time
    message = "\n".join(line for line in told if " keeps its log for slot " not in line) or None
    return _with_note(replace(current, message=message), "\n".join(lines)) if lines else current


def _pipeline_of(current: RunStatus, connects: bool) -> Pipeline | None:
    """Load the file as it is now, for the cluster of that run; None if the file is gone or has mistakes, or if it
    connects with passwords that are not known here."""
    from moldau.pipelines.problems import InvalidPipeline

    chosen = Chosen(Path(current.file or ""), {}, current.bootstrap, None)
    try:
        return chosen.pipeline if connects else chosen.unconnected
    except (CommandFailed, InvalidPipeline):
        return None


@click.command(short_help="End a run.")
@target_argument
@click.option(
    "--timeout", type=click.FloatRange(min=0), default=60.0, show_default=True, help="Seconds to wait for it."
)
@state_option
def stop(target: str, timeout: float, state: Path | None) -> None:
    """Ask a run to finish its active batches and end, and wait until it has.

    \b
    moldau pipeline stop bookstore.yaml
    """
    directory = _directory(target, state)
    holder = directory.holder()
    if holder is None:
        raise CommandFailed(f"{directory.path.name} is not running")
    directory.request_stop()
    deadline = time.monotonic() + timeout
    pause = threading.Event()
    while directory.holder() == holder:
        if time.monotonic() >= deadline:
            raise CommandFailed(
                f"{directory.path.name} was asked to stop but still runs after {timeout:.0f} s"
                f" (process {holder.pid} on {holder.host}); it may be in a long batch"
            )
        pause.wait(LOOK_EVERY_S)
    click.echo(f"{directory.path.name} stopped")


@click.command(name="list", short_help="List the pipelines of a folder.")
@click.argument("folder", metavar="[DIR]", default=".", type=click.Path(exists=True, file_okay=False, path_type=Path))
@format_option
def list_pipelines(folder: Path, output_format: str) -> None:
    """List the pipeline files in a folder and in the folders inside it (one level), and what their runs are doing.

    SINCE is when a run began, or ended. LAG is that of the query that is furthest behind. Files of the same name in one
    folder keep their checkpoints in one place; their STATE is "shared name". It is "unknown" if the status of the last
    run cannot be read. Checkpoints of a name that no file has any more are listed below the table.

    \b
    moldau pipeline list examples
    """
    rows = [row for file in sorted(_candidates(folder)) if (row := _row(file)) is not None]
    shared = _files_by_shared_name(rows)
    columns = ("NAME", "FILE", "SOURCES", "STEPS", "SINKS", "STATE", "SINCE", "LAG")
    table_rows = [row.with_shared_name() if (row.folder, row.name) in shared else row for row in rows]
    show(output_format, Table(columns, table_rows, empty="no pipelines here; `moldau pipeline init` writes one"))
    if output_format == "table":
        for (folder, name), files in shared.items():
            click.echo(_note_on_shared_name(folder, name, files))
        for note in _notes_on_other_state(rows):
            click.echo(note)


class _Row(NamedTuple):
    """A pipeline file in the list. A file with mistakes has no name and no counts."""

    name: str | None
    file: str
    sources: int | None
    steps: int | None
    sinks: int | None
    state: str
    since: str | None = None
    lag: int | None = None

    @property
    def folder(self) -> Path:
        return Path(self.file).parent

    def with_shared_name(self) -> _Row:
        """Hide the state: the state directory does not tell which of the files was run."""
        return self._replace(state=SHARED_NAME, since=None, lag=None)


def _candidates(folder: Path) -> Iterator[Path]:
    for pattern in ("*", "*/*"):
        for file in folder.glob(pattern):
            hidden = any(part.startswith(".") for part in file.relative_to(folder).parts)
            if file.suffix in SUFFIXES and file.is_file() and not hidden:
                yield file


def _row(file: Path) -> _Row | None:
    """Return the row of a file; None for a YAML file that is not a pipeline."""
    from moldau.pipelines.problems import InvalidPipeline

    try:
        pipeline = Chosen(file, {}, None, None).unconnected
    except InvalidPipeline as error:
        if not looks_like_a_pipeline(file):
            return None
        problems = f"{len(error.problems)} problem{'s' if len(error.problems) > 1 else ''}"
        return _Row(None, str(file), None, None, None, problems)
    counts = len(pipeline.sources), len(pipeline.steps), len(pipeline.sinks)
    return _Row(pipeline.name, str(file), *counts, *_state(Chosen(file, {}, None, None).directory))


def looks_like_a_pipeline(file: Path) -> bool:
    """Return whether a file is meant as a pipeline: it has the two required top-level keys."""
    lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    return all(any(line.startswith(word) for line in lines) for word in ("sources:", "sinks:"))


def _state(directory: StateDirectory) -> tuple[str, str | None, int | None]:
    from moldau.pipelines.running.state_directory import StateRefused

    try:
        if directory.read_status() is None:
            return NEVER_RAN, None, None
        current = _current(directory)
    except (StateRefused, CommandFailed):
        return UNKNOWN, None, None
    lags = [query.lag_records for query in current.queries if query.lag_records is not None]
    of_run = [query for query in current.queries if query.state != NOT_RUNNING]
    if any(query.lag_records is None and query.batch_id is None for query in of_run):
        lags = []  # the lag of a query without a finished batch is not known, and may be the largest
    return current.state, current.updated if current.is_over else current.started, max(lags, default=None)


def _files_by_shared_name(rows: Sequence[_Row]) -> dict[tuple[Path, str], list[str]]:
    """Return the files that share a state directory, by folder and name. Links to one file count as one."""
    files: dict[tuple[Path, str], list[str]] = {}
    for row in rows:
        if row.name is not None:
            files.setdefault((row.folder, row.name), []).append(row.file)
    return {key: paths for key, paths in files.items() if len({Path(file).resolve() for file in paths}) > 1}


def _note_on_shared_name(folder: Path, name: str, files: Sequence[str]) -> str:
    from moldau.pipelines.running.state_directory import default_directory

    both, one = ("both", "one") if len(files) == 2 else ("all", "all but one")
    where = default_directory(folder / name, name).path
    return (
        f"{', '.join(files[:-1])} and {files[-1]} are {both} called {name}: they share checkpoints in {where};"
        f" give {one} another name"
    )


def _notes_on_other_state(rows: Sequence[_Row]) -> Iterator[str]:
    """Yield a line for each state directory of a name that no file beside it has: its pipeline was renamed or removed.
    A file with mistakes has no name; the state of its last run is not mentioned."""
    from moldau.pipelines.running.launching import last_run
    from moldau.pipelines.running.state_directory import known_directories

    for folder in dict.fromkeys(row.folder for row in rows):
        beside = [row for row in rows if row.folder == folder]
        for known in known_directories(folder):
            last = last_run(known)
            last_file = None if last is None or last.file is None else Path(last.file).name
            unnamed = [Path(row.file).name for row in beside if row.name is None]
            if not known.queries() or last_file in unnamed or known.path.name in [row.name for row in beside]:
                continue
            by = f"; they are of a run of {last_file}" if last_file else ""
            yield f"{known.path} has checkpoints of {known.path.name}, and no file here has that name{by}"


def _directory(target: str, state: Path | None) -> StateDirectory:
    """Return the state directory of a file, of a name known in this folder, or the one that --state names."""
    from moldau.pipelines.running.state_directory import StateDirectory, known_directories

    if state is not None:
        return StateDirectory(state.absolute())
    if not Path(target).exists():
        folders = [Path.cwd(), *sorted(path for path in Path.cwd().iterdir() if path.is_dir())]
        for known in (known for folder in folders for known in known_directories(folder)):
            if known.path.name == target:
                return known
        if not target.endswith(SUFFIXES):
            raise CommandFailed(f"no pipeline {target} has been run from this folder; give its file")
    return Chosen(Path(target), {}, None, None).directory
