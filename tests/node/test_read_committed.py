"""read_committed fetches: the aborted transactions in the response, and when a waiting fetch is woken."""

from __future__ import annotations

from typing import Any

import pytest
from harness.fetch_requests import Key, fetch, immediate, parked, partition_results
from harness.in_memory_node import InMemoryNode
from harness.transactional_writes import append_as_producer, append_marker

from moldau.base.errors import ErrorCode, KafkaError, StorageFault
from moldau.base.promise import Promise
from moldau.log import rebuild
from moldau.log.log import Log
from moldau.replica.partition import Partition
from moldau.server.handler import Caller
from moldau.server.handlers.list_offsets import ListOffsets
from moldau.testing.ports import at_once
from moldau.wire.messages.fetch import FetchResponse, PartitionData
from moldau.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

A: Key = ("a", 0)
B: Key = ("a", 1)


@pytest.fixture
def node() -> InMemoryNode:
    node = InMemoryNode().start()
    node.create_topic("a", 2)
    node.timers.run_soon()
    return node


@pytest.fixture
def partition(node: InMemoryNode) -> Partition:
    return node.partition("a")


def fetch_committed(node: InMemoryNode, positions: dict[Key, int] | None = None, **kwargs: Any) -> Any:
    return fetch(node, positions, isolation_level=1, **kwargs)


def partition_data(answer: FetchResponse | Promise[FetchResponse], key: Key = A) -> PartitionData:
    response = answer.value() if isinstance(answer, Promise) else answer
    return next(each for topic in response.responses for each in topic.partitions if each.partition_index == key[1])


def aborted(answer: FetchResponse | Promise[FetchResponse]) -> list[tuple[int, int]] | None:
    transactions = partition_data(answer).aborted_transactions
    return None if transactions is None else [(each.producer_id, each.first_offset) for each in transactions]


def test_read_committed_responses_list_aborted_transactions(node: InMemoryNode, partition: Partition) -> None:
    append_as_producer(partition, 1, 0)
    append_as_producer(partition, 2, 0)
    append_marker(partition, 2, commit=False)
    append_marker(partition, 1, commit=False)
    append_as_producer(partition, 3, 0)
    append_marker(partition, 3, commit=True)
    assert aborted(fetch_committed(node, {A: 0})) == [(1, 0), (2, 1)], "ordered by first offset, not by marker"
    assert aborted(fetch_committed(node, {A: 3})) == [(1, 0)], "its marker is in the records that are read"
    assert aborted(fetch_committed(node, {A: 4})) == []
    assert aborted(fetch_committed(node, {A: 6})) == []
    assert aborted(fetch(node, {A: 0})) is None


def test_read_committed_does_not_return_open_transactions(node: InMemoryNode, partition: Partition) -> None:
    size = node.append("a")
    append_as_producer(partition, 1, 0)
    data = partition_data(fetch_committed(node, {A: 0}))
    assert (data.high_watermark, data.last_stable_offset) == (2, 1)
    assert partition_results(fetch_committed(node, {A: 0}))[A].size == size
    assert partition_results(fetch(node, {A: 0}))[A].size > size
    assert partition_results(fetch_committed(node, {A: 1}))[A] == (0, 2, 0, 0), (
        "beyond the last stable offset there is nothing yet"
    )


def test_deleting_records_of_an_open_transaction_leaves_the_rest_hidden(
    node: InMemoryNode, partition: Partition
) -> None:
    append_as_producer(partition, 1, 0)
    append_as_producer(partition, 1, 1)
    partition.delete_records(1)
    data = partition_data(fetch_committed(node, {A: 1}))
    assert (data.log_start_offset, data.last_stable_offset, data.high_watermark) == (1, 1, 2)


# --- waiting ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("in_session", [False, True])
def test_a_marker_wakes_a_fetch_that_waits_for_the_transactions_records(
    node: InMemoryNode, partition: Partition, in_session: bool
) -> None:
    """The marker itself is small, but the records that become readable are not."""
    append_as_producer(partition, 1, 0, size=2_000)
    if in_session:
        session = immediate(fetch_committed(node, {A: 0}, epoch=0)).session_id
        answer = parked(fetch_committed(node, session=session, epoch=1, wait_ms=500, min_bytes=1_000))
    else:
        answer = parked(fetch_committed(node, {A: 0}, wait_ms=500, min_bytes=1_000))
    append_marker(partition, 1, commit=True)
    node.timers.run_soon()
    assert partition_results(answer)[A].size > 2_000


def test_records_of_an_open_transaction_wake_no_fetch(node: InMemoryNode, partition: Partition) -> None:
    answer = parked(fetch_committed(node, {A: 0}, wait_ms=500))
    for sequence in range(5):
        append_as_producer(partition, 1, sequence)
        assert node.timers.run_soon() == 0, "the fetch is not evaluated again"
    append_marker(partition, 1, commit=True)
    assert node.timers.run_soon() == 1
    assert partition_data(answer).last_stable_offset == 6


def test_read_uncommitted_is_woken_by_open_transactions(node: InMemoryNode, partition: Partition) -> None:
    answer = parked(fetch(node, {A: 0}, wait_ms=500))
    append_as_producer(partition, 1, 0)
    node.timers.run_soon()
    assert partition_results(answer)[A].size > 0


def test_a_transaction_ended_while_a_fetch_waits_counts_with_all_its_records(
    node: InMemoryNode, partition: Partition
) -> None:
    answer = parked(fetch_committed(node, {A: 0}, wait_ms=500, min_bytes=1_000))
    append_as_producer(partition, 1, 0, size=600)
    append_as_producer(partition, 1, 1, size=600)
    node.timers.run_soon()
    assert not answer.done
    append_marker(partition, 1, commit=True)
    node.timers.run_soon()
    assert partition_results(answer)[A].size > 1_200


def test_only_records_before_an_open_transaction_count_for_min_bytes(node: InMemoryNode, partition: Partition) -> None:
    size = node.append("a")
    answer = parked(fetch_committed(node, {A: 0}, wait_ms=500, min_bytes=3 * size))
    append_as_producer(partition, 1, 0, size=5_000)
    node.timers.run_soon()
    assert not answer.done, "one record is less than min_bytes, and the rest is hidden"
    for _ in range(3):
        node.append("a")
    assert node.timers.run_soon() == 0
    append_marker(partition, 1, commit=False)
    node.timers.run_soon()
    assert partition_results(answer)[A].size > 5_000 + 4 * size


def test_an_evaluation_with_too_little_data_keeps_the_byte_count(node: InMemoryNode, partition: Partition) -> None:
    """Records made readable by a marker count from then on, although they were never appended as readable."""
    append_as_producer(partition, 1, 0, size=500)
    answer = parked(fetch_committed(node, {A: 0}, wait_ms=500, min_bytes=1_000))
    append_marker(partition, 1, commit=True)
    assert node.timers.run_soon() == 1
    assert not answer.done, "too little"
    assert node.append("a", size=10) < 200
    assert node.timers.run_soon() == 0, "still too little, which is known without an evaluation"
    node.append("a", size=300)
    node.timers.run_soon()
    assert partition_results(answer)[A].size >= 1_000


@pytest.mark.parametrize("error", [KafkaError(ErrorCode.CORRUPT_MESSAGE), StorageFault("a-0", OSError(5, "broken"))])
def test_an_unreadable_log_fails_the_waiting_fetch_and_not_the_append(
    node: InMemoryNode, partition: Partition, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    append_as_producer(partition, 1, 0)
    answer = parked(fetch_committed(node, {A: 0}, wait_ms=500))

    def fail(log: Log, high_watermark: int) -> int:
        raise error

    monkeypatch.setattr(Log, "last_stable_offset", fail)
    append_as_producer(partition, 1, 1)
    node.timers.run_soon()
    assert partition_data(answer).error_code in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.KAFKA_STORAGE_ERROR)


def test_a_session_gets_its_records_although_the_last_stable_offset_is_still_searched_for(
    node: InMemoryNode, partition: Partition, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rebuild, "LISTED_A_TURN", 2)
    for sequence in range(10):
        append_as_producer(partition, 1, sequence)
        append_marker(partition, 1, commit=True)
    # As after a restart of a leader whose followers are away: the producers' state is that of a snapshot at the end.
    partition.log.producers.ended_known_from = partition.log.end_offset
    partition.high_watermark = 6
    opened = immediate(fetch_committed(node, {A: 0}, epoch=0))
    fetches = 0
    answer = opened
    while not any(data.records for topic in answer.responses for data in topic.partitions):
        fetches += 1
        assert fetches < 20, "the session is never served"
        answer = immediate(fetch_committed(node, session=opened.session_id, epoch=fetches))


def test_the_older_of_two_open_transactions_hides_both(node: InMemoryNode, partition: Partition) -> None:
    append_as_producer(partition, 1, 0, size=100)
    append_as_producer(partition, 2, 0, size=100)
    answer = parked(fetch_committed(node, {A: 0}, wait_ms=500))
    append_marker(partition, 2, commit=True)
    assert node.timers.run_soon() == 0, "the older one still hides both"
    append_marker(partition, 1, commit=True)
    node.timers.run_soon()
    assert partition_data(answer).last_stable_offset == 4


def test_an_open_transaction_does_not_hide_other_partitions(node: InMemoryNode, partition: Partition) -> None:
    append_as_producer(partition, 1, 0)
    answer = parked(fetch_committed(node, {A: 0, B: 0}, wait_ms=500))
    size = node.append("a", 1)
    node.timers.run_soon()
    assert partition_results(answer)[B].size == size


def test_a_fetch_that_waits_for_a_marker_fails_when_the_topic_is_deleted(
    node: InMemoryNode, partition: Partition
) -> None:
    append_as_producer(partition, 1, 0)
    answer = parked(fetch_committed(node, {A: 0}, wait_ms=500))
    node.delete_topic("a")
    node.timers.run_soon()
    assert partition_data(answer).error_code


def test_ended_transactions_are_dropped_when_the_high_watermark_passes_them(
    node: InMemoryNode, partition: Partition
) -> None:
    for sequence in range(20):
        append_as_producer(partition, 1, sequence)
        append_marker(partition, 1, commit=True)
    assert not partition.log.producers.unreplicated, "dropped although there was no reader"


# --- offsets ----------------------------------------------------------------------------------------------------


def list_offset(node: InMemoryNode, timestamp: int, isolation_level: int) -> tuple[int, int]:
    request = ListOffsetsRequest(-1, isolation_level, [ListOffsetsTopic("a", [ListOffsetsPartition(0, -1, timestamp)])])
    answer = ListOffsets(node.partitions, node.timers, at_once).answer(
        request, Caller("PLAINTEXT", "test:1", "test", 9)
    )
    result = answer.topics[0].partitions[0]
    assert not result.error_code
    return result.offset, result.leader_epoch


def test_the_latest_offset_is_the_end_of_the_readable_records(node: InMemoryNode, partition: Partition) -> None:
    node.append("a")
    append_as_producer(partition, 1, 0)
    assert list_offset(node, -1, 0)[0] == 2
    assert list_offset(node, -1, 1)[0] == 1
    assert list_offset(node, node.clock.now_ms(), 1)[0] == 0
    partition.delete_records(1)
    assert list_offset(node, node.clock.now_ms(), 0)[0] == 1
    assert list_offset(node, node.clock.now_ms(), 1) == (-1, -1), "records of an open transaction have no timestamp yet"
    append_marker(partition, 1, commit=True)
    assert list_offset(node, -1, 1)[0] == 3


def test_the_epoch_of_the_latest_offset_is_the_leaders(node: InMemoryNode, partition: Partition) -> None:
    append_as_producer(partition, 1, 0)
    first = partition.state.leader_epoch
    node = node.restart()
    partition = node.partition("a")
    assert partition.state.leader_epoch > first
    assert list_offset(node, -1, 1) == (0, partition.state.leader_epoch)
    assert list_offset(node, -2, 1) == (0, first)
