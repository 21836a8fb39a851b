"""Adding partitions to transactions, ending transactions, and late requests, which must be refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from harness.in_memory_transaction_shard import FIRST_PRODUCER_ID, T0, T1, InMemoryTransactionShard

from moldau.base.errors import ErrorCode
from moldau.coordinator.machine import ProducerIdAndEpoch
from moldau.coordinator.transaction.transaction import PRODUCER_EPOCH_MAX, State

Pair = ProducerIdAndEpoch
LAST_EPOCH = PRODUCER_EPOCH_MAX - 1
FENCED, INVALID = ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_TXN_STATE
MAPPING, CONCURRENT = ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.CONCURRENT_TRANSACTIONS


def result(answer: Any) -> tuple[int, int, int]:
    return answer.error_code, answer.producer_id, answer.producer_epoch


def after(producer: ProducerIdAndEpoch, by: int = 1) -> ProducerIdAndEpoch:
    return Pair(producer.producer_id, producer.producer_epoch + by)


def with_state(state: State, version: int) -> tuple[InMemoryTransactionShard, ProducerIdAndEpoch]:
    """Return a transaction in `state` and its producer. `version` is that of the client."""
    shard = InMemoryTransactionShard()
    producer = shard.producer()
    if state is State.EMPTY:
        return shard, producer
    shard.add(producer, client_transaction_version=version)
    if state is State.ONGOING:
        return shard, producer
    end_version = 5 if version == 2 else 4
    shard.end(producer, state in (State.PREPARE_COMMIT, State.COMPLETE_COMMIT), end_version)
    if state in (State.COMPLETE_COMMIT, State.COMPLETE_ABORT):
        shard.written()
    assert shard["x"].state is state
    return shard, shard["x"].producer


# --- partitions ---------------------------------------------------------------------------------------------------


def test_a_partition_added_twice_writes_no_second_record() -> None:
    shard = InMemoryTransactionShard()
    producer = shard.producer()
    assert shard.add(producer, [T0]) == ErrorCode.NONE
    begun_ms = shard.clock.now_ms()
    shard.clock.move(10)
    assert shard.add(producer, [T0, T1]) == ErrorCode.NONE
    assert (shard["x"].partitions, shard["x"].start_ms) == ({T0, T1}, begun_ms)
    records = len(shard.log)
    assert shard.add(producer, [T1]) == ErrorCode.NONE
    assert len(shard.log) == records


@pytest.mark.parametrize("state", [State.EMPTY, State.ONGOING, State.COMPLETE_COMMIT, State.COMPLETE_ABORT])
def test_only_the_latest_producer_adds_partitions(state: State) -> None:
    shard, producer = with_state(state, 2)
    assert shard.add(after(producer, -1), [T1]) == FENCED
    assert shard.add(after(producer), [T1]) == FENCED
    assert shard.add(Pair(5, producer.producer_epoch), [T1]) == MAPPING
    assert shard.add(producer, [T1], transactional_id="unknown") == MAPPING
    assert shard.add(producer, [T1], transactional_id="") == ErrorCode.INVALID_REQUEST
    assert shard.add(producer, [T1]) == ErrorCode.NONE


@pytest.mark.parametrize("state", [State.PREPARE_COMMIT, State.PREPARE_ABORT])
def test_no_partition_is_added_while_an_end_is_prepared(state: State) -> None:
    shard, producer = with_state(state, 2)
    assert shard.add(producer) == CONCURRENT
    assert shard.verify(producer) == {T0: CONCURRENT}
    assert shard.verify(after(producer, -1)) == {T0: FENCED}


def test_partitions_are_verified_one_by_one() -> None:
    shard, producer = with_state(State.ONGOING, 0)
    assert shard.verify(producer, [T0, T1]) == {T0: ErrorCode.NONE, T1: ErrorCode.TRANSACTION_ABORTABLE}
    assert shard.verify(after(producer), [T0]) == {T0: FENCED}
    assert shard.verify(Pair(5, 0), [T0]) == {T0: MAPPING}
    assert shard.verify(producer, [T0], "unknown") == {T0: MAPPING}
    assert shard.verify(producer, [T0], "") == {T0: ErrorCode.INVALID_REQUEST}
    shard.end(producer, version=4)
    shard.written()
    assert shard.verify(producer, [T0]) == {T0: ErrorCode.TRANSACTION_ABORTABLE}


def test_the_maximum_epoch_may_not_add_partitions() -> None:
    shard = InMemoryTransactionShard(version=1)
    producer = shard.producer()
    shard.machine.transactions["x"] = replace(shard["x"], producer_epoch=PRODUCER_EPOCH_MAX)
    assert shard.add(Pair(producer.producer_id, PRODUCER_EPOCH_MAX)) == FENCED


# --- versions 0 and 1 of transactions -----------------------------------------------------------------------------

OLD = {
    State.EMPTY: (INVALID, INVALID),
    State.ONGOING: (ErrorCode.NONE, ErrorCode.NONE),
    State.PREPARE_COMMIT: (CONCURRENT, CONCURRENT),
    State.PREPARE_ABORT: (CONCURRENT, CONCURRENT),
    State.COMPLETE_COMMIT: (ErrorCode.NONE, INVALID),
    State.COMPLETE_ABORT: (INVALID, ErrorCode.NONE),
}


@pytest.mark.parametrize("state", OLD)
@pytest.mark.parametrize("committed", [True, False])
def test_an_end_without_bump_in_every_state(state: State, committed: bool) -> None:
    shard, producer = with_state(state, 0)
    expected = OLD[state][0 if committed else 1]
    assert result(shard.end(producer, committed, version=4)) == (expected, -1, -1)
    assert shard["x"].producer == producer, "the epoch stays"


@pytest.mark.parametrize("state", OLD)
def test_an_end_without_bump_by_another_producer_is_refused_in_every_state(state: State) -> None:
    shard, producer = with_state(state, 0)
    before = shard["x"]
    assert shard.end(after(producer), version=4).error_code == FENCED
    assert shard.end(after(producer, -1), version=2).error_code == FENCED
    assert shard.end(after(producer, -1), version=1).error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert shard.end(Pair(5, 0), version=4).error_code == MAPPING
    assert shard["x"] == before


# --- version 2 ----------------------------------------------------------------------------------------------------

BUMPED = (ErrorCode.NONE, 1)
SAME_EPOCH = (ErrorCode.NONE, 0)
BY_CURRENT_EPOCH = {
    State.EMPTY: ((INVALID, None), BUMPED),
    State.ONGOING: (BUMPED, BUMPED),
    State.PREPARE_COMMIT: ((CONCURRENT, None), (CONCURRENT, None)),
    State.PREPARE_ABORT: ((CONCURRENT, None), (CONCURRENT, None)),
    State.COMPLETE_COMMIT: ((INVALID, None), BUMPED),
    State.COMPLETE_ABORT: ((INVALID, None), BUMPED),
}
BY_PREVIOUS_EPOCH = {
    State.EMPTY: ((FENCED, None), (FENCED, None)),
    State.ONGOING: ((FENCED, None), (FENCED, None)),
    State.PREPARE_COMMIT: ((CONCURRENT, None), (CONCURRENT, None)),
    State.PREPARE_ABORT: ((CONCURRENT, None), (CONCURRENT, None)),
    State.COMPLETE_COMMIT: (SAME_EPOCH, (INVALID, None)),
    State.COMPLETE_ABORT: ((INVALID, None), SAME_EPOCH),
}


@pytest.mark.parametrize("state", BY_CURRENT_EPOCH)
@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("back", [0, 1])
def test_an_end_in_every_state_by_each_producer_epoch(state: State, committed: bool, back: int) -> None:
    shard, producer = with_state(state, 2)
    code, bump = (BY_PREVIOUS_EPOCH if back else BY_CURRENT_EPOCH)[state][0 if committed else 1]
    expected = (code, -1, -1) if bump is None else (code, *after(producer, bump))
    for _ in range(1 if bump else 3):
        assert result(shard.end(after(producer, -back), committed)) == expected


@pytest.mark.parametrize("state", BY_CURRENT_EPOCH)
def test_an_end_by_a_much_older_epoch_or_another_producer_id_is_refused(state: State) -> None:
    shard, producer = with_state(state, 2)
    is_ending = state in (State.PREPARE_COMMIT, State.PREPARE_ABORT)
    assert shard.end(after(producer, -2)).error_code == (CONCURRENT if is_ending else FENCED)
    assert shard.end(after(producer)).error_code == (CONCURRENT if is_ending else FENCED)
    assert shard.end(Pair(5, 0)).error_code == (CONCURRENT if is_ending else MAPPING)
    assert shard.end(producer, transactional_id="unknown").error_code == MAPPING
    assert shard.end(producer, transactional_id="").error_code == ErrorCode.INVALID_REQUEST


def test_markers_have_the_next_epoch_of_the_producer() -> None:
    shard, producer = with_state(State.ONGOING, 2)
    assert result(shard.end(producer)) == (0, *after(producer))
    (markers,) = shard.sent
    assert markers == ("x", *after(producer), True, 1, 2, (T0,))


def test_markers_of_an_end_without_bump_keep_the_epoch() -> None:
    shard, producer = with_state(State.ONGOING, 0)
    shard.end(producer, version=4)
    assert shard.sent == [("x", *producer, True, 1, 0, (T0,))]


def test_an_end_without_partitions_needs_no_markers() -> None:
    shard, producer = with_state(State.EMPTY, 2)
    assert result(shard.end(producer, committed=False)) == (0, *after(producer))
    assert shard["x"].state is State.COMPLETE_ABORT
    assert shard.sent == []
    assert [each.state for each in shard.history()][-2:] == [State.PREPARE_ABORT, State.COMPLETE_ABORT]
    assert shard.add(after(producer)) == ErrorCode.NONE, "the producer continues at once"


def test_a_zombie_does_not_get_the_commit_of_its_successor_as_its_own() -> None:
    """The successor ends without an epoch bump. In this case Apache Kafka answers the zombie that its transaction is
    committed, and gives it the successor's epoch."""
    shard = InMemoryTransactionShard()
    zombie = shard.producer()
    successor = shard.producer()
    shard.add(successor, client_transaction_version=0)
    shard.end(successor, version=4)
    shard.written()
    assert result(shard.end(zombie)) == (FENCED, -1, -1)


def test_the_last_epoch_ends_in_another_producer_id() -> None:
    shard = InMemoryTransactionShard()
    shard.producer()
    shard.machine.transactions["x"] = replace(shard["x"], producer_epoch=LAST_EPOCH)
    last, following = shard["x"].producer, Pair(FIRST_PRODUCER_ID + 1, 0)
    shard.add(last)
    assert result(shard.end(last)) == (0, *following), "the client gets it before the markers are written"
    assert shard.sent[-1][1:3] == (last.producer_id, PRODUCER_EPOCH_MAX)
    assert shard.add(following) == CONCURRENT
    assert shard.end(following, committed=False).error_code == CONCURRENT
    shard.written()
    assert (shard["x"].producer, shard["x"].next_producer_id) == (following, -1)
    for _ in range(2):
        assert result(shard.end(last)) == (0, *following), "a retry"
    assert result(shard.end(last, committed=False))[0] == INVALID
    assert shard.add(following) == ErrorCode.NONE
    assert result(shard.end(last))[0] == MAPPING, "too late"


def test_an_end_in_the_last_epoch_waits_for_a_new_producer_id() -> None:
    shard, _ = with_state(State.ONGOING, 2)
    shard.machine.transactions["x"] = replace(shard["x"], producer_epoch=LAST_EPOCH)
    shard.has_producer_ids = False
    assert result(shard.end(shard["x"].producer)) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, -1, -1)
    assert shard["x"].state is State.ONGOING
    shard.has_producer_ids = True
    assert shard.end(shard["x"].producer).error_code == ErrorCode.NONE


def test_a_producer_with_the_previous_producer_id_is_fenced() -> None:
    shard = InMemoryTransactionShard()
    shard.producer()
    shard.machine.transactions["x"] = replace(shard["x"], producer_epoch=LAST_EPOCH)
    last = shard["x"].producer
    shard.producer()
    assert shard.end(last, committed=False).error_code == FENCED
