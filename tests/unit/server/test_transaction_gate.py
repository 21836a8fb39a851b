"""A write that comes before its producer's last transaction has ended waits a little, and is then verified anew."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import pytest
from rooms import Rooms

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import TopicPartition
from moldau.base.promise import Promise
from moldau.replica.verification import Verifications
from moldau.runtime.coordinators.transaction_gate import Patience, TransactionalWrite, TransactionGate
from moldau.runtime.coordinators.transaction_verifier import Codes, InTransaction, TransactionVerifier

T0 = TopicPartition("t", 0)
RETRY_MS, RETRY_MAX_MS = 20, 100


class Coordinator(TransactionVerifier):
    """Answers what a test tells it to."""

    def __init__(self) -> None:
        self.asked: list[Promise[Codes]] = []

    def verify(self, transaction: InTransaction, partitions: object) -> Promise[Codes]:
        self.asked.append(Promise())
        return self.asked[-1]


class Asked(NamedTuple):
    write: TransactionalWrite
    verified: Promise[None] | None

    @property
    def is_done(self) -> bool:
        return self.verified is None or self.verified.done


class Gate:
    def __init__(self, verifies: bool = True) -> None:
        self.rooms = Rooms().start()
        self.rooms.create_topic("t")
        self.partition = self.rooms.partition("t")
        self.coordinator = Coordinator()
        self.verifications = Verifications()
        self.gate = TransactionGate(
            self.verifications,
            self.coordinator,
            self.rooms.clock,
            self.rooms.timers,
            Patience(RETRY_MS, RETRY_MAX_MS),
            lambda: verifies,
        )

    def ask(self, *, adds: bool = True, knows_abortable: bool = True, sequence: int = 0) -> Asked:
        return self.send(
            TransactionalWrite(InTransaction("tx", 7, 1, adds), {self.partition: sequence}, knows_abortable)
        )

    def send(self, write: TransactionalWrite) -> Asked:
        return Asked(write, self.gate.verify(write))

    def answer(self, code: ErrorCode = ErrorCode.NONE) -> None:
        self.coordinator.asked.pop(0).complete({T0: code} if code else {})

    def await_question(self) -> int:
        """How many milliseconds pass until the coordinator is asked again."""
        waited_ms = 0
        while not self.coordinator.asked and waited_ms <= RETRY_MAX_MS:
            self.rooms.timers.advance(1)
            waited_ms += 1
        return waited_ms

    def code_at_the_append(self, asked: Asked) -> ErrorCode:
        assert asked.is_done
        try:
            self.gate.check(asked.write, self.partition)
        except KafkaError as refused:
            return refused.code
        return ErrorCode.NONE


def are_done(asked: Sequence[Asked]) -> list[bool]:
    return [each.is_done for each in asked]


def test_what_is_part_of_the_transaction_passes() -> None:
    world = Gate()
    passed = world.ask()
    world.answer()
    assert world.code_at_the_append(passed) is ErrorCode.NONE


@pytest.mark.parametrize("jump_ms", [86_400_000, -86_400_000])
def test_a_clock_that_jumps_neither_ends_nor_prolongs_what_was_verified(jump_ms: int) -> None:
    world = Gate()
    passed = world.ask()
    world.answer()
    world.rooms.clock.jump(jump_ms)
    world.verifications.expire(world.rooms.clock.elapsed_ms(), expiration_ms=1_000)
    assert world.code_at_the_append(passed) is ErrorCode.NONE
    world.rooms.timers.advance(1_000)
    world.verifications.expire(world.rooms.clock.elapsed_ms(), expiration_ms=1_000)
    assert world.code_at_the_append(passed) is not ErrorCode.NONE


def test_the_marker_of_the_transaction_before_does_not_void_what_waits_for_it() -> None:
    world = Gate()
    passed = world.ask()
    world.answer(ErrorCode.CONCURRENT_TRANSACTIONS)
    world.verifications.finish(world.partition, 7)
    world.rooms.timers.advance(RETRY_MS)
    world.answer()
    assert world.code_at_the_append(passed) is ErrorCode.NONE


def test_a_marker_that_comes_between_question_and_answer_does_not_void_what_is_verified_anew() -> None:
    world = Gate()
    passed = world.ask()
    world.verifications.finish(world.partition, 7)
    world.answer()
    world.await_question()
    world.answer()
    assert world.code_at_the_append(passed) is ErrorCode.NONE
    assert world.coordinator.asked == []


def test_what_was_verified_at_the_end_of_the_patience_is_not_refused_for_a_marker_of_the_transaction_before() -> None:
    world = Gate()
    passed = world.ask()
    world.rooms.timers.advance(RETRY_MAX_MS)
    world.verifications.finish(world.partition, 7)
    world.answer()
    world.await_question()
    world.answer()
    assert world.code_at_the_append(passed) is ErrorCode.NONE


def test_who_asked_after_that_marker_does_not_overtake_who_asked_before_it() -> None:
    world = Gate()
    first = world.ask()
    world.verifications.finish(world.partition, 7)
    second = world.ask(sequence=1)
    world.answer()
    world.answer()
    assert are_done([first, second]) == [False, False]
    world.await_question()
    world.answer()
    assert are_done([first, second]) == [True, True]
    assert world.code_at_the_append(first) is ErrorCode.NONE


def test_a_short_wait_is_looked_at_sooner_than_a_long_one() -> None:
    world = Gate()
    world.ask()
    waits_ms = []
    for _ in range(7):
        world.answer(ErrorCode.CONCURRENT_TRANSACTIONS)
        waits_ms.append(world.await_question())
    assert waits_ms == [1, 2, 4, 8, 16, RETRY_MS, RETRY_MS]


def test_the_waiting_has_an_end() -> None:
    world = Gate()
    passed = world.ask()
    for _ in range(RETRY_MAX_MS // RETRY_MS):
        world.answer(ErrorCode.CONCURRENT_TRANSACTIONS)
        world.rooms.timers.advance(RETRY_MS)
    world.answer(ErrorCode.CONCURRENT_TRANSACTIONS)
    assert world.code_at_the_append(passed) is ErrorCode.CONCURRENT_TRANSACTIONS


def test_who_added_the_partition_beforehand_is_told_at_once() -> None:
    world = Gate()
    passed = world.ask(adds=False)
    world.answer(ErrorCode.CONCURRENT_TRANSACTIONS)
    assert world.code_at_the_append(passed) is ErrorCode.CONCURRENT_TRANSACTIONS


def test_what_older_clients_do_not_know_is_told_in_other_words() -> None:
    world = Gate()
    for knows, code in ((True, ErrorCode.TRANSACTION_ABORTABLE), (False, ErrorCode.INVALID_TXN_STATE)):
        passed = world.ask(adds=False, knows_abortable=knows)
        world.answer(ErrorCode.TRANSACTION_ABORTABLE)
        assert world.code_at_the_append(passed) is code
    passed = world.ask()
    world.answer(ErrorCode.PRODUCER_FENCED)
    assert world.code_at_the_append(passed) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_without_verification_who_added_it_beforehand_is_believed() -> None:
    world = Gate(verifies=False)
    assert world.code_at_the_append(world.ask(adds=False)) is ErrorCode.NONE
    assert world.coordinator.asked == []
    passed = world.ask(adds=True)
    world.answer(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    assert world.code_at_the_append(passed) is ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_what_a_producer_sent_first_is_not_overtaken_while_it_waits() -> None:
    world = Gate()
    first, second = world.ask(), world.ask()
    world.answer(ErrorCode.CONCURRENT_TRANSACTIONS)
    world.await_question()
    world.coordinator.asked.reverse()
    world.rooms.timers.advance(RETRY_MS)
    asked_again, asked_once = world.coordinator.asked
    asked_once.complete({})
    assert not second.is_done
    asked_again.complete({})
    assert are_done([first, second]) == [True, True]


def test_who_need_not_be_verified_stands_in_line_too() -> None:
    world = Gate()
    first = world.ask()
    asked = [first, world.send(TransactionalWrite(first.write.transaction, {}, True))]
    assert are_done(asked) == [False, False]
    world.answer()
    assert are_done(asked) == [True, True]
