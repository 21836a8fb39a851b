"""Seeds of a simulation as tests, one for each: its name repeats it, and one sees how far a run is."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from simulate import one

SIMULATE = Path(__file__).with_name("simulate.py")


class Befallen:
    """What befell the seeds of a test file, all together."""

    def __init__(self) -> None:
        self.seeds = 0
        self.faults: Counter[str] = Counter()
        self._digests: dict[tuple[str, int], int] = {}

    def live(self, what: str, seed: int) -> None:
        told = one((what, seed, "small"))
        assert not isinstance(told, str), told
        self.seeds += 1
        self.faults += told.faults
        self._digests[what, seed] = told.digest

    def check_the_same_in_another_process(self, what: str, seed: int) -> None:
        """Another process orders sets otherwise: it has another seed for its hashes."""
        if (what, seed) not in self._digests:
            self.live(what, seed)
        there = subprocess.run(
            [sys.executable, SIMULATE, "--what", what, "--seed", str(seed), "--digest"],
            env={**os.environ, "PYTHONHASHSEED": "random"},
            capture_output=True,
            check=True,
            text=True,
        )
        assert there.stdout.strip() == str(self._digests[what, seed])

    def check(self, expected: set[str], seeds: int) -> None:
        """That many seeds meet everything that can befall them."""
        if self.seeds < seeds:
            pytest.skip(f"{self.seeds} seeds were run, and only {seeds} are sure to meet everything")
        assert self.faults.keys() >= expected
