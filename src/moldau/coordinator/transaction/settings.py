"""Settings of the transaction coordinator and its topic."""

from __future__ import annotations

from dataclasses import dataclass

from moldau.base.settings import own, transactions
from moldau.base.settings.fields import setting


@dataclass(frozen=True, slots=True)
class TransactionSettings:
    timeout_max_ms: int = setting(transactions.TRANSACTION_MAX_TIMEOUT_MS)
    id_expiration_ms: int = setting(transactions.TRANSACTIONAL_ID_EXPIRATION_MS)
    ids_max: int = setting(own.MOLDAU_MAX_TRANSACTIONAL_IDS_PER_PARTITION)


@dataclass(frozen=True, slots=True)
class TransactionLogSettings:
    """Of the topic __transaction_state, and how long a write waits for its producer's previous transaction."""

    num_partitions: int = setting(transactions.TRANSACTION_STATE_LOG_NUM_PARTITIONS)
    replication_factor: int = setting(transactions.TRANSACTION_STATE_LOG_REPLICATION_FACTOR)
    segment_bytes: int = setting(transactions.TRANSACTION_STATE_LOG_SEGMENT_BYTES)
    min_insync_replicas: int = setting(transactions.TRANSACTION_STATE_LOG_MIN_ISR)
    removal_check_interval_ms: int = setting(transactions.TRANSACTION_REMOVE_EXPIRED_TRANSACTION_CLEANUP_INTERVAL_MS)
    add_partitions_retry_ms: int = setting(transactions.ADD_PARTITIONS_TO_TXN_RETRY_BACKOFF_MS)
    add_partitions_retry_max_ms: int = setting(transactions.ADD_PARTITIONS_TO_TXN_RETRY_BACKOFF_MAX_MS)
