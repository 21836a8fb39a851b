"""Calls for states of share groups: they keep their order through errors that pass, and every promise is completed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from fake_brokers import FakeBrokers

from moldau.base.errors import ErrorCode, KafkaError, MalformedData
from moldau.base.limits import COMMIT_WAIT_MS, SHARE_STATE_REQUEST_BYTES_MAX
from moldau.base.promise import Promise, resolved
from moldau.runtime.coordinators.share import ShareCoordinator
from moldau.runtime.coordinators.share_states import FIRST_DELAY_MS, TRIES_MAX, CoordinatedShareStates
from moldau.runtime.own_work import OwnWork
from moldau.share.ports import ShareKey
from moldau.testing.clock import FakeTimers
from moldau.wire.apis import ApiKey
from moldau.wire.frames import request_frame
from moldau.wire.messages.write_share_group_state import (
    PartitionData,
    PartitionResult,
    StateBatch,
    WriteShareGroupStateRequest,
    WriteShareGroupStateResponse,
    WriteStateResult,
)

TOPIC = b"t" * 16
NONE, LOADING, MOVED = ErrorCode.NONE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR
THIS_NODE, OTHER_NODE = 1, 2


class FakeTopic:
    name = "__share_group_state"

    def __init__(self) -> None:
        self.creations: list[Promise[ErrorCode]] = []

    def create_if_missing(self) -> Promise[ErrorCode]:
        self.creations.append(Promise())
        return self.creations[-1]


class FakeCoordinator(ShareCoordinator):
    """Says where the coordinator is, and answers what is submitted to this node as the test wants."""

    def __init__(self) -> None:
        self.topic = FakeTopic()  # type: ignore[assignment]
        self.node: int | ErrorCode = OTHER_NODE
        self.here: Callable[[PartitionData], Any] = lambda data: PartitionResult(data.partition)

    def node_of(self, key: ShareKey) -> int:
        if isinstance(self.node, ErrorCode):
            raise KafkaError(self.node)
        return self.node

    def submit(self, key: ShareKey, decide: object, data: Any) -> Any:
        return self.here(data)


class Harness:
    def __init__(self) -> None:
        self.brokers = FakeBrokers()
        self.timers = FakeTimers()
        self.faults: list[Exception] = []
        self.coordinator = FakeCoordinator()
        own_work = OwnWork(self.timers, self.faults.append)
        self.states = CoordinatedShareStates(THIS_NODE, self.coordinator, self.brokers, own_work)  # type: ignore[arg-type]

    def write(self, offset: int, partition: int = 0, group_id: str = "g") -> Promise[ErrorCode]:
        data = PartitionData(partition, start_offset=offset)
        return self.states.write(ShareKey(group_id, TOPIC, partition), data)

    def in_flight(self) -> list[list[tuple[int, int]]]:
        """Return the partitions and offsets of each request in flight."""
        return [
            [(each.partition, each.start_offset) for topic in request.topics for each in topic.partitions]
            for _, request, _ in self.brokers.requests
        ]

    def answer(self, *codes: ErrorCode) -> None:
        """Answer the next request: with these codes, in the order of its partitions, or with NONE."""
        _, request, waiting = self.brokers.take()
        waiting.complete(response(request, *codes))
        self.timers.run_soon()


def response(request: WriteShareGroupStateRequest, *codes: ErrorCode) -> WriteShareGroupStateResponse:
    (topic,) = request.topics
    given = codes or [NONE] * len(topic.partitions)
    results = [PartitionResult(each.partition, code) for each, code in zip(topic.partitions, given, strict=True)]
    return WriteShareGroupStateResponse([WriteStateResult(topic.topic_id, results[::-1])])


@pytest.fixture
def harness() -> Harness:
    return Harness()


def test_calls_of_a_group_are_joined_while_a_request_is_in_flight(harness: Harness) -> None:
    calls = [harness.write(1), harness.write(2), harness.write(1, 1), harness.write(3), harness.write(5, 0, "h")]
    assert harness.in_flight() == [[(0, 1)], [(0, 5)]]
    harness.answer()
    assert harness.in_flight() == [[(0, 5)], [(0, 2), (1, 1)]]
    harness.answer()
    harness.answer(NONE, ErrorCode.FENCED_LEADER_EPOCH)
    assert harness.in_flight() == [[(0, 3)]]
    harness.answer()
    assert [call.value() for call in calls] == [NONE, NONE, ErrorCode.FENCED_LEADER_EPOCH, NONE, NONE]


@pytest.mark.parametrize("error", [LOADING, KafkaError(ErrorCode.NETWORK_EXCEPTION)])
def test_calls_of_a_partition_wait_behind_one_that_is_tried_again(
    harness: Harness, error: ErrorCode | KafkaError
) -> None:
    """Both the one that waits for the next request and one that comes later. Other partitions go on."""
    calls = [harness.write(1), harness.write(2), harness.write(1, 1)]
    if isinstance(error, KafkaError):
        harness.brokers.take()[2].complete(error)
        harness.timers.run_soon()
    else:
        harness.answer(error)
    assert harness.in_flight() == [[(1, 1)]]
    calls.append(harness.write(3))
    harness.answer()
    assert not harness.in_flight()
    harness.timers.advance(FIRST_DELAY_MS)
    assert harness.in_flight() == [[(0, 1)]]
    for _ in range(3):
        harness.answer()
    assert [call.value() for call in calls] == [NONE] * 4


def test_calls_that_fail_one_after_the_other_keep_their_order(harness: Harness) -> None:
    """The first fails at the other node, when later ones have failed on this one."""
    tried: list[int] = []

    def here(data: PartitionData) -> PartitionResult:
        tried.append(data.start_offset)
        if len(tried) == 1:
            raise KafkaError(LOADING)
        return PartitionResult(data.partition)

    harness.coordinator.here = here
    calls = [harness.write(1)]
    harness.coordinator.node = THIS_NODE
    calls += [harness.write(2), harness.write(3)]
    harness.answer(MOVED)
    harness.timers.advance(FIRST_DELAY_MS)
    assert [call.value() for call in calls] == [NONE] * 3
    assert tried == [2, 1, 2, 3]


def test_a_call_for_this_node_needs_no_request(harness: Harness) -> None:
    harness.coordinator.node = THIS_NODE
    committed: Promise[Any] = Promise()
    harness.coordinator.here = lambda _: committed
    call = harness.write(1)
    assert not call.done
    committed.complete(PartitionResult(0))
    assert call.value() is NONE
    assert not harness.brokers.requests


def test_a_change_that_is_not_committed_is_tried_again(harness: Harness) -> None:
    """Its result no longer matters when it comes: it may be an error, because the coordinator has changed."""
    harness.coordinator.node = THIS_NODE
    uncommitted: Promise[Any] = Promise()
    harness.coordinator.here = lambda _: uncommitted
    calls = [harness.write(1)]
    harness.timers.advance(COMMIT_WAIT_MS)
    calls.append(harness.write(2))
    tried: list[int] = []

    def here(data: PartitionData) -> PartitionResult:
        tried.append(data.start_offset)
        return PartitionResult(data.partition)

    harness.coordinator.here = here
    uncommitted.complete(KafkaError(MOVED))
    assert not any(call.done for call in calls)
    harness.timers.advance(FIRST_DELAY_MS)
    assert [call.value() for call in calls] == [NONE] * 2
    assert tried == [1, 2]


@pytest.mark.parametrize("code", [LOADING, MOVED, ErrorCode.COORDINATOR_NOT_AVAILABLE])
def test_errors_of_this_node_that_pass_are_tried_again(harness: Harness, code: ErrorCode) -> None:
    harness.coordinator.node = THIS_NODE
    harness.coordinator.here = lambda _: resolved(KafkaError(code))
    call = harness.write(1)
    harness.timers.advance(FIRST_DELAY_MS - 1)
    harness.coordinator.here = lambda _: PartitionResult(0)
    assert not call.done
    harness.timers.advance(1)
    assert call.value() is NONE


def test_tries_are_limited_and_their_delays_grow(harness: Harness) -> None:
    harness.coordinator.node = ErrorCode.COORDINATOR_NOT_AVAILABLE
    before_ms = harness.timers.clock.monotonic_ms()
    call = harness.write(1)
    while not call.done:
        harness.timers.advance(10)
    assert call.value() is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert harness.timers.clock.monotonic_ms() - before_ms == FIRST_DELAY_MS * (2 ** (TRIES_MAX - 1) - 1)


def test_the_topic_is_created_by_one_request_at_a_time(harness: Harness, caplog: pytest.LogCaptureFixture) -> None:
    harness.coordinator.node = ErrorCode.COORDINATOR_NOT_AVAILABLE
    creations = harness.coordinator.topic.creations  # type: ignore[attr-defined]
    calls = [harness.write(1, partition) for partition in range(3)]
    assert len(creations) == 1
    creations[0].complete(ErrorCode.REQUEST_TIMED_OUT)
    harness.timers.advance(FIRST_DELAY_MS)
    assert len(creations) == 2
    creations[1].complete(ErrorCode.TOPIC_ALREADY_EXISTS)
    harness.coordinator.node = THIS_NODE
    harness.timers.advance(2 * FIRST_DELAY_MS)
    assert [call.value() for call in calls] == [NONE] * 3
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_final_errors_are_not_tried_again(harness: Harness) -> None:
    for code in (ErrorCode.FENCED_STATE_EPOCH, ErrorCode.INVALID_REQUEST, ErrorCode.CLUSTER_AUTHORIZATION_FAILED):
        call = harness.write(1)
        harness.answer(code)
        assert call.value() is code
    call = harness.write(1)
    harness.brokers.take()[2].complete(KafkaError(ErrorCode.UNSUPPORTED_VERSION))
    assert call.value() is ErrorCode.UNSUPPORTED_VERSION


def test_a_response_that_lacks_a_partition_is_an_error(harness: Harness) -> None:
    call = harness.write(1)
    harness.brokers.take()[2].complete(WriteShareGroupStateResponse())
    assert call.value() is ErrorCode.UNKNOWN_SERVER_ERROR


def test_an_exception_of_one_caller_concerns_no_other(harness: Harness) -> None:
    def fail(_: object) -> None:
        raise RuntimeError("a fault of ours")

    calls = [harness.write(1), harness.write(2, 1), harness.write(3, 2)]
    calls[1].then(fail)
    harness.answer()
    harness.answer()
    assert calls[0].value() is calls[2].value() is NONE
    assert not harness.faults


def test_large_calls_go_into_requests_that_are_not_refused(harness: Harness) -> None:
    batches = [StateBatch(2 * n, 2 * n, 2, 1) for n in range(9_000)]
    calls = [
        harness.states.write(ShareKey("g", TOPIC, partition), PartitionData(partition, state_batches=batches))
        for partition in range(12)
    ]
    while harness.brokers.requests:
        frame = request_frame(ApiKey.WRITE_SHARE_GROUP_STATE, 1, 1, None, harness.brokers.requests[0][1])
        assert len(frame) <= SHARE_STATE_REQUEST_BYTES_MAX
        harness.answer()
    assert [call.value() for call in calls] == [NONE] * 12


def test_a_stop_completes_whatever_waits(harness: Harness) -> None:
    calls = [harness.write(1), harness.write(2), harness.write(3, 1)]
    harness.answer(LOADING)
    calls.append(harness.write(4, 2))
    _, request, waiting = harness.brokers.take()
    done: list[int] = []
    for number, call in enumerate(calls):
        call.then(lambda code, number=number: done.append(number))  # type: ignore[misc]
    harness.states.close()
    assert [call.value() for call in calls] == [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 4
    assert done == [0, 1, 2, 3]
    waiting.complete(response(request))
    harness.timers.advance(60_000)
    assert harness.write(5).value() is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert not harness.brokers.requests
    assert not harness.faults


def test_a_broken_answer_of_this_node_is_tried_again(harness: Harness) -> None:
    call = harness.write(1)
    harness.brokers.take()[2].complete(MalformedData("failed here"))
    assert not call.done
    harness.timers.advance(FIRST_DELAY_MS)
    harness.answer()
    assert call.value() is NONE
