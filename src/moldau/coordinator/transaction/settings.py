"""Settings of the transaction coordinator."""

from __future__ import annotations

from dataclasses import dataclass

from moldau.base.settings import own, transactions
from moldau.base.settings.fields import setting


@dataclass(frozen=True, slots=True)
class TransactionSettings:
    timeout_max_ms: int = setting(transactions.TRANSACTION_MAX_TIMEOUT_MS)
    id_expiration_ms: int = setting(transactions.TRANSACTIONAL_ID_EXPIRATION_MS)
    ids_max: int = setting(own.MOLDAU_MAX_TRANSACTIONAL_IDS_PER_PARTITION)
