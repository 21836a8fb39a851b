"""New topics are matched in turns, while topics, patterns and shards change at random: in the end every pattern has
exactly the topics that match it.

A failing run prints its seed; `run(seed)` repeats it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from moldau.base.pattern import compile_pattern
from moldau.base.persistent_map import PersistentMap
from moldau.base.steps import Steps, TurnItems
from moldau.coordinator.group.consumer.patterns import Patterns
from moldau.coordinator.group.topic_changes import TopicChanges
from moldau.metadata.apply import Changes
from moldau.metadata.current import CurrentImage
from moldau.metadata.image import MetadataImage, TopicImage
from moldau.runtime.coordinators import new_topics

NAMES = ("a1", "a2", "a3", "b1", "b2", "c1")
PATTERNS = ("a.*", "b.*", ".*1", "a[12]", ".*")
STEPS = 60


class Machine:
    """The patterns of a shard, some of which are in use."""

    def __init__(self, current: CurrentImage) -> None:
        self.used: set[str] = set()
        self.patterns = Patterns(current, self.used)
        self.consumer = self

    def match_new_topics(self, names: list[str], turn: TurnItems) -> Steps[None]:
        for pattern in self.patterns.match_new_topics(names, turn):
            if pattern is None:
                yield


class TwoShards:
    """A node with two shards. It has the interface of `Shards` that `NewTopics` uses."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.current = CurrentImage()
        self.machines = [Machine(self.current), Machine(self.current)]
        self.new_topics = new_topics.NewTopics(self)  # type: ignore[arg-type]
        self.topics_created = 0
        self._soon: deque[Callable[[], Any]] = deque()
        self._late: deque[list[str]] = deque()
        """Names of changed topics that are passed on later, as those of a large change."""

    def ready_machines(self) -> list[Machine]:
        return list(self.machines)

    def run(self, turns: Steps[None]) -> None:
        if next(turns, "over") != "over":
            self._soon.append(lambda: self.run(turns))

    def step(self) -> None:
        events = (self.change_topics, self.pass_on_late, self.use_pattern, self.drop_pattern, self.replace_shard)
        event = self.rng.choices((*events, self.run_soon), (6, 2, 2, 1, 1, 8))[0]
        event()

    def change_topics(self) -> None:
        topics, changes = dict(self.current.image.topics.items()), Changes()
        for name in self.rng.sample(NAMES, self.rng.randint(1, 3)):
            is_kept = self.rng.random() < 0.3  # an existing topic changes otherwise; one that is deleted is made again
            if name in topics and self.rng.random() < 0.7:
                changes.removed.append(topics.pop(name))
                if not is_kept:
                    continue
            if name not in topics:
                self.topics_created += 1
                topics[name] = TopicImage(name, self.topics_created.to_bytes(16), ())
            changes.topics[name] = {0}
        if self.rng.random() < 0.3:
            self._late.append(list(changes.topics))
            changes.topics = {}
        self.publish(MetadataImage(topics=PersistentMap(topics)), changes)

    def pass_on_late(self) -> None:
        if self._late:
            image = self.current.image
            self.publish(image, Changes({name: {0} for name in self._late.popleft() if name in image.topics}))

    def publish(self, image: MetadataImage, changes: Changes) -> None:
        """Do what `GroupCoordinator.on_image` does, and make the image current."""
        deleted = TopicChanges.of(image, changes).deleted
        for machine in self.machines:
            self._soon.append(lambda machine=machine: machine.patterns.remove_deleted(deleted))
        self._soon.append(lambda: self.new_topics.on_changes(changes))
        self.current.image = image

    def use_pattern(self) -> None:
        machine, pattern = self.rng.choice(self.machines), self.rng.choice(PATTERNS)
        machine.used.add(pattern)
        machine.patterns.topics(pattern)

    def drop_pattern(self) -> None:
        self.rng.choice(self.machines).used.discard(self.rng.choice(PATTERNS))

    def replace_shard(self) -> None:
        self.machines[self.rng.randrange(2)] = Machine(self.current)

    def run_soon(self) -> None:
        for _ in range(min(self.rng.randint(1, 6), len(self._soon))):
            self._soon.popleft()()

    def settle(self) -> None:
        while self._late:
            self.pass_on_late()
        while self._soon:
            self._soon.popleft()()


def run(seed: int) -> None:
    world = TwoShards(seed)
    for _ in range(STEPS):
        world.step()
    world.settle()
    for machine in world.machines:
        for pattern, topics in machine.patterns._topics.items():
            matcher = compile_pattern(pattern)
            assert topics == {name for name in world.current.image.topics if matcher.fullmatch(name)}, (seed, pattern)


@pytest.mark.needs_re2
def test_in_the_end_every_pattern_has_the_topics_that_match(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(new_topics, "CHARACTERS_A_TURN", 3)
    for seed in range(300):
        run(seed)
