"""Transactional batches and the markers that end them, as the partition's leader sees them.

Up to version 11 of Produce a partition must have been added to the transaction before; from 12 on the leader adds it.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pytest
from batches import CONTROL, TRANSACTIONAL, batch, headers_of
from kio.schema.errors import ErrorCode
from protocol_requests import end_offset, fetch, list_offset, produce, topic_id
from transaction_requests import (
    Marker,
    TransactionalProducer,
    add_partitions,
    await_state,
    control_records,
    describe,
    describe_producers,
    end,
    init,
    new_transactional_producer,
    next_epoch,
    open_transaction,
    send,
    transactional_batch,
    until,
    write_marker,
    write_markers,
)
from wire_client import Wire, message

CreateTopic = Callable[..., str]
UNKNOWN_PRODUCER_ID = 1 << 40
OLD, NEW = 11, 12
"""The last version of Produce that adds nothing to a transaction, and the first that does."""


@pytest.fixture
def name(create_topic: CreateTopic) -> str:
    return create_topic(partitions=2)


@pytest.fixture
def producer(wire: Wire) -> TransactionalProducer:
    """Of epoch 1, so that there is an earlier epoch."""
    transactional_id = f"tx-{uuid.uuid4().hex[:8]}"
    init(wire, transactional_id)
    return new_transactional_producer(wire, transactional_id)


def lso(wire: Wire, name: str) -> int:
    return int(list_offset(wire, name, -1, isolation_level=1).offset)


# --- Produce ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(3, 14))
def test_every_version_writes_into_a_transaction(
    wire: Wire, name: str, producer: TransactionalProducer, version: int
) -> None:
    where = topic_id(wire, name) if version >= 13 else name
    if version < NEW:
        add_partitions(wire, producer, {name: [0]})
    for seq in (0, 1, 1):
        answer = send(wire, producer, where, seq=seq, version=version)
        assert (answer.error_code, answer.base_offset) == (ErrorCode.none, seq), "a batch sent twice is written once"
    assert describe(wire, producer.transactional_id).partitions == {(name, 0)}
    assert (end_offset(wire, name), lso(wire, name)) == (2, 0)
    assert end(wire, producer, True, version=5 if version >= NEW else 4).error_code == ErrorCode.none
    until(lambda: lso(wire, name), lambda offset: offset == 3, "the marker is written")


@pytest.mark.parametrize("version", range(3, NEW))
def test_a_write_to_a_partition_that_was_not_added_is_refused(
    wire: Wire, name: str, producer: TransactionalProducer, version: int
) -> None:
    """Old clients know no error after which to abort; they fail with INVALID_TXN_STATE."""
    answer = send(wire, producer, name, version=version)
    assert answer.error_code == (ErrorCode.transaction_abortable if version == OLD else ErrorCode.invalid_txn_state)
    assert add_partitions(wire, producer, {name: [1]}) == {(name, 1): ErrorCode.none}
    assert send(wire, producer, name, version=version).error_code == answer.error_code, "that is another partition"
    assert send(wire, producer, name, version=version, partition=1).error_code == ErrorCode.none
    assert (end_offset(wire, name), end_offset(wire, name, 1)) == (0, 1)


@pytest.mark.parametrize("version", [OLD, NEW])
def test_only_the_current_producer_writes(wire: Wire, name: str, producer: TransactionalProducer, version: int) -> None:
    open_transaction(wire, producer, name)
    for other, expected in (
        (producer._replace(epoch=producer.epoch - 1), ErrorCode.invalid_producer_epoch),
        (producer._replace(id=UNKNOWN_PRODUCER_ID), ErrorCode.invalid_producer_id_mapping),
        (producer._replace(epoch=producer.epoch + 1), ErrorCode.invalid_producer_epoch),
    ):
        assert send(wire, other, name, version=version).error_code == expected, other
    assert end_offset(wire, name) == 1


@pytest.mark.parametrize("version", [OLD, NEW])
def test_writes_of_a_fenced_producer_are_refused(
    wire: Wire, name: str, producer: TransactionalProducer, version: int
) -> None:
    open_transaction(wire, producer, name)
    successor = new_transactional_producer(wire, producer.transactional_id)
    written = end_offset(wire, name)
    for partition in (0, 1):
        answer = send(wire, producer, name, seq=1 - partition, version=version, partition=partition)
        assert answer.error_code == ErrorCode.invalid_producer_epoch
    assert end_offset(wire, name) == written
    assert open_transaction(wire, successor, name) == written


@pytest.mark.parametrize("version", [OLD, NEW])
def test_sequences_are_checked_in_transactions_too(
    wire: Wire, name: str, producer: TransactionalProducer, version: int
) -> None:
    open_transaction(wire, producer, name)
    gap = send(wire, producer, name, seq=5, version=version)
    assert gap.error_code == ErrorCode.out_of_order_sequence_number
    assert send(wire, producer, name, seq=1, version=version).error_code == ErrorCode.none


def test_the_first_sequence_of_an_epoch_must_be_zero_for_new_clients(
    wire: Wire, name: str, producer: TransactionalProducer
) -> None:
    answer = send(wire, producer, name, seq=3, version=NEW)
    assert answer.error_code == ErrorCode.out_of_order_sequence_number
    assert send(wire, producer, name, seq=0, version=NEW).error_code == ErrorCode.none
    add_partitions(wire, producer, {name: [1]})
    assert send(wire, producer, name, seq=3, version=OLD, partition=1).error_code == ErrorCode.none


@pytest.mark.parametrize("version", [OLD, NEW])
def test_a_transactional_batch_needs_a_transactional_id(
    wire: Wire, name: str, producer: TransactionalProducer, version: int
) -> None:
    open_transaction(wire, producer, name)
    answer = send(wire, producer, name, seq=1, version=version, transactional_id=None)
    assert answer.error_code == ErrorCode.transactional_id_authorization_failed
    assert end_offset(wire, name) == 1


@pytest.mark.parametrize("version", [OLD, NEW])
def test_a_transaction_is_verified_only_once(
    wire: Wire, name: str, producer: TransactionalProducer, version: int
) -> None:
    """A leader with state of the transaction does not ask the coordinator; the producer id decides."""
    open_transaction(wire, producer, name)
    assert send(wire, producer, name, seq=1, version=version, transactional_id="nobody").error_code == ErrorCode.none
    wrong = send(wire, producer, name, version=version, partition=1, transactional_id="nobody")
    assert wrong.error_code == ErrorCode.invalid_producer_id_mapping


@pytest.mark.parametrize("version", [OLD, NEW])
def test_a_plain_batch_during_a_transaction_is_refused(
    wire: Wire, name: str, producer: TransactionalProducer, version: int
) -> None:
    open_transaction(wire, producer, name)
    plain = batch([b"x"], pid=producer.id, epoch=producer.epoch, seq=1)
    assert produce(wire, name, plain, version).error_code == ErrorCode.invalid_txn_state
    assert send(wire, producer, name, seq=1, version=version).error_code == ErrorCode.none
    assert produce(wire, name, batch([b"x"]), version).error_code == ErrorCode.none, (
        "a producer without an id may write"
    )


def test_a_batch_after_the_end_starts_a_transaction_only_for_new_clients(
    wire: Wire, name: str, producer: TransactionalProducer
) -> None:
    open_transaction(wire, producer, name)
    end(wire, producer, committed=True)
    await_state(wire, producer.transactional_id, "CompleteCommit")
    assert send(wire, producer, name, seq=1, version=OLD).error_code == ErrorCode.transaction_abortable
    assert lso(wire, name) == end_offset(wire, name) == 2
    assert send(wire, producer, name, seq=1, version=NEW).error_code == ErrorCode.none
    assert describe(wire, producer.transactional_id).state == "Ongoing"


@pytest.mark.parametrize("version", [OLD, NEW])
def test_a_request_may_have_only_one_producer(
    wire: Wire, name: str, producer: TransactionalProducer, version: int
) -> None:
    other = new_transactional_producer(wire, f"{producer.transactional_id}-other")
    for each in (producer, other):
        add_partitions(wire, each, {name: [0, 1]})
    partitions = [
        {"index": index, "records": transactional_batch(each)} for index, each in enumerate((producer, other))
    ]
    request_fields: dict[str, Any] = {"acks": -1, "timeout": 10_000, "transactional_id": producer.transactional_id}
    request_fields["topic_data"] = [{"name": name, "partition_data": partitions}]
    (topic,) = wire.ask(message("produce", version, **request_fields)).responses
    assert {each.error_code for each in topic.partition_responses} == {ErrorCode.invalid_producer_id_mapping}
    assert (end_offset(wire, name), end_offset(wire, name, 1)) == (0, 0)


def test_clients_cannot_write_markers_as_records(wire: Wire, name: str, producer: TransactionalProducer) -> None:
    open_transaction(wire, producer, name)
    marker = transactional_batch(producer, seq=1, attributes=TRANSACTIONAL | CONTROL)
    answer = produce(wire, name, marker, OLD, transactional_id=producer.transactional_id)
    assert answer.error_code == ErrorCode.invalid_record
    assert (end_offset(wire, name), lso(wire, name)) == (1, 0)


def test_a_record_without_a_key_is_refused_in_a_compacted_topic(
    wire: Wire, create_topic: CreateTopic, producer: TransactionalProducer
) -> None:
    name = create_topic(config={"cleanup.policy": "compact"})
    add_partitions(wire, producer, {name: [0]})
    request_fields = {"transactional_id": producer.transactional_id}
    answer = produce(wire, name, transactional_batch(producer, [b"a", b"b"], keys=[b"k", None]), OLD, **request_fields)
    assert answer.error_code == ErrorCode.invalid_record
    assert [each.batch_index for each in answer.record_errors] == [1]
    assert (
        produce(wire, name, transactional_batch(producer, keys=[b"k"]), OLD, **request_fields).error_code
        == ErrorCode.none
    )
    end(wire, producer, committed=True)
    until(lambda: lso(wire, name), lambda offset: offset == 2, "the rest of the transaction is committed")


# --- a producer that dies -----------------------------------------------------------------------------------------


def test_consumers_continue_after_a_producer_died_with_an_open_transaction(
    wire: Wire, name: str, producer: TransactionalProducer
) -> None:
    """Two die: an old client in one partition, a new one in the other. Apache looks for timeouts every ten seconds."""
    old = new_transactional_producer(wire, producer.transactional_id, transaction_timeout=3000)
    new = new_transactional_producer(wire, f"{producer.transactional_id}-new", transaction_timeout=3000)
    open_transaction(wire, old, name)
    assert send(wire, new, name, version=NEW, partition=1).error_code == ErrorCode.none
    plain = [produce(wire, name, batch([b"after"]), partition=partition).base_offset for partition in (0, 1)]
    assert plain == [1, 1]
    for partition, each in enumerate((old, new)):
        until(
            lambda partition=partition: (
                list_offset(wire, name, -1, isolation_level=1, partition_index=partition).offset
            ),
            lambda offset: offset == 3,
            "the last stable offset is at the end",
        )
        answer = fetch(wire, name, 0, isolation_level=1, partition=partition)
        assert [(one.producer_id, one.first_offset) for one in answer.aborted_transactions] == [(each.id, 0)]
        (marker,) = control_records(answer.records)
        assert (marker.producer_epoch, marker.committed) == (each.epoch + 1, False)
        shown = await_state(wire, each.transactional_id, "CompleteAbort")
        assert shown.producer_epoch == each.epoch + 1
        late = send(wire, each, name, seq=1, version=NEW, partition=partition)
        assert late.error_code == ErrorCode.invalid_producer_epoch
    assert end(wire, old, committed=True).error_code == ErrorCode.producer_fenced
    assert end(wire, new, committed=True, version=5).error_code == ErrorCode.invalid_txn_state
    assert end(wire, new, committed=False, version=5).producer_epoch == new.epoch + 1, (
        "an abort of the aborted transaction is accepted"
    )


# --- WriteTxnMarkers ----------------------------------------------------------------------------------------------


MARKER_VERSIONS = [(1, 0), (2, 0), (2, 1)]
"""Versions of the request and of the transaction in which a marker has the epoch of the transaction it ends."""


@pytest.mark.parametrize(("version", "transaction_version"), MARKER_VERSIONS)
@pytest.mark.parametrize("committed", [True, False])
def test_a_marker_ends_the_transaction_and_may_be_repeated(
    wire: Wire, name: str, producer: TransactionalProducer, version: int, transaction_version: int, committed: bool
) -> None:
    open_transaction(wire, producer, name)
    assert describe_producers(wire, name)[producer.id].current_txn_start_offset == 0
    marker = Marker(producer, {name: [0]}, committed, transaction_version=transaction_version)
    for _ in range(2):
        assert write_marker(wire, marker, version) == ErrorCode.none
        assert lso(wire, name) == end_offset(wire, name)
    found = control_records(fetch(wire, name, 0, isolation_level=1).records)
    assert {(each.producer_id, each.producer_epoch, each.committed) for each in found} == {
        (producer.id, producer.epoch, committed)
    }
    shown = describe_producers(wire, name)[producer.id]
    assert (shown.current_txn_start_offset, shown.coordinator_epoch, shown.last_sequence) == (-1, 0, 0)
    assert end(wire, producer, committed).error_code == ErrorCode.none, "the coordinator does not know of the marker"


@pytest.mark.parametrize(("version", "transaction_version"), [*MARKER_VERSIONS, (2, 2)])
def test_a_marker_of_an_older_epoch_is_refused(
    wire: Wire, name: str, producer: TransactionalProducer, version: int, transaction_version: int
) -> None:
    open_transaction(wire, producer, name)
    late = Marker(producer._replace(epoch=producer.epoch - 1), {name: [0]}, transaction_version=transaction_version)
    assert write_marker(wire, late, version) == ErrorCode.invalid_producer_epoch
    assert (end_offset(wire, name), lso(wire, name)) == (1, 0)


@pytest.mark.parametrize(("version", "transaction_version"), [*MARKER_VERSIONS, (2, 2)])
def test_a_marker_of_the_next_epoch_fences_the_producer(
    wire: Wire, name: str, producer: TransactionalProducer, version: int, transaction_version: int
) -> None:
    open_transaction(wire, producer, name)
    marker = Marker(
        producer._replace(epoch=producer.epoch + 1), {name: [0]}, False, transaction_version=transaction_version
    )
    for _ in range(2):
        assert write_marker(wire, marker, version) == ErrorCode.none
        assert lso(wire, name) == end_offset(wire, name)
    shown = describe_producers(wire, name)[producer.id]
    assert (shown.producer_epoch, shown.last_sequence) == (producer.epoch + 1, -1)
    assert send(wire, producer, name, seq=1).error_code == ErrorCode.invalid_producer_epoch


def test_from_version_2_on_a_transaction_ends_with_the_next_epoch_only(
    wire: Wire, name: str, producer: TransactionalProducer
) -> None:
    """A marker of the same epoch may be a late one of the previous transaction."""
    open_transaction(wire, producer, name)
    late = Marker(producer, {name: [0]}, transaction_version=2)
    assert write_marker(wire, late, version=2) == ErrorCode.invalid_producer_epoch
    assert (end_offset(wire, name), lso(wire, name)) == (1, 0)


def test_markers_of_a_replaced_coordinator_are_refused(wire: Wire, name: str) -> None:
    someone = TransactionalProducer("", UNKNOWN_PRODUCER_ID, 3)
    for coordinator_epoch, epoch, expected in (
        (5, 3, ErrorCode.none),
        (4, 3, ErrorCode.transaction_coordinator_fenced),
        (5, 3, ErrorCode.none),
        (4, 4, ErrorCode.transaction_coordinator_fenced),
        (6, 2, ErrorCode.invalid_producer_epoch),
        (6, 4, ErrorCode.none),
    ):
        marker = Marker(someone._replace(epoch=epoch), {name: [0]}, coordinator_epoch=coordinator_epoch)
        assert write_marker(wire, marker) == expected, (coordinator_epoch, epoch)
    assert describe_producers(wire, name)[UNKNOWN_PRODUCER_ID].coordinator_epoch == 6
    assert end_offset(wire, name) == 3


@pytest.mark.parametrize("version", [1, 2])
def test_markers_succeed_or_fail_per_partition(
    wire: Wire, name: str, producer: TransactionalProducer, version: int
) -> None:
    open_transaction(wire, producer, name)
    other = TransactionalProducer("", UNKNOWN_PRODUCER_ID, 0)
    markers = [Marker(producer, {name: [0, 7], "nowhere": [0]}), Marker(other, {name: [1]}, committed=False)]
    assert write_markers(wire, markers, version) == {
        producer.id: {
            (name, 0): ErrorCode.none,
            (name, 7): ErrorCode.unknown_topic_or_partition,
            ("nowhere", 0): ErrorCode.unknown_topic_or_partition,
        },
        UNKNOWN_PRODUCER_ID: {(name, 1): ErrorCode.none},
    }
    assert write_markers(wire, [], version) == {}
    assert [each.producer_id for each in headers_of(fetch(wire, name, 0, partition=1).records)] == [UNKNOWN_PRODUCER_ID]


def test_transactions_of_both_versions_follow_each_other(
    wire: Wire, name: str, producer: TransactionalProducer
) -> None:
    """Transactions of an old client, then a new one, then an old one again, with the same transactional id."""
    open_transaction(wire, producer, name)
    assert end(wire, producer, committed=True).error_code == ErrorCode.none
    await_state(wire, producer.transactional_id, "CompleteCommit")
    assert send(wire, producer, name, seq=1, version=NEW).error_code == ErrorCode.none
    now = next_epoch(wire, producer, committed=True)
    open_transaction(wire, now, name)
    assert end(wire, now, committed=True).error_code == ErrorCode.none
    until(lambda: lso(wire, name), lambda offset: offset == 6, "all three are committed")
    epochs = [marker.producer_epoch for marker in control_records(fetch(wire, name, 0).records)]
    assert epochs == [producer.epoch, producer.epoch + 1, producer.epoch + 1]
