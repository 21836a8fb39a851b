"""What a pipeline keeps between runs, and what a running one shows to other terminals: one directory of small files.

    <pipeline>/                 `.moldau/pipelines/<name>` beside the pipeline's file, unless --state names another
      lock                      flock'ed for as long as a run lives; its text is JSON and says who: pid, host, since
      identity.json             which pipeline the checkpoints belong to, and what each query was (identity.py)
      fresh.json                while queries are made to begin anew: which, and what is emptied (fresh_start.py)
      status.json               JSON, replaced every second by the run: what `moldau pipeline status` shows
      failures.log              the whole story of each failure of a query (failure_log.py)
      stop                      made by `moldau pipeline stop`: the run ends itself when it sees it
      checkpoints/<query>/      Spark's: offsets, commits, state

The kernel lets go of the lock when its process dies, however it dies, so a dead run is never in the way. Files are
written aside and renamed: a reader sees the old text or the new one. No Spark, no clock in here.
"""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from moldau.base.errors import StorageFault
from moldau.pipelines.problems import PipelineError
from moldau.platforms.durable_files import sync_directory, sync_file
from moldau.platforms.file_locks import try_lock

LOCK: Final = "lock"
STATUS: Final = "status.json"
STOP: Final = "stop"
FAILURES: Final = "failures.log"
CHECKPOINTS: Final = "checkpoints"
LOCK_PATIENCE_S: Final = 0.5
LOCK_AGAIN_S: Final = 0.02
"""Whoever looks whether a run lives holds the lock for a moment, so one refusal does not mean another run yet."""


class StateRefused(PipelineError):
    """The state directory does not fit this run. The message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Holder:
    """The run that holds a lock, as it introduced itself; pid 0 if it has not come to that yet."""

    pid: int
    host: str
    since: str


class AlreadyRunning(StateRefused):
    def __init__(self, directory: Path, holder: Holder) -> None:
        who = f"by process {holder.pid} on {holder.host} since {holder.since}" if holder.pid else "by another process"
        super().__init__(
            f"{directory.name} is being run already {who};"
            " `moldau pipeline status` shows it, `moldau pipeline stop` ends it"
        )
        self.holder = holder


@dataclass(frozen=True, slots=True)
class StateDirectory:
    path: Path

    @property
    def checkpoints(self) -> Path:
        return self.path / CHECKPOINTS

    @property
    def failures(self) -> Path:
        return self.path / FAILURES

    def checkpoint(self, query: str) -> Path:
        return self.checkpoints / query

    @contextmanager
    def locked(self, holder: Holder) -> Iterator[None]:
        """Holds the lock for the length of a `with`; AlreadyRunning if another process does."""
        with _faults_of(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            lock = os.open(self.path / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            self._lock_soon(lock)
            os.ftruncate(lock, 0)
            os.pwrite(lock, json.dumps(asdict(holder)).encode(), 0)
            yield
            os.ftruncate(lock, 0)
        finally:
            os.close(lock)

    def _lock_soon(self, lock: int) -> None:
        pause = threading.Event()
        for _ in range(int(LOCK_PATIENCE_S / LOCK_AGAIN_S)):
            if try_lock(lock):
                return
            pause.wait(LOCK_AGAIN_S)
        raise AlreadyRunning(self.path, _introduced(lock))

    def holder(self) -> Holder | None:
        """The run that is alive now, or None."""
        try:
            lock = os.open(self.path / LOCK, os.O_RDONLY)
        except FileNotFoundError:
            return None
        try:
            return None if try_lock(lock, shared=True) else _introduced(lock)
        finally:
            os.close(lock)

    def write_status(self, status: Mapping[str, Any]) -> None:
        """Not synced: after a power cut it would be out of date anyway."""
        write_json(self.path / STATUS, status, sync=False)

    def read_status(self) -> dict[str, Any] | None:
        """What the last run said about itself, or None if none ever did."""
        return read_json(self.path / STATUS)

    def request_stop(self) -> None:
        with _faults_of(self.path / STOP):
            (self.path / STOP).touch()

    def stop_requested(self) -> bool:
        return (self.path / STOP).exists()

    def forget_stop(self) -> None:
        (self.path / STOP).unlink(missing_ok=True)

    def has_progress(self, query: str) -> bool:
        """True once the query has planned a batch: from then on its checkpoint is bound to what the query is."""
        offsets = self.checkpoint(query) / "offsets"
        return offsets.is_dir() and any(name.name.isdigit() for name in offsets.iterdir())

    def has_state(self, query: str) -> bool:
        """True if the query that wrote the checkpoint aggregated, joined or deduplicated: Spark then keeps state."""
        state = self.checkpoint(query) / "state"
        return state.is_dir() and any(state.iterdir())

    def query_id(self, query: str) -> str | None:
        """The id that Spark gave the query when the checkpoint was made."""
        found = read_json(self.checkpoint(query) / "metadata")
        return None if found is None else str(found.get("id"))

    def queries(self) -> list[str]:
        """The queries that have a checkpoint."""
        if not self.checkpoints.is_dir():
            return []
        return sorted(entry.name for entry in self.checkpoints.iterdir() if entry.is_dir())

    def forget(self, query: str) -> None:
        """Removes a checkpoint. It is renamed first: a removal that is cut short leaves nothing that looks whole."""
        checkpoint = self.checkpoint(query)
        if not checkpoint.exists():
            return
        with _faults_of(checkpoint):
            aside = checkpoint.with_name(f".forgotten-{query}-{os.getpid()}")
            checkpoint.rename(aside)
            shutil.rmtree(aside)


def default_directory(file: Path, name: str) -> StateDirectory:
    """Where the pipeline of that name, told in that file, keeps its state."""
    return StateDirectory(file.parent / ".moldau" / "pipelines" / name)


def known_directories(folder: Path) -> list[StateDirectory]:
    """The state directories of all pipelines whose files are in a folder and that have ever been run."""
    root = folder / ".moldau" / "pipelines"
    return [StateDirectory(path) for path in sorted(root.iterdir()) if path.is_dir()] if root.is_dir() else []


def write_json(path: Path, content: Mapping[str, Any], sync: bool = True) -> None:
    """Replaces a file in one step. With `sync` it is on the disk afterwards, under its name."""
    with _faults_of(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        aside = path.with_name(f".{path.name}.{os.getpid()}")
        with open(aside, "w", encoding="utf-8") as file:
            json.dump(content, file, indent=1)
            file.write("\n")
            if sync:
                file.flush()
                sync_file(file.fileno())
        os.replace(aside, path)
        if sync:
            sync_directory(str(path.parent))


def read_json(path: Path) -> dict[str, Any] | None:
    """The object in a file; None if there is no file. StateRefused if the text is none of ours."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise StateRefused(f"{path} is not what a run wrote ({error}); `--fresh` begins anew") from error
    if not isinstance(content, dict):
        raise StateRefused(f"{path} is not what a run wrote (no JSON object); `--fresh` begins anew")
    return content


def _introduced(lock: int) -> Holder:
    said = os.pread(lock, 4096, 0)
    try:
        return Holder(**json.loads(said))
    except (ValueError, TypeError):
        return Holder(0, "", "")


@contextmanager
def _faults_of(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StorageFault(str(path), error) from error
