"""One step of a member towards what it should have. A partition is given only when nobody has it any more: whoever has
to give one up is told first, and says by its heartbeats that it did.

Whether a member gave something up is read from the partitions it says it owns. A heartbeat that does not say leaves
everything as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import Uuid
from moldau.coordinator.group.consumer.member import NO_PARTITIONS, ConsumerMember, MemberState, Partitions, Target

Owned = Mapping[Uuid, frozenset[int]]
"""What the client says it has."""


def reconciled(
    member: ConsumerMember,
    target_epoch: int,
    target: Target,
    owned: Owned | None,
    subscribed: Container[Uuid],
    is_free: Callable[[Uuid, int], bool],
) -> ConsumerMember:
    """The member as far as it can go now; itself if it cannot."""
    if member.state is MemberState.UNREVOKED and _owns_any(owned, member.pending_revocation):
        return _within_subscription(member, subscribed)
    if member.state is MemberState.UNKNOWN and (owned is None or owned):
        raise KafkaError(ErrorCode.FENCED_MEMBER_EPOCH, "the member's state is not known: it has to join again")
    target = {topic_id: partitions for topic_id, partitions in target.items() if topic_id in subscribed}
    kept = _common(member.assigned, target)
    pending = _without(member.assigned, kept)
    if pending and _owns_any(owned, pending):
        return member.advanced(member.member_epoch, MemberState.UNREVOKED, kept, pending)
    assigned, is_complete = _given(kept, target, target_epoch, is_free)
    state = MemberState.STABLE if is_complete else MemberState.UNRELEASED
    return member.advanced(target_epoch, state, assigned, NO_PARTITIONS)


def _within_subscription(member: ConsumerMember, subscribed: Container[Uuid]) -> ConsumerMember:
    """A member that has to give something up gives up at the same time what it does not subscribe to any more."""
    kept = {topic_id: found for topic_id, found in member.assigned.items() if topic_id in subscribed}
    if len(kept) == len(member.assigned):
        return member
    pending = {topic_id: dict(found) for topic_id, found in member.pending_revocation.items()}
    for topic_id, found in _without(member.assigned, kept).items():
        pending.setdefault(topic_id, {}).update(found)
    return member.advanced(member.member_epoch, MemberState.UNREVOKED, kept, pending)


def _given(
    kept: Partitions, target: Target, epoch: int, is_free: Callable[[Uuid, int], bool]
) -> tuple[Partitions, bool]:
    """What it keeps and what it can be given now, and whether that is all."""
    assigned = {topic_id: dict(partitions) for topic_id, partitions in kept.items()}
    is_complete = True
    for topic_id, partitions in target.items():
        for partition in sorted(partitions - kept.get(topic_id, {}).keys()):
            if is_free(topic_id, partition):
                assigned.setdefault(topic_id, {})[partition] = epoch
            else:
                is_complete = False
    return assigned, is_complete


def _owns_any(owned: Owned | None, partitions: Partitions) -> bool:
    """Whoever does not say is taken to own them still."""
    if owned is None:
        return True
    return any(not partitions[topic_id].keys().isdisjoint(owned.get(topic_id, ())) for topic_id in partitions)


def _common(partitions: Partitions, target: Target) -> dict[Uuid, dict[int, int]]:
    kept = {
        topic_id: {index: epoch for index, epoch in found.items() if index in target.get(topic_id, ())}
        for topic_id, found in partitions.items()
    }
    return {topic_id: found for topic_id, found in kept.items() if found}


def _without(partitions: Partitions, others: Partitions) -> dict[Uuid, dict[int, int]]:
    left = {
        topic_id: {index: epoch for index, epoch in found.items() if index not in others.get(topic_id, ())}
        for topic_id, found in partitions.items()
    }
    return {topic_id: found for topic_id, found in left.items() if found}
