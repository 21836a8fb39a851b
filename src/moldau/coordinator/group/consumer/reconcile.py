"""Moves a member one step towards its target assignment. A member gets a partition only when no other has it: its owner
is asked to revoke it first, and confirms that by a heartbeat.

A heartbeat confirms by the list of partitions that the member owns. Without that list, nothing changes.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import Uuid
from moldau.coordinator.group.consumer.member import (
    NO_PARTITIONS,
    ConsumerMember,
    MemberState,
    Partitions,
    TargetAssignment,
)

Owned = Mapping[Uuid, frozenset[int]]
"""The partitions that the client reports as its own."""


def reconciled(
    member: ConsumerMember,
    target_epoch: int,
    target: TargetAssignment,
    owned: Owned | None,
    subscribed: Container[Uuid],
    is_free: Callable[[Uuid, int], bool],
) -> ConsumerMember:
    """Return the member after one step towards `target`; an equal member if it cannot move."""
    if member.state is MemberState.UNREVOKED and _owns_any(owned, member.pending_revocation):
        return _within_subscription(member, subscribed)
    if member.state is MemberState.UNKNOWN and (owned is None or owned):
        raise KafkaError(ErrorCode.FENCED_MEMBER_EPOCH, "unknown member state in the log; the member must join again")
    target = {topic_id: partitions for topic_id, partitions in target.items() if topic_id in subscribed}
    retained = _common(member.assigned, target)
    pending = _without(member.assigned, retained)
    if pending and _owns_any(owned, pending):
        return member.with_assignment(member.member_epoch, MemberState.UNREVOKED, retained, pending)
    assigned, is_complete = _add_free(retained, target, target_epoch, is_free)
    state = MemberState.STABLE if is_complete else MemberState.UNRELEASED
    return member.with_assignment(target_epoch, state, assigned, NO_PARTITIONS)


def _within_subscription(member: ConsumerMember, subscribed: Container[Uuid]) -> ConsumerMember:
    """Return the member with what it no longer subscribes to among its pending revocations."""
    retained = {topic_id: epochs for topic_id, epochs in member.assigned.items() if topic_id in subscribed}
    if len(retained) == len(member.assigned):
        return member
    pending = {topic_id: dict(epochs) for topic_id, epochs in member.pending_revocation.items()}
    for topic_id, epochs in _without(member.assigned, retained).items():
        pending.setdefault(topic_id, {}).update(epochs)
    return member.with_assignment(member.member_epoch, MemberState.UNREVOKED, retained, pending)


def _add_free(
    retained: Partitions, target: TargetAssignment, epoch: int, is_free: Callable[[Uuid, int], bool]
) -> tuple[Partitions, bool]:
    """Return the retained partitions with those of the target that are free, and whether this is the whole target."""
    assigned = {topic_id: dict(partitions) for topic_id, partitions in retained.items()}
    is_complete = True
    for topic_id, partitions in target.items():
        for partition in sorted(partitions - retained.get(topic_id, {}).keys()):
            if is_free(topic_id, partition):
                assigned.setdefault(topic_id, {})[partition] = epoch
            else:
                is_complete = False
    return assigned, is_complete


def _owns_any(owned: Owned | None, partitions: Partitions) -> bool:
    """Whether the client still owns one of `partitions`. If it does not report what it owns, assume that it does."""
    if owned is None:
        return True
    return any(not partitions[topic_id].keys().isdisjoint(owned.get(topic_id, ())) for topic_id in partitions)


def _common(partitions: Partitions, target: TargetAssignment) -> dict[Uuid, dict[int, int]]:
    retained = {
        topic_id: {index: epoch for index, epoch in epochs.items() if index in target.get(topic_id, ())}
        for topic_id, epochs in partitions.items()
    }
    return {topic_id: epochs for topic_id, epochs in retained.items() if epochs}


def _without(partitions: Partitions, others: Partitions) -> dict[Uuid, dict[int, int]]:
    left = {
        topic_id: {index: epoch for index, epoch in epochs.items() if index not in others.get(topic_id, ())}
        for topic_id, epochs in partitions.items()
    }
    return {topic_id: epochs for topic_id, epochs in left.items() if epochs}
