"""A micro-batch is seen whole and once by readers, whichever step of its commit was the driver's last."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations

import model_cluster
import pytest
from model_cluster import ModelCluster, ModelRequests, check_whole_and_once, staged
from patience import PATIENCE_S

from moldau.base.errors import ErrorCode, KafkaError
from moldau.spark.exactly_once import committing
from moldau.spark.exactly_once.committing import TransactionRequests, commit
from moldau.spark.exactly_once.staging import Staged

STEPS_EACH = 7


class Killed(BaseException):
    """kill -9: nothing of the driver runs after it, not even its clean-up."""


def steps() -> list[str]:
    """The name of every gate that an undisturbed commit passes."""
    passed: list[str] = []
    commit(ModelRequests(ModelCluster(), passed.append), staged(0), 0)
    return passed


STEPS = steps()


def dying(at: str) -> Callable[[str], None]:
    is_dead = False

    def gate(step: str) -> None:
        nonlocal is_dead
        is_dead = is_dead or step == at
        if is_dead:
            raise Killed

    return gate


def losing_the_line(at: str) -> Callable[[str], None]:
    lost = [at]

    def gate(step: str) -> None:
        if lost == [step]:
            lost.clear()
            raise ConnectionError(step)

    return gate


def undisturbed(step: str) -> None:
    pass


def test_the_steps_of_a_commit() -> None:
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
        commit(ModelRequests(cluster, dying(at)), staged(5), 5)
    check_whole_and_once(cluster, [4, 5] if at == "after commit" else [4])
    is_new = commit(ModelRequests(cluster, undisturbed), staged(5), 5)
    assert is_new == (at != "after commit")
    assert commit(ModelRequests(cluster, undisturbed), staged(6), 6)
    check_whole_and_once(cluster, [4, 5, 6])


@pytest.mark.parametrize("at", STEPS)
def test_a_lost_connection_at_any_step_aborts_or_is_found_to_have_committed(at: str) -> None:
    cluster = ModelCluster()
    with pytest.raises(ConnectionError):
        commit(ModelRequests(cluster, losing_the_line(at)), staged(5), 5)
    assert cluster.open is None, "what failed is aborted at once, not when its time is over"
    commit(ModelRequests(cluster, undisturbed), staged(5), 5)
    check_whole_and_once(cluster, [5])


def test_a_batch_that_was_committed_is_not_written_again() -> None:
    cluster = ModelCluster()
    assert commit(ModelRequests(cluster, undisturbed), staged(0), 0)
    assert not commit(ModelRequests(cluster, undisturbed), staged(0), 0)
    check_whole_and_once(cluster, [0])


def test_a_topic_that_is_deleted_takes_only_its_own_note_along() -> None:
    cluster = ModelCluster()
    commit(ModelRequests(cluster, undisturbed), staged(3), 3)
    del cluster.notes["a"]
    assert not commit(ModelRequests(cluster, undisturbed), staged(3), 3)


def test_a_write_that_nobody_replays_is_one_transaction_without_a_note() -> None:
    cluster = ModelCluster()
    assert commit(ModelRequests(cluster, undisturbed), staged(0), None)
    assert cluster.notes == {}
    check_whole_and_once(cluster, [0])


def test_a_batch_without_rows_asks_nothing_of_the_cluster() -> None:
    passed: list[str] = []
    assert commit(ModelRequests(ModelCluster(), passed.append), [], 3)
    assert passed == []


# --- two drivers of one query -----------------------------------------------------------------------------------------


class WriteOrder:
    """Lets two threads go on one step at a time, in a given order; one that has ended is passed over."""

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
    """Two drivers that both believe to be the one, their steps in this order."""
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
    assert not unforeseen
    return cluster


def orders() -> Iterator[list[int]]:
    """Every way to put the steps of two drivers into one order, but for who is called the first."""
    total = 2 * STEPS_EACH
    for firsts in combinations(range(1, total), STEPS_EACH - 1):
        order = [1] * total
        for place in (0, *firsts):
            order[place] = 0
        yield order


@pytest.fixture
def attempts(monkeypatch: pytest.MonkeyPatch) -> list[list[Staged]]:
    """Three at one micro-batch, of one record batch: the orders of steps are then few enough to try all of them."""
    monkeypatch.setattr(model_cluster, "PARTITIONS", model_cluster.PARTITIONS[:1])
    monkeypatch.setattr(model_cluster, "TASKS", 1)
    return [staged(2) for _ in range(3)]


def test_two_drivers_write_a_batch_once_in_every_order_of_their_steps(attempts: list[list[Staged]]) -> None:
    for order in orders():
        cluster = race(order, lambda requests, who: commit(requests, attempts[who], 2))
        assert len(cluster.committed) == 1, "one of the two always gets through"
        commit(ModelRequests(cluster, undisturbed), attempts[2], 2)
        check_whole_and_once(cluster, [2])


def test_recognising_before_taking_over_would_double_a_batch(attempts: list[list[Staged]]) -> None:
    """That the orders above are worth trying: with the first two steps exchanged, some of them go wrong."""

    def wrong(requests: TransactionRequests, who: int) -> None:
        if requests.last_micro_batch_id() is None:
            partitions = [where for where, _ in attempts[who][0].index]
            committing._write_in_transaction(requests, requests.init_producer(), partitions, attempts[who], 2)

    assert any(len(race(order, wrong).committed) == 2 for order in orders())
