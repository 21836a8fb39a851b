"""Records of `__transaction_state` as kafka-dump-log and kafka-console-consumer print them."""

from __future__ import annotations

from moldau.cli.kafka.log_dump.coordinator_lines import CoordinatorFormatter, coordinator_texts
from moldau.coordinator.transaction.serde import decode_record
from moldau.wire.log_records.transactions import TransactionLogKey
from moldau.wire.records import Record


def transaction_log_texts(record: Record) -> tuple[str, str | None]:
    return coordinator_texts(decode_record, record)


def transaction_log_formatter() -> CoordinatorFormatter:
    return CoordinatorFormatter(decode_record, (TransactionLogKey.TYPE,))
