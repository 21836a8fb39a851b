"""Simulations of clusters in which syncs take time: slow disks, stuck disks, and syncs that wait for each other.

`MOLDAU_SEEDS` sets the number of seeds; `make simulate WHAT=disks SEEDS=1000` runs any number of them.
"""

from __future__ import annotations

import pytest
from cluster.disks_world import DisksWorld, TimedFlusher
from seed_runs import SeedRuns, Seeds, check_noticed

from moldau.replica.flushing import Flushable

SEEDS = Seeds((1, 2), many=8)
TRIES = 10
EXPECTED_FAULTS = {"a disk is slow for the whole run", "a disk is stuck", "a process is killed"}


@pytest.mark.parametrize("seed", SEEDS.runs)
def test_a_cluster_keeps_its_guarantees_on_slow_and_stuck_disks(seed: int, seed_runs: SeedRuns) -> None:
    seed_runs.run("disks", seed)


def test_all_faults_occurred(seed_runs: SeedRuns) -> None:
    seed_runs.check(EXPECTED_FAULTS, SEEDS)


def test_syncs_on_the_event_loop_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def flush_at_once(flusher: TimedFlusher, log: Flushable) -> None:
        log.log.flush()
        log.flushed()

    monkeypatch.setattr(TimedFlusher, "request", flush_at_once)
    check_noticed(DisksWorld, range(0, 4 * TRIES, 4))  # in these seeds the only fault is a slow disk
