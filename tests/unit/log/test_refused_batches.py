"""Batches in flight behind a refused one: they get the same error until the client sends the refused one again."""

from __future__ import annotations

import pytest
from harness.making_logs import NOW_MS, batch_of, new_log
from writing_producers import end, refused, send

from moldau.base.errors import ErrorCode
from moldau.base.limits import REFUSED_PRODUCERS_MAX
from moldau.log.log import Log
from moldau.log.producer_batches import note_refusal
from moldau.log.producers import REFUSAL_MS

FULL = ErrorCode.KAFKA_STORAGE_ERROR
GAP = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
SEQUENCE_MAX = 2**31 - 1


def refuse(
    log: Log,
    sequence: int,
    code: ErrorCode = FULL,
    *,
    epoch: int = 0,
    producer_id: int = 7,
    is_transactional: bool = False,
) -> None:
    """Refuse a batch for a reason that has nothing to do with it."""
    batch = batch_of(
        producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, is_transactional=is_transactional
    )
    note_refusal(log.producers, batch, code, NOW_MS)


@pytest.mark.parametrize("code", [FULL, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_LEADER_OR_FOLLOWER])
def test_batches_behind_a_refused_one_get_its_error(code: ErrorCode) -> None:
    log = new_log()
    send(log, 0, 30)
    refuse(log, 30, code)
    assert refused(log, 31) is code
    assert refused(log, 40, 5) is code
    assert not send(log, 30).duplicate
    assert not send(log, 31).duplicate
    assert refused(log, 40) is GAP, "nothing is refused any more"


def test_a_producer_that_the_log_does_not_know_begins_with_its_refused_batch() -> None:
    log = new_log()
    refuse(log, 0)
    assert refused(log, 1) is FULL
    assert refused(log, 2, is_transactional=True, version=2) is FULL
    send(log, 0)
    send(log, 1)


def test_an_unknown_producer_may_begin_before_its_refused_batch() -> None:
    """Its earlier batch was written by another leader, and that leader's records are gone."""
    log = new_log()
    refuse(log, 5)
    send(log, 4)
    send(log, 5)


def test_the_first_of_several_refused_batches_must_come_again() -> None:
    log = new_log()
    for sequence in (7, 5, 6):
        refuse(log, sequence)
    assert refused(log, 6) is FULL
    send(log, 5)
    send(log, 6)


def test_the_error_is_that_of_the_last_attempt() -> None:
    log = new_log()
    refuse(log, 0)
    refuse(log, 0, ErrorCode.NOT_ENOUGH_REPLICAS)
    assert refused(log, 1) is ErrorCode.NOT_ENOUGH_REPLICAS


def test_a_repeated_batch_is_answered_with_its_offsets() -> None:
    log = new_log()
    first = send(log, 0, 3)
    refuse(log, 3)
    again = send(log, 0, 3)
    assert (again.duplicate, again.first_offset, again.last_offset) == (True, first.first_offset, first.last_offset)
    assert refused(log, 4) is FULL


def test_a_refused_repetition_holds_nothing_up() -> None:
    log = new_log()
    send(log, 0)
    send(log, 1)
    refuse(log, 0)
    send(log, 2)
    assert refused(log, 9) is GAP


@pytest.mark.parametrize("last", [SEQUENCE_MAX, SEQUENCE_MAX - 3])
def test_sequences_behind_a_refused_one_wrap_to_zero(last: int) -> None:
    log = new_log()
    refuse(log, last)
    assert refused(log, 0) is FULL
    assert refused(log, 1) is FULL
    send(log, last, SEQUENCE_MAX - last + 1)
    send(log, 0)


def test_a_newer_epoch_begins_anew() -> None:
    log = new_log()
    send(log, 0)
    refuse(log, 1)
    assert refused(log, 1, epoch=1) is GAP
    refuse(log, 0, epoch=1)
    assert refused(log, 1, epoch=1) is FULL
    assert refused(log, 2, epoch=0) is GAP, "the older epoch is not expected any more"
    send(log, 0, epoch=1)
    assert refused(log, 5, epoch=1) is GAP
    refuse(log, 1, epoch=0)
    assert refused(log, 5, epoch=1) is GAP


def test_other_producers_are_not_concerned() -> None:
    log = new_log()
    refuse(log, 0, producer_id=7)
    send(log, 3, producer_id=8)
    assert refused(log, 5, producer_id=8) is GAP


def test_transactions_wait_for_their_refused_batch_too() -> None:
    log = new_log()
    send(log, 0, is_transactional=True)
    refuse(log, 1, is_transactional=True)
    assert refused(log, 2, is_transactional=True) is FULL
    end(log, commit=False)
    send(log, 1, is_transactional=True)
    send(log, 2, is_transactional=True)


def test_markers_are_not_held_up() -> None:
    log = new_log()
    refuse(log, 0, is_transactional=True)
    end(log, commit=False)
    send(log, 0, is_transactional=True)


@pytest.mark.parametrize("code", [ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD, GAP])
def test_errors_of_the_batch_itself_are_not_remembered(code: ErrorCode) -> None:
    log = new_log()
    refuse(log, 0, code)
    send(log, 1)


def test_batches_without_a_producer_are_not_remembered() -> None:
    log = new_log()
    note_refusal(log.producers, batch_of(), FULL, NOW_MS)
    note_refusal(log.producers, memoryview(b"no batch"), FULL, NOW_MS)
    send(log, 5)


def test_refusals_are_forgotten_when_another_node_leads() -> None:
    log = new_log()
    refuse(log, 0)
    log.producers.forget_refusals()
    send(log, 1)


def test_refusals_are_forgotten_after_minutes() -> None:
    log = new_log()
    refuse(log, 0)
    log.producers.expire(NOW_MS + REFUSAL_MS - 1, 1_000)
    assert refused(log, 1) is FULL
    log.producers.expire(NOW_MS + REFUSAL_MS, 1_000)
    send(log, 1)


def test_a_truncation_forgets_refusals() -> None:
    log = new_log()
    send(log, 0)
    refuse(log, 1)
    log.truncate_to(0)
    send(log, 3)


def test_the_number_of_refusals_is_limited() -> None:
    log = new_log()
    for producer_id in range(REFUSED_PRODUCERS_MAX + 1):
        refuse(log, 0, producer_id=producer_id)
    refuse(log, 0, producer_id=1)
    send(log, 1, producer_id=0)
    assert refused(log, 1, producer_id=1) is FULL
    assert refused(log, 1, producer_id=REFUSED_PRODUCERS_MAX) is FULL
