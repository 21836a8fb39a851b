"""Simulations of whole clusters with all kinds of faults, from seeds, and defects that the simulation must notice.

`MOLDAU_SEEDS` sets the number of seeds; `make simulate WHAT=cluster SEEDS=1000` runs any number of them faster.
"""

from __future__ import annotations

import pytest
from cluster.defects import DEFECTS, DEFECTS_SHOWN_SOON, Defect
from cluster.world import ClusterWorld
from harness.depth import few
from seed_runs import SeedRuns, Seeds, check_noticed

SEEDS = Seeds((7, 10), many=16)
TRIES = 25
EXPECTED_FAULTS = {
    "a process is killed", "a process is shut down", "a process is suspended", "a machine is disconnected",
    "the network is split", "messages pass in one direction only", "the network loses messages", "a clock jumps",
    "a disk is full", "a disk fails to sync", "a disk is slow", "power is lost on several machines",
    "an admin: reassign", "an admin: create or delete topic",
}  # fmt: skip


@pytest.mark.parametrize("seed", SEEDS.runs)
def test_a_cluster_keeps_its_guarantees_under_faults(seed: int, seed_runs: SeedRuns) -> None:
    seed_runs.run("cluster", seed)


def test_all_faults_occurred(seed_runs: SeedRuns) -> None:
    seed_runs.check(EXPECTED_FAULTS, SEEDS)


@pytest.mark.parametrize("defect", few(DEFECTS_SHOWN_SOON, of=DEFECTS), ids=lambda defect: defect.__name__)
def test_a_defect_of_the_cluster_is_noticed(defect: Defect, monkeypatch: pytest.MonkeyPatch) -> None:
    defect(monkeypatch)
    check_noticed(ClusterWorld, range(DEFECTS[defect], DEFECTS[defect] + TRIES))
