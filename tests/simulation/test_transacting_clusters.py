"""Clusters whose clients write in transactions, and clusters whose topics are compacted, under everything that can
befall them; and whether the simulation would notice what goes wrong.

`MOLDAU_SEEDS` says how many seeds; `make simulate WHAT=transactions SEEDS=1000` runs any number of them.
"""

from __future__ import annotations

import os
from typing import Any

import compaction_world
import pytest
import transactions_world
from befallen import Befallen
from compaction_broken import RETENTION_WAYS
from groups_world import Violation
from transactions_broken import COMPACTION_WAYS, TRANSACTION_WAYS, Way

DEFAULT_SEEDS = 6
SEEDS = int(os.environ.get("MOLDAU_SEEDS", DEFAULT_SEEDS))
TRIES = 12
ALWAYS_SOME = {
    "a client is killed", "a client is given up and lives on", "a process is killed", "a log is cleaned",
    "a cleaning is disturbed", "the network loses messages",
}  # fmt: skip
ALWAYS_SOME_OF = {
    "transactions": {
        "a topic is deleted while markers are due", "an id runs out of epochs", "records are deleted",
    },
    "compaction": {
        "a swap of several segments", "records are deleted", "while segments are swapped: power",
        "while segments are swapped: depose", "while segments are swapped: fill",
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def befallen_by_kind() -> dict[str, Befallen]:
    return {"transactions": Befallen(), "compaction": Befallen()}


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("what", ["transactions", "compaction"])
def test_promises_are_kept_whatever_befalls_the_cluster(
    what: str, seed: int, befallen_by_kind: dict[str, Befallen]
) -> None:
    befallen_by_kind[what].live(what, seed)


@pytest.mark.parametrize("what", ["transactions", "compaction"])
def test_everything_befell_the_clusters(what: str, befallen_by_kind: dict[str, Befallen]) -> None:
    befallen_by_kind[what].check(ALWAYS_SOME | ALWAYS_SOME_OF[what], seeds=DEFAULT_SEEDS)


@pytest.mark.parametrize("way", TRANSACTION_WAYS, ids=lambda way: way.__name__)
def test_broken_transactions_are_caught(way: Way, monkeypatch: pytest.MonkeyPatch) -> None:
    _catch(transactions_world, way, TRANSACTION_WAYS[way], monkeypatch)


@pytest.mark.parametrize("way", COMPACTION_WAYS | RETENTION_WAYS, ids=lambda way: way.__name__)
def test_broken_compaction_is_caught(way: Way, monkeypatch: pytest.MonkeyPatch) -> None:
    _catch(compaction_world, way, (COMPACTION_WAYS | RETENTION_WAYS)[way], monkeypatch)


def _catch(kind: Any, way: Way, first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    way(monkeypatch)
    with pytest.raises(Violation):
        _try(kind, range(first, first + TRIES))


def _try(kind: Any, seeds: range) -> None:
    for seed in seeds:
        kind.World(seed).run()


@pytest.mark.parametrize("what", ["transactions", "compaction"])
def test_the_same_seed_gives_the_same_run_in_any_process(what: str, befallen_by_kind: dict[str, Befallen]) -> None:
    befallen_by_kind[what].check_the_same_in_another_process(what, seed=3)
