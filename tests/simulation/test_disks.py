"""Simulations of clusters whose disks cost time: slow ones, stuck ones, and convoys of syncs.

`MOLDAU_SEEDS` sets the number of seeds; `make simulate WHAT=disks SEEDS=1000` runs any number of them.
"""

from __future__ import annotations

import os

import pytest
from cluster.disks_world import PricedFlusher, World
from groups.world import Violation
from seed_runs import SeedRuns

from moldau.replica.flushing import Flushable

DEFAULT_SEEDS = 8
SEEDS = int(os.environ.get("MOLDAU_SEEDS", DEFAULT_SEEDS))
TRIES = 10
EXPECTED_FAULTS = {"a disk is slow for long", "a disk is stuck", "a process is killed"}


@pytest.fixture(scope="module")
def runs() -> SeedRuns:
    return SeedRuns()


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_cluster_keeps_its_guarantees_on_slow_and_stuck_disks(seed: int, runs: SeedRuns) -> None:
    runs.run("disks", seed)


def test_all_faults_occurred(runs: SeedRuns) -> None:
    runs.check(EXPECTED_FAULTS, seeds=DEFAULT_SEEDS)


def test_syncs_on_the_event_loop_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def flush_at_once(flusher: PricedFlusher, log: Flushable) -> None:
        log.log.flush()
        log.flushed()

    monkeypatch.setattr(PricedFlusher, "request", flush_at_once)
    with pytest.raises(Violation):
        _try(range(0, 4 * TRIES, 4))  # in these, nothing is wrong but a slow disk


def _try(seeds: range) -> None:
    for seed in seeds:
        World(seed).run()
