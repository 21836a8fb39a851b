"""Many writes share one request to the coordinator, and each gets its own result."""

from __future__ import annotations

from fake_brokers import FakeBrokers

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import TopicPartition
from moldau.base.limits import TRANSACTION_REQUEST_BYTES_MAX
from moldau.base.promise import Promise
from moldau.runtime.coordinators.transaction_verifier import Codes, InTransaction, TransactionVerifier
from moldau.testing.clock import FakeTimers
from moldau.wire.apis import ApiKey
from moldau.wire.frames import request_frame
from moldau.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def fail(_: object) -> None:
    raise RuntimeError("a fault of ours")


class VerifierHarness:
    def __init__(self) -> None:
        self.brokers = FakeBrokers()
        self.timers = FakeTimers()
        self.coordinator: int | ErrorCode = 2
        self.verifier = TransactionVerifier(self._coordinator_of, self.brokers, self.timers)

    def _coordinator_of(self, transactional_id: str) -> int:
        if isinstance(self.coordinator, ErrorCode):
            raise KafkaError(self.coordinator)
        return self.coordinator

    def verify(self, name: str, *partitions: TopicPartition, adds: bool = False, epoch: int = 3) -> Promise[Codes]:
        return self.verifier.verify(InTransaction(name, 7, epoch, adds), partitions)

    def request_in_flight(self) -> list[tuple[str, int, bool, list[TopicPartition]]]:
        """Return the one request in flight."""
        ((node, request, _),) = self.brokers.requests
        assert node == 2
        return [
            (
                each.transactional_id,
                each.producer_epoch,
                each.verify_only,
                [TopicPartition(topic.name, index) for topic in each.topics for index in topic.partitions],
            )
            for each in request.transactions
        ]

    def answer_if_short(self) -> None:
        """Answer the next request like a coordinator, which refuses one that is too long."""
        request = self.brokers.requests[0][1]
        assert len(request_frame(ApiKey.ADD_PARTITIONS_TO_TXN, 5, 1, None, request)) <= TRANSACTION_REQUEST_BYTES_MAX
        self.answer()

    def answer(self, codes: Codes | None = None) -> None:
        _, request, waiting = self.brokers.take()
        waiting.complete(response(request, codes or {}))
        self.timers.run_soon()


def response(request: AddPartitionsToTxnRequest, codes: Codes) -> AddPartitionsToTxnResponse:
    return AddPartitionsToTxnResponse(
        results_by_transaction=[
            AddPartitionsToTxnResult(
                each.transactional_id,
                [
                    AddPartitionsToTxnTopicResult(
                        topic.name,
                        [
                            AddPartitionsToTxnPartitionResult(
                                index, codes.get(TopicPartition(topic.name, index), ErrorCode.NONE)
                            )
                            for index in topic.partitions
                        ],
                    )
                    for topic in each.topics
                ],
            )
            for each in request.transactions
        ]
    )


def test_a_result_has_the_errors_of_its_partitions() -> None:
    harness = VerifierHarness()
    errors = harness.verify("tx", A0, B0)
    assert harness.request_in_flight() == [("tx", 3, True, [A0, B0])]
    harness.answer({B0: ErrorCode.TRANSACTION_ABORTABLE})
    assert errors.value() == {B0: ErrorCode.TRANSACTION_ABORTABLE}


def test_one_request_is_in_flight_and_the_next_has_the_queued_writes() -> None:
    harness = VerifierHarness()
    first = harness.verify("tx", A0)
    second, third, fourth = (
        harness.verify("tx", A1),
        harness.verify("tx", A1, B0),
        harness.verify("other", A0, adds=True),
    )
    assert harness.request_in_flight() == [("tx", 3, True, [A0])]
    harness.answer()
    assert first.value() == {}
    assert harness.request_in_flight() == [("tx", 3, True, [A1, B0]), ("other", 3, False, [A0])]
    harness.answer({B0: ErrorCode.INVALID_TXN_STATE})
    assert (second.value(), third.value(), fourth.value()) == ({}, {B0: ErrorCode.INVALID_TXN_STATE}, {})
    assert harness.brokers.requests == []


def test_two_epochs_of_one_producer_go_into_separate_requests() -> None:
    harness = VerifierHarness()
    harness.verify("first", A0)
    old, new = harness.verify("tx", A0, epoch=3), harness.verify("tx", A0, epoch=4)
    harness.answer()
    assert harness.request_in_flight() == [("tx", 3, True, [A0])]
    harness.answer({A0: ErrorCode.PRODUCER_FENCED})
    assert harness.request_in_flight() == [("tx", 4, True, [A0])]
    harness.answer()
    assert (old.value(), new.value()) == ({A0: ErrorCode.PRODUCER_FENCED}, {})


def test_a_missing_coordinator_or_response_is_an_error() -> None:
    harness = VerifierHarness()
    harness.coordinator = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert harness.verify("tx", A0).value() == {A0: ErrorCode.COORDINATOR_NOT_AVAILABLE}
    harness.coordinator = 2
    errors = harness.verify("tx", A0)
    harness.brokers.take()[2].complete(KafkaError(ErrorCode.REQUEST_TIMED_OUT))
    assert errors.value() == {A0: ErrorCode.NETWORK_EXCEPTION}
    refused = harness.verify("tx", A0)
    harness.timers.run_soon()
    harness.brokers.take()[2].complete(AddPartitionsToTxnResponse(error_code=ErrorCode.NOT_COORDINATOR))
    assert refused.value() == {A0: ErrorCode.NOT_COORDINATOR}


def test_a_write_refused_because_of_another_write_is_verified_again() -> None:
    harness = VerifierHarness()
    harness.verify("tx", A0)
    of_a_deleted_topic, innocent = harness.verify("tx", B0), harness.verify("tx", A1)
    harness.answer()
    harness.answer({B0: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, A1: ErrorCode.OPERATION_NOT_ATTEMPTED})
    assert of_a_deleted_topic.value() == {B0: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert not innocent.done
    assert harness.request_in_flight() == [("tx", 3, True, [A1])]
    harness.answer()
    assert innocent.value() == {}


def test_the_partitions_of_one_write_are_refused_together() -> None:
    harness = VerifierHarness()
    together = harness.verify("tx", A1, B0)
    codes = {B0: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, A1: ErrorCode.OPERATION_NOT_ATTEMPTED}
    harness.answer(codes)
    assert together.value() == codes
    assert harness.brokers.requests == []


def test_a_partition_missing_in_the_response_is_an_error() -> None:
    harness = VerifierHarness()
    errors = harness.verify("tx", A0)
    harness.brokers.take()[2].complete(AddPartitionsToTxnResponse())
    assert errors.value() == {A0: ErrorCode.UNKNOWN_SERVER_ERROR}


def test_a_request_is_never_too_long_for_its_coordinator() -> None:
    harness = VerifierHarness()
    errors = [harness.verify(f"{number:0>32000}", A0) for number in range(100)]
    request_count = 0
    while harness.brokers.requests:
        harness.answer_if_short()
        request_count += 1
    assert [each.value() for each in errors] == [{}] * 100
    assert request_count < 10, "a request takes as much as fits"


def test_a_write_that_is_too_long_by_itself_is_still_sent() -> None:
    harness = VerifierHarness()
    long = [TopicPartition(f"{number:0>240}", 0) for number in range(3_000)]
    harness.verify("first", A0)
    errors, other = harness.verify("tx", *long), harness.verify("other", A0)
    harness.answer()
    assert [name for name, _, _, _ in harness.request_in_flight()] == ["tx"]
    harness.answer()
    harness.answer()
    assert (errors.value(), other.value()) == ({}, {})


def test_writes_of_one_transaction_share_a_request_as_far_as_they_fit() -> None:
    harness = VerifierHarness()
    harness.verify("first", A0)
    writes = [[TopicPartition(f"{write}{topic:0>248}", 0) for topic in range(1_500)] for write in range(4)]
    errors = [harness.verify("tx", *write) for write in writes] + [harness.verify("other", A0)]
    harness.answer()
    request_count = 0
    while harness.brokers.requests:
        harness.answer_if_short()
        request_count += 1
        if request_count == 2:
            assert errors[-1].done, "other transactions do not wait for a long one to be complete"
    assert [each.value() for each in errors] == [{}] * 5


def test_an_error_code_of_a_newer_coordinator_is_passed_on() -> None:
    harness = VerifierHarness()
    errors, next_errors = harness.verify("tx", A0), harness.verify("tx", A1)
    harness.answer({A0: ErrorCode(30_000)})
    assert errors.value() == {A0: 30_000}
    harness.answer()
    assert next_errors.value() == {}


def test_a_write_that_fails_with_its_result_keeps_no_other_from_its_own() -> None:
    harness = VerifierHarness()
    harness.verify("tx", A0)
    bad, good = harness.verify("bad", A0), harness.verify("good", A0)
    bad.then(fail)
    harness.answer()
    later = harness.verify("later", A0)
    harness.answer()
    assert good.done
    harness.answer()
    assert later.done
