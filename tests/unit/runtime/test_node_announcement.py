"""What happens if a node that is ready cannot say so."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from moldau import node
from moldau.cli.kafka import server_start
from moldau.settings import Settings, from_properties

ANNOUNCING_FAILS = """
import sys
from moldau.node import run
from moldau.settings import from_properties

def announce(*_):
    raise RuntimeError("nobody listens")

run(from_properties({"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": sys.argv[1]}), announce=announce)
"""


def test_the_node_is_stopped_in_order(tmp_path: Path) -> None:
    command = [sys.executable, "-c", ANNOUNCING_FAILS, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "RuntimeError: nobody listens" in done.stderr
    assert (tmp_path / ".kafka_cleanshutdown").exists()


def test_a_closed_output_is_not_taken_for_an_address_in_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(settings: Settings, *, announce: object) -> int:
        raise BrokenPipeError(32, "Broken pipe")

    monkeypatch.setattr(node, "run", run)
    with pytest.raises(BrokenPipeError):
        server_start._run(from_properties({"log.dirs": str(tmp_path)}), server_start.announce_plainly)
