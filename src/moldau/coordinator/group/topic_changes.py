"""The topics that a new image changed or deleted. A node makes this once, for all its shards of groups: each of them
then only looks at the topics that its own groups use."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from moldau.base.ids import ZERO_UUID, Uuid
from moldau.metadata.apply import Changes
from moldau.metadata.image import MetadataImage


@dataclass(frozen=True, slots=True)
class TopicChanges:
    removed_ids: Mapping[str, AbstractSet[Uuid]]
    """The ids of the topics that were removed, by name: one may have been removed and created more than once. If no
    topic has the name, offsets without an id are of the removed one too: then ZERO_UUID is among them."""
    deleted: AbstractSet[str]
    """The names that no topic has any more. `ChunkedLayout` passes a large change on in parts: a topic made again may
    be removed now and new in a later part, so that the image has it already."""
    names: frozenset[str]
    """The names of all topics that were created, changed or removed."""

    @classmethod
    def of(cls, image: MetadataImage, changes: Changes) -> TopicChanges:
        ids: dict[str, set[Uuid]] = {}
        for topic in changes.removed:
            ids.setdefault(topic.name, set() if topic.name in image.topics else {ZERO_UUID}).add(topic.id)
        deleted = frozenset(name for name in ids if name not in image.topics)
        return cls(ids, deleted, frozenset(changes.topics).union(ids))
