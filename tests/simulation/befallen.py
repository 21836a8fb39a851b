"""Seeds of a simulation as tests, one for each: its name repeats it, and one sees how far a run is."""

from __future__ import annotations

from collections import Counter

import pytest
from simulate import one


class Befallen:
    """What befell the seeds of a test file, all together."""

    def __init__(self) -> None:
        self.seeds = 0
        self.faults: Counter[str] = Counter()

    def live(self, what: str, seed: int) -> None:
        told = one((what, seed, "small"))
        assert not isinstance(told, str), told
        self.seeds += 1
        self.faults += told.faults

    def check(self, expected: set[str], seeds: int) -> None:
        """That many seeds meet everything that can befall them."""
        if self.seeds < seeds:
            pytest.skip(f"{self.seeds} seeds were run, and only {seeds} are sure to meet everything")
        assert self.faults.keys() >= expected
