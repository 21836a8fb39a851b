"""Simulations of clusters in which syncs take time: slow disks, stuck disks, and syncs that wait for each other.

`MOLDAU_SEEDS` sets the number of seeds; `make simulate WHAT=disks SEEDS=1000` runs any number of them.
"""

from __future__ import annotations

import os

import pytest
from cluster.disks_world import TimedFlusher, World
from seed_runs import SeedRuns, check_noticed

from moldau.replica.flushing import Flushable

DEFAULT_SEEDS = 8
SEEDS = int(os.environ.get("MOLDAU_SEEDS", DEFAULT_SEEDS))
TRIES = 10
EXPECTED_FAULTS = {"a disk is slow for the whole run", "a disk is stuck", "a process is killed"}


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_cluster_keeps_its_guarantees_on_slow_and_stuck_disks(seed: int, seed_runs: SeedRuns) -> None:
    seed_runs.run("disks", seed)


def test_all_faults_occurred(seed_runs: SeedRuns) -> None:
    seed_runs.check(EXPECTED_FAULTS, seeds=DEFAULT_SEEDS)


def test_syncs_on_the_event_loop_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def flush_at_once(flusher: TimedFlusher, log: Flushable) -> None:
        log.log.flush()
        log.flushed()

    monkeypatch.setattr(TimedFlusher, "request", flush_at_once)
    check_noticed(World, range(0, 4 * TRIES, 4))  # in these seeds the only fault is a slow disk
