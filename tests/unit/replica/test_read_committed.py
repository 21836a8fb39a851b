"""Readers of committed data: what they are told of aborted transactions, and when a fetch that waits is woken."""

from __future__ import annotations

from typing import Any

import pytest
from fetch_requests import Key, fetch, immediate, parked, partition_results
from in_memory_node import InMemoryNode
from transactional_writes import append_as_producer, append_marker

from moldau.base.promise import Promise
from moldau.replica.partition import Partition
from moldau.server.handlers.list_offsets import ListOffsets
from moldau.server.router import Caller
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


def committed(node: InMemoryNode, positions: dict[Key, int] | None = None, **kwargs: Any) -> Any:
    return fetch(node, positions, isolation_level=1, **kwargs)


def told(answer: FetchResponse | Promise[FetchResponse], key: Key = A) -> PartitionData:
    response = answer.value() if isinstance(answer, Promise) else answer
    return next(each for topic in response.responses for each in topic.partitions if each.partition_index == key[1])


def aborted(answer: FetchResponse | Promise[FetchResponse]) -> list[tuple[int, int]] | None:
    found = told(answer).aborted_transactions
    return None if found is None else [(each.producer_id, each.first_offset) for each in found]


def test_aborted_transactions_are_told_to_who_reads_committed_data(node: InMemoryNode, partition: Partition) -> None:
    append_as_producer(partition, 1, 0)
    append_as_producer(partition, 2, 0)
    append_marker(partition, 2, commit=False)
    append_marker(partition, 1, commit=False)
    append_as_producer(partition, 3, 0)
    append_marker(partition, 3, commit=True)
    assert aborted(committed(node, {A: 0})) == [(1, 0), (2, 1)], "by first offset, not by marker"
    assert aborted(committed(node, {A: 3})) == [(1, 0)], "its marker is in what is read"
    assert aborted(committed(node, {A: 4})) == []
    assert aborted(committed(node, {A: 6})) == []
    assert aborted(fetch(node, {A: 0})) is None


def test_nobody_who_reads_committed_data_sees_what_is_open(node: InMemoryNode, partition: Partition) -> None:
    size = node.append("a")
    append_as_producer(partition, 1, 0)
    data = told(committed(node, {A: 0}))
    assert (data.high_watermark, data.last_stable_offset) == (2, 1)
    assert partition_results(committed(node, {A: 0}))[A].size == size
    assert partition_results(fetch(node, {A: 0}))[A].size > size
    assert partition_results(committed(node, {A: 1}))[A] == (0, 2, 0, 0), "past what is stable there is nothing yet"


def test_deleting_records_of_an_open_transaction_leaves_the_rest_hidden(
    node: InMemoryNode, partition: Partition
) -> None:
    append_as_producer(partition, 1, 0)
    append_as_producer(partition, 1, 1)
    partition.delete_records(1)
    data = told(committed(node, {A: 1}))
    assert (data.log_start_offset, data.last_stable_offset, data.high_watermark) == (1, 1, 2)


# --- waiting ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("in_session", [False, True])
def test_a_marker_wakes_who_could_not_read_what_was_there(
    node: InMemoryNode, partition: Partition, in_session: bool
) -> None:
    """The marker itself is small; what it uncovers is not."""
    append_as_producer(partition, 1, 0, size=2_000)
    if in_session:
        session = immediate(committed(node, {A: 0}, epoch=0)).session_id
        answer = parked(committed(node, session=session, epoch=1, wait_ms=500, min_bytes=1_000))
    else:
        answer = parked(committed(node, {A: 0}, wait_ms=500, min_bytes=1_000))
    append_marker(partition, 1, commit=True)
    node.timers.run_soon()
    assert partition_results(answer)[A].size > 2_000


def test_what_is_hidden_wakes_nobody(node: InMemoryNode, partition: Partition) -> None:
    answer = parked(committed(node, {A: 0}, wait_ms=500))
    for sequence in range(5):
        append_as_producer(partition, 1, sequence)
        assert node.timers.run_soon() == 0, "it is not even looked at"
    append_marker(partition, 1, commit=True)
    assert node.timers.run_soon() == 1
    assert told(answer).last_stable_offset == 6


def test_who_reads_all_is_woken_all_the_same(node: InMemoryNode, partition: Partition) -> None:
    answer = parked(fetch(node, {A: 0}, wait_ms=500))
    append_as_producer(partition, 1, 0)
    node.timers.run_soon()
    assert partition_results(answer)[A].size > 0


def test_a_transaction_that_comes_and_goes_while_somebody_waits_counts_whole(
    node: InMemoryNode, partition: Partition
) -> None:
    answer = parked(committed(node, {A: 0}, wait_ms=500, min_bytes=1_000))
    append_as_producer(partition, 1, 0, size=600)
    append_as_producer(partition, 1, 1, size=600)
    node.timers.run_soon()
    assert not answer.done
    append_marker(partition, 1, commit=True)
    node.timers.run_soon()
    assert partition_results(answer)[A].size > 1_200


def test_what_is_readable_before_an_open_transaction_is_counted_alone(node: InMemoryNode, partition: Partition) -> None:
    size = node.append("a")
    answer = parked(committed(node, {A: 0}, wait_ms=500, min_bytes=3 * size))
    append_as_producer(partition, 1, 0, size=5_000)
    node.timers.run_soon()
    assert not answer.done, "one record is too few, and the rest is hidden"
    for _ in range(3):
        node.append("a")
    assert node.timers.run_soon() == 0
    append_marker(partition, 1, commit=False)
    node.timers.run_soon()
    assert partition_results(answer)[A].size > 5_000 + 4 * size


def test_a_look_in_vain_does_not_spoil_the_count(node: InMemoryNode, partition: Partition) -> None:
    """What a marker has uncovered counts from then on, though it was never told as new."""
    append_as_producer(partition, 1, 0, size=500)
    answer = parked(committed(node, {A: 0}, wait_ms=500, min_bytes=1_000))
    append_marker(partition, 1, commit=True)
    assert node.timers.run_soon() == 1
    assert not answer.done, "too little"
    assert node.append("a", size=10) < 200
    assert node.timers.run_soon() == 0, "still too little, and that is known without a look"
    node.append("a", size=300)
    node.timers.run_soon()
    assert partition_results(answer)[A].size >= 1_000


def test_one_of_two_open_transactions_ends(node: InMemoryNode, partition: Partition) -> None:
    append_as_producer(partition, 1, 0, size=100)
    append_as_producer(partition, 2, 0, size=100)
    answer = parked(committed(node, {A: 0}, wait_ms=500))
    append_marker(partition, 2, commit=True)
    assert node.timers.run_soon() == 0, "the older one still hides both"
    append_marker(partition, 1, commit=True)
    node.timers.run_soon()
    assert told(answer).last_stable_offset == 4


def test_an_open_transaction_does_not_hide_other_partitions(node: InMemoryNode, partition: Partition) -> None:
    append_as_producer(partition, 1, 0)
    answer = parked(committed(node, {A: 0, B: 0}, wait_ms=500))
    size = node.append("a", 1)
    node.timers.run_soon()
    assert partition_results(answer)[B].size == size


def test_who_waits_for_a_marker_hears_that_the_partition_is_gone(node: InMemoryNode, partition: Partition) -> None:
    append_as_producer(partition, 1, 0)
    answer = parked(committed(node, {A: 0}, wait_ms=500))
    node.delete_topic("a")
    node.timers.run_soon()
    assert told(answer).error_code


def test_ended_transactions_are_forgotten_as_the_high_watermark_passes(
    node: InMemoryNode, partition: Partition
) -> None:
    for sequence in range(20):
        append_as_producer(partition, 1, sequence)
        append_marker(partition, 1, commit=True)
    assert not partition.log.producers.unreplicated, "though nobody has ever read"


# --- offsets ----------------------------------------------------------------------------------------------------


def list_offset(node: InMemoryNode, timestamp: int, isolation_level: int) -> tuple[int, int]:
    request = ListOffsetsRequest(-1, isolation_level, [ListOffsetsTopic("a", [ListOffsetsPartition(0, -1, timestamp)])])
    answer = ListOffsets(node.partitions).answer(request, Caller("PLAINTEXT", "test:1", "test", 9))
    found = answer.topics[0].partitions[0]
    assert not found.error_code
    return found.offset, found.leader_epoch


def test_the_latest_offset_is_what_may_be_read(node: InMemoryNode, partition: Partition) -> None:
    node.append("a")
    append_as_producer(partition, 1, 0)
    assert list_offset(node, -1, 0)[0] == 2
    assert list_offset(node, -1, 1)[0] == 1
    assert list_offset(node, node.clock.now_ms(), 1)[0] == 0
    partition.delete_records(1)
    assert list_offset(node, node.clock.now_ms(), 0)[0] == 1
    assert list_offset(node, node.clock.now_ms(), 1) == (-1, -1), "what is open has no time yet"
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
