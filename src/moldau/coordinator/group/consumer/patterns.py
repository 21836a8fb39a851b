"""Subscriptions by regular expression (KIP-848).

A new pattern is matched against all topics once, in several turns of the loop if there are many; after that only
against new topics, in turns as well.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.pattern import compile_pattern
from moldau.base.steps import Steps, TurnItems, finish
from moldau.base.turns import CHARACTERS_A_TURN, MATCHED_AT_ONCE_MAX
from moldau.metadata.current import CurrentImage

PATTERNS_MAX: Final = 10_000
"""Patterns in memory before those that are not in use are dropped: members may change theirs all the time."""

COMPILED_CHARACTERS: Final = 100
"""Compiling a pattern counts as matching so many characters, and its own."""


class PatternsNotMatched(KafkaError):
    """A decision needs patterns that are not matched yet. Run the steps in turns of the loop, then decide again."""

    def __init__(self, steps: Steps[None]) -> None:
        super().__init__(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "the topics of a pattern are not known yet")
        self.steps = steps


class Patterns:
    """The patterns in use, which are in `used`, and the topics that match each, including internal topics, as in Apache
    Kafka."""

    def __init__(self, current: CurrentImage, used: Container[str]) -> None:
        self._current = current
        self._used = used
        self._matchers: dict[str, Any] = {}
        """Only of patterns that can be compiled here."""
        self._topics: dict[str, frozenset[str]] = {}
        self._full_at = PATTERNS_MAX
        """How many patterns there may be before unused ones are dropped. If most are in use, it grows: otherwise every
        new pattern would look at all others."""

    def check(self, pattern: str) -> None:
        """Raise KafkaError if the pattern is not a valid regular expression."""
        if pattern and pattern not in self._matchers:
            compile_pattern(pattern)

    def require(self, patterns: Iterable[str]) -> None:
        """Raise PatternsNotMatched if there are new patterns and many topics, or many new patterns."""
        new = [pattern for pattern in patterns if pattern not in self._topics]
        if len(new) * max(len(self._current.image.topics), 1) > MATCHED_AT_ONCE_MAX:
            raise PatternsNotMatched(self._match_all(new))

    def topics(self, pattern: str) -> frozenset[str]:
        """Return the topics that match. A pattern that another broker accepted but this one cannot compile matches
        nothing: an error would go to other members, which cannot change it."""
        if pattern not in self._topics:
            finish(self._match_all([pattern]))
        return self._topics[pattern]

    def _match_all(self, patterns: Iterable[str]) -> Steps[None]:
        turn = TurnItems(CHARACTERS_A_TURN)
        for pattern in patterns:
            if pattern not in self._topics:
                yield from self._match(pattern, turn)
                if turn.ends_after(COMPILED_CHARACTERS + len(pattern)):
                    yield

    def _match(self, pattern: str, turn: TurnItems) -> Steps[None]:
        topics: frozenset[str] = frozenset()
        try:
            matcher = compile_pattern(pattern)
        except KafkaError:
            matcher = None
        else:
            topics = yield from self._matching_topics(matcher, turn)
        if len(self._topics) >= self._full_at:
            self._drop_unused()
        self._topics[pattern] = topics
        if matcher is not None:
            self._matchers[pattern] = matcher

    def _matching_topics(self, matcher: Any, turn: TurnItems) -> Steps[frozenset[str]]:
        """Return the topics of the image that is current in the last step."""
        topics = self._current.image.topics
        names, matching = list(topics), set()
        while names:
            for name in names:
                if matcher.fullmatch(name):
                    matching.add(name)
                if turn.ends_after(len(name)):
                    yield
            before, topics = topics, self._current.image.topics
            names = [] if topics is before else [name for name in topics if name not in before]
        return frozenset(name for name in matching if name in topics)

    def _drop_unused(self) -> None:
        for pattern in [pattern for pattern in self._topics if pattern not in self._used]:
            del self._topics[pattern]
            self._matchers.pop(pattern, None)
        self._full_at = max(PATTERNS_MAX, 2 * len(self._topics))

    def remove_deleted(self, deleted: AbstractSet[str]) -> set[str]:
        """Remove deleted topics, and return the patterns that had matched them. Drop unused patterns."""
        self._drop_unused()
        affected = {pattern for pattern, topics in self._topics.items() if not deleted.isdisjoint(topics)}
        for pattern in affected:
            self._topics[pattern] -= deleted
        return affected

    def match_new_topics(self, names: Sequence[str], turn: TurnItems) -> Iterator[str | None]:
        """Match new topics. Yield each pattern that some of them match, and None where a turn of the loop ends."""
        for pattern, matcher in list(self._matchers.items()):
            matching = set()
            for name in names:
                if matcher.fullmatch(name):
                    matching.add(name)
                if turn.ends_after(len(name)):
                    yield None
            # Since the turns before, topics may be deleted. A pattern that was dropped needs nothing, and one that is
            # back was matched with all topics.
            created = {name for name in matching if name in self._current.image.topics}
            if self._matchers.get(pattern) is matcher and not created <= self._topics[pattern]:
                self._topics[pattern] |= created
                yield pattern
