"""The command that runs any number of seeds: every simulation can be summed up."""

from __future__ import annotations

import io

import pytest
from rich.console import Console
from simulate import KINDS, _sum_up, run_seed


@pytest.mark.parametrize("what", KINDS)
def test_runs_are_summed_up(what: str) -> None:
    report = run_seed((what, 1, "small"))
    assert not isinstance(report, str), report
    output = io.StringIO()
    _sum_up(Console(file=output, width=200), what, [report, report], 1.0)
    assert f"{what}: 2 runs" in output.getvalue()
