"""Records of the transaction coordinator to bytes and back."""

from __future__ import annotations

from typing import Final

from moldau.coordinator.machine import CoordinatorRecord
from moldau.coordinator.serde import RecordCodec
from moldau.coordinator.transaction.records import TransactionLogKey, TransactionLogValue
from moldau.coordinator.transaction.transaction import bumps_epochs

_CODEC: Final = RecordCodec(((TransactionLogKey, TransactionLogValue),))
decode_record: Final = _CODEC.decode


def encode_record(record: CoordinatorRecord, transaction_version: int) -> tuple[bytes, bytes | None]:
    """As the finalized `transaction.version` wants it. What a client of version 2 did cannot be told in version 0 of
    the record, wherever that client came from: the producer id that it was promised would be forgotten."""
    value = record.value
    is_flexible = transaction_version >= 1 or (
        isinstance(value, TransactionLogValue) and bumps_epochs(value.client_transaction_version)
    )
    return _CODEC.encode(record, 1 if is_flexible else 0)
