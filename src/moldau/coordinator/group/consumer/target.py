"""Computes the target assignment: runs the assignor on the group as it will be after the current change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from moldau.base.ids import Uuid
from moldau.coordinator.group.assignors import ASSIGNORS, Assignment, AssignorMember
from moldau.coordinator.group.consumer.group import ConsumerGroup
from moldau.coordinator.group.consumer.member import ConsumerMember, TargetAssignment
from moldau.coordinator.group.subscriptions import Subscriptions
from moldau.metadata.image import MetadataImage


def preferred_assignor(counts: Mapping[str, int], assignors: Sequence[str]) -> str:
    """Return the assignor that most members ask for; the order of `assignors` breaks ties."""
    return max(assignors, key=lambda name: counts.get(name, 0))


def compute_assignment(
    assignor: str,
    members: Mapping[str, ConsumerMember],
    targets: Mapping[str, TargetAssignment],
    subscriptions: Subscriptions,
    image: MetadataImage,
) -> Assignment:
    """Run the assignor. The topic ids of members with the same subscription are looked up once."""
    topic_ids: dict[tuple[frozenset[str], str], frozenset[Uuid]] = {}
    assignor_members: dict[str, AssignorMember] = {}
    for member_id, member in members.items():
        subscription = (member.topic_names, member.pattern)
        if subscription not in topic_ids:
            topic_ids[subscription] = subscriptions.topic_ids(member, image)
        assignor_members[member_id] = AssignorMember(
            member_id, member.instance_id, member.rack_id, topic_ids[subscription], targets.get(member_id, {})
        )
    counts = {
        image.topics[name].id: len(image.topics[name].partitions)
        for name in subscriptions.topics
        if name in image.topics
    }
    return ASSIGNORS[assignor].assign(assignor_members, counts)


def members_after_change(
    group: ConsumerGroup, member: ConsumerMember, replaced_member_id: str | None
) -> dict[str, ConsumerMember]:
    """Return the members of the group with `member`, and without the one that it replaces."""
    after = dict(group.members)
    if replaced_member_id is not None:
        after.pop(replaced_member_id, None)
    after[member.member_id] = member
    return after
