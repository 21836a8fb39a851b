"""Producer ids are given in order and only once; a block of ids is requested only when it is needed."""

from __future__ import annotations

from itertools import count

import pytest
from harness.in_memory_node import InMemoryNode

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.promise import Promise
from moldau.runtime.broker.producer_ids import ProducerIds


class Allocator:
    """A controller whose responses are given by the test."""

    def __init__(self, size: int) -> None:
        self.promises: list[Promise[range | KafkaError]] = []
        self._size = size
        self._next = count(0, size)

    def __call__(self) -> Promise[range | KafkaError]:
        self.promises.append(Promise())
        return self.promises[-1]

    def grant(self) -> None:
        first = next(self._next)
        next(promise for promise in self.promises if not promise.done).complete(range(first, first + self._size))


def test_many_waiting_requests_share_one_block() -> None:
    allocate = Allocator(10)
    ids = ProducerIds(allocate)
    waiting = [ids.next() for _ in range(4)]
    assert len(allocate.promises) == 1
    assert not any(each.done for each in waiting)
    allocate.grant()
    assert [each.value() for each in waiting] == [0, 1, 2, 3]
    assert [ids.next().value() for _ in range(6)] == [4, 5, 6, 7, 8, 9]
    assert len(allocate.promises) == 1


def test_more_requests_than_ids_get_several_blocks() -> None:
    allocate = Allocator(3)
    ids = ProducerIds(allocate)
    waiting = [ids.next() for _ in range(8)]
    for blocks in (1, 2, 3):
        assert len(allocate.promises) == blocks, "one request at a time"
        allocate.grant()
    assert [each.value() for each in waiting] == list(range(8))
    assert ids.next().value() == 8
    assert len(allocate.promises) == 3
    late = ids.next()
    assert len(allocate.promises) == 4
    allocate.grant()
    assert late.value() == 9


def test_an_allocator_may_answer_at_once() -> None:
    blocks = count(0, 2)

    def allocate() -> Promise[range]:
        first = next(blocks)
        granted: Promise[range] = Promise()
        granted.complete(range(first, first + 2))
        return granted

    ids = ProducerIds(allocate)
    assert [ids.next().value() for _ in range(7)] == list(range(7))


def test_a_callback_may_request_the_next_id() -> None:
    allocate = Allocator(2)
    ids = ProducerIds(allocate)
    seen: list[int] = []

    def again(given: int) -> None:
        seen.append(given)
        if len(seen) < 5:
            ids.next().then(again)

    ids.next().then(again)
    while len(seen) < 5:
        allocate.grant()
    assert seen == [0, 1, 2, 3, 4]


def test_waiting_for_an_id_uses_none() -> None:
    allocate = Allocator(2)
    ids = ProducerIds(allocate)
    waiting = ids.wait_for_id()
    assert waiting is not None
    assert not waiting.done
    allocate.grant()
    assert waiting.value() is None
    assert ids.wait_for_id() is None
    assert [ids.take(), ids.take()] == [0, 1]
    assert len(allocate.promises) == 1


def test_a_wait_does_not_use_the_last_id_of_a_block() -> None:
    allocate = Allocator(1)
    ids = ProducerIds(allocate)
    waiting = ids.wait_for_id()
    assert waiting is not None
    allocate.grant()
    assert waiting.value() is None
    assert ids.take() == 0


def test_one_block_ends_all_waits_and_each_id_is_taken_once() -> None:
    allocate = Allocator(3)
    ids = ProducerIds(allocate)
    waits = [ids.wait_for_id(), ids.wait_for_id()]
    assert len(allocate.promises) == 1
    allocate.grant()
    assert [each is not None and each.done and each.value() for each in waits] == [None, None]
    assert [ids.take() for _ in range(3)] == [0, 1, 2]


def test_taking_without_an_id_requests_one_block_and_is_retriable() -> None:
    allocate = Allocator(2)
    ids = ProducerIds(allocate)
    for _ in range(3):
        with pytest.raises(KafkaError) as refused:
            ids.take()
        assert refused.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert len(allocate.promises) == 1, "one request at a time"
    allocate.grant()
    assert [ids.take(), ids.take()] == [0, 1]


def test_a_wait_ends_with_the_error_of_the_controller() -> None:
    allocate = Allocator(2)
    ids = ProducerIds(allocate)
    waiting = ids.wait_for_id()
    assert waiting is not None
    refused = KafkaError(ErrorCode.NOT_CONTROLLER)
    allocate.promises[0].complete(refused)
    assert waiting.value() is refused
    again = ids.wait_for_id()
    assert again is not None
    allocate.grant()
    assert again.value() is None
    assert ids.take() == 0


def test_no_id_is_ever_given_twice_even_across_restarts() -> None:
    node = InMemoryNode().start()
    seen: list[int] = []
    for _ in range(3):
        ids = ProducerIds(node.allocate_producer_ids)
        seen += [node.committed(ids.next()) for _ in range(3)]
        node = node.restart()
    assert seen == [0, 1, 2, 1000, 1001, 1002, 2000, 2001, 2002]


def test_ids_are_granted_again_after_the_disk_was_full() -> None:
    node = InMemoryNode().start()
    ids = ProducerIds(node.allocate_producer_ids)
    node.files.bytes_left = 0
    refused = ids.next().value()
    assert isinstance(refused, KafkaError)
    assert refused.code is ErrorCode.KAFKA_STORAGE_ERROR
    node.files.bytes_left = None
    assert node.committed(ids.next()) == 0
