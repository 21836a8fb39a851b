"""The states of share partitions that are to be made before a group's members can get the partitions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from moldau.base.ids import Uuid
from moldau.coordinator.group.share import records
from moldau.coordinator.group.share.group import ShareGroup
from moldau.coordinator.group.share.member import PartitionsByTopicId
from moldau.coordinator.group.share.states import StatesByTopicId, TopicStates
from moldau.coordinator.group.state import GroupState
from moldau.coordinator.machine import NOTHING, Outcome
from moldau.metadata.image import MetadataImage

BY_OFFSET_RESET: Final = -1
"""The start offset of a partition whose leader finds it out, by `share.auto.offset.reset`."""


class Initialization(NamedTuple):
    """States to make, which the log has as initializing."""

    group_id: str
    state_epoch: int
    start_offsets: Mapping[Uuid, Mapping[int, int]]
    """By topic and partition."""


def missing_states(
    group: ShareGroup, names: Iterable[str], image: MetadataImage, now_ms: int, retry_interval_ms: int
) -> StatesByTopicId:
    """Return the partitions of these topics that are neither initialized nor, since a short time, initializing."""
    initialized, initializing = group.states.initialized, group.states.initializing
    found: dict[Uuid, TopicStates] = {}
    for name in sorted(names):
        topic = image.topics.get(name)
        if topic is None:
            continue
        missing = set(range(len(topic.partitions)))
        if topic.id in initialized:
            missing -= initialized[topic.id].partitions
        if missing and topic.id in initializing and now_ms - initializing[topic.id].since_ms < retry_interval_ms:
            missing -= initializing[topic.id].partitions
        if missing:
            found[topic.id] = TopicStates(name, frozenset(missing), now_ms)
    return found


def assignable(group: ShareGroup, names: Iterable[str], image: MetadataImage) -> dict[Uuid, frozenset[int]]:
    """Return the partitions of these topics whose states are initialized."""
    initialized, topics = group.states.initialized, image.topics
    return {
        topics[name].id: initialized[topics[name].id].partitions
        for name in names
        if name in topics and topics[name].id in initialized
    }


def has_unassigned(group: ShareGroup, image: MetadataImage) -> bool:
    """Return whether the target assignment lacks initialized partitions, or has partitions that are not."""
    wanted = assignable(group, group.subscriptions.topics, image) if group.members else {}
    if not wanted:
        return False
    assigned: dict[Uuid, set[int]] = {}
    for target in group.targets.values():
        for topic_id, partitions in target.items():
            assigned.setdefault(topic_id, set()).update(partitions)
    return any(assigned.get(topic_id, set()) != partitions for topic_id, partitions in wanted.items())


def on_made(
    state: GroupState, group_id: str, made: PartitionsByTopicId, not_made: PartitionsByTopicId
) -> Outcome[None]:
    """Write down which of the initializing states were made. The next heartbeat of a member assigns their partitions,
    and tries the others again."""
    group = state.groups.get(group_id)
    if not isinstance(group, ShareGroup):
        return NOTHING
    states = group.states.with_initialized(made).without_initializing(not_made)
    if states == group.states:
        return NOTHING
    return Outcome(None, [records.state_partitions(group_id, states)])
