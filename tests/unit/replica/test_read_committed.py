"""Readers of committed data: what they are told of aborted transactions, and when a fetch that waits is woken."""

from __future__ import annotations

from typing import Any

import pytest
from fetching import Key, fetch, now, shown, waiting
from rooms import Rooms
from transacting import end, write

from moldau.base.promise import Promise
from moldau.replica.partition import Partition
from moldau.server.handlers.list_offsets import ListOffsets
from moldau.server.router import Caller
from moldau.wire.messages.fetch import FetchResponse, PartitionData
from moldau.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

A: Key = ("a", 0)
B: Key = ("a", 1)


@pytest.fixture
def rooms() -> Rooms:
    rooms = Rooms().start()
    rooms.create_topic("a", 2)
    rooms.timers.run_soon()
    return rooms


@pytest.fixture
def partition(rooms: Rooms) -> Partition:
    return rooms.partition("a")


def committed(rooms: Rooms, positions: dict[Key, int] | None = None, **kwargs: Any) -> Any:
    return fetch(rooms, positions, isolation_level=1, **kwargs)


def told(answer: FetchResponse | Promise[FetchResponse], key: Key = A) -> PartitionData:
    response = answer.value() if isinstance(answer, Promise) else answer
    return next(each for topic in response.responses for each in topic.partitions if each.partition_index == key[1])


def aborted(answer: FetchResponse | Promise[FetchResponse]) -> list[tuple[int, int]] | None:
    found = told(answer).aborted_transactions
    return None if found is None else [(each.producer_id, each.first_offset) for each in found]


def test_aborted_transactions_are_told_to_who_reads_committed_data(rooms: Rooms, partition: Partition) -> None:
    write(partition, 1, 0)
    write(partition, 2, 0)
    end(partition, 2, commit=False)
    end(partition, 1, commit=False)
    write(partition, 3, 0)
    end(partition, 3, commit=True)
    assert aborted(committed(rooms, {A: 0})) == [(1, 0), (2, 1)], "by first offset, not by marker"
    assert aborted(committed(rooms, {A: 3})) == [(1, 0)], "its marker is in what is read"
    assert aborted(committed(rooms, {A: 4})) == []
    assert aborted(committed(rooms, {A: 6})) == []
    assert aborted(fetch(rooms, {A: 0})) is None


def test_nobody_who_reads_committed_data_sees_what_is_open(rooms: Rooms, partition: Partition) -> None:
    size = rooms.append("a")
    write(partition, 1, 0)
    data = told(committed(rooms, {A: 0}))
    assert (data.high_watermark, data.last_stable_offset) == (2, 1)
    assert shown(committed(rooms, {A: 0}))[A].size == size
    assert shown(fetch(rooms, {A: 0}))[A].size > size
    assert shown(committed(rooms, {A: 1}))[A] == (0, 2, 0, 0), "past what is stable there is nothing yet"


def test_deleting_records_of_an_open_transaction_leaves_the_rest_hidden(rooms: Rooms, partition: Partition) -> None:
    write(partition, 1, 0)
    write(partition, 1, 1)
    partition.delete_records(1)
    data = told(committed(rooms, {A: 1}))
    assert (data.log_start_offset, data.last_stable_offset, data.high_watermark) == (1, 1, 2)


# --- waiting ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("in_session", [False, True])
def test_a_marker_wakes_who_could_not_read_what_was_there(rooms: Rooms, partition: Partition, in_session: bool) -> None:
    """The marker itself is small; what it uncovers is not."""
    write(partition, 1, 0, size=2_000)
    if in_session:
        session = now(committed(rooms, {A: 0}, epoch=0)).session_id
        answer = waiting(committed(rooms, session=session, epoch=1, wait_ms=500, min_bytes=1_000))
    else:
        answer = waiting(committed(rooms, {A: 0}, wait_ms=500, min_bytes=1_000))
    end(partition, 1, commit=True)
    rooms.timers.run_soon()
    assert shown(answer)[A].size > 2_000


def test_what_is_hidden_wakes_nobody(rooms: Rooms, partition: Partition) -> None:
    answer = waiting(committed(rooms, {A: 0}, wait_ms=500))
    for sequence in range(5):
        write(partition, 1, sequence)
        assert rooms.timers.run_soon() == 0, "it is not even looked at"
    end(partition, 1, commit=True)
    assert rooms.timers.run_soon() == 1
    assert told(answer).last_stable_offset == 6


def test_who_reads_all_is_woken_all_the_same(rooms: Rooms, partition: Partition) -> None:
    answer = waiting(fetch(rooms, {A: 0}, wait_ms=500))
    write(partition, 1, 0)
    rooms.timers.run_soon()
    assert shown(answer)[A].size > 0


def test_a_transaction_that_comes_and_goes_while_somebody_waits_counts_whole(
    rooms: Rooms, partition: Partition
) -> None:
    answer = waiting(committed(rooms, {A: 0}, wait_ms=500, min_bytes=1_000))
    write(partition, 1, 0, size=600)
    write(partition, 1, 1, size=600)
    rooms.timers.run_soon()
    assert not answer.done
    end(partition, 1, commit=True)
    rooms.timers.run_soon()
    assert shown(answer)[A].size > 1_200


def test_what_is_readable_before_an_open_transaction_is_counted_alone(rooms: Rooms, partition: Partition) -> None:
    size = rooms.append("a")
    answer = waiting(committed(rooms, {A: 0}, wait_ms=500, min_bytes=3 * size))
    write(partition, 1, 0, size=5_000)
    rooms.timers.run_soon()
    assert not answer.done, "one record is too few, and the rest is hidden"
    for _ in range(3):
        rooms.append("a")
    assert rooms.timers.run_soon() == 0
    end(partition, 1, commit=False)
    rooms.timers.run_soon()
    assert shown(answer)[A].size > 5_000 + 4 * size


def test_a_look_in_vain_does_not_spoil_the_count(rooms: Rooms, partition: Partition) -> None:
    """What a marker has uncovered counts from then on, though it was never told as new."""
    write(partition, 1, 0, size=500)
    answer = waiting(committed(rooms, {A: 0}, wait_ms=500, min_bytes=1_000))
    end(partition, 1, commit=True)
    assert rooms.timers.run_soon() == 1
    assert not answer.done, "too little"
    assert rooms.append("a", size=10) < 200
    assert rooms.timers.run_soon() == 0, "still too little, and that is known without a look"
    rooms.append("a", size=300)
    rooms.timers.run_soon()
    assert shown(answer)[A].size >= 1_000


def test_one_of_two_open_transactions_ends(rooms: Rooms, partition: Partition) -> None:
    write(partition, 1, 0, size=100)
    write(partition, 2, 0, size=100)
    answer = waiting(committed(rooms, {A: 0}, wait_ms=500))
    end(partition, 2, commit=True)
    assert rooms.timers.run_soon() == 0, "the older one still hides both"
    end(partition, 1, commit=True)
    rooms.timers.run_soon()
    assert told(answer).last_stable_offset == 4


def test_an_open_transaction_does_not_hide_other_partitions(rooms: Rooms, partition: Partition) -> None:
    write(partition, 1, 0)
    answer = waiting(committed(rooms, {A: 0, B: 0}, wait_ms=500))
    size = rooms.append("a", 1)
    rooms.timers.run_soon()
    assert shown(answer)[B].size == size


def test_who_waits_for_a_marker_hears_that_the_partition_is_gone(rooms: Rooms, partition: Partition) -> None:
    write(partition, 1, 0)
    answer = waiting(committed(rooms, {A: 0}, wait_ms=500))
    rooms.delete_topic("a")
    rooms.timers.run_soon()
    assert told(answer).error_code


def test_ended_transactions_are_forgotten_as_the_high_watermark_passes(rooms: Rooms, partition: Partition) -> None:
    for sequence in range(20):
        write(partition, 1, sequence)
        end(partition, 1, commit=True)
    assert not partition.log.producers.unreplicated, "though nobody has ever read"


# --- offsets ----------------------------------------------------------------------------------------------------


def list_offset(rooms: Rooms, timestamp: int, isolation_level: int) -> tuple[int, int]:
    request = ListOffsetsRequest(-1, isolation_level, [ListOffsetsTopic("a", [ListOffsetsPartition(0, -1, timestamp)])])
    answer = ListOffsets(rooms.partitions).answer(request, Caller("PLAINTEXT", "test:1", "test", 9))
    found = answer.topics[0].partitions[0]
    assert not found.error_code
    return found.offset, found.leader_epoch


def test_the_latest_offset_is_what_may_be_read(rooms: Rooms, partition: Partition) -> None:
    rooms.append("a")
    write(partition, 1, 0)
    assert list_offset(rooms, -1, 0)[0] == 2
    assert list_offset(rooms, -1, 1)[0] == 1
    assert list_offset(rooms, rooms.clock.now_ms(), 1)[0] == 0
    partition.delete_records(1)
    assert list_offset(rooms, rooms.clock.now_ms(), 0)[0] == 1
    assert list_offset(rooms, rooms.clock.now_ms(), 1) == (-1, -1), "what is open has no time yet"
    end(partition, 1, commit=True)
    assert list_offset(rooms, -1, 1)[0] == 3


def test_the_epoch_of_the_latest_offset_is_the_leaders(rooms: Rooms, partition: Partition) -> None:
    write(partition, 1, 0)
    first = partition.state.leader_epoch
    rooms = rooms.restart()
    partition = rooms.partition("a")
    assert partition.state.leader_epoch > first
    assert list_offset(rooms, -1, 1) == (0, partition.state.leader_epoch)
    assert list_offset(rooms, -2, 1) == (0, first)
