"""The directory in which a pipeline keeps its state between runs, and in which a run writes its status for others.

    <pipeline>/                 `.moldau/pipelines/<name>` beside the pipeline's file, unless --state names another
      lock                      flock'ed while a run is alive; its text is JSON with pid, host and start of the run
      identity.json             which pipeline the checkpoints belong to, and the identity of each query (identity.py)
      fresh.json                while queries are reset: which, and what is cleared (fresh_start.py)
      status.json               replaced every second by the run: what `moldau pipeline status` shows
      failures.log              each failure of a query in full (failure_log.py)
      stop                      created by `moldau pipeline stop`: the run ends when it sees it
      checkpoints/<query>/      Spark's: offsets, commits, state
      batch/                    the same for --batch runs, which have no checkpoints
        queries/<query>/        files of a batch write

The kernel releases the lock when the process dies, however it dies, so a dead run never blocks a new one. Files are
written under a temporary name and renamed: a reader sees the old text or the new one. This module uses no Spark and no
clock.
"""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from moldau.base.errors import StorageFault
from moldau.pipelines.problems import PipelineError
from moldau.platforms.file_locks import try_lock
from moldau.platforms.replaced_files import replace_file

LOCK: Final = "lock"
STATUS: Final = "status.json"
STOP: Final = "stop"
FAILURES: Final = "failures.log"
CHECKPOINTS: Final = "checkpoints"
QUERIES: Final = "queries"
FORGOTTEN: Final = ".forgotten-"
"""Prefix of a checkpoint that is being removed. No query's name begins with a dot."""
LOCK_PATIENCE_S: Final = 0.5
LOCK_RETRY_S: Final = 0.02
"""`holder` takes the lock for a moment, so a single failure to lock does not mean that another run is alive."""


class StateRefused(PipelineError):
    """The state directory does not fit this run. The message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Holder:
    """The run that holds the lock, as it wrote into it; pid 0 if it has not written yet."""

    pid: int
    host: str
    since: str


class AlreadyRunning(StateRefused):
    def __init__(self, directory: StateDirectory, holder: Holder) -> None:
        who = f"by process {holder.pid} on {holder.host} since {holder.since}" if holder.pid else "by another process"
        if directory.is_of_batch:
            message = f"a --batch run of {directory.path.parent.name} is going on already, {who}"
        else:
            message = (
                f"{directory.path.name} is being run already {who};"
                " `moldau pipeline status` shows it, `moldau pipeline stop` ends it"
            )
        super().__init__(message)
        self.holder = holder


@dataclass(frozen=True, slots=True)
class StateDirectory:
    path: Path
    is_of_batch: bool = False
    """Whether it is that of --batch runs, inside of the pipeline's own (launching.py)."""

    @property
    def checkpoints(self) -> Path:
        return self.path / CHECKPOINTS

    @property
    def failures(self) -> Path:
        return self.path / FAILURES

    def checkpoint(self, query: str) -> Path:
        return self.checkpoints / query

    def batch_state(self, query: str) -> Path:
        """Return the directory for files of a batch write. Each query has its own: they run at the same time."""
        return self.path / QUERIES / query

    @contextmanager
    def locked(self, holder: Holder) -> Iterator[None]:
        """Hold the lock for the length of a `with`; raise AlreadyRunning if another process holds it."""
        with _faults_of(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            lock = os.open(self.path / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            self._wait_for_lock(lock)
            os.ftruncate(lock, 0)
            os.pwrite(lock, json.dumps(asdict(holder)).encode(), 0)
            yield
            os.ftruncate(lock, 0)
        finally:
            os.close(lock)

    def _wait_for_lock(self, lock: int) -> None:
        pause = threading.Event()
        for _ in range(int(LOCK_PATIENCE_S / LOCK_RETRY_S)):
            if try_lock(lock):
                return
            pause.wait(LOCK_RETRY_S)
        raise AlreadyRunning(self, _read_holder(lock))

    def holder(self) -> Holder | None:
        """Return the run that is alive now, or None."""
        try:
            lock = os.open(self.path / LOCK, os.O_RDONLY)
        except FileNotFoundError:
            return None
        try:
            return None if try_lock(lock, shared=True) else _read_holder(lock)
        finally:
            os.close(lock)

    def write_status(self, status: Mapping[str, Any]) -> None:
        """Replace status.json, without fsync: after a power failure it would be out of date anyway."""
        write_json(self.path / STATUS, status, sync=False)

    def read_status(self) -> dict[str, Any] | None:
        """Return the status that the last run wrote, or None if there was none."""
        return read_json(self.path / STATUS, remedy="`moldau pipeline run` writes a new one")

    def request_stop(self) -> None:
        with _faults_of(self.path / STOP):
            (self.path / STOP).touch()

    def stop_requested(self) -> bool:
        return (self.path / STOP).exists()

    def forget_stop(self) -> None:
        (self.path / STOP).unlink(missing_ok=True)

    def has_progress(self, query: str) -> bool:
        """Return whether the query has planned a batch: from then on its checkpoint fits only this query."""
        offsets = self.checkpoint(query) / "offsets"
        return offsets.is_dir() and any(name.name.isdigit() for name in offsets.iterdir())

    def has_state(self, query: str) -> bool:
        """Return whether the checkpoint has state: its query aggregated, joined or deduplicated."""
        state = self.checkpoint(query) / "state"
        return state.is_dir() and any(state.iterdir())

    def query_id(self, query: str) -> str | None:
        """Return the id that Spark gave the query when it created the checkpoint."""
        metadata = read_json(self.checkpoint(query) / "metadata")
        return None if metadata is None else str(metadata.get("id"))

    def queries(self) -> list[str]:
        """Return the queries that have a checkpoint."""
        if not self.checkpoints.is_dir():
            return []
        entries = [entry for entry in self.checkpoints.iterdir() if not entry.name.startswith(FORGOTTEN)]
        return sorted(entry.name for entry in entries if entry.is_dir())

    def forget(self, query: str) -> None:
        """Remove a checkpoint. Rename it first, so that an interrupted removal leaves no incomplete checkpoint."""
        checkpoint = self.checkpoint(query)
        renamed = checkpoint.with_name(f"{FORGOTTEN}{query}")
        with _faults_of(checkpoint):
            if renamed.exists():  # an earlier removal was interrupted
                shutil.rmtree(renamed)
            if checkpoint.exists():
                checkpoint.rename(renamed)
                shutil.rmtree(renamed)

    def finish_removals(self) -> None:
        """Remove what interrupted removals of checkpoints have left. What cannot be removed does no harm: the next run
        tries again."""
        for renamed in self.checkpoints.glob(f"{FORGOTTEN}*"):
            shutil.rmtree(renamed, ignore_errors=True)


def default_directory(file: Path, name: str) -> StateDirectory:
    """Return the state directory of the pipeline `name` that is defined in `file`."""
    return StateDirectory(file.parent / ".moldau" / "pipelines" / name)


def known_directories(folder: Path) -> list[StateDirectory]:
    """Return the state directories of all pipelines whose files are in the folder and that have been run."""
    root = folder / ".moldau" / "pipelines"
    return [StateDirectory(path) for path in sorted(root.iterdir()) if path.is_dir()] if root.is_dir() else []


def write_json(path: Path, content: Mapping[str, Any], sync: bool = True) -> None:
    """Replace a file atomically. With `sync` the file and its name are on the disk afterwards."""
    with _faults_of(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, json.dumps(content, indent=1) + "\n", sync=sync)


def read_json(
    path: Path, keys: Collection[str] = (), remedy: str = "`--fresh` starts from scratch"
) -> dict[str, Any] | None:
    """Return the JSON object in a file; None if there is no file. Raise StateRefused, with what to do about it, if it
    holds anything else or lacks one of the keys."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise StateRefused(f"{path} is not what a run wrote ({error}); {remedy}") from error
    if not isinstance(content, dict):
        raise StateRefused(f"{path} is not what a run wrote (no JSON object); {remedy}")
    if missing := [key for key in keys if key not in content]:
        raise StateRefused(f"{path} is not what a run wrote (no {missing[0]!r}); {remedy}")
    return content


def _read_holder(lock: int) -> Holder:
    text = os.pread(lock, 4096, 0)
    try:
        return Holder(**json.loads(text))
    except (ValueError, TypeError):
        return Holder(0, "", "")


@contextmanager
def _faults_of(path: Path) -> Iterator[None]:
    """Raise an OSError of the `with` block as a StorageFault of the path."""
    try:
        yield
    except OSError as error:
        raise StorageFault(str(path), error) from error
