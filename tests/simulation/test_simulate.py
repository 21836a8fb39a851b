"""simulate.py, the command that runs any number of seeds: its summary, its options, and its failures."""

from __future__ import annotations

import io
import multiprocessing
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace

import pytest
from rich.console import Console
from simulate import KINDS, _sum_up, main, run_seed, run_seeds


@pytest.mark.parametrize("what", KINDS)
def test_the_summary_of_every_simulation_is_printed(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = KINDS[what].sizes
    monkeypatch.setitem(sizes, "short", replace(sizes["small"], chaos_ms=3_000))
    report = run_seed((what, 1, "short"))
    assert not isinstance(report, str), report
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
    results = run_seeds("groups", range(1_000), "small", jobs=1)  # more than it can run before it is killed
    assert not isinstance(next(results), str)
    (process,) = multiprocessing.active_children()
    process.kill()
    with pytest.raises(BrokenProcessPool):
        list(results)
