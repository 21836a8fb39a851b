"""ListTransactions with its filters, and DescribeTransactions."""

from __future__ import annotations

from typing import Any

import pytest
from harness.in_memory_transaction_shard import FIRST_PRODUCER_ID, T0, T1, InMemoryTransactionShard

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import TopicPartition
from moldau.base.steps import TurnItems, finish
from moldau.coordinator.machine import Outcome
from moldau.coordinator.transaction.listing import filter_of
from moldau.wire.messages.describe_transactions import TopicData
from moldau.wire.messages.list_transactions import ListTransactionsRequest

FIRST = FIRST_PRODUCER_ID


def three_transactions() -> InMemoryTransactionShard:
    """Return a shard with three transactional ids: `orders-1` has a transaction open for a second, that of `orders-2`
    has ended, `clicks` never began one."""
    shard = InMemoryTransactionShard()
    for name in ("orders-1", "orders-2", "clicks"):
        producer = shard.producer(name)
        if name != "clicks":
            shard.add(producer, [T1, T0, TopicPartition("s", 3)], transactional_id=name)
        if name == "orders-2":
            shard.end(producer, transactional_id=name)
            shard.written()
    shard.advance(1_000)
    return shard


def list_all(shard: InMemoryTransactionShard, request: ListTransactionsRequest) -> Any:
    """Return the transactions, or the promise of them, as a shard would."""
    return shard.execute(Outcome(finish(shard.machine.listed(filter_of(request), TurnItems(2)))))


def ids(shard: InMemoryTransactionShard, request: ListTransactionsRequest) -> list[str]:
    return [each.transactional_id for each in list_all(shard, request)]


ALL = ["orders-1", "orders-2", "clicks"]


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (ListTransactionsRequest(), ALL),
        (ListTransactionsRequest(["Ongoing"]), ["orders-1"]),
        (ListTransactionsRequest(["Ongoing", "Empty", "Hopeful"]), ["orders-1", "clicks"]),
        (ListTransactionsRequest(["Hopeful"]), []),
        (ListTransactionsRequest(["ongoing"]), []),
        (ListTransactionsRequest(producer_id_filters=[FIRST + 1, FIRST + 2, 7]), ["orders-2", "clicks"]),
        (ListTransactionsRequest(duration_filter=0), ALL),
        (ListTransactionsRequest(duration_filter=999), ALL),
        (ListTransactionsRequest(duration_filter=1_000), ["clicks"]),
        (ListTransactionsRequest(duration_filter=-1), ALL),
        (ListTransactionsRequest(transactional_id_pattern=""), ALL),
        (ListTransactionsRequest(transactional_id_pattern="orders-.*"), ["orders-1", "orders-2"]),
        (ListTransactionsRequest(transactional_id_pattern="orders"), []),
        (ListTransactionsRequest(["CompleteCommit"], [FIRST + 1], 10, "o.*2"), ["orders-2"]),
    ],
)
@pytest.mark.needs_re2
def test_filters_of_list_transactions(wanted: ListTransactionsRequest, expected: list[str]) -> None:
    assert ids(three_transactions(), wanted) == expected


def test_unknown_state_filters_are_returned() -> None:
    assert filter_of(ListTransactionsRequest(["Hopeful", "Empty", "", "Hopeful"])).unknown_states == ("Hopeful", "")


def test_states_have_kafkas_names() -> None:
    shard = three_transactions()
    listed = list_all(shard, ListTransactionsRequest())
    assert [(each.producer_id, each.transaction_state) for each in listed] == [
        (FIRST, "Ongoing"),
        (FIRST + 1, "CompleteCommit"),
        (FIRST + 2, "Empty"),
    ]
    names = ["PrepareCommit", "PrepareAbort", "CompleteAbort", "PrepareEpochFence", "Dead"]
    assert filter_of(ListTransactionsRequest(names)).unknown_states == ()


@pytest.mark.parametrize("pattern", ["(", "a{1000}{1000}", "(?=x)"])
def test_an_invalid_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(KafkaError) as refused:
        filter_of(ListTransactionsRequest(transactional_id_pattern=pattern))
    assert refused.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION


def test_a_transaction_is_described_with_its_partitions() -> None:
    shard = three_transactions()
    found = shard.execute(shard.machine.describe("orders-1"))
    assert (found.error_code, found.transactional_id, found.transaction_state) == (0, "orders-1", "Ongoing")
    assert (found.transaction_timeout_ms, found.transaction_start_time_ms) == (60_000, shard.clock.now_ms() - 1_000)
    assert (found.producer_id, found.producer_epoch) == (FIRST, 0)
    assert found.topics == [TopicData("s", [3]), TopicData("t", [0, 1])]


@pytest.mark.parametrize(
    ("name", "code"), [("unknown", ErrorCode.TRANSACTIONAL_ID_NOT_FOUND), ("", ErrorCode.INVALID_REQUEST)]
)
def test_an_unknown_or_empty_transactional_id_is_refused(name: str, code: ErrorCode) -> None:
    shard = three_transactions()
    found = shard.execute(shard.machine.describe(name))
    assert (found.error_code, found.transactional_id, found.topics) == (code, name, ())


def test_a_listing_waits_for_uncommitted_records() -> None:
    shard = three_transactions()
    shard.is_committing = False
    shard.init("new")
    listed = list_all(shard, ListTransactionsRequest())
    assert not listed.done
    shard.commit()
    assert [each.transactional_id for each in listed.value()] == [*ALL, "new"]
