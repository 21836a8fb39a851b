"""What all requests and responses have in common: one topic with one partition, an epoch, and maybe a leader. Parses
it, and takes over the leader that a response names.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from moldau.base.errors import ErrorCode
from moldau.raft.core import Core
from moldau.raft.quorum_state import NOBODY
from moldau.raft.responses import PARTITION
from moldau.raft.roles import Unattached
from moldau.raft.voters import Endpoint


def single(topics: Sequence[Any], name: str) -> Any:
    """Return the only partition of the only topic; None if the arrays are empty, longer, or name anything else."""
    if len(topics) != 1 or topics[0].topic_name != name or len(topics[0].partitions) != 1:
        return None
    partition = topics[0].partitions[0]
    return partition if partition.partition_index == PARTITION else None


def leader_endpoint(core: Core, leader_id: int, node_endpoints: Iterable[Any]) -> Endpoint | None:
    """Return the leader's endpoint: from the tag NodeEndpoints, otherwise from the set of voters."""
    for each in node_endpoints:
        if each.node_id == leader_id:
            return Endpoint(core.me.listener, each.host, each.port)
    return core.endpoint_of(leader_id)


def learn_from(core: Core, code: int, leader_id: int, epoch: int, endpoint: Endpoint | None) -> bool | None:
    """Take over the epoch and the leader of any response. Return None if the caller should handle the rest of it, True
    if there is nothing else to handle, False if the request should be sent again later."""
    role = core.role
    if epoch < role.epoch:
        return False
    if code == ErrorCode.UNKNOWN_LEADER_EPOCH:
        return False
    if epoch > role.epoch or code in (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER):
        core.learn_leader(leader_id, epoch, endpoint)
        return core.role is not role
    if leader_id != NOBODY and (role.leader_id == NOBODY or isinstance(role, Unattached)):
        core.learn_leader(leader_id, epoch, endpoint)
        return None if code == ErrorCode.NONE else True
    if code in (ErrorCode.BROKER_NOT_AVAILABLE, ErrorCode.INVALID_VOTER_KEY, ErrorCode.INVALID_REQUEST):
        return False
    return None
