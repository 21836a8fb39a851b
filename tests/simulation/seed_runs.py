"""Runs seeds of a simulation as tests, one test for each seed, and counts the faults that they met."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from simulate import run_seed

SIMULATE = Path(__file__).with_name("simulate.py")


class SeedRuns:
    """The runs of a test file, and all faults that they met."""

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

    def check_the_same_in_another_process(self, kind: str, seed: int) -> None:
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
        """Check that the runs met all expected faults, unless fewer than `seeds` were run."""
        if self.seeds < seeds:
            pytest.skip(f"{self.seeds} seeds were run, and only {seeds} are sure to meet everything")
        assert self.faults.keys() >= expected
