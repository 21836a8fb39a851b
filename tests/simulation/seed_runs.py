"""Runs seeds of a simulation as tests, one test for each seed, and counts the faults that occurred.

Without more depth faults come for half as long, and all else is the same.
"""

from __future__ import annotations

import os
import re
import traceback
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from harness.depth import DEPTH
from machines.world import Violation
from simulate import run_seed

import moldau
from moldau.runtime.internal_errors import InternalErrors

DEFECTS_FILE = "defects.py"
SIZE = "small" if DEPTH > 1 or "MOLDAU_SEEDS" in os.environ else "short"
PRODUCT = Path(moldau.__file__).parent


class Seeds:
    """The seeds to run: a few; with more depth, the first `many`. MOLDAU_SEEDS=N runs the first N."""

    def __init__(self, few: Iterable[int], many: int) -> None:
        chosen = os.environ.get("MOLDAU_SEEDS")
        self.runs = list(range(int(chosen) if chosen else many) if chosen or DEPTH > 1 else few)
        self.enough = many
        """So many must have run for all faults to be certain to occur. Which meets which changes with the code."""


def check_noticed(world: Callable[[int], Any], seeds: range) -> None:
    """Check that one of these seeds raises a violation, after a defect was injected into the broker.

    An exception in the code of the defect itself does not count: it may use a name that does not exist any more.
    """
    errors: list[str] = []
    with (
        patch.object(InternalErrors, "log", lambda *_: errors.append(traceback.format_exc())),
        pytest.raises(Violation) as noticed,
    ):
        _run_all(world, seeds)
    for text in (*errors, str(noticed.value)):
        assert not _is_of_defect(text), f"the defect itself fails: {text}"


def _is_of_defect(text: str) -> bool:
    """Return whether a traceback is of an exception in the code of a defect, or in a library that it called."""
    files = [Path(file) for file in re.findall(r'File "(.+)", line', text)]
    ours = [file for file in files if file.name == DEFECTS_FILE or PRODUCT in file.parents]
    return bool(ours) and ours[-1].name == DEFECTS_FILE


def _run_all(world: Callable[[int], Any], seeds: range) -> None:
    for seed in seeds:
        world(seed).run()


class SeedRuns:
    """The runs of a test file, and the faults that occurred in them."""

    def __init__(self) -> None:
        self.seeds = 0
        self.faults: Counter[str] = Counter()

    def run(self, kind: str, seed: int) -> None:
        report = run_seed((kind, seed, SIZE))
        assert not isinstance(report, str), report
        self.seeds += 1
        self.faults += report.faults

    def check(self, expected: set[str], seeds: Seeds) -> None:
        """Check that all expected faults occurred, unless too few seeds were run."""
        if self.seeds < seeds.enough:
            pytest.skip(f"{self.seeds} seeds were run, all faults are certain to occur only in {seeds.enough}")
        assert self.faults.keys() >= expected
