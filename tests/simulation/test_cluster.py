"""Whole clusters under everything that can befall them, from seeds; and whether the simulation would notice.

`MOLDAU_SEEDS` says how many seeds; `make simulate WHAT=cluster SEEDS=1000` runs any number of them with less ado.
"""

from __future__ import annotations

import os

import pytest
from befallen import Befallen
from cluster_broken import WAYS, Way
from cluster_world import SMALL, World
from groups_world import Violation

DEFAULT_SEEDS = 16
SEEDS = int(os.environ.get("MOLDAU_SEEDS", DEFAULT_SEEDS))
TRIES = 25
ALWAYS_SOME = {
    "a process is killed", "a process is told to stop", "a process is suspended", "a machine is cut off",
    "the network is split", "messages pass in one direction only", "the network loses messages", "a clock jumps",
    "a disk is full", "a disk does not sync", "a disk is slow", "power is lost on several machines",
    "an admin: reassign", "an admin: delete or make",
}  # fmt: skip


@pytest.mark.parametrize("seed", range(SEEDS))
def test_clusters_keep_their_promises_whatever_befalls_them(seed: int, befallen: Befallen) -> None:
    befallen.live("cluster", seed)


def test_everything_befell_them(befallen: Befallen) -> None:
    befallen.check(ALWAYS_SOME, seeds=DEFAULT_SEEDS)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_a_broken_cluster_is_caught(way: Way, monkeypatch: pytest.MonkeyPatch) -> None:
    way(monkeypatch)
    with pytest.raises(Violation):
        _try(range(WAYS[way], WAYS[way] + TRIES))


def _try(seeds: range) -> None:
    for seed in seeds:
        World(seed, SMALL).run()


def test_the_same_seed_gives_the_same_run_in_any_process(befallen: Befallen) -> None:
    befallen.check_the_same_in_another_process("cluster", seed=5)
