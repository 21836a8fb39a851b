"""Checks a heartbeat of a share group: its fields, whatever the group, and the epoch of its sender."""

from __future__ import annotations

from moldau.base.errors import ErrorCode, KafkaError
from moldau.coordinator.group.share.group import ShareGroup
from moldau.coordinator.group.share.member import JOIN_EPOCH, LEAVE_EPOCH, ShareMember
from moldau.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest


def check_request(request: ShareGroupHeartbeatRequest) -> None:
    _require(bool(request.member_id.strip()), "MemberId can't be empty.")
    _require(bool(request.group_id.strip()), "GroupId can't be empty.")
    _require(request.rack_id is None or bool(request.rack_id.strip()), "RackId can't be empty.")
    if request.member_epoch == JOIN_EPOCH:
        _require(bool(request.subscribed_topic_names), "SubscribedTopicNames must be set in first request.")
    _require(request.member_epoch >= LEAVE_EPOCH, "MemberEpoch is invalid.")


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise KafkaError(ErrorCode.INVALID_REQUEST, message)


def check_group_size(group: ShareGroup, member_id: str, members_max: int) -> None:
    if len(group.members) >= members_max and member_id not in group.members:
        raise KafkaError(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"The share group has reached its maximum capacity of {members_max} members.",
        )


def check_epoch(member: ShareMember, epoch: int) -> None:
    """Raise KafkaError unless the epoch is the member's, or 0: it joins again. Its previous epoch is accepted: the
    response with the new one may have been lost."""
    if epoch in (JOIN_EPOCH, member.member_epoch) or epoch == member.previous_member_epoch < member.member_epoch:
        return
    raise KafkaError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The share group member is in epoch {member.member_epoch}, not {epoch}."
        " The member must abandon all its partitions and rejoin.",
    )
