"""A node that is recovering its logs, which may take minutes, ends on SIGTERM and SIGINT."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

RECOVERING = """
import sys, time
from moldau.log.store import LogStore
from moldau.settings import from_properties
from moldau.node import run

def endless(*_, **__):
    print("recovering", flush=True)
    while True:
        time.sleep(0.01)

LogStore.load = endless
settings = from_properties({"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": sys.argv[1]})
raise SystemExit(run(settings, announce=lambda *_: print("ready", flush=True)))
"""


@pytest.mark.parametrize("stop_signal", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_signal_ends_a_node_that_recovers_logs(tmp_path: Path, stop_signal: signal.Signals) -> None:
    node = subprocess.Popen(
        [sys.executable, "-c", RECOVERING, str(tmp_path)], stdout=subprocess.PIPE, text=True, env=os.environ.copy()
    )
    try:
        assert node.stdout is not None
        assert node.stdout.readline() == "recovering\n"
        node.send_signal(stop_signal)
        assert node.wait(120) == 0
        assert not (tmp_path / ".kafka_cleanshutdown").exists()
    finally:
        node.kill()
        node.wait()
        if node.stdout is not None:
            node.stdout.close()
