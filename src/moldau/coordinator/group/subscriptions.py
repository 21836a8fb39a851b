"""The subscriptions of a group, counted, so that it costs nothing to add or remove a member whose subscription others
share. Also the groups that read a topic or pattern, so that a change of topics affects only them.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeVar

from moldau.base.ids import Uuid
from moldau.metadata.image import MetadataImage

K = TypeVar("K")
_PARTITIONS = struct.Struct(">i")


@dataclass(slots=True)
class SubscribedGroups:
    """The ids of a shard's groups by the topics and by the patterns that they read."""

    by_topic: dict[str, set[str]] = field(default_factory=dict)
    by_pattern: dict[str, set[str]] = field(default_factory=dict)


class Subscriber(Protocol):
    """A member, as far as it says what it reads."""

    @property
    def topic_names(self) -> frozenset[str]: ...

    @property
    def pattern(self) -> str:
        """A regular expression over topic names; empty for none."""
        ...


class ResolvedPattern(NamedTuple):
    """The topics that matched a pattern when it was last resolved."""

    topics: frozenset[str]
    version: int
    """The metadata offset at that time."""
    timestamp_ms: int


class Subscriptions:
    def __init__(self, group_id: str = "", subscribed_groups: SubscribedGroups | None = None) -> None:
        self.name_sets: dict[frozenset[str], int] = {}
        """The number of members that subscribe to each set of names."""
        self.patterns: dict[str, int] = {}
        """The number of members that use each pattern."""
        self.resolved: dict[str, ResolvedPattern] = {}
        self.topics: dict[str, int] = {}
        """The number of sets of names and of patterns that include each topic."""
        self._group_id = group_id
        self._subscribed_groups = subscribed_groups

    def copy(self) -> Subscriptions:
        """Return a copy to try a change on. It does not update the shard's `SubscribedGroups`."""
        other = Subscriptions()
        other.name_sets = dict(self.name_sets)
        other.patterns = dict(self.patterns)
        other.resolved = dict(self.resolved)
        other.topics = dict(self.topics)
        return other

    def add(self, member: Subscriber) -> None:
        if member.topic_names and add_to_count(self.name_sets, member.topic_names, 1) == 1:
            self._count_topics(member.topic_names, 1)
        if member.pattern:
            add_to_count(self.patterns, member.pattern, 1)

    def remove(self, member: Subscriber) -> None:
        if member.topic_names and add_to_count(self.name_sets, member.topic_names, -1) == 0:
            self._count_topics(member.topic_names, -1)
        if member.pattern:
            add_to_count(self.patterns, member.pattern, -1)

    def set_resolved(self, pattern: str, resolved: ResolvedPattern | None) -> None:
        """Set the topics that match a pattern; None removes the pattern."""
        before = self.resolved.pop(pattern, None)
        if resolved is not None:
            self.resolved[pattern] = resolved
            self._count_topics(resolved.topics, 1)
        if before is not None:
            self._count_topics(before.topics, -1)
        if self._subscribed_groups is not None and (before is None) != (resolved is None):
            _update_groups(self._subscribed_groups.by_pattern, pattern, self._group_id, resolved is not None)

    def drop_unused_patterns(self) -> list[str]:
        """Drop and return the patterns that no member uses any more."""
        unread = [pattern for pattern in self.resolved if pattern not in self.patterns]
        for pattern in unread:
            self.set_resolved(pattern, None)
        return unread

    def clear(self) -> None:
        """Drop everything: the group is deleted."""
        for pattern in list(self.resolved):
            self.set_resolved(pattern, None)
        for names in self.name_sets:
            self._count_topics(names, -1)
        self.name_sets = {}
        self.patterns = {}

    def topic_names(self, member: Subscriber) -> frozenset[str]:
        """Return the names of all topics that a member reads, whether they exist or not."""
        resolved = self.resolved.get(member.pattern)
        return member.topic_names if resolved is None else member.topic_names | resolved.topics

    def topic_ids(self, member: Subscriber, image: MetadataImage) -> frozenset[Uuid]:
        """Return the ids of the existing topics that a member reads."""
        topics = image.topics
        return frozenset(topics[name].id for name in self.topic_names(member) if name in topics)

    def _count_topics(self, names: Iterable[str], by: int) -> None:
        for name in names:
            new_count = add_to_count(self.topics, name, by)
            # The group got its first reader of the topic, or lost its last one.
            if self._subscribed_groups is not None and new_count == max(by, 0):
                _update_groups(self._subscribed_groups.by_topic, name, self._group_id, by > 0)


def metadata_hash(names: Iterable[str], image: MetadataImage) -> int:
    """Return a number that changes when one of these topics is created, deleted or grows; 0 for no topics. It is in
    the log, so that a new coordinator of the group knows whether the target assignment is up to date."""
    topics = [image.topics[name] for name in sorted(names) if name in image.topics]
    if not topics:
        return 0
    digest = hashlib.blake2b(digest_size=8)
    for topic in topics:
        digest.update(topic.id + _PARTITIONS.pack(len(topic.partitions)))
    return int.from_bytes(digest.digest(), signed=True)


def add_to_count(counts: dict[K, int], key: K, by: int) -> int:
    """Add `by` to a count and return it. A count of 0 is removed."""
    new_count = counts.get(key, 0) + by
    assert new_count >= 0, f"{key}: removed more often than added"
    if new_count:
        counts[key] = new_count
    else:
        del counts[key]
    return new_count


def _update_groups(groups_by_name: dict[str, set[str]], name: str, group_id: str, is_subscribed: bool) -> None:
    if is_subscribed:
        groups_by_name.setdefault(name, set()).add(group_id)
        return
    groups = groups_by_name[name]
    groups.discard(group_id)
    if not groups:
        del groups_by_name[name]
