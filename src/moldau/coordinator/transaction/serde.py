"""Encodes and decodes the records of the transaction coordinator."""

from __future__ import annotations

from typing import Final

from moldau.coordinator.machine import CoordinatorRecord
from moldau.coordinator.serde import RecordCodec
from moldau.coordinator.transaction.transaction import bumps_epochs
from moldau.wire.log_records.transactions import RECORDS, TransactionLogValue

_CODEC: Final = RecordCodec(RECORDS)
decode_record: Final = _CODEC.decode


def encode_record(record: CoordinatorRecord, transaction_version: int) -> tuple[bytes, bytes | None]:
    """Encode in the record version for the cluster's transaction.version. If the client uses TV_2, it is always record
    version 1: record version 0 has no field for the next producer id, which the client may already use."""
    value = record.value
    is_flexible = transaction_version >= 1 or (
        isinstance(value, TransactionLogValue) and bumps_epochs(value.client_transaction_version)
    )
    return _CODEC.encode(record, 1 if is_flexible else 0)
