"""Who this node is in the quorum, and the times by which it lives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from moldau.base.ids import Uuid
from moldau.raft.voters import SUPPORTED_KRAFT_VERSIONS, Endpoint, ReplicaKey, Voter, endpoint_of

CHECK_QUORUM_FACTOR: Final = 1.5
"""A leader gives its followers this many fetch timeouts before it believes itself alone."""


@dataclass(frozen=True, slots=True)
class Member:
    node_id: int
    directory_id: Uuid
    cluster_id: str
    listener: str
    """The name of the listener on which the quorum speaks."""
    endpoints: tuple[Endpoint, ...] = ()
    """Where others reach this node; empty for an observer that nobody asks."""

    @property
    def key(self) -> ReplicaKey:
        return ReplicaKey(self.node_id, self.directory_id)

    @property
    def endpoint(self) -> Endpoint | None:
        return endpoint_of(self.endpoints, self.listener)

    @property
    def voter(self) -> Voter:
        """This node as it would stand in the set of voters."""
        return Voter(self.key, self.endpoints, SUPPORTED_KRAFT_VERSIONS)


@dataclass(frozen=True, slots=True)
class RaftSettings:
    """What the machine takes from `controller.quorum.…`, with Kafka's defaults."""

    election_timeout_ms: int = 1_000
    election_backoff_max_ms: int = 1_000
    fetch_timeout_ms: int = 2_000
    request_timeout_ms: int = 2_000
    retry_backoff_ms: int = 20
    fetch_wait_max_ms: int = 500
    fetch_bytes_max: int = 8 << 20
    snapshot_piece_bytes_max: int = 1 << 20
    lost_leader_delay_max_ms: int = 50
    """How long, at most, a voter whose connection to the leader broke waits before it asks around."""

    @property
    def check_quorum_ms(self) -> int:
        return int(self.fetch_timeout_ms * CHECK_QUORUM_FACTOR)

    @property
    def begin_epoch_ms(self) -> int:
        """How long a voter may be silent before a leader introduces itself to it."""
        return self.fetch_timeout_ms // 2

    @property
    def ask_again_ms(self) -> int:
        """After how long a voter that refused a pre-vote is asked again: it may not have noticed yet."""
        return max(self.retry_backoff_ms, self.election_timeout_ms // 10)
