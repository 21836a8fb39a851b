"""Subscriptions by regular expression (KIP-848).

A new pattern is matched against all topics once; after that only against those that are created or changed and did not
match before.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Any, Final

from moldau.base.errors import KafkaError
from moldau.base.pattern import compile_pattern
from moldau.metadata.apply import Changes
from moldau.metadata.current import CurrentImage
from moldau.metadata.image import MetadataImage

PATTERNS_MAX: Final = 10_000
"""Patterns in memory before those that are not in use are dropped: members may change theirs all the time."""


class Patterns:
    """The patterns in use, which are in `used`, and the topics that match each, including internal topics, as in Apache
    Kafka."""

    def __init__(self, current: CurrentImage, used: Container[str]) -> None:
        self._current = current
        self._used = used
        self._matchers: dict[str, Any] = {}
        self._topics: dict[str, frozenset[str]] = {}
        self._full_at = PATTERNS_MAX
        """How many patterns there may be before unused ones are dropped. If most are in use, it grows: otherwise every
        new pattern would look at all others."""

    def check(self, pattern: str) -> None:
        """Raise KafkaError if the pattern is not a valid regular expression."""
        if pattern and pattern not in self._matchers:
            compile_pattern(pattern)

    def topics(self, pattern: str) -> frozenset[str]:
        """Return the topics that match. A pattern that another broker accepted but this one cannot compile matches
        nothing: an error would go to other members, which cannot change it."""
        topics = self._topics.get(pattern)
        if topics is None:
            try:
                matcher = compile_pattern(pattern)
            except KafkaError:
                return frozenset()
            topics = frozenset(name for name in self._current.image.topics if matcher.fullmatch(name))
            if len(self._topics) >= self._full_at:
                self._drop_unused()
            self._matchers[pattern] = matcher
            self._topics[pattern] = topics
        return topics

    def _drop_unused(self) -> None:
        for pattern in [pattern for pattern in self._topics if pattern not in self._used]:
            del self._topics[pattern], self._matchers[pattern]
        self._full_at = max(PATTERNS_MAX, 2 * len(self._topics))

    def apply_changes(self, image: MetadataImage, changes: Changes) -> set[str]:
        """Update the matching topics, and return the patterns for which they changed. Drop unused patterns."""
        self._drop_unused()
        # ChunkedLayout passes a large change on in parts: a topic made again may be in `removed` now and in `topics` of
        # a later part.
        deleted = {topic.name for topic in changes.removed if topic.name not in image.topics}
        affected = set()
        for pattern, before in self._topics.items():
            matcher = self._matchers[pattern]
            created = {name for name in changes.topics if name not in before and matcher.fullmatch(name)}
            if created or not deleted.isdisjoint(before):
                self._topics[pattern] = (before - deleted) | created
                affected.add(pattern)
        return affected
