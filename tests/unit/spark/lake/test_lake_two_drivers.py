"""Two drivers of one query, and three, in many orders of their steps: each batch is in the table once, and readable.

The oracle is simple: after all drivers have ended, another one replays every batch; then the table has the files of
each batch once, all of them exist, and no other file is left.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from itertools import combinations

import pytest
from harness.depth import DEPTH
from memory_disk import MemoryDisk, MemoryLog, Schedule

from moldau.spark.lake import transactions
from moldau.spark.lake.journal import KEPT, Journal, State
from moldau.spark.lake.ownership import DriverFenced
from moldau.spark.lake.parquet import ParquetTable
from moldau.spark.lake.staging import staged_name
from moldau.spark.lake.tables import BatchTag, DataFile
from moldau.spark.lake.writing import Ownership

PATH = "/table"
FILES_PER_BATCH = 2
RANDOM_ORDERS = 20 * DEPTH
STRIDE = 1 if DEPTH > 1 else 4


class MemoryTable:
    """A table in memory; `kind` is parquet, or "logged" for one with a log of its own."""

    def __init__(self, patch: pytest.MonkeyPatch, kind: str, overwrite: bool = False) -> None:
        self.schedule = Schedule()
        self.disk = MemoryDisk(self.schedule.step)
        self.disk.install(patch)
        self._kind, self._overwrite = kind, overwrite
        self._log = MemoryLog(PATH, self.disk, self.schedule.step)
        patch.setattr(ParquetTable, "_data_files", lambda table: iter(self.data_files()))
        patch.setattr(transactions, "PAUSE_SECONDS", 0)

    def driver(self, run_id: str, *batches: int) -> Callable[[], list[str]]:
        return lambda: list(self._results(run_id, batches))

    def _results(self, run_id: str, batches: tuple[int, ...]) -> Iterator[str]:
        for batch in batches:
            tag = BatchTag("query", batch, run_id=run_id)
            try:
                files = self._tasks(tag)
            except FileNotFoundError:  # the driver that has taken over has removed the directory
                Ownership(PATH, tag).abort()
                yield "a task failed"
                return
            try:
                yield "written" if self._commit(tag, files) else "already stored"
            except DriverFenced:
                Ownership(PATH, tag).abort()
                yield "refused"
                return

    def _tasks(self, tag: BatchTag) -> list[DataFile]:
        files = []
        for task in range(FILES_PER_BATCH):
            name = f"day={task}/{tag.batch_id}-{tag.run_id}-{len(self.disk.files)}-{random.getrandbits(64):x}.parquet"
            file = DataFile(staged_name(tag, name), name, (), 1, 1)
            self.disk.ensure_directory(os.path.dirname(os.path.join(PATH, file.staged)))
            self.disk.write(os.path.join(PATH, file.staged), str(tag.batch_id).encode())
            files.append(file)
        return files

    def _commit(self, tag: BatchTag, files: list[DataFile]) -> bool:
        if self._kind == "parquet":
            return ParquetTable(PATH).commit(files, tag, self._overwrite)
        return transactions.commit(self._log, files, tag, lambda epoch: self._log.transact(files, tag, epoch))

    def data_files(self) -> list[str]:
        names = (name.removeprefix(PATH + "/") for name in self.disk.files)
        return [name for name in names if not name.startswith("_")]

    def check(self, last_batch: int, order: object) -> None:
        """Replay every batch, then check the table."""
        for batch in range(last_batch + 1):
            self.driver(f"replay-{batch}", batch)()
        found = self._log.files if self._kind == "logged" else [os.path.join(PATH, name) for name in self.data_files()]
        assert all(name in self.disk.files for name in found), f"unreadable after {order}"
        rows = Counter(int(self.disk.files[name]) for name in found)
        wanted = [last_batch] if self._overwrite else range(last_batch + 1)
        assert rows == Counter(dict.fromkeys(wanted, FILES_PER_BATCH)), f"after {order}"
        assert len(self.data_files()) == len(found), f"orphans after {order}"
        assert not [name for name in self.disk.files if name.endswith(".staged")], f"staged files after {order}"


def steps_of(patch: pytest.MonkeyPatch, kind: str, overwrite: bool, *batches: int) -> int:
    world = MemoryTable(patch, kind, overwrite)
    world.driver("before", 0)()
    driver = world.schedule.driver(world.driver("a", *batches))
    world.schedule.run(driver)
    return driver.steps


CASES = [("parquet", False), ("parquet", True), ("logged", False)]


@pytest.mark.parametrize(("kind", "overwrite"), CASES)
def test_a_driver_suspended_at_any_step_is_refused_or_has_nothing_to_write(
    kind: str, overwrite: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it is suspended, another driver replays its batch and writes the next ones, undisturbed also afterwards."""
    results = Counter()
    for stop in range(steps_of(monkeypatch, kind, overwrite, 1) + 1):
        world = MemoryTable(monkeypatch, kind, overwrite)
        world.driver("before", 0)()
        a = world.schedule.driver(world.driver("a", 1, 2))
        world.schedule.run(a, stop)
        assert world.driver("b", 1, 2)() in (["written", "written"], ["already stored", "written"]), stop
        world.schedule.run(a)
        results[a.result[-1]] += 1
        assert world.driver("b", 3, 4)() == ["written", "written"], f"the current driver continues: {stop}"
        world.check(4, stop)
    assert results["refused"] > 20


@pytest.mark.parametrize(("kind", "overwrite"), CASES)
def test_two_drivers_suspended_at_any_two_steps_write_each_batch_once(
    kind: str, overwrite: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stops anywhere, then B anywhere; A runs to its end, then B. A quarter of all pairs, or all with more depth."""
    steps = steps_of(monkeypatch, kind, overwrite, 1)
    outcomes = Counter()
    for first in range(steps + 1):
        for second in range(first % STRIDE, steps + 1, STRIDE):
            world = MemoryTable(monkeypatch, kind, overwrite)
            world.driver("before", 0)()
            a, b = (world.schedule.driver(world.driver(run, 1)) for run in "ab")
            for driver, count in ((a, first), (b, second), (a, 1_000_000), (b, 1_000_000)):
                world.schedule.run(driver, count)
            outcomes[a.result[-1], b.result[-1]] += 1
            world.check(1, (first, second))
    assert outcomes["refused", "written"] > 20
    assert outcomes["written", "refused"] > 20
    assert outcomes["written", "written"] == 0


@pytest.mark.parametrize(("kind", "overwrite"), CASES)
@pytest.mark.parametrize("drivers", [2, 3])
def test_drivers_in_random_step_orders_write_each_batch_once(
    kind: str, overwrite: bool, drivers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in range(RANDOM_ORDERS):
        chance = random.Random(seed)
        world = MemoryTable(monkeypatch, kind, overwrite)
        world.driver("before", 0)()
        running = [world.schedule.driver(world.driver(f"run-{number}", 1, 2, 3)) for number in range(drivers)]
        alive = list(running)
        while alive:
            driver = chance.choice(alive)
            world.schedule.run(driver, chance.choice((1, 2, 5, 20, 60)))
            alive = [each for each in running if not each.is_done]
        world.check(3, f"seed {seed}")


def test_the_journal_accepts_one_of_two_drivers_in_any_step_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both read the state and append to it. If both have read the same, one of them succeeds."""

    def appended(journal: Journal, run_id: str) -> bool:
        before = journal.last()
        assert before is not None
        return journal.append(State(before.number + 1, before.epoch + 1, run_id), before)

    def world_of() -> tuple[Schedule, Journal]:
        schedule = Schedule()
        MemoryDisk(schedule.step).install(monkeypatch)
        journal = Journal(PATH, "query")
        assert journal.append(State(1, 1, "before"), None)
        for number in range(2, KEPT + 3):
            assert journal.append(State(number, 1, "before"), State(number - 1, 1, "before"))
        return schedule, journal

    schedule, journal = world_of()
    alone = schedule.driver(lambda: appended(journal, "a"))
    schedule.run(alone)
    first, orders = KEPT + 2, 0
    for turns_of_a in combinations(range(2 * alone.steps), alone.steps):
        schedule, journal = world_of()
        a, b = (schedule.driver(partial(appended, journal, run)) for run in "ab")
        for turn in range(2 * alone.steps):
            schedule.run(a if turn in turns_of_a else b, 1)
        for driver in (a, b):
            schedule.run(driver)
        state = journal.last()
        assert state is not None
        winners = [run for run, driver in (("a", a), ("b", b)) if driver.result]
        assert state.run_id in winners, turns_of_a
        assert len(winners) == state.number - first, turns_of_a
        orders += 1
    assert orders > 400


def test_a_removed_journal_number_is_not_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver is suspended before it appends, and the others append so much that its number is removed again."""
    schedule = Schedule()
    memory = MemoryDisk(schedule.step)
    memory.install(monkeypatch)
    journal = Journal(PATH, "query")
    states = [State(number, number, f"run-{number}") for number in range(1, KEPT + 6)]
    for before, state in zip([None, *states], states, strict=False):
        assert journal.append(state, before)
    assert len(memory.files) == KEPT
    assert not journal.append(State(3, 3, "suspended"), states[1])
    assert not journal.append(State(4, 4, "suspended too"), states[2]), (
        "its predecessor exists, but with another content"
    )
    assert not journal.append(State(1, 1, "suspended at the very first"), None)
    assert journal.last() == states[-1]


def test_the_error_of_a_fenced_driver_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    world = MemoryTable(monkeypatch, "parquet")
    for run_id in ("a", "b"):
        world.driver(run_id, 0 if run_id == "a" else 1)()
    tag = BatchTag("query", 2, run_id="a")
    with pytest.raises(DriverFenced) as refused:
        ParquetTable(PATH).commit(world._tasks(tag), tag, False)
    assert str(refused.value) == (
        "/table: another driver of query query has taken over, so batch 2 of this one was not written; run each query "
        "(each checkpoint) on one driver only, and stop this one if it still runs"
    )
