"""The announcement that a node is ready: its address, and what happens if it fails."""

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
    raise RuntimeError("planned error")

run(from_properties({"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": sys.argv[1]}), announce=announce)
"""


CONTROLLER_ONLY = """
import os, signal, sys
from moldau.node import run
from moldau.settings import from_properties

def announce(line, address, metrics):
    print(line)
    print(address.port)
    os.kill(os.getpid(), signal.SIGTERM)

properties = {
    "process.roles": "controller",
    "node.id": "1",
    "listeners": "CONTROLLER://:0",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "1@localhost:9093",
    "advertised.listeners": "CONTROLLER://localhost:0",
    "log.dirs": sys.argv[1],
}
sys.exit(run(from_properties(properties, "MkU3OEVBNTcwNTJENDM2Qg"), announce=announce))
"""


def test_a_controller_only_node_announces_its_address(tmp_path: Path) -> None:
    command = [sys.executable, "-c", CONTROLLER_ONLY, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    line, port = done.stdout.splitlines()
    assert int(port) > 0
    assert f"is ready: localhost:{port} (node 1" in line


def test_a_node_stops_cleanly_if_its_announcement_fails(tmp_path: Path) -> None:
    command = [sys.executable, "-c", ANNOUNCING_FAILS, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "RuntimeError: planned error" in done.stderr
    assert (tmp_path / ".kafka_cleanshutdown").exists()


def test_a_closed_output_is_not_reported_as_an_address_in_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(settings: Settings, *, announce: object) -> int:
        raise BrokenPipeError(32, "Broken pipe")

    monkeypatch.setattr(node, "run", run)
    with pytest.raises(BrokenPipeError):
        server_start._run(from_properties({"log.dirs": str(tmp_path)}), server_start.announce_plainly)
