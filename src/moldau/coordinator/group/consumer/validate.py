"""What a heartbeat may say, whatever the group; and whether whoever sends it is still the member it says it is."""

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

MEMBER_ID_VERSION: Final = 1
"""Since then clients make up their own ids (KIP-1082)."""


def check_request(request: ConsumerGroupHeartbeatRequest, version: int, assignors: Sequence[str]) -> None:
    needs_id = version >= MEMBER_ID_VERSION or request.member_epoch > 0 or request.member_epoch == LEAVE_EPOCH
    _require(bool(request.member_id) or not needs_id, "the member id is empty")
    _require(bool(request.group_id), "the group id is empty")
    _require(request.instance_id != "", "the instance id is empty")
    _require(request.rack_id != "", "the rack id is empty")
    if request.member_epoch == JOIN_EPOCH:
        _check_join(request)
    _require(request.member_epoch >= STATIC_LEAVE_EPOCH, f"there is no epoch {request.member_epoch}")
    if request.member_epoch == STATIC_LEAVE_EPOCH:
        _require(request.instance_id is not None, "only a member with an instance id can leave for a while")
    if request.server_assignor is not None and request.server_assignor not in assignors:
        known = ", ".join(assignors)
        raise KafkaError(
            ErrorCode.UNSUPPORTED_ASSIGNOR, f"{request.server_assignor!r} is none of the assignors: {known}"
        )


def _check_join(request: ConsumerGroupHeartbeatRequest) -> None:
    """Whoever joins has no partitions; it may subscribe to nothing, but has to say so."""
    _require(request.rebalance_timeout_ms != -1, "whoever joins has to tell its rebalance timeout")
    _require(
        request.topic_partitions is not None and not request.topic_partitions, "whoever joins has to own no partitions"
    )
    says_what = request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
    _require(says_what, "whoever joins has to tell what it subscribes to")


def _require(is_so: bool, wrong: str) -> None:
    if not is_so:
        raise KafkaError(ErrorCode.INVALID_REQUEST, wrong)


def is_full(request: ConsumerGroupHeartbeatRequest) -> bool:
    """A client that is not sure what we know of it says everything, and wants to be told everything."""
    says_what = request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
    return request.rebalance_timeout_ms != -1 and says_what and request.topic_partitions is not None


def owned_partitions(request: ConsumerGroupHeartbeatRequest) -> Owned | None:
    if request.topic_partitions is None:
        return None
    owned: dict[bytes, frozenset[int]] = {}
    for topic in request.topic_partitions:
        owned[topic.topic_id] = owned.get(topic.topic_id, frozenset()).union(topic.partitions)
    return owned


def check_room(group: ConsumerGroup, member_id: str, members_max: int) -> None:
    if len(group.members) >= members_max and member_id not in group.members:
        raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED, f"the group has {members_max} members and takes no more")


def check_epoch(member: ConsumerMember, epoch: int, owned: Owned | None) -> None:
    """The epoch before the member's is let pass if it cannot do harm: the answer that told the new one may be lost."""
    if epoch in (JOIN_EPOCH, member.member_epoch):
        return
    if epoch < member.member_epoch and epoch == member.previous_member_epoch and _is_within(owned, member.assigned):
        return
    raise KafkaError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"the member is in epoch {member.member_epoch}, not {epoch}: it has to give up its partitions and join again",
    )


def _is_within(owned: Owned | None, assigned: Partitions) -> bool:
    if owned is None:
        return False
    return all(topic_id in assigned and owned[topic_id] <= assigned[topic_id].keys() for topic_id in owned)


def check_instance(member: ConsumerMember | None, instance_id: str, member_id: str) -> ConsumerMember:
    """The static member, if it goes by that member id."""
    if member is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"there is no member with instance id {instance_id}")
    if member.member_id != member_id:
        raise KafkaError(ErrorCode.FENCED_INSTANCE_ID, f"instance id {instance_id} is now member {member.member_id}")
    return member


def check_released(member: ConsumerMember, instance_id: str) -> None:
    """Unlike in classic groups, nobody takes a static member's place before that has left."""
    if not member.is_classic and member.member_epoch != STATIC_LEAVE_EPOCH:
        raise KafkaError(
            ErrorCode.UNRELEASED_INSTANCE_ID, f"instance id {instance_id} is still member {member.member_id}"
        )
