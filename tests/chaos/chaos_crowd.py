"""Who works with the cluster while everything happens to it: clients of every kind, with short timeouts and with
librdkafka's defaults, and the topics that they use."""

from __future__ import annotations

from typing import Any

from chaos_clients import Clients
from chaos_nodes import Cluster

PLAIN = {"plain": 3, "other": 2}
TABLE = {"table": 2}
TRANSACTIONAL = {"moves": 2, "audit": 1}
"""Topics with their numbers of partitions."""
COMPACTED = {
    "cleanup_policy": "compact",
    "segment_ms": "10000",
    "min_cleanable_dirty_ratio": "0.01",
    "max_compaction_lag_ms": "15000",
}
DEFAULTS: dict[str, Any] = {}
SHORT: dict[str, Any] = {"socket.timeout.ms": 5000}
SHORT_WRITES = SHORT | {"request.timeout.ms": 5000}
TIMEOUTS = {"defaults": DEFAULTS, "short": SHORT}
WRITE_TIMEOUTS = {"defaults": DEFAULTS, "short": SHORT_WRITES}
GROUPS: dict[str, dict[str, Any]] = {
    "classic": {"session.timeout.ms": 6000, "heartbeat.interval.ms": 500},
    "newer": {"group.protocol": "consumer"},
}
WRITERS = [f"writer-{name}" for name in WRITE_TIMEOUTS]
TRANSACTORS = [f"transactor-{name}" for name in WRITE_TIMEOUTS]
TABLE_WRITER, PLAIN_READER, COMMITTED_READER = "writer-table", "reader-plain", "reader-committed"
KEYS = 20


def create_topics(cluster: Cluster) -> None:
    for topic, partitions in (PLAIN | TRANSACTIONAL).items():
        cluster.create_topic(topic, partitions, min_insync=2)
    for topic, partitions in TABLE.items():
        cluster.create_topic(topic, partitions, min_insync=2, **COMPACTED)


def start_clients(clients: Clients) -> None:
    for name, settings in zip(WRITERS, WRITE_TIMEOUTS.values(), strict=True):
        clients.add(name, "writer", PLAIN, settings)
    for name, settings in zip(TRANSACTORS, WRITE_TIMEOUTS.values(), strict=True):
        clients.add(name, "transactor", TRANSACTIONAL, settings, transactional_id=name)
    clients.add(TABLE_WRITER, "writer", TABLE, SHORT_WRITES, keys=KEYS)
    clients.add(PLAIN_READER, "reader", PLAIN, DEFAULTS)
    clients.add(COMMITTED_READER, "reader", TRANSACTIONAL, SHORT | {"isolation.level": "read_committed"})
    for group, protocol in GROUPS.items():
        for name, settings in zip(members(group), TIMEOUTS.values(), strict=True):
            clients.add(name, "member", PLAIN, {"group.id": group, **protocol, **settings})


def members(group: str) -> list[str]:
    return [f"{group}-{name}" for name in TIMEOUTS]
