"""The partitions whose states the share coordinators are to make, have made and are to delete, as the log has them.

    initializing --made--> initialized --offsets or group deleted--> deleting --deleted--> (none)

All operations return another value.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from moldau.base.ids import Uuid
from moldau.coordinator.group.share.member import PartitionsByTopicId


class TopicStates(NamedTuple):
    name: str
    partitions: frozenset[int]
    since_ms: int
    """When this coordinator got to know them, by its own clock. Not in the log."""


StatesByTopicId = Mapping[Uuid, TopicStates]


@dataclass(frozen=True, slots=True)
class StatePartitions:
    initializing: StatesByTopicId = field(default_factory=dict)
    initialized: StatesByTopicId = field(default_factory=dict)
    deleting: Mapping[Uuid, str] = field(default_factory=dict)
    """Topics with their names."""

    def __bool__(self) -> bool:
        return bool(self.initializing or self.initialized or self.deleting)

    def with_initializing(self, topics: StatesByTopicId) -> StatePartitions:
        """Return the states with others that are initialized now, perhaps again; they are not deleted any more."""
        deleting = {topic_id: name for topic_id, name in self.deleting.items() if topic_id not in topics}
        return replace(self, initializing=_merged(self.initializing, topics), deleting=deleting)

    def with_initialized(self, partitions: PartitionsByTopicId) -> StatePartitions:
        """Return the states after the share coordinators have made these. What is not initializing any more is left
        alone: its topic or its group was deleted meanwhile."""
        made = {
            topic_id: TopicStates(topic.name, found, topic.since_ms)
            for topic_id, topic in self.initializing.items()
            if (found := topic.partitions & partitions.get(topic_id, frozenset()))
        }
        without = self.without_initializing(partitions)
        return replace(without, initialized=_merged(self.initialized, made))

    def without_initializing(self, partitions: PartitionsByTopicId) -> StatePartitions:
        return replace(self, initializing=_without(self.initializing, partitions))

    def without_initialized(self, topic_ids: Collection[Uuid]) -> StatePartitions:
        left = {topic_id: topic for topic_id, topic in self.initialized.items() if topic_id not in topic_ids}
        return replace(self, initialized=left)

    def with_deleting(self, names: Mapping[Uuid, str]) -> StatePartitions:
        return replace(self, deleting={**self.deleting, **names})

    def without_deleting(self, topic_ids: Collection[Uuid]) -> StatePartitions:
        left = {topic_id: name for topic_id, name in self.deleting.items() if topic_id not in topic_ids}
        return replace(self, deleting=left)

    def without_topics(self, topic_ids: Collection[Uuid]) -> StatePartitions:
        """Return the states without those of deleted topics, or these themselves if there are none."""
        if not any(topic_id in topic_ids for topic_id in self.topic_ids()):
            return self
        left = {topic_id: topic for topic_id, topic in self.initializing.items() if topic_id not in topic_ids}
        return replace(self.without_initialized(topic_ids).without_deleting(topic_ids), initializing=left)

    def topic_ids(self) -> set[Uuid]:
        return {*self.initializing, *self.initialized, *self.deleting}


NO_STATES: Final = StatePartitions()


def _merged(topics: StatesByTopicId, others: StatesByTopicId) -> StatesByTopicId:
    merged = dict(topics)
    for topic_id, other in others.items():
        known = merged.get(topic_id)
        partitions = other.partitions if known is None else known.partitions | other.partitions
        merged[topic_id] = other._replace(partitions=partitions)
    return merged


def _without(topics: StatesByTopicId, partitions: PartitionsByTopicId) -> StatesByTopicId:
    none: frozenset[int] = frozenset()
    return {
        topic_id: topic._replace(partitions=left)
        for topic_id, topic in topics.items()
        if (left := topic.partitions - partitions.get(topic_id, none))
    }
