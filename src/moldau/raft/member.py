"""This node's identity in the quorum, and the quorum's timeouts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from moldau.base.ids import Uuid
from moldau.raft.voters import SUPPORTED_KRAFT_VERSIONS, Endpoint, ReplicaKey, Voter, endpoint_of

CHECK_QUORUM_FACTOR: Final = 1.5
"""A leader resigns if no majority fetches within this many fetch timeouts."""


@dataclass(frozen=True, slots=True)
class Member:
    node_id: int
    directory_id: Uuid
    cluster_id: str
    listener: str
    """The name of the listener that the quorum uses."""
    endpoints: tuple[Endpoint, ...] = ()
    """Where other nodes reach this one; empty for an observer, which gets no requests."""

    @property
    def key(self) -> ReplicaKey:
        return ReplicaKey(self.node_id, self.directory_id)

    @property
    def endpoint(self) -> Endpoint | None:
        return endpoint_of(self.endpoints, self.listener)

    @property
    def voter(self) -> Voter:
        """This node's entry for the set of voters."""
        return Voter(self.key, self.endpoints, SUPPORTED_KRAFT_VERSIONS)


@dataclass(frozen=True, slots=True)
class RaftSettings:
    """The settings `controller.quorum.…`, with Kafka's defaults."""

    election_timeout_ms: int = 1_000
    election_backoff_max_ms: int = 1_000
    fetch_timeout_ms: int = 2_000
    request_timeout_ms: int = 2_000
    retry_backoff_ms: int = 20
    fetch_wait_max_ms: int = 500
    fetch_bytes_max: int = 8 << 20
    snapshot_piece_bytes_max: int = 1 << 20
    lost_leader_delay_max_ms: int = 50
    """The longest random delay before a voter that lost its connection to the leader starts an election."""

    @property
    def check_quorum_ms(self) -> int:
        return int(self.fetch_timeout_ms * CHECK_QUORUM_FACTOR)

    @property
    def begin_epoch_ms(self) -> int:
        """After how long without a fetch a voter gets a BeginQuorumEpoch from the leader."""
        return self.fetch_timeout_ms // 2

    @property
    def pre_vote_retry_ms(self) -> int:
        """After how long a voter that refused a pre-vote is asked again: it may notice late that the leader is gone."""
        return max(self.retry_backoff_ms, self.election_timeout_ms // 10)
