"""What happened in the cluster since the console reads it: brokers that came and went, new leaders, replicas in sync.
What happens to a view happens to its source, and is told once.

Each version of the collector's state is compared with the one before. What a topic's state holds is replaced when it
changes, so topics without a change are not looked at. Pure.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Final, NamedTuple

from moldau.console.collector.state import ClusterState, TopicState, is_internal

EVENTS_KEPT: Final = 500
PARTITIONS_TOLD: Final = 60
"""Changes of partitions that one version tells one by one: the death of a broker can change thousands."""


class ClusterEvent(NamedTuple):
    time_ms: int
    kind: str
    """`ok`, `warn` or `bad`."""
    text: str
    topic: str | None = None
    """Of what happened to a partition."""
    is_internal: bool = False


class ClusterEvents:
    def __init__(self) -> None:
        self._events: deque[ClusterEvent] = deque(maxlen=EVENTS_KEPT)
        self._is_begun = False
        self._alive: frozenset[int] = frozenset()
        self._silent: frozenset[int] = frozenset()
        self._leader: int | None = None
        self._has_quorum = False
        self._topics: Mapping[str, TopicState] = {}

    def note(self, state: ClusterState) -> None:
        """Compare a new version of the state with the one before. Called by one thread."""
        if "brokers" not in state.read:
            return
        if self._is_begun:
            self._events.extend(self._changes(state))
        self._is_begun = True
        self._alive, self._silent = state.alive, state.silent
        if state.quorum is not None:
            self._leader, self._has_quorum = state.quorum.leader_id, True
        self._topics = state.topics

    def last(self, count: int, topic: str | None) -> list[ClusterEvent]:
        """Return the last events, newest first: of a topic and the brokers, or of all topics that are not internal."""
        events = reversed(list(self._events))
        shown = (each for each in events if (not each.is_internal if topic is None else each.topic in (None, topic)))
        return list(islice(shown, count))

    def _changes(self, state: ClusterState) -> Iterator[ClusterEvent]:
        now_ms = state.read_ms
        for broker in sorted({*self._alive, *state.alive}):
            told = self._change_of_broker(broker, state)
            if told is not None:
                yield ClusterEvent(now_ms, *told)
        if self._has_quorum and state.quorum is not None and state.quorum.leader_id != self._leader:
            text = f"Controller: {_name(self._leader)} → {_name(state.quorum.leader_id)}"
            yield ClusterEvent(now_ms, "warn", text)
        stored = {name: topic for name, topic in state.topics.items() if name not in state.views.by_name}
        changes = self._changes_of_partitions(stored, now_ms)
        yield from islice(changes, PARTITIONS_TOLD)
        more = sum(1 for _ in changes)
        if more:
            yield ClusterEvent(now_ms, "warn", f"{more} more partitions changed")

    def _change_of_broker(self, broker: int, state: ClusterState) -> tuple[str, str] | None:
        if broker not in state.alive:
            return "bad", f"Broker {broker} is down"
        if broker not in self._alive:
            return "ok", f"Broker {broker} is up"
        if (broker in self._silent) == (broker in state.silent):
            return None
        return (
            ("warn", f"Broker {broker} does not answer")
            if broker in state.silent
            else ("ok", f"Broker {broker} answers again")
        )

    def _changes_of_partitions(self, topics: Mapping[str, TopicState], now_ms: int) -> Iterator[ClusterEvent]:
        """Yield the changes of topics that are not internal first."""
        changed = [
            (before, topic)
            for name, topic in topics.items()
            if (before := self._topics.get(name)) is not None and before is not topic
        ]
        for before, topic in sorted(changed, key=lambda pair: is_internal(pair[1])):
            if before.topic_id != topic.topic_id:
                continue  # deleted and created again
            for index in range(min(len(before.leaders), len(topic.leaders))):
                told = _change_of_partition(before, topic, index)
                if told is not None:
                    yield ClusterEvent(now_ms, *told, topic.name, is_internal(topic))


def _change_of_partition(before: TopicState, topic: TopicState, index: int) -> tuple[str, str] | None:
    old, new = before.leaders[index], topic.leaders[index]
    if old != new:
        kind = "warn" if new >= 0 else "bad"
        return kind, f"{topic.name}-{index}: leader {_name(old)} → {_name(new)}"
    was, isr = before.isr[index], topic.isr[index]
    if len(was) != len(isr):
        return "ok" if len(isr) > len(was) else "warn", f"{topic.name}-{index}: in sync {', '.join(map(str, isr))}"
    return None


def _name(broker: int | None) -> str:
    return "none" if broker is None or broker < 0 else str(broker)
