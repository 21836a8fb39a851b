"""Every commit is killed at every step it makes on disk, then replayed as Spark does it: each row is stored once.

The oracle is a plain list. A process that is killed does nothing more: after the fatal step every further step fails
too, so that no `except` or `finally` can tidy up on the way out.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable
from harness.depth import sample
from pyiceberg.table import StaticTable

from moldau.base.errors import StorageFault
from moldau.platforms.durable_files import directory_sync
from moldau.spark.lake import BatchTag, append, disk, overwrite
from moldau.spark.lake.files import write_files
from moldau.spark.lake.tables import DataFile
from moldau.spark.lake.writing import commit, prepare

CHANGES = ("makedirs", "rename", "link", "unlink", "rmdir", "open", "write", "fsync")
STEPS_MAX = 200


class Killed(BaseException):
    """Not an Exception: nothing may catch it."""


class KillingOs:
    """The module os until its n-th change, which raises Killed before or after it happens."""

    def __init__(self, lives: int, last_step_happens: bool = False) -> None:
        self.lives = lives
        self._last_step_happens = last_step_happens

    def __getattr__(self, name: str) -> Any:
        real = getattr(os, name)
        return self._counted(real) if name in CHANGES else real

    def _counted(self, real: Any) -> Any:
        def step(*args: Any, **named: Any) -> Any:
            self.lives -= 1
            if self.lives < 0 or (self.lives == 0 and not self._last_step_happens):
                raise Killed
            result = real(*args, **named)
            if self.lives == 0:
                raise Killed
            return result

        return step


def rows_of(batch: int, cut: int) -> list[pa.Table]:
    """Batch n holds 10n to 10n+9, in `cut` tasks: a replay has the same rows and perhaps other files."""
    values = list(range(10 * batch, 10 * batch + 10))
    size = -(-len(values) // cut)
    parts = [values[at : at + size] for at in range(0, len(values), size)]
    return [pa.table({"id": pa.array(part, pa.int64()), "odd": [v % 2 for v in part]}) for part in parts]


def run_batch(path: Path, kind: str, batch: int, cut: int, complete: bool = False) -> bool:
    """What Spark does for one micro-batch: prepare, tasks, commit."""
    tag = BatchTag("query", batch)
    return commit(str(path), kind, run_tasks(path, kind, tag, cut), tag, complete)


def run_tasks(path: Path, kind: str, tag: BatchTag, cut: int) -> list[DataFile]:
    target = prepare(str(path), kind, rows_of(0, 1)[0].schema, ["odd"])
    tasks = enumerate(rows_of(tag.batch_id, cut))
    return [file for task, rows in tasks for file in write_files(target, tag, task, rows.to_batches())]


def visible(path: Path, kind: str) -> list[int]:
    match kind:
        case "parquet":
            found = ds.dataset(path, format="parquet", partitioning="hive").to_table(columns=["id"])
        case "delta":
            found = DeltaTable(str(path)).to_pyarrow_table(columns=["id"])
        case _:
            found = StaticTable.from_metadata(str(path)).scan(selected_fields=("id",)).to_arrow()
    return sorted(found["id"].to_pylist())


def killed(patch: pytest.MonkeyPatch, killing: KillingOs, work: Callable[[], object]) -> bool:
    """Whether the work was stopped before its end."""
    with patch.context() as patched:
        patched.setattr(disk, "os", killing)
        patched.setattr(disk, "sync_file", killing.fsync)
        patched.setattr(disk, "sync_directory", directory_sync(killing.fsync))
        try:
            work()
        except Killed:
            return True
    return False


def test_a_parquet_batch_killed_at_any_step_is_stored_once_after_the_replay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for lives in range(1, STEPS_MAX):
        path = tmp_path / str(lives)
        run_batch(path, "parquet", 0, cut=2)
        if not killed(monkeypatch, KillingOs(lives), lambda path=path: run_batch(path, "parquet", 1, cut=2)):
            assert lives > 25
            return
        run_batch(path, "parquet", 1, cut=3)
        assert visible(path, "parquet") == list(range(20)), f"killed at step {lives}"
        run_batch(path, "parquet", 2, cut=1)
        assert visible(path, "parquet") == list(range(30)), f"killed at step {lives}"
        assert not list(path.rglob("*.staged")), f"killed at step {lives}: staged files are left"
    raise AssertionError(f"the batch did not end within {STEPS_MAX} steps")


@pytest.mark.parametrize("last_step_happens", [False, True])
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_delta_or_iceberg_batch_killed_in_its_commit_is_stored_once_without_orphans(
    tmp_path: Path, kind: str, last_step_happens: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the last step and without it: the table's library writes its log between two steps, without `disk.os`.

    `make test` kills Delta's commits at every second step and Iceberg's at every fourth, `make deep` at each.
    """
    path, replay_commits, batch = tmp_path / "table", set(), 0
    for lives in sample(range(1, STEPS_MAX), 4 if kind == "iceberg" else 2, first=last_step_happens):
        batch += 1  # its rows show which batch is missing or stored twice
        tag, killing = BatchTag("query", batch), KillingOs(lives, last_step_happens)
        files = run_tasks(path, kind, tag, cut=1)
        if not killed(monkeypatch, killing, lambda f=files, t=tag: commit(str(path), kind, f, t)):
            break
        replay_commits.add(run_batch(path, kind, batch, cut=2))
    else:
        raise AssertionError(f"the batch did not end within {STEPS_MAX} steps")
    assert visible(path, kind) == list(range(10, 10 * batch + 10))
    assert replay_commits == {True, False}, "some kills came before the log was written, some after it"
    assert not list(path.rglob("*.staged"))
    assert len(list(path.rglob("*.parquet"))) == len(live_files(path, kind)), "orphans are left"


def live_files(path: Path, kind: str) -> list[str]:
    if kind == "delta":
        return DeltaTable(str(path)).file_uris()
    return [task.file.file_path for task in StaticTable.from_metadata(str(path)).scan().plan_files()]


def test_a_second_kill_during_the_replay_does_no_harm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for first in sample(range(10, STEPS_MAX, 3), 3):
        path = tmp_path / str(first)
        run_batch(path, "parquet", 0, cut=1)
        ended = not killed(monkeypatch, KillingOs(first), lambda path=path: run_batch(path, "parquet", 1, cut=2))
        for second in sample(range(1, 60, 4), 3, first):
            killed(monkeypatch, KillingOs(second), lambda path=path: run_batch(path, "parquet", 1, cut=2))
        run_batch(path, "parquet", 1, cut=3)
        assert visible(path, "parquet") == list(range(20)), f"first killed at step {first}"
        if ended:
            return
    raise AssertionError(f"the batch did not end within {STEPS_MAX} steps")


def test_visible_files_of_a_killed_parquet_batch_are_never_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader between the kill and the replay may see a part of the batch; the replay only adds to it."""
    seen_parts = set()
    for lives in range(1, STEPS_MAX):
        path = tmp_path / str(lives)
        run_batch(path, "parquet", 0, cut=1)
        if not killed(monkeypatch, KillingOs(lives), lambda path=path: run_batch(path, "parquet", 1, cut=2)):
            break
        before = {file: file.stat().st_ino for file in path.rglob("*.parquet")}
        seen_parts.add(len(before))
        run_batch(path, "parquet", 1, cut=3)
        assert before.items() <= {file: file.stat().st_ino for file in path.rglob("*.parquet")}.items()
    assert len(seen_parts) > 2, "some kills hit a commit half-way"


def test_new_directories_are_durable_before_the_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a power loss, the files of a committed batch are reachable from the table's directory."""
    path, steps = tmp_path / "table", list[str]()

    def record(name: str) -> None:
        function = getattr(disk, name)

        def recorded(at: str, *args: Any) -> Any:
            steps.append(f"{name} {os.path.relpath(at, path)}")
            return function(at, *args)

        monkeypatch.setattr(disk, name, recorded)

    record("flush_directory")
    record("create_content")
    run_batch(path, "parquet", 0, cut=1)
    assert steps[:3] == ["flush_directory .", "flush_directory ..", "create_content _moldau/table.json"]
    committed = steps.index("create_content _moldau/query/000000000002.json")
    flushed = ["_staging/query/epoch-1", "_staging/query", "_staging", "."]
    assert steps[committed - 4 : committed] == [f"flush_directory {name}" for name in flushed]


def test_the_parent_of_a_table_is_synced_again_after_a_kill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until the table has a description, it is unknown whether a killed run has synced the parent."""
    path, synced = tmp_path / "table", list[str]()
    path.mkdir()
    monkeypatch.setattr(disk, "flush_directory", synced.append)
    run_batch(path, "parquet", 0, cut=1)
    assert synced[:2] == [str(path), str(tmp_path)]


def test_the_parent_of_a_table_need_not_be_readable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is enough that names can be made in it, as in a drop box."""
    path, flush = tmp_path / "table", disk.flush_directory

    def flush_readable(directory: str) -> None:
        if directory == str(tmp_path):
            raise PermissionError(directory)
        flush(directory)

    monkeypatch.setattr(disk, "flush_directory", flush_readable)
    run_batch(path, "parquet", 0, cut=1)
    assert visible(path, "parquet") == list(range(10))


@pytest.mark.parametrize("stray", [".DS_Store", "epoch-x", "notes.txt"])
def test_a_stray_file_among_the_staged_ones_is_left_alone(tmp_path: Path, stray: str) -> None:
    path, tag = tmp_path / "table", BatchTag("query", 0)
    files = run_tasks(path, "parquet", tag, cut=1)
    (path / "_staging" / "query" / stray).touch()
    assert commit(str(path), "parquet", files, tag, overwrite=False)
    assert visible(path, "parquet") == list(range(10))


def test_a_parquet_overwrite_killed_at_any_step_is_complete_after_the_replay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for lives in range(1, STEPS_MAX):
        path = tmp_path / str(lives)
        run_batch(path, "parquet", 0, cut=2, complete=True)
        if not killed(monkeypatch, KillingOs(lives), lambda path=path: run_batch(path, "parquet", 1, 2, complete=True)):
            return
        run_batch(path, "parquet", 1, cut=3, complete=True)
        assert visible(path, "parquet") == list(range(10, 20)), f"killed at step {lives}"
    raise AssertionError(f"the batch did not end within {STEPS_MAX} steps")


def test_a_batch_that_failed_with_enospc_at_any_step_can_be_retried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step that fails with ENOSPC while the process lives on: Spark calls abort, then replays."""
    path = tmp_path / "table"
    append(str(path), "parquet", rows_of(0, 1)[0], BatchTag("query", 0))

    class FullOs(KillingOs):
        def _counted(self, real: Any) -> Any:
            def step(*args: Any, **named: Any) -> Any:
                self.lives -= 1
                if self.lives == 0:
                    raise OSError(28, "No space left on device")
                return real(*args, **named)

            return step

    messages: set[str] = set()
    for lives in range(1, STEPS_MAX):
        batch, full = lives, FullOs(lives)
        with monkeypatch.context() as patch:
            patch.setattr(disk, "os", full)
            patch.setattr(disk, "sync_file", full.fsync)
            patch.setattr(disk, "sync_directory", directory_sync(full.fsync))
            try:
                append(str(path), "parquet", rows_of(batch, 1)[0], BatchTag("query", batch))
            except StorageFault as fault:
                messages.add(str(fault))
        append(str(path), "parquet", rows_of(batch, 1)[0], BatchTag("query", batch))
        assert visible(path, "parquet") == list(range(10 * batch + 10)), f"refused at step {lives}"
        if full.lives > 0:
            assert messages == {f"{path}: No space left on device"}
            return
    raise AssertionError(f"the batch did not end within {STEPS_MAX} steps")


def test_the_error_for_a_full_disk_names_the_table_and_no_files_are_left(tmp_path: Path) -> None:
    """A real refusal of the kernel, in a process of its own: no file may grow beyond 64 KiB."""
    script = """
import resource, signal, sys, os
import pyarrow as pa
from moldau.base.errors import StorageFault
from moldau.spark.lake import BatchTag, append
path, kind = sys.argv[1:]
append(path, kind, pa.table({"v": [os.urandom(10)]}), BatchTag("q", 0))
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (65536, resource.RLIM_INFINITY))
big = pa.table({"v": [os.urandom(1000) for _ in range(1000)]})
try:
    append(path, kind, big, BatchTag("q", 1))
except StorageFault as fault:
    print(fault)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
print(len([f for _, _, fs in os.walk(path) for f in fs if ".parquet" in f]))
print(append(path, kind, big, BatchTag("q", 1)))
"""
    for kind in ("parquet", "delta"):
        path = str(tmp_path / kind)
        ran = subprocess.run([sys.executable, "-c", script, path, kind], capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stderr
        assert not ran.stderr, ran.stderr
        message, files, written = ran.stdout.splitlines()
        assert message.startswith(f"{path}: ")
        assert "File too large" in message or "Error writing" in message
        assert (files, written) == ("1", "True")


def test_an_overwrite_does_not_disturb_the_batches_of_other_queries(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    append(path, "parquet", pa.table({"id": [1]}), BatchTag("a", 0))
    overwrite(path, "parquet", pa.table({"id": [2]}), BatchTag("b", 0))
    append(path, "parquet", pa.table({"id": [3]}), BatchTag("a", 1))
    assert visible(Path(path), "parquet") == [2, 3]
