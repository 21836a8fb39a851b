"""Random histories of producers, failures and markers: the coordinator's responses must agree with the partitions.

A failing run prints its seed; `run(seed, version)` repeats it.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from random import Random

import pytest
from harness.in_memory_transaction_shard import InMemoryTransactionShard
from transaction_world import PARTITIONS, TIMEOUT_MS, TransactionWorld

from moldau.coordinator.transaction.transaction import (
    PRODUCER_EPOCH_MAX,
    State,
    Transaction,
    record_of,
)

STEPS = 250
SEEDS = 40
"""The number of runs in each of the tests below; a run takes about ten milliseconds."""
WEIGHTS = {
    "start": 20, "replace": 2, "continue": 1, "add": 30, "commit-transaction": 15, "abort-transaction": 5, "commit": 60,
    "deliver": 40, "deliver-one": 5, "fail": 5, "lose": 4, "late": 8, "advance": 2, "check": 3,
}  # fmt: skip


def world_of(seed: int, version: int) -> TransactionWorld:
    """Return a world with clients of several versions if the cluster has version 2, sometimes near the last epoch."""
    rng = Random(seed)
    shard = InMemoryTransactionShard(version)
    if rng.random() < 0.5:
        epoch = PRODUCER_EPOCH_MAX - rng.randint(2, 12)
        old = Transaction("x", 5, epoch, TIMEOUT_MS, shard.clock.now_ms(), previous_producer_id=5)
        shard.log.append(shard.machine.encode(record_of(old)))
        shard.reload()
    return TransactionWorld(shard, rng.choices([0, 2] if version == 2 else [0], k=2))


def step(world: TransactionWorld, rng: Random) -> None:
    producer, partition = rng.randrange(len(world.producers)), rng.choice(PARTITIONS)
    events: dict[str, Callable[[], None]] = {
        "start": lambda: world.start_if_all_gave_up(producer),
        "replace": lambda: world.init(producer, sends_identity=False),
        "continue": lambda: world.init(producer, sends_identity=True),
        "add": lambda: world.add(producer, partition),
        "commit-transaction": lambda: world.end(producer, committed=True),
        "abort-transaction": lambda: world.end(producer, committed=False),
        "commit": world.commit,
        "check": world.check_replay,
        "deliver": lambda: world.deliver(rng.randrange(3)),
        "deliver-one": lambda: world.deliver(rng.randrange(3), partition),
        "fail": lambda: world.fail(kept=rng.randrange(3)),
        "lose": lambda: world.lose_next_response(producer),
        "late": lambda: world.resend_late_request(rng.randrange(100)),
        "advance": lambda: world.advance(rng.choice((1, TIMEOUT_MS // 2, TIMEOUT_MS))),
    }
    events[rng.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]]()


def check_history(history: list[Transaction]) -> None:
    """Check the log: epochs rise, and a decided end never changes."""
    ends = {State.PREPARE_COMMIT: State.COMPLETE_COMMIT, State.PREPARE_ABORT: State.COMPLETE_ABORT}
    retired: set[int] = set()
    for before, after in pairwise(history):
        if after.producer_id == before.producer_id:
            assert after.producer_epoch >= before.producer_epoch
        else:
            retired.add(before.producer_id)
            assert after.producer_epoch == 0
        assert after.producer_id not in retired
        if before.state in ends:
            assert after.state is ends[before.state]
        elif after.state in ends.values():
            raise AssertionError(f"{after.state} after {before.state}")


def run(seed: int, version: int) -> TransactionWorld:
    rng = Random(seed)
    world = world_of(seed, version)
    for _ in range(STEPS):
        step(world, rng)
    world.settle()
    world.check()
    check_history(world.shard.history())
    return world


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize("seed", range(SEEDS))
def test_transactions_are_atomic_and_old_producers_are_fenced(seed: int, version: int) -> None:
    run(seed, version)


@pytest.mark.parametrize("version", [1, 2])
def test_without_failures_transactions_commit_and_abort(version: int) -> None:
    """A check of the checker: without failures, every transaction ends as its producer requested."""
    world = TransactionWorld(InMemoryTransactionShard(version), [version // 2 * 2])
    world.init(0, sends_identity=False)
    for committed in (True, False, True):
        world.commit()
        world.add(0, PARTITIONS[0])
        world.commit()
        world.add(0, PARTITIONS[2])
        world.commit()
        world.end(0, committed)
        world.commit()
        world.deliver(0)
    world.settle()
    world.check()
    assert list(world.outcomes.values()) == [{True}, {False}, {True}]
    assert list(world.reported_outcomes.values()) == [True, False, True]
