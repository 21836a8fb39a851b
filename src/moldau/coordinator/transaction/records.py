"""The record of `__transaction_state` in Apache Kafka's format: the whole state of a transactional id."""

from __future__ import annotations

from collections.abc import Sequence

from moldau.coordinator.records import RecordKey, RecordValue
from moldau.wire.schema import Message


class TransactionLogKey(RecordKey):
    __slots__ = ("transactional_id",)
    TYPE = 0
    SCHEMA = """
        transactional_id string 0+
    """

    def __init__(self, transactional_id: str = "") -> None:
        self.transactional_id = transactional_id


class PartitionsSchema(Message):
    __slots__ = ("partition_ids", "topic")
    SCHEMA = """
        topic string 0+
        partition_ids []int32 0+
    """

    def __init__(self, topic: str = "", partition_ids: Sequence[int] = ()) -> None:
        self.topic = topic
        self.partition_ids = partition_ids


class TransactionLogValue(RecordValue):
    """Version 1 is flexible (KIP-890). Apache Kafka 4.3 defines a tag for the next epoch but never sets it."""

    __slots__ = (
        "client_transaction_version",
        "next_producer_epoch",
        "next_producer_id",
        "previous_producer_id",
        "producer_epoch",
        "producer_id",
        "transaction_last_update_timestamp_ms",
        "transaction_partitions",
        "transaction_start_timestamp_ms",
        "transaction_status",
        "transaction_timeout_ms",
    )
    VERSIONS = (0, 1)
    FLEXIBLE = 1
    WRITTEN = 1
    SCHEMA = """
        producer_id int64 0+
        previous_producer_id int64 1+ tag=0
        next_producer_id int64 1+ tag=1
        producer_epoch int16 0+
        next_producer_epoch int16 1+ tag=3
        transaction_timeout_ms int32 0+
        transaction_status int8 0+
        transaction_partitions []PartitionsSchema 0+ null=0+
        transaction_last_update_timestamp_ms int64 0+
        transaction_start_timestamp_ms int64 0+
        client_transaction_version int16 1+ tag=2
    """

    def __init__(
        self,
        producer_id: int = 0,
        previous_producer_id: int = -1,
        next_producer_id: int = -1,
        producer_epoch: int = 0,
        next_producer_epoch: int = -1,
        transaction_timeout_ms: int = 0,
        transaction_status: int = 0,
        transaction_partitions: Sequence[PartitionsSchema] | None = (),
        transaction_last_update_timestamp_ms: int = 0,
        transaction_start_timestamp_ms: int = 0,
        client_transaction_version: int = 0,
    ) -> None:
        self.producer_id = producer_id
        self.previous_producer_id = previous_producer_id
        self.next_producer_id = next_producer_id
        self.producer_epoch = producer_epoch
        self.next_producer_epoch = next_producer_epoch
        self.transaction_timeout_ms = transaction_timeout_ms
        self.transaction_status = transaction_status
        self.transaction_partitions = transaction_partitions
        self.transaction_last_update_timestamp_ms = transaction_last_update_timestamp_ms
        self.transaction_start_timestamp_ms = transaction_start_timestamp_ms
        self.client_transaction_version = client_transaction_version
