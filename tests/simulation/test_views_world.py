"""Simulations of clusters with views, with all kinds of faults; and defects that the simulation must notice.

`MOLDAU_SEEDS` sets the number of seeds; `make simulate WHAT=views SEEDS=1000` runs any number of them.
"""

from __future__ import annotations

import pytest
from harness.depth import few
from seed_runs import SeedRuns, Seeds, check_noticed

pytest.importorskip("duckdb")

from views.defects import VIEW_DEFECTS, VIEW_DEFECTS_SHOWN_SOON, Defect
from views.world import ViewsWorld

SEEDS = Seeds((2,), many=12)
TRIES = 4
EXPECTED_FAULTS = {
    "a process is killed", "a log is cleaned", "records are deleted", "a swap of several segments",
    "an admin: create or delete topic", "an admin: reassign", "a view is deleted",
    "a run of a view is too large to evaluate", "a view's worker is killed",
}  # fmt: skip


@pytest.mark.parametrize("seed", SEEDS.runs)
def test_views_show_the_records_of_their_sources_under_faults(seed: int, seed_runs: SeedRuns) -> None:
    seed_runs.run("views", seed)


def test_all_faults_occurred(seed_runs: SeedRuns) -> None:
    seed_runs.check(EXPECTED_FAULTS, SEEDS)


@pytest.mark.parametrize("defect", few(VIEW_DEFECTS_SHOWN_SOON, of=VIEW_DEFECTS), ids=lambda defect: defect.__name__)
def test_a_defect_of_views_is_noticed(defect: Defect, monkeypatch: pytest.MonkeyPatch) -> None:
    defect(monkeypatch)
    check_noticed(ViewsWorld, range(VIEW_DEFECTS[defect], VIEW_DEFECTS[defect] + TRIES))
