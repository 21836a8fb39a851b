"""Who reads what in one group, counted, so that a member more or less with a subscription that others have costs
nothing; and which groups are interested in a topic or a pattern, so that a change of topics concerns only them.
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
    """The topics that a pattern stood for when it was last looked at."""

    topics: frozenset[str]
    version: int
    """The metadata offset of that time."""
    timestamp_ms: int


class Subscriptions:
    def __init__(self, group_id: str = "", interest: Interest | None = None) -> None:
        self.names: dict[frozenset[str], int] = {}
        """Members by the set of names that they subscribe to."""
        self.patterns: dict[str, int] = {}
        """Members by pattern."""
        self.resolved: dict[str, Resolved] = {}
        self.topics: dict[str, int] = {}
        """In how many sets of names and patterns a topic is."""
        self._group_id = group_id
        self._interest = interest

    def copy(self) -> Subscriptions:
        """One to try a change on; nobody is told of it."""
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
        """A pattern stands for these topics now; None if nobody reads by it any more."""
        before = self.resolved.pop(pattern, None)
        if resolved is not None:
            self.resolved[pattern] = resolved
            self._count_topics(resolved.topics, 1)
        if before is not None:
            self._count_topics(before.topics, -1)
        if self._interest is not None and (before is None) != (resolved is None):
            _tell(self._interest.patterns, pattern, self._group_id, resolved is not None)

    def drop_unread(self) -> list[str]:
        """Forgets the patterns by which nobody reads any more, and tells which."""
        unread = [pattern for pattern in self.resolved if pattern not in self.patterns]
        for pattern in unread:
            self.resolve(pattern, None)
        return unread

    def forgotten(self) -> None:
        """The group is no more."""
        for pattern in list(self.resolved):
            self.resolve(pattern, None)
        for names in self.names:
            self._count_topics(names, -1)
        self.names = {}
        self.patterns = {}

    def of(self, member: ConsumerMember) -> frozenset[str]:
        """The names of all topics that a member reads, whether they exist or not."""
        resolved = self.resolved.get(member.pattern)
        return member.topic_names if resolved is None else member.topic_names | resolved.topics

    def topic_ids(self, member: ConsumerMember, image: MetadataImage) -> frozenset[Uuid]:
        """Those that exist."""
        topics = image.topics
        return frozenset(topics[name].id for name in self.of(member) if name in topics)

    def _count_topics(self, names: Iterable[str], by: int) -> None:
        for name in names:
            found = count(self.topics, name, by)
            if self._interest is not None and found == max(by, 0):
                _tell(self._interest.topics, name, self._group_id, by > 0)


def count(counts: dict[K, int], key: K, by: int) -> int:
    """One more or one less of something; what there is none of is not kept."""
    found = counts.get(key, 0) + by
    assert found >= 0, "nobody leaves who was not there"
    if found:
        counts[key] = found
    else:
        del counts[key]
    return found


def _tell(interested: dict[str, set[str]], what: str, group_id: str, is_interested: bool) -> None:
    if is_interested:
        interested.setdefault(what, set()).add(group_id)
        return
    groups = interested[what]
    groups.discard(group_id)
    if not groups:
        del interested[what]
