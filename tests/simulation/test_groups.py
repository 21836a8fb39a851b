"""Simulations of the group coordinator with all kinds of faults, from seeds, and defects that the simulation must
notice.

`MOLDAU_SEEDS` sets the number of seeds; `make simulate SEEDS=1000` runs any number of them faster.
"""

from __future__ import annotations

import pytest
from groups.defects import DEFECTS, DEFECTS_SHOWN_SOON, Defect
from groups.world import GroupsWorld
from harness.depth import few
from seed_runs import SeedRuns, Seeds, check_noticed

SEEDS = Seeds((1, 7), many=12)
TRIES = 25
EXPECTED_FAULTS = {
    "a client joins", "a client leaves", "a client stalls", "a client dies", "a client changes its subscription",
    "a topic grows", "a topic is deleted", "a group deletion is requested", "the process is killed", "power is lost",
    "the disk is full", "the network loses messages", "the clock jumps",
}  # fmt: skip


@pytest.mark.parametrize("seed", SEEDS.runs)
def test_the_group_coordinator_keeps_its_guarantees_under_faults(seed: int, seed_runs: SeedRuns) -> None:
    seed_runs.run("groups", seed)


def test_all_faults_occurred(seed_runs: SeedRuns) -> None:
    seed_runs.check(EXPECTED_FAULTS, SEEDS)


@pytest.mark.parametrize("defect", few(DEFECTS_SHOWN_SOON, of=DEFECTS), ids=lambda defect: defect.__name__)
def test_a_defect_of_the_group_coordinator_is_noticed(defect: Defect, monkeypatch: pytest.MonkeyPatch) -> None:
    defect(monkeypatch)
    check_noticed(GroupsWorld, range(DEFECTS[defect], DEFECTS[defect] + TRIES))
