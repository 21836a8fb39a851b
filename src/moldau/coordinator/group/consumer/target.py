"""What every member should have: the assignor's word on the group as it will be after the change being decided."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Mapping, Sequence

from moldau.base.ids import Uuid
from moldau.coordinator.group.assignors import ASSIGNORS, Assignment, AssignorMember
from moldau.coordinator.group.consumer.group import ConsumerGroup
from moldau.coordinator.group.consumer.member import ConsumerMember, Target
from moldau.coordinator.group.consumer.subscriptions import Subscriptions
from moldau.metadata.image import MetadataImage

_PARTITIONS = struct.Struct(">i")


def metadata_hash(names: Iterable[str], image: MetadataImage) -> int:
    """A number that changes when one of these topics comes, goes or grows; 0 for none. The log keeps it, so that a
    coordinator that has just taken over a group knows whether its target is still good."""
    topics = [image.topics[name] for name in sorted(names) if name in image.topics]
    if not topics:
        return 0
    digest = hashlib.blake2b(digest_size=8)
    for topic in topics:
        digest.update(topic.id + _PARTITIONS.pack(len(topic.partitions)))
    return int.from_bytes(digest.digest(), signed=True)


def preferred_assignor(counts: Mapping[str, int], known: Sequence[str]) -> str:
    """The one that most members ask for; of equals, and where nobody asks, the first that is known."""
    return max(known, key=lambda name: counts.get(name, 0))


def assignment(
    assignor: str,
    members: Mapping[str, ConsumerMember],
    targets: Mapping[str, Target],
    subscriptions: Subscriptions,
    image: MetadataImage,
) -> Assignment:
    """By members that are alike in what they read, their topics are looked up once."""
    alike: dict[tuple[frozenset[str], str], frozenset[Uuid]] = {}
    asked: dict[str, AssignorMember] = {}
    for member_id, member in members.items():
        reads = (member.topic_names, member.pattern)
        if reads not in alike:
            alike[reads] = subscriptions.topic_ids(member, image)
        asked[member_id] = AssignorMember(
            member_id, member.instance_id, member.rack_id, alike[reads], targets.get(member_id, {})
        )
    counts = {
        image.topics[name].id: len(image.topics[name].partitions)
        for name in subscriptions.topics
        if name in image.topics
    }
    return ASSIGNORS[assignor].assign(asked, counts)


def members_after(group: ConsumerGroup, member: ConsumerMember, replaced: str | None) -> dict[str, ConsumerMember]:
    after = dict(group.members)
    if replaced is not None:
        after.pop(replaced, None)
    after[member.member_id] = member
    return after
