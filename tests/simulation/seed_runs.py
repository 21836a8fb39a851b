"""Runs seeds of a simulation as tests, one test for each seed, and counts the faults that occurred."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from groups.world import Violation
from simulate import run_seed

SIMULATE = Path(__file__).with_name("simulate.py")
DEFECTS_FILE = "defects.py"


def check_noticed(world: Callable[[int], Any], seeds: range) -> None:
    """Check that one of these seeds raises a violation, after a defect was injected into the broker.

    An exception in the code of the defect itself does not count: it may use a name that does not exist any more.
    """
    with pytest.raises(Violation) as noticed:
        _run_all(world, seeds)
    frames = re.findall(r'File "(.+)", line', str(noticed.value))
    assert not frames or Path(frames[-1]).name != DEFECTS_FILE, f"the defect itself fails: {noticed.value}"


def _run_all(world: Callable[[int], Any], seeds: range) -> None:
    for seed in seeds:
        world(seed).run()


class SeedRuns:
    """The runs of a test file, and the faults that occurred in them."""

    def __init__(self) -> None:
        self.seeds = 0
        self.faults: Counter[str] = Counter()
        self._digests: dict[tuple[str, int], int] = {}

    def run(self, kind: str, seed: int) -> None:
        report = run_seed((kind, seed, "small"))
        assert not isinstance(report, str), report
        self.seeds += 1
        self.faults += report.faults
        self._digests[kind, seed] = report.digest

    def check_same_in_another_process(self, kind: str, seed: int) -> None:
        """Check that another process, which has another hash seed and so another order of sets, makes the same run."""
        if (kind, seed) not in self._digests:
            self.run(kind, seed)
        completed = subprocess.run(
            [sys.executable, SIMULATE, "--what", kind, "--seed", str(seed), "--digest"],
            env={**os.environ, "PYTHONHASHSEED": "random"},
            capture_output=True,
            check=True,
            text=True,
        )
        assert completed.stdout.strip() == str(self._digests[kind, seed])

    def check(self, expected: set[str], seeds: int) -> None:
        """Check that all expected faults occurred, unless fewer than `seeds` were run."""
        if self.seeds < seeds:
            pytest.skip(f"{self.seeds} seeds were run, all faults are certain to occur only in {seeds}")
        assert self.faults.keys() >= expected
