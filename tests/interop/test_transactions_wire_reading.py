"""What a read_committed consumer sees, and the requests about transactions and producers.

Records at or after the last stable offset are not returned; below it are all batches, also aborted ones, with a list of
the aborted transactions. ListTransactions, DescribeTransactions and DescribeProducers show which transaction blocks a
consumer.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
from batches import CONTROL, batch, headers_of, now_ms
from harness.patience import PATIENCE_S
from kio.schema.errors import ErrorCode
from protocol_requests import NEVER_MS, end_offset, fetch, list_offset, produce, topic_id
from transaction_requests import (
    TransactionalProducer,
    add_partitions,
    await_state,
    control_records,
    describe,
    describe_all,
    describe_producers,
    end,
    new_transactional_producer,
    open_transaction,
    send,
    until,
)
from wire_client import Wire, message

CreateTopic = Callable[..., str]
COMMITTED, UNCOMMITTED = 1, 0
LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3


@pytest.fixture
def name(create_topic: CreateTopic) -> str:
    return create_topic()


@pytest.fixture
def producers(wire: Wire) -> list[TransactionalProducer]:
    prefix = f"tx-{uuid.uuid4().hex[:8]}"
    return [new_transactional_producer(wire, f"{prefix}-{index}") for index in range(3)]


def finish(wire: Wire, producer: TransactionalProducer, committed: bool) -> None:
    assert end(wire, producer, committed).error_code == ErrorCode.none
    await_state(wire, producer.transactional_id, "CompleteCommit" if committed else "CompleteAbort")


class Page(NamedTuple):
    """A fetch response: offsets, aborted transactions, and the batches by first offset."""

    high_watermark: int
    last_stable_offset: int
    aborted: set[tuple[int, int]] | None
    batches: list[int]


def page(wire: Wire, name: str, offset: int, isolation_level: int = COMMITTED, version: int = 12) -> Page:
    where = topic_id(wire, name) if version >= 13 else name
    answer = fetch(wire, where, offset, version, isolation_level=isolation_level)
    assert answer.error_code == ErrorCode.none, answer
    aborted_list = answer.aborted_transactions
    aborted = None if aborted_list is None else {(each.producer_id, each.first_offset) for each in aborted_list}
    batches = [each.base_offset for each in headers_of(answer.records)]
    return Page(answer.high_watermark, answer.last_stable_offset, aborted, batches)


def interleave(wire: Wire, name: str, producers: list[TransactionalProducer]) -> None:
    """Write offset 0 of the first, 1 and 2 of the second, 3 without a transaction, 4 of the third, 5 of the first
    again."""
    first, second, third = producers
    for each in producers:
        add_partitions(wire, each, {name: [0]})
    send(wire, first, name)
    send(wire, second, name, [b"x", b"y"])
    produce(wire, name, batch([b"plain"]))
    send(wire, third, name)
    assert send(wire, first, name, seq=1).base_offset == 5


# --- Fetch --------------------------------------------------------------------------------------------------------


def test_read_committed_waits_for_the_oldest_open_transaction(
    wire: Wire, name: str, producers: list[TransactionalProducer]
) -> None:
    first, second, third = producers
    interleave(wire, name, producers)
    assert page(wire, name, 0) == Page(6, 0, set(), [])
    assert page(wire, name, 0, UNCOMMITTED) == Page(6, 0, None, [0, 1, 3, 4, 5])
    assert page(wire, name, 3) == Page(6, 0, set(), []), "not even records outside transactions"
    finish(wire, second, committed=False)
    assert page(wire, name, 0) == Page(7, 0, set(), [])
    finish(wire, first, committed=False)
    assert page(wire, name, 0) == Page(8, 4, {(first.id, 0), (second.id, 1)}, [0, 1, 3])
    finish(wire, third, committed=True)
    assert page(wire, name, 0) == Page(9, 9, {(first.id, 0), (second.id, 1)}, [0, 1, 3, 4, 5, 6, 7, 8])
    assert page(wire, name, 0, UNCOMMITTED) == Page(9, 9, None, [0, 1, 3, 4, 5, 6, 7, 8])


def test_an_aborted_transaction_is_listed_as_long_as_its_batches_are_returned(
    wire: Wire, name: str, producers: list[TransactionalProducer]
) -> None:
    first, second, third = producers
    interleave(wire, name, producers)
    for each, committed in ((second, False), (first, False), (third, True)):
        finish(wire, each, committed)
    for offset in range(7):
        assert page(wire, name, offset).aborted == {(first.id, 0), (second.id, 1)}, offset
    assert page(wire, name, 2).batches[0] == 1, "a batch is never cut"
    assert page(wire, name, 7).aborted == {(first.id, 0)}, "its marker is still to come"
    assert page(wire, name, 8).aborted == set()
    few = fetch(wire, name, 8, isolation_level=COMMITTED, partition_max_bytes=1)
    assert [each.base_offset for each in headers_of(few.records)] == [8]


@pytest.mark.moldau_only
def test_aborted_transactions_are_listed_in_the_order_of_their_first_offsets(
    wire: Wire, name: str, producers: list[TransactionalProducer]
) -> None:
    """Apache lists them in the order in which they ended; some clients expect the order of their first offsets."""
    first, second, third = producers
    interleave(wire, name, producers)
    for each in (third, second, first):
        finish(wire, each, committed=False)
    aborted_list = fetch(wire, name, 0, isolation_level=COMMITTED).aborted_transactions
    assert [(each.producer_id, each.first_offset) for each in aborted_list] == [
        (first.id, 0),
        (second.id, 1),
        (third.id, 4),
    ]


@pytest.mark.parametrize("version", range(4, 19))
def test_every_version_hides_uncommitted_records(
    wire: Wire, name: str, producers: list[TransactionalProducer], version: int
) -> None:
    aborted, committed, opened = producers
    open_transaction(wire, aborted, name)
    finish(wire, aborted, committed=False)
    open_transaction(wire, committed, name)
    finish(wire, committed, committed=True)
    open_transaction(wire, opened, name)
    assert page(wire, name, 0, COMMITTED, version) == Page(5, 4, {(aborted.id, 0)}, [0, 1, 2, 3])
    assert page(wire, name, 0, UNCOMMITTED, version) == Page(5, 4, None, [0, 1, 2, 3, 4])


def test_a_marker_is_a_control_batch_of_one_record(
    wire: Wire, name: str, producers: list[TransactionalProducer]
) -> None:
    for each, committed in zip(producers[:2], (True, False), strict=True):
        open_transaction(wire, each, name)
        finish(wire, each, committed)
    records = fetch(wire, name, 0, isolation_level=COMMITTED).records
    markers = [header for header in headers_of(records) if header.attributes & CONTROL]
    assert {(each.records_count, each.base_sequence, each.last_offset_delta) for each in markers} == {(1, -1, 0)}
    assert [(each.base_offset, each.producer_id, each.committed) for each in control_records(records)] == [
        (1, producers[0].id, True),
        (3, producers[1].id, False),
    ]


def test_a_waiting_fetch_ends_at_the_marker(
    bootstrap: str, wire: Wire, name: str, producers: list[TransactionalProducer]
) -> None:
    open_transaction(wire, producers[0], name)
    with Wire(bootstrap) as reader:
        topics = [{"topic": name, "partitions": [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}]}]
        reader.post(message("fetch", 12, max_wait=NEVER_MS, min_bytes=1, isolation_level=COMMITTED, topics=topics))
        produce(wire, name, batch([b"more"]))
        assert reader.is_silent(0.2), "uncommitted records do not end the wait"
        finish(wire, producers[0], committed=True)
        (found,) = reader.collect().responses[0].partitions
    assert found.last_stable_offset == 3
    assert [each.base_offset for each in headers_of(found.records)] == [0, 1, 2]


# --- ListOffsets --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(2, 9))
def test_the_latest_offset_for_read_committed_is_the_last_stable_offset(
    wire: Wire, name: str, producers: list[TransactionalProducer], version: int
) -> None:
    produce(wire, name, batch([b"plain"]))
    open_transaction(wire, producers[0], name)

    def latest(isolation_level: int) -> int:
        return int(list_offset(wire, name, LATEST, version, isolation_level=isolation_level).offset)

    assert (latest(COMMITTED), latest(UNCOMMITTED)) == (1, 2)
    finish(wire, producers[0], committed=False)
    assert (latest(COMMITTED), latest(UNCOMMITTED)) == (3, 3)


def test_no_timestamp_lookup_returns_an_offset_past_the_last_stable_offset(
    wire: Wire, name: str, producers: list[TransactionalProducer]
) -> None:
    stamp = now_ms() - 10_000
    produce(wire, name, batch([b"plain"], timestamps=[stamp]))
    open_transaction(wire, producers[0], name)
    for isolation_level, expected in ((COMMITTED, -1), (UNCOMMITTED, 1)):
        found = list_offset(wire, name, stamp + 1, isolation_level=isolation_level)
        assert (found.error_code, found.offset) == (ErrorCode.none, expected)
        assert list_offset(wire, name, stamp, isolation_level=isolation_level).offset == 0
        assert list_offset(wire, name, EARLIEST, isolation_level=isolation_level).offset == 0
        assert list_offset(wire, name, MAX_TIMESTAMP, isolation_level=isolation_level).offset == expected


def test_records_of_an_open_transaction_can_be_deleted(
    wire: Wire, name: str, producers: list[TransactionalProducer]
) -> None:
    open_transaction(wire, producers[0], name)
    requested = [{"name": name, "partitions": [{"partition_index": 0, "offset": -1}]}]
    answer = wire.ask(message("delete_records", 2, topics=requested, timeout=10_000))
    assert answer.topics[0].partitions[0].low_watermark == 1
    assert fetch(wire, name, 0, isolation_level=COMMITTED).error_code == ErrorCode.offset_out_of_range
    finish(wire, producers[0], committed=False)
    assert page(wire, name, 1) == Page(2, 2, {(producers[0].id, 0)}, [1])


# --- requests about transactions ----------------------------------------------------------------------------------


def listed(wire: Wire, version: int = 2, **filters: Any) -> Any:
    return wire.ask(message("list_transactions", version, **filters))


def named(answer: Any) -> dict[str, tuple[int, str]]:
    assert answer.error_code == ErrorCode.none, answer
    return {each.transactional_id: (each.producer_id, each.transaction_state) for each in answer.transaction_states}


@pytest.fixture
def states(wire: Wire, name: str, producers: list[TransactionalProducer]) -> Iterator[list[TransactionalProducer]]:
    """One that never began, one that is open, one that has ended."""
    open_transaction(wire, producers[1], name)
    open_transaction(wire, producers[2], name)
    finish(wire, producers[2], committed=True)
    yield producers
    finish(wire, producers[1], committed=False)


@pytest.mark.parametrize("version", range(3))
def test_transactions_are_listed_by_state_and_by_producer(
    wire: Wire, states: list[TransactionalProducer], version: int
) -> None:
    empty, ongoing, complete = states
    ours = {each.transactional_id for each in states}
    everything = named(listed(wire, version))
    assert {each: everything[each] for each in ours} == {
        empty.transactional_id: (empty.id, "Empty"),
        ongoing.transactional_id: (ongoing.id, "Ongoing"),
        complete.transactional_id: (complete.id, "CompleteCommit"),
    }
    some = named(listed(wire, version, state_filters=["Ongoing", "Empty"]))
    assert ours & some.keys() == {empty.transactional_id, ongoing.transactional_id}
    assert {state for _, state in some.values()} <= {"Ongoing", "Empty"}
    assert named(listed(wire, version, producer_id_filters=[ongoing.id, complete.id])).keys() == {
        ongoing.transactional_id,
        complete.transactional_id,
    }
    both = named(listed(wire, version, state_filters=["Ongoing"], producer_id_filters=[complete.id]))
    assert both == {}


def test_unknown_states_are_reported(wire: Wire, states: list[TransactionalProducer]) -> None:
    answer = listed(wire, state_filters=["Ongoing", "Asleep", "ongoing"])
    assert set(answer.unknown_state_filters) == {"Asleep", "ongoing"}
    assert states[1].transactional_id in named(answer)
    alone = listed(wire, state_filters=["Asleep"])
    assert (alone.unknown_state_filters, alone.transaction_states) == (("Asleep",), ())


def test_transactions_are_listed_by_duration(wire: Wire, states: list[TransactionalProducer]) -> None:
    """An ended one also counts from its start; one that never began is older than any."""
    ours = {each.transactional_id for each in states}
    assert ours & named(listed(wire, duration_filter=-1)).keys() == ours
    assert ours & named(listed(wire, duration_filter=3_600_000)).keys() == {states[0].transactional_id}
    until(
        lambda: ours & named(listed(wire, duration_filter=1)).keys(),
        lambda found: found == ours,
        "all are older than a millisecond",
    )


def test_transactions_are_listed_by_a_pattern(wire: Wire, states: list[TransactionalProducer]) -> None:
    prefix = states[0].transactional_id[:-1]
    assert len(named(listed(wire, transactional_id_pattern=f"{prefix}.*"))) == 3
    assert named(listed(wire, transactional_id_pattern=f"{prefix}[12]")).keys() == {
        states[1].transactional_id,
        states[2].transactional_id,
    }
    assert named(listed(wire, transactional_id_pattern=prefix)) == {}, "the pattern must match the whole id"
    assert len(named(listed(wire, transactional_id_pattern=""))) >= 3
    assert listed(wire, transactional_id_pattern="[").error_code == ErrorCode.invalid_regular_expression


def test_a_transaction_is_described(wire: Wire, name: str, states: list[TransactionalProducer]) -> None:
    empty, ongoing, complete = (describe(wire, each.transactional_id) for each in states)
    assert (empty.state, empty.start_ms, empty.partitions) == ("Empty", -1, frozenset())
    assert (ongoing.state, ongoing.partitions, ongoing.timeout_ms) == ("Ongoing", {(name, 0)}, 60_000)
    assert 0 <= now_ms() - ongoing.start_ms <= 1000 * PATIENCE_S
    assert (complete.state, complete.partitions) == ("CompleteCommit", frozenset())
    assert (ongoing.producer_id, ongoing.producer_epoch) == (states[1].id, states[1].epoch)


def test_describing_an_unknown_transaction_is_refused(wire: Wire, states: list[TransactionalProducer]) -> None:
    requested = [states[1].transactional_id, "nobody", ""]
    assert {each.transactional_id: each.error_code for each in describe_all(wire, requested)} == {
        states[1].transactional_id: ErrorCode.none,
        "nobody": ErrorCode.transactional_id_not_found,
        "": ErrorCode.invalid_request,
    }


def test_producers_are_described_with_the_start_of_their_transactions(
    wire: Wire, name: str, states: list[TransactionalProducer]
) -> None:
    shown = describe_producers(wire, name)
    assert shown.keys() == {states[1].id, states[2].id}
    assert shown[states[1].id].current_txn_start_offset == 0
    assert shown[states[1].id].coordinator_epoch == -1, "no marker yet"
    assert shown[states[2].id].current_txn_start_offset == -1
    assert shown[states[2].id].coordinator_epoch >= 0
    assert end_offset(wire, name) == 3
