"""The settings of the topic __transaction_state, and how long a write waits for its producer's previous transaction."""

from __future__ import annotations

from dataclasses import dataclass

from moldau.base.setting_sources import Values


@dataclass(frozen=True, slots=True)
class TransactionLogSettings:
    num_partitions: int
    replication_factor: int
    segment_bytes: int
    min_insync_replicas: int
    removal_check_interval_ms: int
    add_partitions_retry_ms: int
    add_partitions_retry_max_ms: int


def read_transaction_log(values: Values) -> TransactionLogSettings:
    return TransactionLogSettings(
        num_partitions=values.integer("transaction.state.log.num.partitions"),
        replication_factor=values.integer("transaction.state.log.replication.factor"),
        segment_bytes=values.integer("transaction.state.log.segment.bytes"),
        min_insync_replicas=values.integer("transaction.state.log.min.isr"),
        removal_check_interval_ms=values.integer("transaction.remove.expired.transaction.cleanup.interval.ms"),
        add_partitions_retry_ms=values.integer("add.partitions.to.txn.retry.backoff.ms"),
        add_partitions_retry_max_ms=values.integer("add.partitions.to.txn.retry.backoff.max.ms"),
    )
