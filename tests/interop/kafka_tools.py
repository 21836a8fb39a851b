"""Calls Kafka's tools: in this process for speed, or as programs in `bin/`, as a user would.

It runs a tool and returns its outcome; it contains no expectations.
"""

from __future__ import annotations

import importlib
import io
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from harness.patience import PATIENCE_S

BIN = Path(__file__).resolve().parents[2] / "bin"


class Outcome(NamedTuple):
    status: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


class Tools:
    """`tools("topics", "--list")` runs moldau.cli.kafka.topics with the broker's address added."""

    def __init__(self, bootstrap: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self.bootstrap = bootstrap
        self._capsys = capsys
        self._monkeypatch = monkeypatch

    def __call__(self, module: str, *words: str, stdin: str = "", address: bool = True) -> Outcome:
        self._monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        self._capsys.readouterr()
        argv = [*words, "--bootstrap-server", self.bootstrap] if address else list(words)
        status = importlib.import_module(f"moldau.cli.kafka.{module}").main(argv)
        captured = self._capsys.readouterr()
        return Outcome(status, captured.out, captured.err)


def environment() -> dict[str, str]:
    """Return variables for bin/: without a .venv beside it, its scripts use the python3 on the PATH, which is this
    one."""
    return {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"}


def program(name: str, *words: str, **options: object) -> subprocess.Popen[str]:
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    return subprocess.Popen([str(BIN / name), *words], text=True, env=environment(), **pipes)  # type: ignore[call-overload,no-any-return]


def shell(line: str, stdin: str = "") -> Outcome:
    """Run a command line from the directory that holds bin/."""
    done = subprocess.run(
        ["bash", "-c", line],
        cwd=BIN.parent,
        env=environment(),
        input=stdin,
        text=True,
        capture_output=True,
        timeout=PATIENCE_S,
    )
    return Outcome(done.returncode, done.stdout, done.stderr)
