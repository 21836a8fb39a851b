"""The state directory of a pipeline: one run at a time, no lock left by a killed run, and no half-written files."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
from harness.patience import PATIENCE_S

from moldau.base.errors import StorageFault
from moldau.pipelines.running import state_directory
from moldau.pipelines.running.state_directory import (
    AlreadyRunning,
    Holder,
    StateDirectory,
    StateRefused,
    default_directory,
    known_directories,
    write_json,
)

HOLDER = Holder(os.getpid(), "here", "2026-11-15T11:00:00Z")

HOLD = """
import sys
from pathlib import Path
from moldau.pipelines.running.state_directory import Holder, StateDirectory
with StateDirectory(Path(sys.argv[1])).locked(Holder(4711, "elsewhere", "noon")):
    print("locked", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def directory(tmp_path: Path) -> StateDirectory:
    return StateDirectory(tmp_path / "bookstore")


def lock_in_another_process(directory: StateDirectory) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(directory.path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "locked\n"
    return process


def test_a_second_run_is_refused_with_the_process_of_the_first(directory: StateDirectory) -> None:
    with lock_in_another_process(directory) as other:
        assert directory.holder() == Holder(4711, "elsewhere", "noon")
        with (
            pytest.raises(AlreadyRunning, match=r"bookstore .* process 4711 on elsewhere since noon"),
            directory.locked(HOLDER),
        ):
            pass
        other.communicate()
    assert directory.holder() is None
    with directory.locked(HOLDER):
        assert directory.holder() == HOLDER


def test_a_killed_run_leaves_no_lock(directory: StateDirectory) -> None:
    with lock_in_another_process(directory) as other:
        other.send_signal(signal.SIGKILL)
        other.communicate()
    assert directory.holder() is None
    with directory.locked(HOLDER):
        assert directory.holder() == HOLDER


def test_an_exception_releases_the_lock(directory: StateDirectory) -> None:
    with pytest.raises(ZeroDivisionError), directory.locked(HOLDER):
        _ = 1 // 0
    assert directory.holder() is None


def poll_holder(path: Path, done: Connection) -> None:
    directory = StateDirectory(path)
    done.send("looking")
    while not done.poll():
        directory.holder()


def test_reading_the_holder_does_not_block_a_run(directory: StateDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    """`status` takes the lock for an instant; a run that starts just then is not refused because of that."""
    monkeypatch.setattr(state_directory, "LOCK_PATIENCE_S", PATIENCE_S)  # the instant may be long on a busy machine
    with directory.locked(HOLDER):
        pass
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    watcher = context.Process(target=poll_holder, args=(directory.path, theirs))
    watcher.start()
    assert ours.recv() == "looking"
    try:
        for _ in range(300):
            with directory.locked(HOLDER):
                pass
    finally:
        ours.send(None)
        watcher.join()


def test_a_status_is_read_back_and_a_missing_one_is_none(directory: StateDirectory) -> None:
    assert directory.read_status() is None
    directory.write_status({"state": "running", "queries": []})
    assert directory.read_status() == {"state": "running", "queries": []}
    assert [path.name for path in directory.path.iterdir()] == ["status.json"]


def rewrite(path: Path, done: Connection) -> None:
    directory, number = StateDirectory(path), 0
    while not done.poll():
        number += 1
        directory.write_status({"text": str(number) * 2000})


def test_a_reader_never_sees_half_a_status(directory: StateDirectory) -> None:
    directory.write_status({"text": ""})
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    writer = context.Process(target=rewrite, args=(directory.path, theirs))
    writer.start()
    try:
        seen: set[str] = set()
        while len(seen) < 50:
            status = directory.read_status()
            assert status is not None
            assert writer.is_alive()
            seen.add(status["text"])
    finally:
        ours.send(None)
        writer.join()


@pytest.mark.parametrize("text", ["", "{", "[1]", '"running"'])
def test_a_status_file_that_no_run_wrote_is_refused(directory: StateDirectory, text: str) -> None:
    directory.path.mkdir(parents=True)
    (directory.path / "status.json").write_text(text)
    with pytest.raises(StateRefused, match=r"status\.json is not what a run wrote"):
        directory.read_status()


def test_a_directory_that_cannot_be_created_is_reported_with_its_name(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    blocked = StateDirectory(tmp_path / "file" / "bookstore")
    with pytest.raises(StorageFault, match="bookstore"), blocked.locked(HOLDER):
        pass
    with pytest.raises(StorageFault, match=r"status\.json"):
        blocked.write_status({})


def test_a_stop_request_is_stored_and_removed(directory: StateDirectory) -> None:
    directory.path.mkdir()
    assert not directory.stop_requested()
    directory.request_stop()
    assert directory.stop_requested()
    directory.forget_stop()
    directory.forget_stop()
    assert not directory.stop_requested()


def test_the_progress_and_state_of_a_checkpoint(directory: StateDirectory) -> None:
    checkpoint = directory.checkpoint("counts")
    assert (directory.queries(), directory.query_id("counts")) == ([], None)
    write_json(checkpoint / "metadata", {"id": "7"})
    (checkpoint / "offsets").mkdir()
    assert (directory.queries(), directory.query_id("counts")) == (["counts"], "7")
    assert not directory.has_progress("counts")
    (checkpoint / "offsets" / "0").touch()
    assert directory.has_progress("counts")
    assert not directory.has_state("counts")
    (checkpoint / "state" / "0").mkdir(parents=True)
    assert directory.has_state("counts")
    directory.forget("counts")
    directory.forget("counts")
    assert directory.queries() == []


def test_a_killed_removal_is_finished_by_the_next_one(
    directory: StateDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a container, the next run has the same process id."""

    def kill(path: Path) -> None:
        raise KeyboardInterrupt

    write_json(directory.checkpoint("counts") / "metadata", {"id": "7"})
    with monkeypatch.context() as killed:
        killed.setattr(shutil, "rmtree", kill)
        with pytest.raises(KeyboardInterrupt):
            directory.forget("counts")
    assert directory.queries() == []
    write_json(directory.checkpoint("counts") / "metadata", {"id": "8"})
    directory.forget("counts")
    assert list(directory.checkpoints.iterdir()) == []


def test_the_default_state_directory(tmp_path: Path) -> None:
    assert known_directories(tmp_path) == []
    ours = default_directory(tmp_path / "pipeline.yaml", "bookstore")
    assert ours.path == tmp_path / ".moldau" / "pipelines" / "bookstore"
    ours.write_status({})
    assert known_directories(tmp_path) == [ours]
    assert json.loads((ours.path / "status.json").read_text()) == {}
