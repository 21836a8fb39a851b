"""The librdkafka properties that the stand-in accepts, with their values, and the parsing of addresses. Others are
refused by name.

Properties that only affect speed or logging are accepted and have no effect.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from moldau.base.errors import UnusableProperty
from moldau.client.cluster import CONNECT_SECONDS, Cluster
from moldau.client.properties import OWN_PROPERTIES
from moldau.client.stand_in.values import as_kafka_exceptions

DEFAULT_PORT: Final = 9092
_SUPPORTED: Final = """
    bootstrap.servers error_cb oauth_cb on_delivery
    acks compression.type enable.idempotence linger.ms message.timeout.ms queue.buffering.max.kbytes
    queue.buffering.max.messages allow.auto.create.topics auto.commit.interval.ms auto.offset.reset enable.auto.commit
    enable.auto.offset.store enable.partition.eof group.id isolation.level
"""
_WITHOUT_EFFECT: Final = """
    batch.num.messages batch.size check.crcs client.dns.lookup client.id connections.max.idle.ms debug
    delivery.report.only.error fetch.max.bytes fetch.message.max.bytes fetch.min.bytes fetch.queue.backoff.ms
    fetch.wait.max.ms group.protocol heartbeat.interval.ms log_level logger max.in.flight.requests.per.connection
    max.partition.fetch.bytes max.poll.interval.ms message.max.bytes message.send.max.retries metadata.max.age.ms
    partition.assignment.strategy partitioner queued.max.messages.kbytes queued.min.messages
    receive.message.max.bytes reconnect.backoff.max.ms reconnect.backoff.ms request.timeout.ms retries
    retry.backoff.max.ms retry.backoff.ms session.timeout.ms socket.keepalive.enable socket.receive.buffer.bytes
    socket.send.buffer.bytes socket.timeout.ms statistics.interval.ms sticky.partitioning.linger.ms
    topic.metadata.propagation.max.ms
    topic.metadata.refresh.interval.ms
"""
KNOWN: Final = OWN_PROPERTIES | frozenset((_SUPPORTED + _WITHOUT_EFFECT).split())
_VALUES: Final = {
    "acks": "0|1|-1|all",
    "compression.type": "none|gzip|snappy|lz4|zstd",
    "linger.ms": "[0-9]{1,18}([.][0-9]*)?",
    "message.timeout.ms": "[0-9]{1,18}",
    "queue.buffering.max.kbytes": "[0-9]{1,18}",
    "queue.buffering.max.messages": "[0-9]{1,18}",
    "auto.commit.interval.ms": "[0-9]{1,18}",
}


def require_valid(config: Mapping[str, Any]) -> None:
    """Refuse the first unknown property or wrong value, in librdkafka's words, which the tools look for."""
    for name, value in config.items():
        if name in _VALUES and not re.fullmatch(_VALUES[name], str(value), re.IGNORECASE):
            raise UnusableProperty(f'Invalid value "{value}" for configuration property "{name}"')
        if name not in KNOWN:
            raise UnusableProperty(
                f'No such configuration property: "{name}" in the stand-in for confluent-kafka;'
                " docs/platforms.md says what it lacks"
            )


def connect(config: Mapping[str, Any], timeout_seconds: float = CONNECT_SECONDS) -> Cluster:
    """Return the cluster for librdkafka's properties; of the callbacks among them only `oauth_cb` is used."""
    properties = {name: value for name, value in config.items() if isinstance(value, str)}
    with as_kafka_exceptions():
        require_valid(config)
        return Cluster(addresses(properties["bootstrap.servers"]), properties, timeout_seconds, config.get("oauth_cb"))


def addresses(bootstrap_servers: str) -> str:
    """Return HOST:PORT of each. As in librdkafka, a protocol prefix, a missing port and extra commas are allowed."""
    parts = [each.strip() for each in bootstrap_servers.split(",") if each.strip()]
    if not parts:
        raise UnusableProperty("bootstrap.servers names no address; write HOST:PORT")
    return ",".join(map(_address, parts))


def _address(address: str) -> str:
    plain = address.rpartition("://")[2]
    host, colon, port = plain.rpartition(":")
    if not colon or plain.endswith("]"):
        host, port = plain, str(DEFAULT_PORT)
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise UnusableProperty(f"bootstrap.servers: {address} is not HOST:PORT")
    return f"{host}:{port}"
