"""Fetches that wait: woken by enough readable data, by their timeout, by errors, and by the server's stop."""

from __future__ import annotations

from dataclasses import replace

import pytest
from harness.fetch_requests import BY_ID, Key, fetch, immediate, parked, partition_results
from harness.in_memory_node import InMemoryNode

from moldau.base.errors import ErrorCode
from moldau.base.turns import CALLS_A_TURN, CHANGES_A_TURN, ITEMS_A_TURN
from moldau.server.handlers.fetch_answer import FetchAnswer

A: Key = ("a", 0)
B: Key = ("a", 1)


@pytest.fixture
def node() -> InMemoryNode:
    node = InMemoryNode().start()
    node.create_topic("a", 2)
    node.timers.run_soon()
    return node


def test_available_data_is_returned_at_once(node: InMemoryNode) -> None:
    size = node.append("a")
    assert partition_results(immediate(fetch(node, {A: 0}, wait_ms=500)))[A].size == size
    assert node.waiting == 0


@pytest.mark.parametrize(("wait_ms", "min_bytes"), [(0, 1), (-1, 1), (500, 0), (0, 10_000)])
def test_without_max_wait_or_min_bytes_a_fetch_does_not_wait(node: InMemoryNode, wait_ms: int, min_bytes: int) -> None:
    assert partition_results(immediate(fetch(node, {A: 0}, wait_ms=wait_ms, min_bytes=min_bytes)))[A].size == 0


def test_a_fetch_without_partitions_does_not_wait(node: InMemoryNode) -> None:
    assert partition_results(immediate(fetch(node, {}, wait_ms=500))) == {}
    assert immediate(fetch(node, {}, epoch=0, wait_ms=500)).session_id > 0


def test_new_data_wakes_a_fetch(node: InMemoryNode) -> None:
    answer = parked(fetch(node, {A: 0, B: 0}, wait_ms=500))
    size = node.append("a", 1)
    assert not answer.done, "the fetch is evaluated later, not by the append"
    node.timers.run_soon()
    assert {key: each.size for key, each in partition_results(answer).items()} == {A: 0, B: size}
    assert node.waiting == 0
    assert len(node.parked) == 0


def test_min_bytes_are_gathered_over_appends_and_partitions(node: InMemoryNode) -> None:
    size = node.append("a", 0)
    answer = parked(fetch(node, {A: 0, B: 0}, wait_ms=500, min_bytes=3 * size))
    node.append("a", 1)
    assert node.timers.run_soon() == 0, "the fetch is not evaluated yet"
    node.append("a", 0)
    node.timers.run_soon()
    assert [each.size for each in partition_results(answer).values()] == [2 * size, size]


def test_a_fetch_that_was_answered_is_not_woken_any_more(node: InMemoryNode) -> None:
    session = immediate(fetch(node, {A: 0}, epoch=0)).session_id
    parked(fetch(node, session=session, epoch=1, wait_ms=500))
    node.timers.advance(500)
    node.append("a")
    assert node.timers.run_soon() == 0


def test_a_burst_of_appends_causes_one_evaluation(node: InMemoryNode) -> None:
    answer = parked(fetch(node, {A: 0}, wait_ms=500))
    size = sum(node.append("a") for _ in range(20))
    assert node.timers.run_soon() == 1
    assert partition_results(answer)[A].size == size


def test_data_beyond_partition_max_bytes_does_not_end_the_wait(node: InMemoryNode) -> None:
    """Appended bytes are counted; if fewer can be read, the fetch continues to wait."""
    size = node.append("a", 0, size=100)
    answer = parked(fetch(node, {A: 1, B: 0}, wait_ms=500, min_bytes=2 * size, partition_max_bytes=size))
    for _ in range(3):
        node.append("a", 0, size=100)
        node.timers.run_soon()
    assert not answer.done, "a partition returns at most partition_max_bytes"
    node.append("a", 1, size=100)
    node.timers.run_soon()
    assert [each.size for each in partition_results(answer).values()] == [size, size]


def test_the_timeout_is_exact_to_the_millisecond(node: InMemoryNode) -> None:
    size = node.append("a")
    answer = parked(fetch(node, {A: 0}, wait_ms=500, min_bytes=1_000_000))
    node.timers.advance(499)
    assert not answer.done
    node.timers.advance(1)
    assert partition_results(answer)[A].size == size, "the available data, though less than min_bytes"
    node.append("a")
    node.timers.advance(1000)


def test_all_waiting_fetches_are_released_when_the_server_stops(node: InMemoryNode) -> None:
    session = immediate(fetch(node, {A: 0}, epoch=0)).session_id
    answers = [
        parked(fetch(node, {A: 0}, wait_ms=500)),
        parked(fetch(node, {B: 0}, wait_ms=900)),
        parked(fetch(node, session=session, epoch=1, wait_ms=900)),
    ]
    assert len(node.parked) == 3
    node.parked.release_all()
    assert all(answer.done for answer in answers)
    assert len(node.parked) == 0
    assert node.waiting == 0


def test_the_deletion_of_a_topic_ends_the_wait(node: InMemoryNode) -> None:
    by_name = parked(fetch(node, {A: 0}, wait_ms=500))
    topic_id = node.current.image.topics["a"].id
    by_id = parked(fetch(node, {(topic_id, 0): 0}, wait_ms=500, version=BY_ID))
    node.delete_topic("a")
    node.timers.run_soon()
    assert partition_results(by_name)[A].error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert partition_results(by_id)[(topic_id, 0)].error == ErrorCode.UNKNOWN_TOPIC_ID


def test_a_waiting_session_follows_a_recreated_topic(node: InMemoryNode) -> None:
    session = immediate(fetch(node, {A: 0}, epoch=0)).session_id
    answer = parked(fetch(node, session=session, epoch=1, wait_ms=500))
    node.delete_topic("a")
    node.create_topic("a")
    node.timers.run_soon()
    assert not answer.done, "nothing has changed that the response could report"
    size = node.append("a")
    node.timers.run_soon()
    assert partition_results(answer)[A].size == size


def test_a_waiting_fetch_without_a_session_follows_a_recreated_topic(node: InMemoryNode) -> None:
    answer = parked(fetch(node, {A: 0}, wait_ms=500))
    node.delete_topic("a")
    node.create_topic("a")
    node.timers.run_soon()
    size = node.append("a")
    node.timers.run_soon()
    assert partition_results(answer)[A].size == size


def test_data_is_readable_below_the_high_watermark_only(node: InMemoryNode) -> None:
    """With flush.messages=1 only flushed records are readable: an append alone wakes no fetch (KIP-74)."""
    node.create_topic("safe", flush_messages="1")
    answer = parked(fetch(node, {("safe", 0): 0}, wait_ms=500))
    size = node.append("safe")
    node.timers.run_soon()
    assert not answer.done
    node.flush()
    node.timers.run_soon()
    assert partition_results(answer)[("safe", 0)].size == size


def test_a_fetch_between_high_watermark_and_log_end_is_empty(node: InMemoryNode) -> None:
    node.create_topic("safe", flush_messages="1")
    node.append("safe", count=3)
    for offset in (0, 1, 3):
        empty = partition_results(immediate(fetch(node, {("safe", 0): offset})))[("safe", 0)]
        assert (empty.error, empty.high_watermark, empty.size) == (0, 0, 0)
    beyond = partition_results(immediate(fetch(node, {("safe", 0): 4}, wait_ms=500)))[("safe", 0)]
    assert beyond.error == ErrorCode.OFFSET_OUT_OF_RANGE


def test_the_deletion_of_records_ends_the_wait_below_them(node: InMemoryNode) -> None:
    size = node.append("a", count=5)
    answer = parked(fetch(node, {A: 2}, wait_ms=500, min_bytes=2 * size))
    node.partition("a").delete_records(4)
    node.timers.run_soon()
    assert partition_results(answer)[A].error == ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"leader_epoch": 1}, ErrorCode.UNKNOWN_LEADER_EPOCH),
        ({"leader_epoch": 0}, ErrorCode.NONE),
        ({"leader_epoch": -1}, ErrorCode.NONE),
    ],
)
def test_the_leader_epoch_is_checked_and_an_error_never_waits(
    node: InMemoryNode, arguments: dict[str, int], code: ErrorCode
) -> None:
    answer = fetch(node, {A: 0}, wait_ms=500, **arguments)  # type: ignore[arg-type]
    if code:
        assert partition_results(immediate(answer))[A].error == code
    else:
        parked(answer)


def test_an_unknown_partition_does_not_wait(node: InMemoryNode) -> None:
    results = partition_results(immediate(fetch(node, {A: 0, ("a", 9): 0, ("nowhere", 0): 0}, wait_ms=500)))
    assert [each.error for each in results.values()] == [0, 3, 3]
    by_id = partition_results(immediate(fetch(node, {(b"x" * 16, 0): 0}, wait_ms=500, version=BY_ID)))
    assert by_id[(b"x" * 16, 0)].error == ErrorCode.UNKNOWN_TOPIC_ID


def test_a_diverging_log_gets_the_diverging_epoch(node: InMemoryNode) -> None:
    node.append("a", count=5)
    partition = node.partition("a")
    partition.lead(replace(partition.state, leader_epoch=2))
    node.append("a", count=5)
    for offset, last_epoch, expected in [(5, 0, None), (7, 0, (0, 5)), (7, 1, (0, 5)), (5, 1, (0, 5)), (10, 2, None)]:
        response = immediate(fetch(node, {A: offset}, last_fetched_epoch=last_epoch))
        diverging = response.responses[0].partitions[0].diverging_epoch
        assert (diverging and (diverging.epoch, diverging.end_offset)) == expected, (offset, last_epoch)
    parked_fetch = fetch(node, {A: 7}, last_fetched_epoch=0, wait_ms=500, min_bytes=1000)
    assert partition_results(immediate(parked_fetch))[A].size == 0, "answered at once, without records"
    beyond = fetch(node, {A: 7}, last_fetched_epoch=3, wait_ms=500)
    assert partition_results(immediate(beyond))[A].error == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_client_with_a_replica_id_is_refused(node: InMemoryNode) -> None:
    assert immediate(fetch(node, {A: 0}, replica_id=1)).error_code == ErrorCode.INVALID_REQUEST


# --- size limits


def test_the_first_batch_is_returned_whole_however_large(node: InMemoryNode) -> None:
    size = node.append("a", size=5000)
    node.append("a", 1, size=5000)
    results = partition_results(immediate(fetch(node, {A: 0, B: 0}, max_bytes=100, partition_max_bytes=10)))
    assert [each.size for each in results.values()] == [size, 0]


def test_the_first_batch_is_returned_whole_after_an_empty_partition(node: InMemoryNode) -> None:
    size = node.append("a", 1, size=5000)
    results = partition_results(immediate(fetch(node, {A: 0, B: 0}, max_bytes=100)))
    assert [each.size for each in results.values()] == [0, size]


def test_an_offset_within_a_batch_gets_the_whole_batch(node: InMemoryNode) -> None:
    size = node.append("a", count=10)
    assert partition_results(immediate(fetch(node, {A: 7})))[A].size == size


def test_many_fetches_that_wait_for_one_partition_are_evaluated_a_few_per_turn(node: InMemoryNode) -> None:
    answers = [parked(fetch(node, {A: 0}, wait_ms=500)) for _ in range(2 * CALLS_A_TURN + 1)]
    node.append("a")
    counts = []
    while node.timers.run_one_soon():
        counts.append(sum(answer.done for answer in answers))
    assert counts == [CALLS_A_TURN, 2 * CALLS_A_TURN, 2 * CALLS_A_TURN + 1]
    assert len(node.parked) == 0


@pytest.mark.parametrize("epoch", [-1, 0])
def test_records_appended_while_a_long_fetch_is_read_end_its_wait(node: InMemoryNode, epoch: int) -> None:
    count = 3 * ITEMS_A_TURN
    node.partitions._topics["a"].update(dict.fromkeys(range(1, count), node.partition("a", 1)))
    answer = parked(fetch(node, {("a", index): 0 for index in range(count)}, epoch=epoch, wait_ms=500))
    turns = 0
    while len(node.parked) == 0:
        assert node.timers.run_one_soon()
        turns += 1
        if turns == count // CHANGES_A_TURN + 1:  # the first partition was read, the last one was not
            size = node.append("a")
    assert not answer.done
    node.timers.run_soon()
    assert partition_results(answer)[A].size == size
    assert len(node.parked) == 0
    if epoch < 0:
        assert not node.partition("a").watchers.consumers


def test_a_long_fetch_that_did_not_wait_watches_no_partition_afterwards(node: InMemoryNode) -> None:
    node.append("a")
    count = 3 * ITEMS_A_TURN
    node.partitions._topics["a"].update(dict.fromkeys(range(1, count), node.partition("a", 1)))
    answer = parked(fetch(node, {("a", index): 0 for index in range(count)}, wait_ms=500))
    node.timers.run_soon()
    assert len(partition_results(answer)) == count
    assert not node.partition("a").watchers.consumers
    assert not node.partition("a", 1).watchers.consumers


@pytest.mark.parametrize("epoch", [-1, 0])
def test_a_long_fetch_that_failed_does_not_wait_for_records(
    node: InMemoryNode, epoch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise AssertionError("unexpected")

    monkeypatch.setattr(FetchAnswer, "_read", fail)
    count = 3 * ITEMS_A_TURN
    node.partitions._topics["a"].update(dict.fromkeys(range(1, count), node.partition("a", 1)))
    answer = parked(fetch(node, {("a", index): 0 for index in range(count)}, epoch=epoch, wait_ms=500))
    node.timers.run_soon()
    assert answer.done
    watching = node.partition("a").watchers.consumers
    assert [session.on_touch for session in watching] == ([] if epoch < 0 else [None])
