"""The topics that a new image changed or deleted. A node makes this once, for all its shards of groups: each of them
then only looks at the topics that its own groups use."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass

from moldau.base.ids import Uuid
from moldau.metadata.apply import Changes
from moldau.metadata.image import MetadataImage


@dataclass(frozen=True, slots=True)
class TopicChanges:
    image: MetadataImage
    changed: Set[str]
    """The topics that were created or changed."""
    removed_ids: Mapping[str, Set[Uuid]]
    """The ids of the topics that were removed, by name: one may have been removed and created more than once."""
    deleted: Set[str]
    """The names that no topic has any more."""
    names: frozenset[str]
    """The names of all these topics."""

    @classmethod
    def of(cls, image: MetadataImage, changes: Changes) -> TopicChanges:
        ids: dict[str, set[Uuid]] = {}
        for topic in changes.removed:
            ids.setdefault(topic.name, set()).add(topic.id)
        changed = frozenset(changes.topics)
        deleted = frozenset(name for name in ids if name not in image.topics)
        return cls(image, changed, ids, deleted, changed.union(ids))
