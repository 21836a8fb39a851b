"""Failures are written in full to a file of limited size."""

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


def test_each_failure_is_written_with_its_cause(tmp_path: Path) -> None:
    log = FailureLog(tmp_path / "failures.log", lambda: "NOW")
    log.write("counts", "in a line", failure("Task not serializable\n\tat org.apache.spark…"))
    log.write("lake", "another", failure("\udcff no text"))
    text = log.path.read_text()
    assert text.startswith("== NOW counts: in a line\nTraceback")
    assert "ValueError: the cause" in text
    assert "RuntimeError: Task not serializable\n\tat org.apache.spark…\n== NOW lake: another\n" in text


def test_a_large_file_is_rotated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failure_log, "BYTES_MAX", 10)
    log = FailureLog(tmp_path / "failures.log", lambda: "NOW")
    for number in range(5):
        log.write("q", str(number), failure("f"))
    assert sorted(file.name for file in tmp_path.iterdir()) == ["failures.log", "failures.log.1"]
    assert "NOW q: 4" in log.path.read_text()


def test_an_error_of_the_log_file_is_ignored(tmp_path: Path) -> None:
    FailureLog(tmp_path / "nowhere" / "failures.log", lambda: "NOW").write("q", "m", failure("f"))
