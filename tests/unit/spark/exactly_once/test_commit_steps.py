"""The commit of a micro-batch: readers see it completely and once, whichever step was the driver's last."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations

import model_cluster
import pytest
from harness.patience import PATIENCE_S
from model_cluster import ModelCluster, ModelRequests, check_whole_and_once, staged

from moldau.base.errors import ErrorCode, KafkaError
from moldau.spark.exactly_once import committing
from moldau.spark.exactly_once.committing import TransactionRequests, commit
from moldau.spark.exactly_once.staging import Staged

STEPS_EACH = 7


class Killed(BaseException):
    """kill -9: no code of the driver runs after it, not even its clean-up."""


def steps() -> list[str]:
    """The steps of a commit without a fault."""
    passed: list[str] = []
    commit(ModelRequests(ModelCluster(), passed.append), staged(0), 0)
    return passed


STEPS = steps()


def kill_at(at: str) -> Callable[[str], None]:
    is_dead = False

    def gate(step: str) -> None:
        nonlocal is_dead
        is_dead = is_dead or step == at
        if is_dead:
            raise Killed

    return gate


def lose_connection_at(at: str) -> Callable[[str], None]:
    lost = [at]

    def gate(step: str) -> None:
        if lost == [step]:
            lost.clear()
            raise ConnectionError(step)

    return gate


def undisturbed(step: str) -> None:
    pass


def test_the_order_of_the_steps_of_a_commit() -> None:
    order = [step.split()[1] for step in STEPS if step.startswith("before")]
    assert list(dict.fromkeys(order)) == [
        "init_producer", "last_micro_batch_id", "add_partitions", "write",
        "add_group", "commit_micro_batch_id", "commit",
    ]  # fmt: skip


@pytest.mark.parametrize("at", STEPS)
def test_a_driver_killed_at_any_step_leaves_a_batch_whole_or_not_at_all(at: str) -> None:
    cluster = ModelCluster()
    commit(ModelRequests(cluster, undisturbed), staged(4), 4)
    with pytest.raises(Killed):
        commit(ModelRequests(cluster, kill_at(at)), staged(5), 5)
    check_whole_and_once(cluster, [4, 5] if at == "after commit" else [4])
    is_new = commit(ModelRequests(cluster, undisturbed), staged(5), 5)
    assert is_new == (at != "after commit")
    assert commit(ModelRequests(cluster, undisturbed), staged(6), 6)
    check_whole_and_once(cluster, [4, 5, 6])


@pytest.mark.parametrize("at", STEPS)
def test_after_a_lost_connection_at_any_step_the_batch_is_aborted_or_committed(at: str) -> None:
    cluster = ModelCluster()
    with pytest.raises(ConnectionError):
        commit(ModelRequests(cluster, lose_connection_at(at)), staged(5), 5)
    assert cluster.open is None, "a failed transaction is aborted at once, not by its timeout"
    commit(ModelRequests(cluster, undisturbed), staged(5), 5)
    check_whole_and_once(cluster, [5])


def test_a_committed_batch_is_not_written_again() -> None:
    cluster = ModelCluster()
    assert commit(ModelRequests(cluster, undisturbed), staged(0), 0)
    assert not commit(ModelRequests(cluster, undisturbed), staged(0), 0)
    check_whole_and_once(cluster, [0])


def test_a_deleted_topic_loses_only_its_own_micro_batch_id() -> None:
    cluster = ModelCluster()
    commit(ModelRequests(cluster, undisturbed), staged(3), 3)
    del cluster.micro_batch_ids["a"]
    assert not commit(ModelRequests(cluster, undisturbed), staged(3), 3)


def test_a_write_without_a_batch_id_is_one_transaction_and_stores_no_id() -> None:
    cluster = ModelCluster()
    assert commit(ModelRequests(cluster, undisturbed), staged(0), None)
    assert cluster.micro_batch_ids == {}
    check_whole_and_once(cluster, [0])


def test_a_batch_without_rows_sends_no_request() -> None:
    passed: list[str] = []
    assert commit(ModelRequests(ModelCluster(), passed.append), [], 3)
    assert passed == []


# --- two drivers of one query -----------------------------------------------------------------------------------------


class WriteOrder:
    """Runs two threads one step at a time, in a given order; a thread that has ended is skipped."""

    def __init__(self, order: Sequence[int]) -> None:
        self._order = iter([*order, 0, 1])
        self._may_go = [threading.Semaphore(0), threading.Semaphore(0)]
        self._has_begun = [False, False]
        self._has_ended = [False, False]

    def pass_on(self) -> None:
        for who in self._order:
            if not self._has_ended[who]:
                self._may_go[who].release()
                return

    def gate(self, who: int) -> Callable[[str], None]:
        def wait(step: str) -> None:
            if step.startswith("before"):
                if self._has_begun[who]:
                    self.pass_on()
                self._has_begun[who] = True
                assert self._may_go[who].acquire(timeout=PATIENCE_S)

        return wait

    def ended(self, who: int) -> None:
        self._has_ended[who] = True
        self.pass_on()


def race(order: Sequence[int], attempt: Callable[[TransactionRequests, int], object]) -> ModelCluster:
    """Two drivers of one query, their steps in this order."""
    cluster, turns = ModelCluster(), WriteOrder(order)
    unforeseen: list[BaseException] = []

    def drive(who: int) -> None:
        try:
            attempt(ModelRequests(cluster, turns.gate(who)), who)
        except KafkaError as error:
            if error.code not in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_TXN_STATE):
                unforeseen.append(error)
        except BaseException as error:
            unforeseen.append(error)
        finally:
            turns.ended(who)

    threads = [threading.Thread(target=drive, args=(who,)) for who in (0, 1)]
    for thread in threads:
        thread.start()
    turns.pass_on()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert not any(thread.is_alive() for thread in threads)
    assert not unforeseen
    return cluster


def orders() -> Iterator[list[int]]:
    """Every order of the steps of two drivers. Driver 0 always has the first step."""
    total = 2 * STEPS_EACH
    for firsts in combinations(range(1, total), STEPS_EACH - 1):
        order = [1] * total
        for place in (0, *firsts):
            order[place] = 0
        yield order


@pytest.fixture
def attempts(monkeypatch: pytest.MonkeyPatch) -> list[list[Staged]]:
    """Three attempts at one micro-batch of one record batch: few enough orders of steps to try all of them."""
    monkeypatch.setattr(model_cluster, "PARTITIONS", model_cluster.PARTITIONS[:1])
    monkeypatch.setattr(model_cluster, "TASKS", 1)
    return [staged(2) for _ in range(3)]


def test_two_drivers_write_a_batch_once_in_every_order_of_their_steps(attempts: list[list[Staged]]) -> None:
    for order in orders():
        cluster = race(order, lambda requests, who: commit(requests, attempts[who], 2))
        assert len(cluster.committed) == 1, "exactly one of the two commits"
        commit(ModelRequests(cluster, undisturbed), attempts[2], 2)
        check_whole_and_once(cluster, [2])


def test_reading_the_batch_id_before_init_producer_would_duplicate_a_batch(attempts: list[list[Staged]]) -> None:
    """Shows that the test above can fail: with the first two steps exchanged, some orders write the batch twice."""

    def wrong(requests: TransactionRequests, who: int) -> None:
        if requests.last_micro_batch_id() is None:
            partitions = [where for where, _ in attempts[who][0].index]
            committing._write_in_transaction(requests, requests.init_producer(), partitions, attempts[who], 2)

    assert any(len(race(order, wrong).committed) == 2 for order in orders())
