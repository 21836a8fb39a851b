"""kill -9 of a driver, again and again, at random moments: tables and topics hold every record once.

A long test: `make chaos`. MOLDAU_CHAOS_KILLS (default 20) and MOLDAU_CHAOS_SEED change the run.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
from pathlib import Path

import pytest
from chaos_pipeline import SEED, SPEC, finish_and_check, start, writing_numbers

KILLS = int(os.environ.get("MOLDAU_CHAOS_KILLS", "20"))
LONGEST_LIFE_S = 25.0


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kill the driver's Python, its JVM and their workers at once: they share a process group."""
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def test_no_record_is_lost_when_the_driver_is_killed(broker: str, tmp_path: Path) -> None:
    (tmp_path / "chaos.yaml").write_text(SPEC)
    chance = random.Random(SEED)
    with writing_numbers(broker):
        for number in range(KILLS):
            process = start(tmp_path, broker)
            life_s = chance.uniform(0.5, LONGEST_LIFE_S)
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(life_s)
            kill(process)
            print(f"kill {number + 1} of {KILLS} after {life_s:.1f} s", flush=True)
    finish_and_check(tmp_path, broker)
