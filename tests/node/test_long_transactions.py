"""The transaction coordinator handles long requests, and expires ids, in turns of the event loop."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from harness.coordinator_node import PUBLIC, CoordinatorNode
from harness.operations import operations_of

from moldau.base.errors import ErrorCode
from moldau.base.ids import TopicPartition
from moldau.base.turns import ITEMS_A_TURN
from moldau.coordinator.transaction import initializing
from moldau.coordinator.transaction.transaction import State
from moldau.wire.apis import ApiKey
from moldau.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from moldau.wire.messages.describe_transactions import DescribeTransactionsRequest
from moldau.wire.messages.init_producer_id import InitProducerIdRequest
from moldau.wire.messages.list_transactions import ListTransactionsRequest
from moldau.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from moldau.wire.schema import Message

LINES_A_TURN = 80_000
"""A turn of 20 ms executes some 200,000 lines."""
IDS = 4_000
TOPICS = 1_500
EIGHT_DAYS_MS = 8 * 24 * 3_600_000
"""More than `transactional.id.expiration.ms`."""


def turns_and_response(node: CoordinatorNode, api: ApiKey, request: Message, version: int) -> tuple[list[int], Any]:
    """Return the lines of each turn until the request is answered, also those of the log, and the response."""
    replies: list[Any] = []
    turns = [operations_of(lambda: replies.append(node.begin(api, request, version)))]
    timers = node.in_memory.timers
    while not replies[0].done:
        turns.append(operations_of(timers.run_one_soon if timers._soon else node.in_memory.flush))
    return turns, replies[0].value()


def add_unused_transactional_ids(node: CoordinatorNode) -> None:
    """Give the coordinator many transactional ids that are not used."""
    shards, now_ms = node.transactions.shards, node.in_memory.clock.now_ms()
    for number in range(IDS):
        each = f"id-{number}"
        shards.machine_of(each).transactions[each] = initializing.create(each, number, 60_000, now_ms)


def test_transactional_ids_expire_in_turns() -> None:
    node = CoordinatorNode()
    add_unused_transactional_ids(node)
    coordinator = node.transactions
    node.in_memory.clock.move(EIGHT_DAYS_MS)
    turns = [operations_of(coordinator.expire)]
    assert operations_of(coordinator.expire) < 20, "a second expiration does not begin before the first has ended"
    reply = node.begin(ApiKey.INIT_PRODUCER_ID, InitProducerIdRequest(f"id-{IDS - 1}", 60_000), 5)
    while coordinator.shards._submitting is not None and coordinator.shards._submitting.is_running:
        turns.append(operations_of(node.in_memory.timers.run_one_soon))
    assert max(turns) < LINES_A_TURN
    assert len(turns) > IDS // ITEMS_A_TURN
    node.run_until_idle()
    assert reply.value().error_code == ErrorCode.NONE
    left = [each for machine in coordinator.shards.machines() for each in machine.transactions]
    assert left == [f"id-{IDS - 1}"], "it was used meanwhile"


# --- AddPartitionsToTxn -----------------------------------------------------------------------------------------


def long_topics() -> list[AddPartitionsToTxnTopic]:
    return [AddPartitionsToTxnTopic(PUBLIC, [0] * 25)] * TOPICS


@pytest.mark.parametrize("epoch", [0, 7])
def test_the_results_of_many_added_partitions_are_built_in_turns(epoch: int) -> None:
    node = CoordinatorNode()
    producer = node.ask_as_admin(ApiKey.INIT_PRODUCER_ID, InitProducerIdRequest("tx", 60_000), 5)
    request = AddPartitionsToTxnRequest((), "tx", producer.producer_id, epoch, long_topics())
    turns, response = turns_and_response(node, ApiKey.ADD_PARTITIONS_TO_TXN, request, 3)
    assert max(turns) < LINES_A_TURN
    assert len(turns) > TOPICS * 25 // 1_500
    topics = response.results_by_topic_v3_and_below
    assert [topic.name for topic in topics] == [PUBLIC] * TOPICS
    codes = [each.partition_error_code for topic in topics for each in topic.results_by_partition]
    assert codes == [ErrorCode.NONE if epoch == 0 else ErrorCode.PRODUCER_FENCED] * 25 * TOPICS


def test_the_results_of_many_transactions_are_built_in_turns() -> None:
    """Some add partitions and wait for the log, and some verify them."""
    node = CoordinatorNode()
    producer = node.ask_as_admin(ApiKey.INIT_PRODUCER_ID, InitProducerIdRequest("tx", 60_000), 5)
    topics = long_topics()
    transactions = [
        AddPartitionsToTxnTransaction("tx", producer.producer_id, producer.producer_epoch, verify_only, each)
        for verify_only, each in ((False, topics[:1]), (True, topics[: TOPICS // 2]), (False, topics[: TOPICS // 2]))
    ]
    request = AddPartitionsToTxnRequest(transactions)
    turns, response = turns_and_response(node, ApiKey.ADD_PARTITIONS_TO_TXN, request, 5)
    assert max(turns) < LINES_A_TURN
    assert [len(each.topic_results) for each in response.results_by_transaction] == [1, TOPICS // 2, TOPICS // 2]
    codes = {
        each.partition_error_code
        for result in response.results_by_transaction
        for topic in result.topic_results
        for each in topic.results_by_partition
    }
    assert codes == {ErrorCode.NONE}


# --- TxnOffsetCommit --------------------------------------------------------------------------------------------


def long_commit(name: str, producer_id: int, epoch: int) -> TxnOffsetCommitRequest:
    partitions = [TxnOffsetCommitRequestPartition(1, 5, -1, "")] * 25
    topics = [TxnOffsetCommitRequestTopic(name, partitions)] * TOPICS
    return TxnOffsetCommitRequest("tx", "g", producer_id, epoch, topics=topics)


def codes_of_commit(response: TxnOffsetCommitResponse) -> set[int]:
    assert len(response.topics) == TOPICS
    assert all(len(topic.partitions) == 25 for topic in response.topics)
    return {each.error_code for topic in response.topics for each in topic.partitions}


@pytest.mark.parametrize(
    ("name", "code"),
    [("missing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), (PUBLIC, ErrorCode.INVALID_PRODUCER_ID_MAPPING)],
)
def test_offsets_that_cannot_be_committed_are_refused_in_turns(name: str, code: ErrorCode) -> None:
    node = CoordinatorNode()
    request = long_commit(name, 4_711, 0)
    turns, response = turns_and_response(node, ApiKey.TXN_OFFSET_COMMIT, request, 5)
    assert max(turns) < LINES_A_TURN
    assert codes_of_commit(response) == {code}


def test_the_time_of_a_late_refusal_is_charged() -> None:
    """For the quota `request_percentage`."""
    node = CoordinatorNode()
    reply = node.begin(ApiKey.TXN_OFFSET_COMMIT, long_commit(PUBLIC, 4_711, 0), 5)
    timers = node.in_memory.timers
    while not reply.handled.done:
        timers.run_one_soon()
    assert not reply.done, "the coordinator of the transaction is asked"
    took_s = reply.took_s
    node.run_until_idle()
    assert codes_of_commit(reply.value()) == {ErrorCode.INVALID_PRODUCER_ID_MAPPING}
    assert reply.took_s > took_s


def test_no_offset_is_committed_if_the_only_topic_is_deleted_meanwhile() -> None:
    node = CoordinatorNode()
    producer = node.ask_as_admin(ApiKey.INIT_PRODUCER_ID, InitProducerIdRequest("tx", 60_000), 5)
    request = long_commit(PUBLIC, producer.producer_id, producer.producer_epoch)
    reply = node.begin(ApiKey.TXN_OFFSET_COMMIT, request, 5)
    for _ in range(5):
        node.in_memory.timers.run_one_soon()
    before = node.end_offsets()[:2]
    node.in_memory.delete_topic(PUBLIC)
    turns = []
    while not reply.done:
        timers = node.in_memory.timers
        turns.append(operations_of(timers.run_one_soon if timers._soon else node.in_memory.flush))
    assert max(turns) < LINES_A_TURN
    assert codes_of_commit(reply.value()) == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    node.run_until_idle()
    assert node.end_offsets()[:2] == before, "nothing is in the log of the offsets"


# --- ListTransactions -------------------------------------------------------------------------------------------


def test_list_transactions_lists_many_transactions_in_turns() -> None:
    node = CoordinatorNode()
    add_unused_transactional_ids(node)
    request = ListTransactionsRequest(state_filters=["Empty", "Strange"])
    turns, response = turns_and_response(node, ApiKey.LIST_TRANSACTIONS, request, 1)
    assert max(turns) < LINES_A_TURN // 2
    assert len(turns) > IDS // 1_000
    assert response.unknown_state_filters == ("Strange",)
    names = [each.transactional_id for each in response.transaction_states]
    assert sorted(names) == sorted(f"id-{number}" for number in range(IDS))


@pytest.mark.needs_re2
def test_list_transactions_leaves_out_an_id_that_is_removed_meanwhile() -> None:
    node = CoordinatorNode()
    add_unused_transactional_ids(node)
    reply = node.begin(ApiKey.LIST_TRANSACTIONS, ListTransactionsRequest(transactional_id_pattern="id-39.*"), 2)
    removed = f"id-{IDS - 1}"
    node.transactions.shards.machine_of(removed).transactions.pop(removed)
    node.run_until_idle()
    names = {each.transactional_id for each in reply.value().transaction_states}
    assert removed not in names
    assert len(names) == 110, "39, 390 to 399 and 3900 to 3998"


def test_list_transactions_waits_until_the_state_it_read_is_committed() -> None:
    node = CoordinatorNode()
    node.ask_as_admin(ApiKey.INIT_PRODUCER_ID, InitProducerIdRequest("tx", 60_000), 5)
    initialized = node.begin(ApiKey.INIT_PRODUCER_ID, InitProducerIdRequest("new", 60_000), 5)
    reply = node.begin(ApiKey.LIST_TRANSACTIONS, ListTransactionsRequest(), 1)
    assert not initialized.done
    assert not reply.done
    node.run_until_idle()
    assert {each.transactional_id for each in reply.value().transaction_states} == {"tx", "new"}


def test_list_transactions_fails_if_a_shard_is_dropped_meanwhile() -> None:
    node = CoordinatorNode()
    add_unused_transactional_ids(node)
    reply = node.begin(ApiKey.LIST_TRANSACTIONS, ListTransactionsRequest(), 1)
    node.transactions.close()
    node.run_until_idle()
    assert reply.value().error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_list_transactions_leaves_out_a_shard_that_moves_away_meanwhile() -> None:
    node = CoordinatorNode()
    node.ask_as_admin(ApiKey.INIT_PRODUCER_ID, InitProducerIdRequest("tx", 60_000), 5)
    node.begin(ApiKey.INIT_PRODUCER_ID, InitProducerIdRequest("new", 60_000), 5)
    reply = node.begin(ApiKey.LIST_TRANSACTIONS, ListTransactionsRequest(), 1)
    assert not reply.done
    node.transactions.shards.close(ErrorCode.NOT_COORDINATOR)
    assert reply.value().error_code == ErrorCode.NONE


# --- DescribeTransactions ---------------------------------------------------------------------------------------


def test_transactions_with_many_partitions_are_described_in_turns() -> None:
    node = CoordinatorNode()
    shards, now_ms = node.transactions.shards, node.in_memory.clock.now_ms()
    partitions = frozenset(TopicPartition(PUBLIC, index) for index in range(1_000))
    names = [f"id-{number}" for number in range(150)]
    for number, name in enumerate(names):
        created = initializing.create(name, number, 60_000, now_ms)
        shards.machine_of(name).transactions[name] = replace(created, state=State.ONGOING, partitions=partitions)
    turns, response = turns_and_response(node, ApiKey.DESCRIBE_TRANSACTIONS, DescribeTransactionsRequest(names), 0)
    assert max(turns) < LINES_A_TURN
    described = response.transaction_states
    assert [each.transactional_id for each in described] == names
    assert {len(topic.partitions) for each in described for topic in each.topics} == {1_000}
