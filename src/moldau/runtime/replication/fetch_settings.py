"""The settings with which a follower fetches."""

from __future__ import annotations

from dataclasses import dataclass

from moldau.base.cluster_settings import ReplicationSettings


@dataclass(frozen=True, slots=True)
class ReplicaFetchSettings:
    """`replica.fetch.*`, and `replica.socket.timeout.ms` as the time that a response may take."""

    wait_max_ms: int = 500
    min_bytes: int = 1
    max_bytes: int = 1_048_576
    response_max_bytes: int = 10_485_760
    backoff_ms: int = 1_000
    timeout_ms: int = 30_000

    @classmethod
    def of(cls, replication: ReplicationSettings) -> ReplicaFetchSettings:
        return cls(
            wait_max_ms=replication.fetch_wait_max_ms,
            min_bytes=replication.fetch_min_bytes,
            max_bytes=replication.fetch_max_bytes,
            response_max_bytes=replication.fetch_response_max_bytes,
            backoff_ms=replication.fetch_backoff_ms,
            timeout_ms=replication.socket_timeout_ms,
        )
