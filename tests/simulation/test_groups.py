"""The group coordinator under everything that can befall it, from seeds; and whether the simulation would notice.

`MOLDAU_SEEDS` says how many seeds; `make simulate SEEDS=1000` runs any number of them with less ado.
"""

from __future__ import annotations

import os

import pytest
from befallen import Befallen
from broken import WAYS, Way
from groups_world import SMALL, Violation, World

DEFAULT_SEEDS = 10
SEEDS = int(os.environ.get("MOLDAU_SEEDS", DEFAULT_SEEDS))
TRIES = 25
ALWAYS_SOME = {
    "a client joins", "a client leaves", "a client stalls", "a client dies", "a client subscribes anew",
    "a topic grows", "a topic is deleted", "a group is to be deleted", "the process dies", "power is lost",
    "the disk is full", "the network loses messages", "the clock jumps",
}  # fmt: skip


@pytest.mark.parametrize("seed", range(SEEDS))
def test_groups_keep_their_promises_whatever_befalls_them(seed: int, befallen: Befallen) -> None:
    befallen.live("groups", seed)


def test_everything_befell_them(befallen: Befallen) -> None:
    befallen.check(ALWAYS_SOME, seeds=DEFAULT_SEEDS)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_a_broken_coordinator_is_caught(way: Way, monkeypatch: pytest.MonkeyPatch) -> None:
    way(monkeypatch)
    with pytest.raises(Violation):
        _try(range(WAYS[way], WAYS[way] + TRIES))


def _try(seeds: range) -> None:
    for seed in seeds:
        World(seed, SMALL).run()


def test_the_same_seed_gives_the_same_run_in_any_process(befallen: Befallen) -> None:
    befallen.check_the_same_in_another_process("groups", seed=5)
