"""Broker keys of transactions."""

from __future__ import annotations

from typing import Final

from moldau.base.config_def import BOOLEAN, CLUSTER_WIDE, INT, SHORT, ConfigDef, Range

# fmt: off
# Transactions
TRANSACTION_STATE_LOG_MIN_ISR: Final = ConfigDef(
    "transaction.state.log.min.isr", INT, 1, Range(1),
    "In-sync replicas that are needed to begin and end transactions.")
TRANSACTION_STATE_LOG_REPLICATION_FACTOR: Final = ConfigDef(
    "transaction.state.log.replication.factor", SHORT, 1, Range(1),
    "Replicas of the topic __transaction_state.")
TRANSACTION_STATE_LOG_NUM_PARTITIONS: Final = ConfigDef(
    "transaction.state.log.num.partitions", INT, 50, Range(1),
    "Partitions of __transaction_state; fixed once it exists.")
TRANSACTION_STATE_LOG_SEGMENT_BYTES: Final = ConfigDef(
    "transaction.state.log.segment.bytes", INT, 104_857_600, Range(1),
    "Segment size of __transaction_state: small ones load and clean faster.")
TRANSACTION_PARTITION_VERIFICATION_ENABLE: Final = ConfigDef(
    "transaction.partition.verification.enable", BOOLEAN, True, None,
    "Whether leaders verify transactions with their coordinator.", update_mode=CLUSTER_WIDE)
TRANSACTIONAL_ID_EXPIRATION_MS: Final = ConfigDef(
    "transactional.id.expiration.ms", INT, 604_800_000, Range(1),
    "How long an unused transactional id is remembered.")
TRANSACTION_MAX_TIMEOUT_MS: Final = ConfigDef(
    "transaction.max.timeout.ms", INT, 900_000, Range(1),
    "Longest transaction timeout that a producer may request.")
TRANSACTION_REMOVE_EXPIRED_TRANSACTION_CLEANUP_INTERVAL_MS: Final = ConfigDef(
    "transaction.remove.expired.transaction.cleanup.interval.ms", INT, 3_600_000, Range(1),
    "How often unused transactional ids are removed.")
ADD_PARTITIONS_TO_TXN_RETRY_BACKOFF_MAX_MS: Final = ConfigDef(
    "add.partitions.to.txn.retry.backoff.max.ms", INT, 100, Range(0),
    "How long a write waits for the producer's last transaction to end.")
ADD_PARTITIONS_TO_TXN_RETRY_BACKOFF_MS: Final = ConfigDef(
    "add.partitions.to.txn.retry.backoff.ms", INT, 20, Range(1),
    "How often a write checks whether the last transaction has ended.")
