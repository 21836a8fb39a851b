"""Which subscriptions match a topic name: a tree of the levels of their filters. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, Generic, NamedTuple, TypeVar

from moldau.gateway.mqtt.session import Subscription

Subscriber = TypeVar("Subscriber")

NAMES_KEPT: Final = 10_000
"""Names whose matches are remembered, until a subscription changes."""


class Match(NamedTuple, Generic[Subscriber]):
    """A subscriber that gets a message once, however many of its filters match."""

    subscriber: Subscriber
    qos: int
    identifiers: tuple[int, ...]
    retain_as_published: bool
    from_others: tuple[Subscription, ...] | None
    """If some of the subscriptions are no-local: the others, which also get the subscriber's own messages."""


def combined(subscriber: Subscriber, found: Iterable[Subscription]) -> Match[Subscriber]:
    subscriptions = tuple(found)
    return Match(
        subscriber,
        max(each.qos for each in subscriptions),
        tuple(each.identifier for each in subscriptions if each.identifier is not None),
        any(each.retain_as_published for each in subscriptions),
        tuple(each for each in subscriptions if not each.no_local)
        if any(each.no_local for each in subscriptions)
        else None,
    )


class _Level(Generic[Subscriber]):
    __slots__ = ("below", "subscriptions")

    def __init__(self) -> None:
        self.below: dict[str, _Level[Subscriber]] = {}
        self.subscriptions: dict[Subscriber, Subscription] = {}


class FilterIndex(Generic[Subscriber]):
    def __init__(self) -> None:
        self._root: _Level[Subscriber] = _Level()
        self._known: dict[str, tuple[Match[Subscriber], ...]] = {}
        self.filters: dict[Subscriber, set[str]] = {}

    def add(self, subscriber: Subscriber, subscription: Subscription) -> None:
        """Add a subscription, or replace the one with the same filter."""
        level = self._root
        for name in subscription.filter.split("/"):
            level = level.below.setdefault(name, _Level())
        level.subscriptions[subscriber] = subscription
        self.filters.setdefault(subscriber, set()).add(subscription.filter)
        self._known.clear()

    def remove(self, subscriber: Subscriber, text: str) -> None:
        filters = self.filters.get(subscriber)
        if filters is None or text not in filters:
            return
        filters.discard(text)
        if not filters:
            del self.filters[subscriber]
        path = [self._root]
        names = text.split("/")
        for name in names:
            path.append(path[-1].below[name])
        del path[-1].subscriptions[subscriber]
        for level, parent, name in zip(path[:0:-1], path[-2::-1], reversed(names), strict=True):
            if level.below or level.subscriptions:
                break
            del parent.below[name]
        self._known.clear()

    def remove_all(self, subscriber: Subscriber) -> None:
        for text in list(self.filters.get(subscriber, ())):
            self.remove(subscriber, text)

    def matching(self, name: str) -> tuple[Match[Subscriber], ...]:
        known = self._known.get(name)
        if known is None:
            if len(self._known) >= NAMES_KEPT:
                self._known.clear()
            known = self._known[name] = tuple(self._find(name))
        return known

    def _find(self, name: str) -> Iterator[Match[Subscriber]]:
        found: dict[Subscriber, list[Subscription]] = {}
        levels = [self._root]
        names = name.split("/")
        for place, part in enumerate(names):
            may_be_wild = place > 0 or not part.startswith("$")
            below: list[_Level[Subscriber]] = []
            for level in levels:
                if may_be_wild:
                    _collect(level.below.get("#"), found)
                    if (wild := level.below.get("+")) is not None:
                        below.append(wild)
                if (same := level.below.get(part)) is not None:
                    below.append(same)
            levels = below
        for level in levels:
            _collect(level, found)
            _collect(level.below.get("#"), found)
        for subscriber, subscriptions in found.items():
            yield combined(subscriber, subscriptions)


def _collect(level: _Level[Subscriber] | None, found: dict[Subscriber, list[Subscription]]) -> None:
    if level is not None:
        for subscriber, subscription in level.subscriptions.items():
            found.setdefault(subscriber, []).append(subscription)
