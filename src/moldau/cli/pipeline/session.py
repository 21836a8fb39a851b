"""Spark for the duration of a command: progress while it starts, its output in a file, Ctrl-C as a request to stop."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from moldau.cli.connect import CommandFailed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from moldau.pipelines.running.stop_request import Stop
    from moldau.pipelines.spec import Pipeline


SPARK_LOG: Final = "spark.log"
"""The standard error of Spark's processes."""


class Session:
    """A Spark session for the duration of a `with`, and the signals that request the run to end.

    The output of Spark's processes goes to the file `log`: few readers need their stack traces.
    """

    def __init__(
        self,
        pipeline: Pipeline | None,
        master: str | None,
        conf: dict[str, str],
        log: Path | None,
        stop: Stop | None = None,
        quick_start: bool = False,
    ) -> None:
        """Without `pipeline`, Spark has its default settings.
        `quick_start` is for work of seconds: see `moldau.spark.session`."""
        self._quick_start = quick_start
        self._pipeline, self._master, self._conf, self._log, self._stop = pipeline, master, conf, log, stop
        self._spark: SparkSession | None = None

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *error: object) -> None:
        if self._spark is not None:
            self._spark.stop()

    def start(self, on_phase: Callable[[str], None]) -> SparkSession:
        """Start Spark and return its session; `on_phase` is called with what it is doing."""
        import moldau.spark
        from moldau.pipelines.running.launching import SESSION_DEFAULTS
        from moldau.spark.java import BrokenJava

        own = {} if self._pipeline is None else self._pipeline.spark
        name = "moldau" if self._pipeline is None else self._pipeline.name
        conf: dict[str, Any] = {**SESSION_DEFAULTS, **own, **self._conf}
        try:
            with _stderr_to(self._log) if self._log else nullcontext():
                self._spark = moldau.spark.session(
                    name, self._master, quick_start=self._quick_start, on_phase=on_phase, **conf
                )
        except BrokenJava as error:
            raise CommandFailed(f"{error}{_first_log_line(self._log)}") from error
        if self._stop is not None:
            _stop_on_signals(self._stop)
        return self._spark


def ask_dev(
    file: Path,
    do: str,
    settings: Mapping[str, str],
    on_phase: Callable[[str], None],
    more: Mapping[str, Any] | None = None,
) -> Mapping[str, Any] | None:
    """Return the response of a running `dev` of that file, whose Spark is up already; None if there is none."""
    from moldau.pipelines.workbench.questions import ask

    answer = ask(file, do, settings, on_phase, more)
    if answer is not None and "failed" in answer:
        raise CommandFailed(answer["failed"])
    return answer


def _first_log_line(log: Path | None) -> str:
    """Return the first line that Java wrote to its log, if any."""
    if log is None or not log.is_file():
        return ""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return f"; it said: {lines[0]} (all of it: {log})" if lines else ""


def quiet_log(file: Path | None) -> Path | None:
    """Return the file for Spark's output in a command that does not run a pipeline: beside the pipeline's file; None,
    for the terminal, with --debug."""
    if click.get_current_context().find_root().params.get("debug"):
        return None
    folder = None if file is None else log_folder(file)
    return folder / SPARK_LOG if folder else Path(os.devnull)


def log_folder(file: Path) -> Path | None:
    """Return `.moldau/logs` beside the pipeline's file; None if it cannot be written."""
    folder = file.absolute().parent / ".moldau" / "logs"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        ignored = folder / ".gitignore"
        if not ignored.exists():
            ignored.write_text("*\n")
    except OSError:
        return None
    return folder if os.access(folder, os.W_OK) else None


def _stop_on_signals(stop: Stop) -> None:
    """Install the handlers after Spark has started, which installs one of its own that cancels all jobs."""
    signal.signal(signal.SIGINT, lambda number, frame: stop.request("stopped by Ctrl-C"))
    signal.signal(signal.SIGTERM, lambda number, frame: stop.request("stopped by SIGTERM"))


@contextmanager
def _stderr_to(log: Path) -> Iterator[None]:
    """Give processes that are started inside the block the file as their standard error."""
    sys.stderr.flush()
    saved = os.dup(2)
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.dup2(file, 2)
    try:
        yield
    finally:
        os.dup2(saved, 2)
        os.close(file)
        os.close(saved)


@contextmanager
def phases(first: str) -> Iterator[Callable[[str], None]]:
    """Show progress: a spinner on a terminal, else a line for each phase. Yields the function that reports a phase.

    Uses a descriptor of its own, which `_stderr_to` does not redirect.
    """
    with os.fdopen(os.dup(2), "w") as out:
        if not sys.stderr.isatty():

            def print_phase(phase: str) -> None:
                print(f"{time.strftime('%H:%M:%S', time.gmtime())} {phase} …", file=out, flush=True)

            print_phase(first)
            yield print_phase
            return
        from rich.console import Console

        with Console(file=out).status(f"{first} …") as status:
            yield lambda phase: status.update(f"{phase} …")
