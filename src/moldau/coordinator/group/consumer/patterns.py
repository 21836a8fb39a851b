"""Subscriptions by regular expression (KIP-848).

A pattern is matched with all topics once, when it comes; from then on with those that come and go.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Any

from moldau.base.errors import KafkaError
from moldau.coordinator.pattern import compile_pattern
from moldau.metadata.apply import Changes
from moldau.metadata.current import CurrentImage


class Patterns:
    """The patterns in use and the topics that each stands for, internal ones included, as in Apache Kafka."""

    def __init__(self, current: CurrentImage) -> None:
        self._current = current
        self._matchers: dict[str, Any] = {}
        self._topics: dict[str, frozenset[str]] = {}

    def check(self, pattern: str) -> None:
        """KafkaError if it is none."""
        if pattern and pattern not in self._matchers:
            compile_pattern(pattern)

    def topics(self, pattern: str) -> frozenset[str]:
        """One that another broker took and we do not understand stands for nothing: those who heartbeat beside the
        member that has it cannot help it."""
        found = self._topics.get(pattern)
        if found is None:
            try:
                matcher = compile_pattern(pattern)
            except KafkaError:
                return frozenset()
            found = frozenset(name for name in self._current.image.topics if matcher.fullmatch(name))
            self._matchers[pattern] = matcher
            self._topics[pattern] = found
        return found

    def affected_by(self, changes: Changes, used: Container[str]) -> set[str]:
        """Topics came or went; gives the patterns that stand for others now. Those not in use are forgotten."""
        for pattern in [pattern for pattern in self._topics if pattern not in used]:
            del self._topics[pattern], self._matchers[pattern]
        gone = {topic.name for topic in changes.removed} - changes.topics
        moved = set()
        for pattern, before in self._topics.items():
            matcher = self._matchers[pattern]
            come = {name for name in changes.topics if name not in before and matcher.fullmatch(name)}
            if come or not gone.isdisjoint(before):
                self._topics[pattern] = (before - gone) | come
                moved.add(pattern)
        return moved
