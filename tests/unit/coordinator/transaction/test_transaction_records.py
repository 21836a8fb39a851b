"""The record of `__transaction_state`, as Apache Kafka 4.3.1 writes it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.base.errors import MalformedData
from moldau.base.ids import TopicPartition
from moldau.coordinator.machine import CoordinatorRecord
from moldau.coordinator.transaction.serde import decode_record, encode_record
from moldau.coordinator.transaction.transaction import State, Transaction, record_of, tombstone_of, transaction_of
from moldau.wire.log_records.transactions import TransactionLogKey, TransactionLogValue

KEY = b"\0\0\0\x11hA-1794776177-403"
ID = "hA-1794776177-403"
BEGUN = 0x1A1E0FF1C9C
TWO = frozenset((TopicPartition("hA-topic", 0), TopicPartition("hA-topic", 2)))
APACHE = {
    "a producer without a transaction": (
        KEY,
        b"\0\1\0\0\0\0\0\0\3\x8d\0\0\0\0\xea`\0\0\0\0\1\xa1\xe0\xff\x1c\x9a\xff\xff\xff\xff\xff\xff\xff\xff"
        b"\1\0\x08\0\0\0\0\0\0\3\x8d",
        Transaction(ID, 909, 0, 60_000, 0x1A1E0FF1C9A, previous_producer_id=909),
    ),
    "an open transaction, begun by a client of version 2": (
        b"\0\0\0\x11hA-1794776178-411",
        b"\0\1\0\0\0\0\0\0\3\x95\0\1\0\0\xea`\1\2\thA-topic\2\0\0\0\1\0\0\0\1\xa1\xe0\xff\x1fv\0\0\1\xa1\xe0\xff\x1fv"
        b"\2\0\x08\0\0\0\0\0\0\3\x95\2\2\0\2",
        Transaction(
            "hA-1794776178-411", 917, 1, 60_000, 0x1A1E0FF1F76, State.ONGOING,
            frozenset((TopicPartition("hA-topic", 1),)), 0x1A1E0FF1F76, 917, client_transaction_version=2,
        ),
    ),
    "an abort whose epochs are used up": (
        b"\0\0\0\x12hA-ex-1794776363-7",
        b"\0\1\0\0\0\0\0\0\t'\x7f\xff\0\0\xea`\3\1\0\0\1\xa1\xe1\2\x18\xf5\0\0\1\xa1\xe1\2\x18\xf5"
        b"\3\0\x08\0\0\0\0\0\0\t'\1\x08\0\0\0\0\0\0\t(\2\2\0\2",
        Transaction(
            "hA-ex-1794776363-7", 2343, 32767, 60_000, 0x1A1E10218F5, State.PREPARE_ABORT,
            start_ms=0x1A1E10218F5, previous_producer_id=2343, next_producer_id=2344, client_transaction_version=2,
        ),
    ),
    "a commit that is complete": (
        b"\0\0\0\x11hA-1794776178-411",
        b"\0\1\0\0\0\0\0\0\3\x95\0\2\0\0\xea`\4\1\0\0\1\xa1\xe0\xff\x1f\x85\0\0\1\xa1\xe0\xff\x1f\x83"
        b"\1\0\x08\0\0\0\0\0\0\3\x95",
        Transaction(
            "hA-1794776178-411", 917, 2, 60_000, 0x1A1E0FF1F85, State.COMPLETE_COMMIT,
            start_ms=0x1A1E0FF1F83, previous_producer_id=917,
        ),
    ),
}  # fmt: skip


def read(key: bytes, value: bytes | None) -> Transaction | None:
    record = decode_record(key, value)
    assert record is not None
    assert isinstance(record.key, TransactionLogKey)
    if record.value is None:
        return None
    assert isinstance(record.value, TransactionLogValue)
    return transaction_of(record.key.transactional_id, record.value)


@pytest.mark.parametrize("name", APACHE)
def test_records_of_apache_kafka_are_read_and_written_byte_for_byte(name: str) -> None:
    key, value, transaction = APACHE[name]
    assert read(key, value) == transaction
    assert encode_record(record_of(transaction), 2) == (key, value)
    assert encode_record(record_of(transaction), 1) == (key, value)


def test_the_order_of_partitions_in_a_record_does_not_matter() -> None:
    value = (
        b"\0\1\0\0\0\0\0\0\3\x8d\0\0\0\0\xea`\1\2\thA-topic\3\0\0\0\2\0\0\0\0\0\0\0\1\xa1\xe0\xff\x1c\x9c"
        b"\0\0\1\xa1\xe0\xff\x1c\x9c\2\0\x08\0\0\0\0\0\0\3\x8d\2\2\0\2"
    )
    transaction = Transaction(ID, 909, 0, 60_000, BEGUN, State.ONGOING, TWO, BEGUN, 909, client_transaction_version=2)
    assert read(KEY, value) == transaction


def test_before_version_1_of_transactions_the_record_is_of_version_0() -> None:
    transaction = Transaction(ID, 909, 3, 60_000, BEGUN + 1, State.ONGOING, TWO, BEGUN, previous_producer_id=909)
    key, value = encode_record(record_of(transaction), 0)
    assert key == KEY
    assert value == (
        b"\0\0\0\0\0\0\0\0\3\x8d\0\3\0\0\xea`\1\0\0\0\1\0\x08hA-topic\0\0\0\2\0\0\0\0\0\0\0\2\0\0\1\xa1\xe0\xff\x1c\x9d"
        b"\0\0\1\xa1\xe0\xff\x1c\x9c"
    )
    assert read(key, value) == replace(transaction, previous_producer_id=-1), "version 0 has no previous producer id"


def test_the_next_producer_id_is_written_in_every_transaction_version() -> None:
    """A client may end its transaction with version 2 before the cluster has finalized that version."""
    transaction = APACHE["an abort whose epochs are used up"][2]
    assert read(*encode_record(record_of(transaction), 0)) == transaction


def test_a_tombstone_has_the_key_of_its_record() -> None:
    key, _, transaction = APACHE["a commit that is complete"]
    assert encode_record(tombstone_of(transaction), 2) == (key, None)
    assert read(key, None) is None


numbers = st.integers(-1, 2**63 - 1)
transactions = st.builds(
    Transaction,
    transactional_id=st.text(max_size=20),
    producer_id=numbers,
    producer_epoch=st.integers(-1, 2**15 - 1),
    timeout_ms=st.integers(0, 2**31 - 1),
    last_update_ms=numbers,
    state=st.sampled_from([each for each in State if each < State.DEAD]),
    partitions=st.frozensets(st.builds(TopicPartition, st.text(max_size=9), st.integers(0, 2**31 - 1)), max_size=5),
    start_ms=numbers,
    previous_producer_id=numbers,
    next_producer_id=numbers,
    client_transaction_version=st.integers(0, 2),
)


@given(transactions)
def test_a_record_is_decoded_as_it_was_encoded(transaction: Transaction) -> None:
    if transaction.state is State.EMPTY:
        transaction = replace(transaction, partitions=frozenset())
    assert read(*encode_record(record_of(transaction), 1)) == transaction


@pytest.mark.parametrize("status", [-1, State.DEAD, State.PREPARE_EPOCH_FENCE, 8])
def test_a_state_that_is_never_written_is_refused(status: int) -> None:
    record = CoordinatorRecord(TransactionLogKey("x"), TransactionLogValue(transaction_status=status))
    with pytest.raises(MalformedData, match="state"):
        read(*encode_record(record, 1))


def test_null_partitions_are_read_as_empty() -> None:
    value = TransactionLogValue(transaction_status=State.ONGOING, transaction_partitions=None)
    found = read(*encode_record(CoordinatorRecord(TransactionLogKey("x"), value), 1))
    assert found is not None
    assert found.partitions == frozenset()


@pytest.mark.parametrize("version", [b"\0\2", b"\xff\xff"])
def test_a_value_of_an_unknown_version_is_refused(version: bytes) -> None:
    key, value, _ = APACHE["a commit that is complete"]
    with pytest.raises(MalformedData, match="version"):
        decode_record(key, version + value[2:])


def test_a_key_of_an_unknown_type_is_skipped() -> None:
    assert decode_record(b"\0\1" + KEY[2:], b"") is None
