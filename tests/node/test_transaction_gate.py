"""A write that arrives before its producer's previous transaction has ended waits a little and is verified again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import pytest
from harness.in_memory_node import InMemoryNode

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import TopicPartition
from moldau.base.promise import Promise
from moldau.replica.verification import Verifications
from moldau.runtime.coordinators.transaction_gate import Patience, TransactionalWrite, TransactionGate
from moldau.runtime.coordinators.transaction_verifier import Codes, InTransaction, TransactionVerifier

T0 = TopicPartition("t", 0)
RETRY_MS, RETRY_MAX_MS = 20, 100


class Coordinator(TransactionVerifier):
    """Collects the verification requests; the test answers them."""

    def __init__(self) -> None:
        self.questions: list[Promise[Codes]] = []

    def verify(self, transaction: InTransaction, partitions: object) -> Promise[Codes]:
        self.questions.append(Promise())
        return self.questions[-1]


class SentWrite(NamedTuple):
    write: TransactionalWrite
    verified: Promise[None] | None

    @property
    def is_done(self) -> bool:
        return self.verified is None or self.verified.done


class GateSetup:
    def __init__(self, verifies: bool = True) -> None:
        self.node = InMemoryNode().start()
        self.node.create_topic("t")
        self.partition = self.node.partition("t")
        self.coordinator = Coordinator()
        self.verifications = Verifications()
        self.transaction_gate = TransactionGate(
            self.verifications,
            self.coordinator,
            self.node.clock,
            self.node.timers,
            Patience(RETRY_MS, RETRY_MAX_MS),
            lambda: verifies,
        )

    def ask(self, *, adds: bool = True, knows_abortable: bool = True, sequence: int = 0) -> SentWrite:
        transaction = InTransaction("tx", 7, 1, adds)
        return self.send(TransactionalWrite(transaction, {self.partition: sequence}, knows_abortable))

    def send(self, write: TransactionalWrite) -> SentWrite:
        return SentWrite(write, self.transaction_gate.verify(write))

    def answer(self, code: ErrorCode = ErrorCode.NONE) -> None:
        self.coordinator.questions.pop(0).complete({T0: code} if code else {})

    def wait_for_question(self) -> int:
        """Return how many milliseconds pass until the coordinator is asked again."""
        waited_ms = 0
        while not self.coordinator.questions and waited_ms <= RETRY_MAX_MS:
            self.node.timers.advance(1)
            waited_ms += 1
        return waited_ms

    def append_error(self, sent: SentWrite) -> ErrorCode:
        assert sent.is_done
        try:
            self.transaction_gate.check(sent.write, self.partition)
        except KafkaError as error:
            return error.code
        return ErrorCode.NONE


def are_done(results: Sequence[SentWrite]) -> list[bool]:
    return [each.is_done for each in results]


def test_a_write_to_a_partition_of_the_transaction_passes() -> None:
    gate = GateSetup()
    sent = gate.ask()
    gate.answer()
    assert gate.append_error(sent) is ErrorCode.NONE


@pytest.mark.parametrize("jump_ms", [86_400_000, -86_400_000])
def test_a_clock_jump_neither_ends_nor_prolongs_a_verification(jump_ms: int) -> None:
    gate = GateSetup()
    sent = gate.ask()
    gate.answer()
    gate.node.clock.jump(jump_ms)
    gate.verifications.expire(gate.node.clock.monotonic_ms(), expiration_ms=1_000)
    assert gate.append_error(sent) is ErrorCode.NONE
    gate.node.timers.advance(1_000)
    gate.verifications.expire(gate.node.clock.monotonic_ms(), expiration_ms=1_000)
    assert gate.append_error(sent) is not ErrorCode.NONE


def test_the_marker_of_the_previous_transaction_does_not_void_a_write_that_waits_for_it() -> None:
    gate = GateSetup()
    sent = gate.ask()
    gate.answer(ErrorCode.CONCURRENT_TRANSACTIONS)
    gate.verifications.finish(gate.partition, 7)
    gate.node.timers.advance(RETRY_MS)
    gate.answer()
    assert gate.append_error(sent) is ErrorCode.NONE


def test_a_write_is_verified_again_after_a_marker_between_question_and_answer() -> None:
    gate = GateSetup()
    sent = gate.ask()
    gate.verifications.finish(gate.partition, 7)
    gate.answer()
    gate.wait_for_question()
    gate.answer()
    assert gate.append_error(sent) is ErrorCode.NONE
    assert gate.coordinator.questions == []


def test_a_write_verified_at_the_retry_limit_is_not_refused_for_the_previous_transactions_marker() -> None:
    gate = GateSetup()
    sent = gate.ask()
    gate.node.timers.advance(RETRY_MAX_MS)
    gate.verifications.finish(gate.partition, 7)
    gate.answer()
    gate.wait_for_question()
    gate.answer()
    assert gate.append_error(sent) is ErrorCode.NONE


def test_a_write_sent_after_a_marker_does_not_overtake_an_earlier_write() -> None:
    gate = GateSetup()
    first = gate.ask()
    gate.verifications.finish(gate.partition, 7)
    second = gate.ask(sequence=1)
    gate.answer()
    gate.answer()
    assert are_done([first, second]) == [False, False]
    gate.wait_for_question()
    gate.answer()
    assert are_done([first, second]) == [True, True]
    assert gate.append_error(first) is ErrorCode.NONE


def test_the_retry_interval_grows_up_to_its_maximum() -> None:
    gate = GateSetup()
    gate.ask()
    waits_ms = []
    for _ in range(7):
        gate.answer(ErrorCode.CONCURRENT_TRANSACTIONS)
        waits_ms.append(gate.wait_for_question())
    assert waits_ms == [1, 2, 4, 8, 16, RETRY_MS, RETRY_MS]


def test_retries_end_with_concurrent_transactions_at_the_retry_limit() -> None:
    gate = GateSetup()
    sent = gate.ask()
    for _ in range(RETRY_MAX_MS // RETRY_MS):
        gate.answer(ErrorCode.CONCURRENT_TRANSACTIONS)
        gate.node.timers.advance(RETRY_MS)
    gate.answer(ErrorCode.CONCURRENT_TRANSACTIONS)
    assert gate.append_error(sent) is ErrorCode.CONCURRENT_TRANSACTIONS


def test_a_producer_that_added_the_partition_itself_gets_the_error_at_once() -> None:
    gate = GateSetup()
    sent = gate.ask(adds=False)
    gate.answer(ErrorCode.CONCURRENT_TRANSACTIONS)
    assert gate.append_error(sent) is ErrorCode.CONCURRENT_TRANSACTIONS


def test_older_clients_get_errors_that_they_know() -> None:
    gate = GateSetup()
    for knows, code in ((True, ErrorCode.TRANSACTION_ABORTABLE), (False, ErrorCode.INVALID_TXN_STATE)):
        sent = gate.ask(adds=False, knows_abortable=knows)
        gate.answer(ErrorCode.TRANSACTION_ABORTABLE)
        assert gate.append_error(sent) is code
    sent = gate.ask()
    gate.answer(ErrorCode.PRODUCER_FENCED)
    assert gate.append_error(sent) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_without_verification_a_producer_that_adds_partitions_itself_is_not_checked() -> None:
    gate = GateSetup(verifies=False)
    assert gate.append_error(gate.ask(adds=False)) is ErrorCode.NONE
    assert gate.coordinator.questions == []
    sent = gate.ask(adds=True)
    gate.answer(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    assert gate.append_error(sent) is ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_a_waiting_write_is_not_overtaken_by_the_next_write_of_its_producer() -> None:
    gate = GateSetup()
    first, second = gate.ask(), gate.ask()
    gate.answer(ErrorCode.CONCURRENT_TRANSACTIONS)
    gate.wait_for_question()
    gate.coordinator.questions.reverse()
    gate.node.timers.advance(RETRY_MS)
    asked_again, asked_once = gate.coordinator.questions
    asked_once.complete({})
    assert not second.is_done
    asked_again.complete({})
    assert are_done([first, second]) == [True, True]


def test_a_write_that_needs_no_verification_waits_for_earlier_writes() -> None:
    gate = GateSetup()
    first = gate.ask()
    results = [first, gate.send(TransactionalWrite(first.write.transaction, {}, True))]
    assert are_done(results) == [False, False]
    gate.answer()
    assert are_done(results) == [True, True]


def test_only_the_last_unconfirmed_producers_are_remembered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("moldau.replica.verification.FAILED_GUARDS_MAX", 3)
    gate = GateSetup()
    for number in range(10):
        transaction = InTransaction(f"invented {number}", number, 0, True)
        gate.send(TransactionalWrite(transaction, {gate.partition: 0}, True))
        gate.answer(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert [producer_id for _, producer_id in gate.verifications._guards] == [7, 8, 9]
    again = gate.send(TransactionalWrite(InTransaction("invented 0", 0, 0, True), {gate.partition: 0}, True))
    gate.answer()
    assert gate.append_error(again) is ErrorCode.NONE


def test_a_producer_that_is_verified_again_is_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moldau.replica.verification.FAILED_GUARDS_MAX", 1)
    gate = GateSetup()
    gate.ask()
    gate.answer(ErrorCode.NETWORK_EXCEPTION)
    again = gate.ask()
    for number in range(2):
        gate.send(TransactionalWrite(InTransaction("invented", number, 0, True), {gate.partition: 0}, True))
        gate.coordinator.questions.pop().complete({T0: ErrorCode.NETWORK_EXCEPTION})
    gate.answer()
    assert gate.append_error(again) is ErrorCode.NONE


def test_a_later_batch_is_not_written_before_one_whose_verification_failed() -> None:
    gate = GateSetup()
    gate.ask()
    gate.answer(ErrorCode.NETWORK_EXCEPTION)
    later = gate.ask(sequence=1)
    gate.answer()
    assert gate.append_error(later) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    again = gate.ask()
    gate.answer()
    assert gate.append_error(again) is ErrorCode.NONE


def test_a_write_that_fails_when_it_is_verified_does_not_hold_up_the_next_one_of_its_transaction() -> None:
    def fail(_: None) -> None:
        raise RuntimeError("a fault of ours")

    setup = GateSetup()
    first, second = setup.ask(), setup.ask(sequence=1)
    assert first.verified is not None
    first.verified.then(fail)
    later = setup.coordinator.questions.pop()
    later.complete({})
    assert not second.is_done, "in order"
    setup.answer()
    assert second.is_done
