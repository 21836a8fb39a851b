"""ISR proposals are sent to the controller together, one request at a time, and again after a failure."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, cast

import pytest
from harness.raised_faults import own_work

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.limits import RETRY_DELAY_MS
from moldau.base.promise import Promise
from moldau.base.turns import ITEMS_A_TURN, PROPOSALS_A_REQUEST
from moldau.replica.partitions import Partitions
from moldau.replica.replication import IsrDecision, IsrProposal
from moldau.runtime.replication.isr_changes import IsrChanges
from moldau.testing.clock import FakeTimers
from moldau.wire.apis import ApiKey
from moldau.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    ResponsePartitionData,
    ResponseTopicData,
)
from moldau.wire.schema import Message

NODE_ID, BROKER_EPOCH = 1, 77
A, B = b"a" * 16, b"b" * 16
Answer = Promise[IsrDecision | KafkaError]


def proposal(topic_id: bytes = A, index: int = 0, *members: int, partition_epoch: int = 3) -> IsrProposal:
    return IsrProposal(topic_id, index, 5, partition_epoch, tuple((member, 100 + member) for member in members))


class IsrHarness:
    def __init__(self) -> None:
        self.timers = FakeTimers()
        self.requests: list[AlterPartitionRequest] = []
        self.answers: list[Promise[Any]] = []
        self.changes = IsrChanges(NODE_ID, lambda: BROKER_EPOCH, self.ask, own_work(self.timers))

    def ask(self, api: ApiKey, request: Message) -> Promise[Any]:
        assert api is ApiKey.ALTER_PARTITION
        assert isinstance(request, AlterPartitionRequest)
        self.requests.append(request)
        self.answers.append(Promise())
        return self.answers[-1]

    def propose(self, *proposals: IsrProposal) -> list[Answer]:
        promises = [self.changes.propose(each) for each in proposals]
        self.timers.run_soon()
        return promises

    def agree(self, *codes: ErrorCode) -> None:
        """Respond to the last request; `codes` are those of its partitions in order."""
        left = list(codes)
        topics = [
            ResponseTopicData(
                topic.topic_id,
                [
                    ResponsePartitionData(
                        each.partition_index,
                        left.pop(0) if left else ErrorCode.NONE,
                        NODE_ID,
                        each.leader_epoch,
                        [state.broker_id for state in each.new_isr_with_epochs],
                        partition_epoch=each.partition_epoch + 1,
                    )
                    for each in topic.partitions
                ],
            )
            for topic in self.requests[-1].topics
        ]
        self.answer(AlterPartitionResponse(topics=topics))

    def answer(self, response: AlterPartitionResponse | KafkaError) -> None:
        self.answers[-1].complete(response)
        self.timers.run_soon()

    @property
    def requested_partitions(self) -> list[list[tuple[bytes, int]]]:
        return [
            [(topic.topic_id, each.partition_index) for topic in request.topics for each in topic.partitions]
            for request in self.requests
        ]


def test_proposals_of_one_turn_are_one_request() -> None:
    harness = IsrHarness()
    promises = harness.propose(proposal(A, 0, 1, 2), proposal(B, 4, 1), proposal(A, 1, 1, 3))
    (request,) = harness.requests
    assert (request.broker_id, request.broker_epoch) == (NODE_ID, BROKER_EPOCH)
    assert harness.requested_partitions == [[(A, 0), (A, 1), (B, 4)]]
    first = request.topics[0].partitions[0]
    assert (first.leader_epoch, first.partition_epoch) == (5, 3)
    assert [(each.broker_id, each.broker_epoch) for each in first.new_isr_with_epochs] == [(1, 101), (2, 102)]
    harness.agree()
    assert [promise.value() for promise in promises] == [
        IsrDecision(5, 4, (1, 2)),
        IsrDecision(5, 4, (1,)),
        IsrDecision(5, 4, (1, 3)),
    ]
    assert len(harness.requests) == 1


def test_one_request_at_a_time() -> None:
    harness = IsrHarness()
    harness.propose(proposal(A, 0, 1))
    harness.propose(proposal(A, 1, 1))
    harness.propose(proposal(A, 2, 1))
    assert harness.requested_partitions == [[(A, 0)]]
    harness.agree()
    assert harness.requested_partitions == [[(A, 0)], [(A, 1), (A, 2)]]


def test_each_partition_gets_its_own_answer() -> None:
    harness = IsrHarness()
    promises = harness.propose(proposal(A, 0, 1), proposal(A, 1, 1))
    harness.agree(ErrorCode.INVALID_UPDATE_VERSION, ErrorCode.NONE)
    refused, agreed = (promise.value() for promise in promises)
    assert isinstance(refused, KafkaError)
    assert refused.code is ErrorCode.INVALID_UPDATE_VERSION
    assert agreed == IsrDecision(5, 4, (1,))


@pytest.mark.parametrize(
    "failure",
    [
        KafkaError(ErrorCode.NETWORK_EXCEPTION),
        KafkaError(ErrorCode.REQUEST_TIMED_OUT),
        AlterPartitionResponse(error_code=ErrorCode.NOT_CONTROLLER),
        AlterPartitionResponse(error_code=ErrorCode.STALE_BROKER_EPOCH),
        AlterPartitionResponse(),
    ],
    ids=["network", "timeout", "not the controller", "stale broker epoch", "partition missing"],
)
def test_a_failed_request_is_retried(failure: AlterPartitionResponse | KafkaError) -> None:
    harness = IsrHarness()
    (promise,) = harness.propose(proposal(A, 0, 1))
    harness.answer(failure)
    assert len(harness.requests) == 1
    assert not promise.done
    harness.timers.advance(RETRY_DELAY_MS)
    assert harness.requested_partitions == [[(A, 0)]] * 2
    harness.agree()
    assert promise.value() == IsrDecision(5, 4, (1,))


def test_a_repeated_failure_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    harness = IsrHarness()
    harness.propose(proposal(A, 0, 1))
    with caplog.at_level(logging.INFO, "moldau.replication"):
        for _ in range(5):
            harness.answer(AlterPartitionResponse(error_code=ErrorCode.STALE_BROKER_EPOCH))
            harness.timers.advance(RETRY_DELAY_MS)
        harness.agree()
        harness.propose(proposal(A, 0, 1, 2))
        harness.answer(AlterPartitionResponse(error_code=ErrorCode.STALE_BROKER_EPOCH))
    assert [each.getMessage() for each in caplog.records] == [
        "in-sync replicas: the controller did not decide 1 proposals, retrying: STALE_BROKER_EPOCH"
    ] * 2


def test_only_the_undecided_partition_is_retried() -> None:
    harness = IsrHarness()
    promises = harness.propose(proposal(A, 0, 1), proposal(A, 1, 1))
    harness.agree(ErrorCode.NONE, ErrorCode.UNKNOWN_SERVER_ERROR)
    assert [promise.done for promise in promises] == [True, False]
    harness.timers.advance(RETRY_DELAY_MS)
    assert harness.requested_partitions[1] == [(A, 1)]


def test_a_later_proposal_replaces_one_that_must_be_retried() -> None:
    """Its leader no longer waits for the old proposal."""
    harness = IsrHarness()
    (old,) = harness.propose(proposal(A, 0, 1))
    (new,) = harness.propose(proposal(A, 0, 1, 2, partition_epoch=9))
    harness.answer(KafkaError(ErrorCode.NETWORK_EXCEPTION))
    harness.timers.advance(RETRY_DELAY_MS)
    (again,) = harness.requests[1].topics[0].partitions
    assert again.partition_epoch == 9
    harness.agree()
    assert not old.done
    assert new.value() == IsrDecision(5, 10, (1, 2))


def test_a_later_proposal_does_not_get_the_response_of_the_one_in_flight() -> None:
    harness = IsrHarness()
    (old,) = harness.propose(proposal(A, 0, 1))
    (new,) = harness.propose(proposal(A, 0, 1, 2, partition_epoch=9))
    harness.agree(ErrorCode.FENCED_LEADER_EPOCH)
    assert old.done
    assert not new.done
    harness.agree()
    assert new.value() == IsrDecision(5, 10, (1, 2))


def test_after_close_nothing_is_sent_and_no_promise_is_completed() -> None:
    harness = IsrHarness()
    (promise,) = harness.propose(proposal(A, 0, 1))
    harness.changes.close()
    harness.agree()
    harness.propose(proposal(A, 1, 1))
    harness.timers.advance(10 * RETRY_DELAY_MS)
    assert len(harness.requests) == 1
    assert not promise.done
    assert harness.timers.pending == 0


def test_many_proposals_are_split_into_several_requests() -> None:
    harness = IsrHarness()
    answers = harness.propose(*(proposal(A, index, 1, 2) for index in range(2 * PROPOSALS_A_REQUEST + 1)))
    for _ in range(3):
        harness.agree()
    assert [len(each) for each in harness.requested_partitions] == [PROPOSALS_A_REQUEST, PROPOSALS_A_REQUEST, 1]
    assert all(answer.done for answer in answers)


class Checked:
    """A partition that counts how often its followers are checked."""

    leadership = object()

    def __init__(self) -> None:
        self.checks = 0

    def reevaluate_isr(self, *, looks_for_laggards: bool) -> None:
        assert looks_for_laggards
        self.checks += 1


class Hosted(list[Checked]):
    def all(self) -> list[Checked]:
        return list(self)


def test_lagging_followers_are_checked_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    harness, counts = IsrHarness(), []
    partitions = Hosted(Checked() for _ in range(2 * ITEMS_A_TURN + 1))
    soon = harness.timers.soon

    def counted(call: Callable[[], None]) -> None:
        counts.append(sum(each.checks for each in partitions))
        soon(call)

    monkeypatch.setattr(harness.timers, "soon", counted)
    harness.changes.look_for_laggards(cast(Partitions, partitions), 100)
    harness.timers.advance(100)
    assert counts == [ITEMS_A_TURN, 2 * ITEMS_A_TURN, 2 * ITEMS_A_TURN + 1]
    harness.timers.advance(100)
    assert {each.checks for each in partitions} == {2}
