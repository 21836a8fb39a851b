"""Simulations of clusters with transactional clients, and of clusters with compacted topics, with all kinds of faults;
and defects that the simulation must notice.

`MOLDAU_SEEDS` sets the number of seeds; `make simulate WHAT=transactions SEEDS=1000` runs any number of them.
"""

from __future__ import annotations

import pytest
from compaction import world as compaction_world
from compaction.defects import RETENTION_DEFECTS, RETENTION_DEFECTS_SHOWN_SOON
from harness.depth import few
from seed_runs import SeedRuns, Seeds, check_noticed
from transactions import world as transactions_world
from transactions.defects import (
    COMPACTION_DEFECTS,
    COMPACTION_DEFECTS_SHOWN_SOON,
    TRANSACTION_DEFECTS,
    TRANSACTION_DEFECTS_SHOWN_SOON,
    Defect,
)

SEEDS = {"transactions": Seeds((6,), many=16), "compaction": Seeds((3,), many=16)}
RUNS = [(what, seed) for what, seeds in SEEDS.items() for seed in seeds.runs]
TRIES = 12
CLEANING_DEFECTS = COMPACTION_DEFECTS | RETENTION_DEFECTS
CLEANING_DEFECTS_SHOWN_SOON = [*COMPACTION_DEFECTS_SHOWN_SOON, *RETENTION_DEFECTS_SHOWN_SOON]
EXPECTED_FAULTS = {
    "a client is killed", "a client is replaced but keeps running", "a process is killed", "a log is cleaned",
    "a cleaning is interrupted", "the network loses messages",
}  # fmt: skip
EXPECTED_FAULTS_OF = {
    "transactions": {
        "a topic is deleted while markers are due", "a producer id runs out of epochs", "records are deleted",
    },
    "compaction": {
        "a swap of several segments", "records are deleted", "while segments are swapped: lose power",
        "while segments are swapped: kill leader", "while segments are swapped: fill disk",
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def runs_by_kind() -> dict[str, SeedRuns]:
    return {"transactions": SeedRuns(), "compaction": SeedRuns()}


@pytest.mark.parametrize(("what", "seed"), RUNS)
def test_the_cluster_keeps_its_guarantees_under_faults(what: str, seed: int, runs_by_kind: dict[str, SeedRuns]) -> None:
    runs_by_kind[what].run(what, seed)


@pytest.mark.parametrize("what", ["transactions", "compaction"])
def test_all_faults_occurred(what: str, runs_by_kind: dict[str, SeedRuns]) -> None:
    runs_by_kind[what].check(EXPECTED_FAULTS | EXPECTED_FAULTS_OF[what], SEEDS[what])


@pytest.mark.parametrize(
    "defect", few(TRANSACTION_DEFECTS_SHOWN_SOON, of=TRANSACTION_DEFECTS), ids=lambda defect: defect.__name__
)
def test_a_defect_of_transactions_is_noticed(defect: Defect, monkeypatch: pytest.MonkeyPatch) -> None:
    defect(monkeypatch)
    check_noticed(
        transactions_world.TransactionsWorld, range(TRANSACTION_DEFECTS[defect], TRANSACTION_DEFECTS[defect] + TRIES)
    )


@pytest.mark.parametrize(
    "defect", few(CLEANING_DEFECTS_SHOWN_SOON, of=CLEANING_DEFECTS), ids=lambda defect: defect.__name__
)
def test_a_defect_of_compaction_is_noticed(defect: Defect, monkeypatch: pytest.MonkeyPatch) -> None:
    defect(monkeypatch)
    check_noticed(compaction_world.CompactionWorld, range(CLEANING_DEFECTS[defect], CLEANING_DEFECTS[defect] + TRIES))
