"""Checks a heartbeat: its fields, whatever the group, and whether its sender is still that member of the group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from moldau.base.errors import ErrorCode, KafkaError
from moldau.coordinator.group.consumer.group import ConsumerGroup
from moldau.coordinator.group.consumer.member import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
    ConsumerMember,
    Partitions,
)
from moldau.coordinator.group.consumer.reconcile import Owned
from moldau.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

CLIENT_MEMBER_ID_MIN_VERSION: Final = 1
"""From this version on, clients choose their own member ids (KIP-1082)."""


def check_request(request: ConsumerGroupHeartbeatRequest, version: int, assignors: Sequence[str]) -> None:
    needs_id = (
        version >= CLIENT_MEMBER_ID_MIN_VERSION or request.member_epoch > 0 or request.member_epoch == LEAVE_EPOCH
    )
    _require(bool(request.member_id.strip()) or not needs_id, "the member id is empty")
    _require(bool(request.group_id.strip()), "the group id is empty")
    _require(request.instance_id is None or bool(request.instance_id.strip()), "the instance id is empty")
    _require(request.rack_id is None or bool(request.rack_id.strip()), "the rack id is empty")
    if request.member_epoch == JOIN_EPOCH:
        _check_join(request)
    _require(request.member_epoch >= STATIC_LEAVE_EPOCH, f"invalid member epoch {request.member_epoch}")
    if request.member_epoch == STATIC_LEAVE_EPOCH:
        _require(request.instance_id is not None, "member epoch -2 (static leave) needs an instance id")
    if request.server_assignor is not None and request.server_assignor not in assignors:
        supported = ", ".join(assignors)
        raise KafkaError(
            ErrorCode.UNSUPPORTED_ASSIGNOR, f"unknown assignor {request.server_assignor!r}; supported: {supported}"
        )


def _check_join(request: ConsumerGroupHeartbeatRequest) -> None:
    """Check a join: the member must own no partitions and must send a subscription, which may be empty."""
    _require(request.rebalance_timeout_ms != -1, "a member that joins must send its rebalance timeout")
    owns_nothing = request.topic_partitions is not None and not request.topic_partitions
    _require(owns_nothing, "a member that joins must send an empty list of owned partitions")
    _require(_has_subscription(request), "a member that joins must send its subscription")


def _has_subscription(request: ConsumerGroupHeartbeatRequest) -> bool:
    return request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise KafkaError(ErrorCode.INVALID_REQUEST, message)


def is_full_request(request: ConsumerGroupHeartbeatRequest) -> bool:
    """Whether the request has all fields. A client sends them after an error, and then needs a full response."""
    return request.rebalance_timeout_ms != -1 and _has_subscription(request) and request.topic_partitions is not None


def owned_partitions(request: ConsumerGroupHeartbeatRequest) -> Owned | None:
    if request.topic_partitions is None:
        return None
    owned: dict[bytes, set[int]] = {}
    for topic in request.topic_partitions:
        owned.setdefault(topic.topic_id, set()).update(topic.partitions)
    return {topic_id: frozenset(partitions) for topic_id, partitions in owned.items()}


def check_group_size(group: ConsumerGroup, member_id: str, members_max: int) -> None:
    if len(group.members) >= members_max and member_id not in group.members:
        raise KafkaError(
            ErrorCode.GROUP_MAX_SIZE_REACHED, f"group {group.group_id} has reached its limit of {members_max} members"
        )


def check_epoch(member: ConsumerMember, epoch: int, owned: Owned | None) -> None:
    """Raise KafkaError unless the epoch is the member's, or 0: it joins again. The previous epoch is accepted if the
    member owns no more than it is assigned: the response with the new epoch may have been lost."""
    if epoch in (JOIN_EPOCH, member.member_epoch):
        return
    if epoch < member.member_epoch and epoch == member.previous_member_epoch and _is_within(owned, member.assigned):
        return
    raise KafkaError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"member {member.member_id} is in epoch {member.member_epoch}, not {epoch}:"
        " it must give up its partitions and join again",
    )


def _is_within(owned: Owned | None, assigned: Partitions) -> bool:
    if owned is None:
        return False
    return all(topic_id in assigned and owned[topic_id] <= assigned[topic_id].keys() for topic_id in owned)


def check_instance(member: ConsumerMember | None, instance_id: str, member_id: str) -> ConsumerMember:
    """Return the static member. Raise KafkaError if there is none or it has another member id."""
    if member is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"no member has instance id {instance_id}")
    if member.member_id != member_id:
        raise KafkaError(
            ErrorCode.FENCED_INSTANCE_ID, f"instance id {instance_id} now belongs to member {member.member_id}"
        )
    return member


def check_instance_released(member: ConsumerMember, instance_id: str) -> None:
    """Raise KafkaError if the static member has not left. One with the classic protocol is replaced at once, as in a
    classic group."""
    if not member.is_classic and member.member_epoch != STATIC_LEAVE_EPOCH:
        raise KafkaError(
            ErrorCode.UNRELEASED_INSTANCE_ID, f"instance id {instance_id} still belongs to member {member.member_id}"
        )
