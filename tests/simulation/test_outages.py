"""Simulations of clusters with the outages that operators report, and defects that they must notice.

`MOLDAU_SEEDS` sets the number of seeds; `make simulate WHAT=outages SEEDS=1000` runs any number of them.
"""

from __future__ import annotations

import pytest
from cluster.defects import OUTAGE_DEFECTS, OUTAGE_DEFECTS_SHOWN_SOON, Defect
from cluster.outages_world import MODES, OutagesWorld
from harness.depth import few
from seed_runs import SeedRuns, Seeds, check_noticed

SEEDS = Seeds((1, 4, 5), many=len(MODES))
TRIES = 10
EXPECTED_FAULTS = {
    "a broker is cut off from its peers, not from clients", "a leader is killed while its predecessor is cut off",
    "logs are damaged while all processes are down", "a disk is full", "a process is killed while a disk is full",
}  # fmt: skip


@pytest.mark.parametrize("seed", SEEDS.runs)
def test_a_cluster_keeps_its_guarantees_in_outages(seed: int, seed_runs: SeedRuns) -> None:
    seed_runs.run("outages", seed)


def test_all_outages_occurred(seed_runs: SeedRuns) -> None:
    seed_runs.check(EXPECTED_FAULTS, SEEDS)


@pytest.mark.parametrize(
    "defect", few(OUTAGE_DEFECTS_SHOWN_SOON, of=OUTAGE_DEFECTS), ids=lambda defect: defect.__name__
)
def test_a_defect_is_noticed_in_outages(defect: Defect, monkeypatch: pytest.MonkeyPatch) -> None:
    defect(monkeypatch)
    first = OUTAGE_DEFECTS[defect]
    check_noticed(OutagesWorld, range(first, first + TRIES * len(MODES), len(MODES)))
