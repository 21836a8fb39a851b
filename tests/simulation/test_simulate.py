"""simulate.py, the command that runs any number of seeds: the same seed gives the same run in any process; its summary,
its options, and its failures.

Without more depth these are runs of clusters with compacted topics, of views and of groups: the other simulations of
clusters have the same machines and clients.
"""

from __future__ import annotations

import io
import multiprocessing
import os
import subprocess
import sys
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import pytest
from harness.depth import DEPTH, few
from rich.console import Console
from simulate import KINDS, Report, _sum_up, main, run_seed, run_seeds

SIMULATE = Path(__file__).with_name("simulate.py")
SEED, SIZE = "3", "brief" if DEPTH == 1 else "small"
TRIED = few(("compaction", "views", "groups"), of=KINDS)


@pytest.fixture(scope="module")
def reports() -> dict[str, Report]:
    reports = {}
    for what in TRIED:
        report = run_seed((what, int(SEED), SIZE))
        assert not isinstance(report, str), report
        reports[what] = report
    return reports


def test_the_same_seed_gives_the_same_run_in_any_process(reports: dict[str, Report]) -> None:
    """Another process has another hash seed, and so another order of sets."""
    completed = subprocess.run(
        [sys.executable, SIMULATE, "--seed", SEED, "--size", SIZE, "--digest", *(f"--what={what}" for what in TRIED)],
        env={**os.environ, "PYTHONHASHSEED": "random"},
        capture_output=True,
        check=True,
        text=True,
    )
    digests = map(int, completed.stdout.split())
    assert dict(zip(TRIED, digests, strict=True)) == {what: report.digest for what, report in reports.items()}


@pytest.mark.parametrize("what", TRIED)
def test_the_summary_of_every_simulation_is_printed(what: str, reports: dict[str, Report]) -> None:
    report = reports[what]
    output = io.StringIO()
    _sum_up(Console(file=output, width=200), what, [report, report], 1.0)
    assert f"{what}: 2 runs" in output.getvalue()


@pytest.mark.parametrize(
    "words", [["--seeds", "0"], ["--jobs", "-1"], ["--trace"], ["--digest"], ["--trace", "--seeds", "3"]]
)
def test_invalid_options_are_refused(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["simulate.py", *words])
    with pytest.raises(SystemExit) as refused:
        main()
    assert refused.value.code == 2


def test_a_failed_setup_is_reported_with_its_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(seed: int, size: object) -> object:
        raise RuntimeError("no such world")

    monkeypatch.setitem(KINDS, "groups", KINDS["groups"]._replace(world=broken))
    result = run_seed(("groups", 17, "small"))
    assert isinstance(result, str)
    assert result.startswith("groups: seed 17, size small\n")
    assert "no such world" in result


def test_a_killed_worker_process_stops_all_runs() -> None:
    results = run_seeds("groups", range(1_000), "brief", jobs=1)  # more than it can run before it is killed
    assert not isinstance(next(results), str)
    (process,) = multiprocessing.active_children()
    process.kill()
    with pytest.raises(BrokenProcessPool):
        list(results)
