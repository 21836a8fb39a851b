"""No marker may be written between the verification of a transaction and the append that it allows."""

from __future__ import annotations

from dataclasses import replace

import pytest
from harness.in_memory_node import InMemoryNode, batch

from moldau.base.errors import ErrorCode, KafkaError
from moldau.log.validate import Origin
from moldau.replica.partition import Partition
from moldau.replica.verification import Verifications
from moldau.testing.clock import FakeClock
from moldau.wire.records import EndTxnMarker, build_batch, end_txn_marker

PRODUCER, EPOCH = 7, 2


@pytest.fixture
def partition() -> Partition:
    node = InMemoryNode().start()
    node.create_topic("t")
    return node.partition("t")


def append(partition: Partition, sequence: int = 0, epoch: int = EPOCH) -> None:
    header: dict[str, int] = {
        "producer_id": PRODUCER,
        "producer_epoch": epoch,
        "base_sequence": sequence,
        "is_transactional": True,
    }
    partition.append(batch(**header), -1, FakeClock().now_ms())


def mark(partition: Partition, verifications: Verifications, epoch: int = EPOCH) -> None:
    marker = build_batch(
        [end_txn_marker(EndTxnMarker(False, 1), 0)],
        producer_id=PRODUCER,
        producer_epoch=epoch,
        is_transactional=True,
        is_control=True,
    )
    partition.append(memoryview(marker), -1, 0, Origin.COORDINATOR)
    verifications.finish(partition, PRODUCER)


def check_error(verifications: Verifications, partition: Partition, sequence: int, guard: object) -> ErrorCode:
    with pytest.raises(KafkaError) as refused:
        verifications.check(partition, PRODUCER, EPOCH, sequence, guard)  # type: ignore[arg-type]
    return refused.value.code


def test_a_verified_write_is_accepted_and_the_next_needs_no_verification(partition: Partition) -> None:
    verifications = Verifications()
    guard = verifications.begin(partition, PRODUCER, EPOCH, 0, 0)
    assert guard is not None
    verifications.check(partition, PRODUCER, EPOCH, 0, guard)
    append(partition)
    verifications.finish(partition, PRODUCER)
    assert verifications.begin(partition, PRODUCER, EPOCH, 1, 0) is None
    verifications.check(partition, PRODUCER, EPOCH, 1, None)


def test_a_marker_in_between_voids_the_verification(partition: Partition) -> None:
    """Records appended after the marker would open a transaction that never ends."""
    verifications = Verifications()
    guard = verifications.begin(partition, PRODUCER, EPOCH, 0, 0)
    mark(partition, verifications)
    assert check_error(verifications, partition, 0, guard) is ErrorCode.INVALID_TXN_STATE
    new_guard = verifications.begin(partition, PRODUCER, EPOCH, 0, 0)
    verifications.check(partition, PRODUCER, EPOCH, 0, new_guard)
    assert check_error(verifications, partition, 0, guard) is ErrorCode.INVALID_TXN_STATE, (
        "the old verification stays void"
    )


def test_an_unverified_write_is_refused(partition: Partition) -> None:
    assert check_error(Verifications(), partition, 0, None) is ErrorCode.INVALID_TXN_STATE


def test_writes_are_accepted_in_the_order_of_their_sequences(partition: Partition) -> None:
    verifications = Verifications()
    later = verifications.begin(partition, PRODUCER, EPOCH, 5, 0)
    verifications.check(partition, PRODUCER, EPOCH, 5, later)
    first = verifications.begin(partition, PRODUCER, EPOCH, 2, 0)
    assert first is later
    assert check_error(verifications, partition, 5, later) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    verifications.check(partition, PRODUCER, EPOCH, 2, first)


def test_a_late_request_need_not_be_written_first(partition: Partition) -> None:
    """Its records are in the log since the client has sent them again, and their transaction has ended."""
    verifications = Verifications()
    for sequence in range(7):
        append(partition, sequence)
    mark(partition, verifications)
    late = verifications.begin(partition, PRODUCER, EPOCH, 0, 0)
    following = verifications.begin(partition, PRODUCER, EPOCH, 7, 0)
    assert late is following
    verifications.check(partition, PRODUCER, EPOCH, 7, following)
    verifications.check(partition, PRODUCER, EPOCH, 0, late)


def test_a_new_epoch_restarts_sequences_and_an_old_one_is_fenced(partition: Partition) -> None:
    verifications = Verifications()
    verifications.begin(partition, PRODUCER, EPOCH, 0, 0)
    newer = verifications.begin(partition, PRODUCER, EPOCH + 1, 9, 0)
    verifications.check(partition, PRODUCER, EPOCH + 1, 9, newer)
    append(partition, 9, EPOCH + 1)
    with pytest.raises(KafkaError) as refused:
        verifications.begin(partition, PRODUCER, EPOCH, 0, 0)
    assert refused.value.code is ErrorCode.INVALID_PRODUCER_EPOCH


def test_unused_verifications_expire(partition: Partition) -> None:
    verifications = Verifications()
    guard = verifications.begin(partition, PRODUCER, EPOCH, 0, 1_000)
    verifications.expire(1_999, 1_000)
    verifications.check(partition, PRODUCER, EPOCH, 0, guard)
    verifications.expire(2_000, 1_000)
    assert check_error(verifications, partition, 0, guard) is ErrorCode.INVALID_TXN_STATE


def test_a_verification_ends_with_the_leader_epoch(partition: Partition) -> None:
    verifications = Verifications()
    before = verifications.begin(partition, PRODUCER, EPOCH, 0, 0)
    state = partition.state
    partition.become_follower(replace(state, leader=9, leader_epoch=state.leader_epoch + 1))
    with pytest.raises(KafkaError) as refused:
        verifications.begin(partition, PRODUCER, EPOCH, 0, 0)
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    partition.lead(replace(state, leader_epoch=state.leader_epoch + 2))
    assert check_error(verifications, partition, 0, before) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    renewed = verifications.begin(partition, PRODUCER, EPOCH, 5, 0)
    verifications.check(partition, PRODUCER, EPOCH, 5, renewed)
