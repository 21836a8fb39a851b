"""The whole story of failures in a file that does not grow for ever."""

from __future__ import annotations

from pathlib import Path

import pytest

from moldau.pipelines.running import failure_log
from moldau.pipelines.running.failure_log import FailureLog


def failure(text: str) -> Exception:
    try:
        try:
            raise ValueError("the cause")
        except ValueError as cause:
            raise RuntimeError(text) from cause
    except RuntimeError as error:
        return error


def test_each_failure_with_its_cause(tmp_path: Path) -> None:
    log = FailureLog(tmp_path / "failures.log", lambda: "NOW")
    log.write("counts", "in a line", failure("Task not serializable\n\tat org.apache.spark…"))
    log.write("lake", "another", failure("\udcff no text"))
    told = log.path.read_text()
    assert told.startswith("== NOW counts: in a line\nTraceback")
    assert "ValueError: the cause" in told
    assert "RuntimeError: Task not serializable\n\tat org.apache.spark…\n== NOW lake: another\n" in told


def test_old_ones_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failure_log, "BYTES_MAX", 10)
    log = FailureLog(tmp_path / "failures.log", lambda: "NOW")
    for number in range(5):
        log.write("q", str(number), failure("f"))
    assert sorted(file.name for file in tmp_path.iterdir()) == ["failures.log", "failures.log.1"]
    assert "NOW q: 4" in log.path.read_text()


def test_a_place_that_cannot_be_written_is_no_second_failure(tmp_path: Path) -> None:
    FailureLog(tmp_path / "nowhere" / "failures.log", lambda: "NOW").write("q", "m", failure("f"))
