"""The pipeline of a command: its file, its state directory, the options that change it; and completion.

Failures of pipelines become one line, or, for a file with mistakes, a page that points at each. Spark and YAML are
imported when a command needs them, which `--help` does not.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
from click.shell_completion import CompletionItem

from moldau.base.errors import StorageFault
from moldau.cli.connect import CommandFailed, key_values_callback

if TYPE_CHECKING:
    from moldau.pipelines.running.state_directory import StateDirectory
    from moldau.pipelines.spec import Pipeline

C = TypeVar("C", bound=Callable[..., Any])

DEFAULT_FILE: Final = "pipeline.yaml"
SUFFIXES: Final = (".yaml", ".yml")
EXTRAS: Final = {"yaml": "spark", "pyspark": "spark", "pyarrow": "spark", "numpy": "spark", "py4j": "spark",
                 "fastavro": "spark", "deltalake": "lake", "pyiceberg": "lake"}  # fmt: skip
"""The extra of this package that installs a library."""


class PipelineGroup(click.Group):
    """The commands about pipelines, with common error handling."""

    def invoke(self, ctx: click.Context) -> Any:
        with plain_failures():
            return super().invoke(ctx)


@contextmanager
def plain_failures() -> Iterator[None]:
    """Turn errors of pipelines and Spark into CommandFailed; print the mistakes in a file one by one."""
    try:
        yield
    except ModuleNotFoundError as error:
        extra = EXTRAS.get((error.name or "").partition(".")[0])
        if extra is None:
            raise
        raise CommandFailed(f"pipelines need {error.name}: pip install 'moldau[{extra}]'") from error
    except ImportError as error:  # spark_session.MissingPackage, which says what to install
        raise CommandFailed(str(error)) from error
    except StorageFault as fault:
        raise CommandFailed(f"{fault}; {fault.next_step}" if fault.next_step else str(fault)) from fault
    except Exception as error:
        from moldau.pipelines.problems import InvalidPipeline, PipelineError
        from moldau.spark.java import MissingJava

        if isinstance(error, InvalidPipeline):
            click.echo(error.render(), err=True)
            count = len(error.problems)
            raise CommandFailed(f"{count} problem{'s' if count > 1 else ''} found") from error
        if isinstance(error, PipelineError | MissingJava):
            raise CommandFailed(str(error)) from error
        if type(error).__module__.partition(".")[0] in ("pyspark", "py4j"):
            from moldau.pipelines.running.failures import failure_of

            raise CommandFailed(f"Spark: {failure_of(str(error)).message}{_save_trace(error)}") from error
        raise


def _save_trace(error: Exception) -> str:
    """Write the whole error to a file, and return where it is; empty if it cannot be written."""
    from moldau.pipelines.running.failure_log import format_error
    from moldau.spark.scripts import private_directories

    for directory in private_directories():
        with suppress(OSError):
            log = directory / "last-failure.log"
            log.write_text(format_error(error) + "\n", encoding="utf-8", errors="backslashreplace")
            return f" (all of it: {log})"
    return ""


@dataclass(frozen=True)
class Chosen:
    """A pipeline's file, and what the command line changes in it."""

    file: Path
    settings: Mapping[str, str]
    bootstrap: str | None
    state: Path | None

    @functools.cached_property
    def pipeline(self) -> Pipeline:
        """Load the file; InvalidPipeline if it has mistakes."""
        from moldau.pipelines.reading.loading import load

        return load(existing(self.file), self.settings, self.bootstrap).with_bootstrap(self.bootstrap)

    @functools.cached_property
    def unconnected(self) -> Pipeline:
        """Load the file for a command that does not connect to the cluster, so that it needs none of the passwords."""
        from moldau.pipelines.reading.loading import load

        return load(existing(self.file), self.settings, connects=False).with_bootstrap(self.bootstrap)

    @functools.cached_property
    def directory(self) -> StateDirectory:
        return state_directory(self.unconnected, self.state)


def state_directory(pipeline: Pipeline, state: Path | None) -> StateDirectory:
    from moldau.pipelines.running.state_directory import StateDirectory, default_directory

    return StateDirectory(state.absolute()) if state else default_directory(pipeline.file, pipeline.name)


def existing(file: Path) -> Path:
    if file.is_dir() and (file / DEFAULT_FILE).is_file():
        return file / DEFAULT_FILE
    if not file.is_file():
        what = "is a directory" if file.is_dir() else f"does not exist{_similar_name(file)}"
        raise CommandFailed(f"{file} {what}; give a pipeline's file, or write one with `moldau pipeline init`")
    return file


def _similar_name(file: Path) -> str:
    from moldau.pipelines.problems import did_you_mean

    beside = [path.name for path in file.parent.iterdir() if path.suffix in SUFFIXES] if file.parent.is_dir() else []
    return did_you_mean(file.name, beside).removesuffix("?")


def complete_files(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete pipeline files, and the directories on the way to them."""
    folder, start = os.path.split(incomplete)
    try:
        entries = sorted(os.scandir(folder or "."), key=lambda entry: entry.name)
    except OSError:
        return []
    candidates = [e for e in entries if e.name.startswith(start) and (start.startswith(".") or e.name[0] != ".")]
    names = [
        os.path.join(folder, entry.name) + ("/" if entry.is_dir() else "")
        for entry in candidates
        if entry.is_dir() or entry.name.endswith(SUFFIXES)
    ]
    return [CompletionItem(name) for name in names]


def complete_sinks(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the sinks of the file on the command line; silent if it cannot be read."""
    from moldau.pipelines.problems import InvalidPipeline

    file = Path(ctx.params.get("file") or DEFAULT_FILE)
    try:
        pipeline = Chosen(file, {}, None, None).unconnected
    except (InvalidPipeline, CommandFailed, ImportError, OSError):
        return []
    return [CompletionItem(sink.name) for sink in pipeline.sinks if sink.name.startswith(incomplete)]


file_argument: Callable[[C], C] = click.argument(
    "file", metavar="[FILE]", default=DEFAULT_FILE, type=click.Path(path_type=Path), shell_complete=complete_files
)
state_option: Callable[[C], C] = click.option(
    "--state",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Where checkpoints and status are. Default: .moldau/pipelines/NAME beside the file.",
)
set_option: Callable[[C], C] = click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="K=V",
    callback=key_values_callback,
    help="A value for one of the file's vars. Repeatable.",
)


def chosen_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add FILE, --set, -b and --state to a command, which gets them as its argument `chosen`."""

    @file_argument
    @set_option
    @click.option(
        "-b",
        "--bootstrap-server",
        envvar="MOLDAU_BOOTSTRAP",
        metavar="HOST:PORT[,...]",
        help="The cluster, instead of the one in the file. Also $MOLDAU_BOOTSTRAP.",
    )
    @state_option
    @functools.wraps(command)
    def with_chosen(
        *args: Any, file: Path, settings: dict[str, str], bootstrap_server: str | None, state: Path | None, **rest: Any
    ) -> Any:
        return command(*args, chosen=Chosen(file, settings, bootstrap_server, state), **rest)

    return with_chosen
