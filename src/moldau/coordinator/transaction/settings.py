"""Settings of the transaction coordinator, with Kafka's names without `transaction`."""

from __future__ import annotations

from dataclasses import dataclass

from moldau.base.limits import TRANSACTIONAL_IDS_MAX


@dataclass(frozen=True, slots=True)
class TransactionSettings:
    timeout_max_ms: int = 900_000
    """transaction.max.timeout.ms"""
    id_expiration_ms: int = 7 * 24 * 3_600_000
    """transactional.id.expiration.ms"""
    ids_max: int = TRANSACTIONAL_IDS_MAX
    """moldau.max.transactional.ids.per.partition"""
