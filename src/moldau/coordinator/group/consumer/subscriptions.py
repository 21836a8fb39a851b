"""The subscriptions of a group, counted, so that it costs nothing to add or remove a member whose subscription others
share. Also the groups that read a topic or pattern, so that a change of topics affects only them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from moldau.base.ids import Uuid
from moldau.coordinator.group.consumer.member import ConsumerMember
from moldau.metadata.image import MetadataImage

K = TypeVar("K")


@dataclass(slots=True)
class Interest:
    """The groups of a shard by the topics and by the patterns that they read."""

    topics: dict[str, set[str]] = field(default_factory=dict)
    patterns: dict[str, set[str]] = field(default_factory=dict)


class Resolved(NamedTuple):
    """The topics that matched a pattern when it was last resolved."""

    topics: frozenset[str]
    version: int
    """The metadata offset at that time."""
    timestamp_ms: int


class Subscriptions:
    def __init__(self, group_id: str = "", interest: Interest | None = None) -> None:
        self.names: dict[frozenset[str], int] = {}
        """The number of members that subscribe to each set of names."""
        self.patterns: dict[str, int] = {}
        """The number of members that use each pattern."""
        self.resolved: dict[str, Resolved] = {}
        self.topics: dict[str, int] = {}
        """The number of sets of names and of patterns that include each topic."""
        self._group_id = group_id
        self._interest = interest

    def copy(self) -> Subscriptions:
        """Return a copy to try a change on. It does not update the shard's `Interest`."""
        other = Subscriptions()
        other.names = dict(self.names)
        other.patterns = dict(self.patterns)
        other.resolved = dict(self.resolved)
        other.topics = dict(self.topics)
        return other

    def add(self, member: ConsumerMember) -> None:
        if member.topic_names and count(self.names, member.topic_names, 1) == 1:
            self._count_topics(member.topic_names, 1)
        if member.pattern:
            count(self.patterns, member.pattern, 1)

    def remove(self, member: ConsumerMember) -> None:
        if member.topic_names and count(self.names, member.topic_names, -1) == 0:
            self._count_topics(member.topic_names, -1)
        if member.pattern:
            count(self.patterns, member.pattern, -1)

    def resolve(self, pattern: str, resolved: Resolved | None) -> None:
        """Set the topics that match a pattern; None removes the pattern."""
        before = self.resolved.pop(pattern, None)
        if resolved is not None:
            self.resolved[pattern] = resolved
            self._count_topics(resolved.topics, 1)
        if before is not None:
            self._count_topics(before.topics, -1)
        if self._interest is not None and (before is None) != (resolved is None):
            _set_interest(self._interest.patterns, pattern, self._group_id, resolved is not None)

    def drop_unread(self) -> list[str]:
        """Drop and return the patterns that no member uses any more."""
        unread = [pattern for pattern in self.resolved if pattern not in self.patterns]
        for pattern in unread:
            self.resolve(pattern, None)
        return unread

    def clear(self) -> None:
        """Drop everything: the group is deleted."""
        for pattern in list(self.resolved):
            self.resolve(pattern, None)
        for names in self.names:
            self._count_topics(names, -1)
        self.names = {}
        self.patterns = {}

    def of(self, member: ConsumerMember) -> frozenset[str]:
        """Return the names of all topics that a member reads, whether they exist or not."""
        resolved = self.resolved.get(member.pattern)
        return member.topic_names if resolved is None else member.topic_names | resolved.topics

    def topic_ids(self, member: ConsumerMember, image: MetadataImage) -> frozenset[Uuid]:
        """Return the ids of the existing topics that a member reads."""
        topics = image.topics
        return frozenset(topics[name].id for name in self.of(member) if name in topics)

    def _count_topics(self, names: Iterable[str], by: int) -> None:
        for name in names:
            new_count = count(self.topics, name, by)
            # The group got its first reader of the topic, or lost its last one.
            if self._interest is not None and new_count == max(by, 0):
                _set_interest(self._interest.topics, name, self._group_id, by > 0)


def count(counts: dict[K, int], key: K, by: int) -> int:
    """Add `by` to a count and return it. A count of 0 is removed."""
    new_count = counts.get(key, 0) + by
    assert new_count >= 0, f"{key}: removed more often than added"
    if new_count:
        counts[key] = new_count
    else:
        del counts[key]
    return new_count


def _set_interest(interest: dict[str, set[str]], name: str, group_id: str, is_interested: bool) -> None:
    if is_interested:
        interest.setdefault(name, set()).add(group_id)
        return
    groups = interest[name]
    groups.discard(group_id)
    if not groups:
        del interest[name]
