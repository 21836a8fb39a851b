"""Counts accepted connections, refusals, and how often each limit of a node was reached. docs/security.md lists the
counters; `TestBroker.limit_counters` and `/metrics` show them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

CONNECTIONS_ACCEPTED: Final = "connections.accepted"
CONNECTIONS_REFUSED_PER_IP: Final = "connections.refused.per.ip"
CONNECTIONS_REFUSED_FILES: Final = "connections.refused.open.files"
CONNECTIONS_REFUSED_IP_RATE: Final = "connections.refused.ip.rate"
ACCEPT_PAUSED_MAX_CONNECTIONS: Final = "accept.paused.max.connections"
ACCEPT_PAUSED_RATE: Final = "accept.paused.rate"
CLOSED_EVICTED: Final = "connections.closed.max.connections"
CLOSED_IDLE: Final = "connections.closed.idle"
CLOSED_MALFORMED: Final = "connections.closed.malformed"
CLOSED_MEMORY: Final = "connections.closed.memory"
CLOSED_UNAUTHENTICATED_MEMORY: Final = "connections.closed.unauthenticated.memory"
CLOSED_SLOW_REQUEST: Final = "connections.closed.slow.request"
CLOSED_SLOW_READER: Final = "connections.closed.slow.reader"
CLOSED_NOT_AUTHENTICATED: Final = "connections.closed.not.authenticated"
AUTHENTICATION_FAILED: Final = "authentication.failed"
READING_PAUSED: Final = "connections.paused"
REQUESTS_FAILED: Final = "requests.failed.internal"
REQUESTS_THROTTLED: Final = "requests.throttled"
MUTATIONS_THROTTLED: Final = "mutations.throttled"
DECOMPRESSED_SIZE_REFUSED: Final = "batches.refused.decompressed.size"
UNVERIFIED_REFUSED: Final = "produce.refused.unverified.bytes"
TRANSACTIONAL_IDS_REFUSED: Final = "transactional.ids.refused"
MARKERS_REFUSED: Final = "markers.refused"
DENIED: Final = "requests.denied"
AUDIT_LINES_DROPPED: Final = "audit.lines.dropped"

NAMES: Final = (
    CONNECTIONS_ACCEPTED,
    CONNECTIONS_REFUSED_PER_IP,
    CONNECTIONS_REFUSED_FILES,
    CONNECTIONS_REFUSED_IP_RATE,
    ACCEPT_PAUSED_MAX_CONNECTIONS,
    ACCEPT_PAUSED_RATE,
    CLOSED_EVICTED,
    CLOSED_IDLE,
    CLOSED_MALFORMED,
    CLOSED_MEMORY,
    CLOSED_UNAUTHENTICATED_MEMORY,
    CLOSED_SLOW_REQUEST,
    CLOSED_SLOW_READER,
    CLOSED_NOT_AUTHENTICATED,
    AUTHENTICATION_FAILED,
    READING_PAUSED,
    REQUESTS_FAILED,
    REQUESTS_THROTTLED,
    MUTATIONS_THROTTLED,
    DECOMPRESSED_SIZE_REFUSED,
    UNVERIFIED_REFUSED,
    TRANSACTIONAL_IDS_REFUSED,
    MARKERS_REFUSED,
    DENIED,
    AUDIT_LINES_DROPPED,
)


class Counters:
    __slots__ = ("_counts", "values")

    def __init__(self) -> None:
        self._counts = dict.fromkeys(NAMES, 0)
        self.values: Mapping[str, int] = MappingProxyType(self._counts)

    def add(self, name: str, count: int = 1) -> None:
        self._counts[name] += count

    def __getitem__(self, name: str) -> int:
        return self._counts[name]
