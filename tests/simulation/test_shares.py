"""Simulations of share groups in a cluster with all kinds of faults, from seeds, and defects that they must notice.

`MOLDAU_SEEDS` sets the number of seeds; `make simulate WHAT=shares SEEDS=1000` runs any number of them faster.
"""

from __future__ import annotations

from functools import partial

import pytest
from harness.depth import few
from seed_runs import SeedRuns, Seeds, check_noticed
from shares.defects import DEFECTS, DEFECTS_SHOWN_SOON, Defect
from shares.world import SIZES, SharesWorld

SEEDS = Seeds((6, 79), many=12)
TRIES = 10
EXPECTED_FAULTS = {
    "a member of a share group vanishes", "a process is killed", "a process is shut down", "a process is suspended",
    "an admin: reassign", "an admin: create or delete topic", "the network is split", "the network loses messages",
}  # fmt: skip


@pytest.mark.parametrize("seed", SEEDS.runs)
def test_share_groups_keep_their_guarantees_under_faults(seed: int, seed_runs: SeedRuns) -> None:
    seed_runs.run("shares", seed)


def test_all_faults_occurred(seed_runs: SeedRuns) -> None:
    seed_runs.check(EXPECTED_FAULTS, SEEDS)


@pytest.mark.parametrize("defect", few(DEFECTS_SHOWN_SOON, of=DEFECTS), ids=lambda defect: defect.__name__)
def test_a_defect_of_share_groups_is_noticed(defect: Defect, monkeypatch: pytest.MonkeyPatch) -> None:
    defect(monkeypatch)
    check_noticed(partial(SharesWorld, size=SIZES["short"]), range(DEFECTS[defect], DEFECTS[defect] + TRIES))
