"""Large changes are passed on in chunks: in the end everything, in its latest state, with other work in between."""

from __future__ import annotations

import pytest

from moldau.base.persistent_map import PersistentMap
from moldau.metadata.apply import Changes
from moldau.metadata.image import MetadataImage, PartitionState, TopicImage
from moldau.runtime.broker.chunked_layout import PARTITIONS_A_TURN, ChunkedLayout
from moldau.testing.clock import FakeTimers

STATE = PartitionState((1,), (1,), 1, 0, 0)
Partition = tuple[str, int]


def image(names: list[str], partitions: int = 1, mark: int = 0) -> MetadataImage:
    topics = {name: TopicImage(name, name.encode().ljust(16), (STATE,) * partitions) for name in names}
    return MetadataImage(offset=mark, topics=PersistentMap(topics))


def changed(names: list[str], partitions: int = 1) -> dict[str, set[int]]:
    return {name: set(range(partitions)) for name in names}


class Desk:
    def __init__(self) -> None:
        self.timers = FakeTimers()
        self.shown: list[tuple[int, list[Partition], list[str]]] = []
        self.removals_left = 0
        self.removed_in_turns: list[int] = []
        self.chunks = ChunkedLayout(self._follow, self._remove_some, self.timers)

    def _follow(self, image: MetadataImage, changes: Changes) -> None:
        removed = [topic.name for topic in changes.removed]
        self.removals_left += sum(len(topic.partitions) for topic in changes.removed)
        pairs = [(name, index) for name in sorted(changes.topics) for index in sorted(changes.topics[name])]
        self.shown.append((image.offset, pairs, removed))

    def _remove_some(self, count: int) -> bool:
        removed = min(count, self.removals_left)
        self.removals_left -= removed
        if removed:
            self.removed_in_turns.append(removed)
        return self.removals_left > 0

    def partitions(self) -> list[Partition]:
        return [pair for _, pairs, _ in self.shown for pair in pairs]

    def topics(self) -> list[str]:
        return [name for name, _ in self.partitions()]


@pytest.fixture
def desk() -> Desk:
    return Desk()


MANY = [f"t{number:04}" for number in range(3 * PARTITIONS_A_TURN)]


def test_a_small_change_is_passed_on_at_once(desk: Desk) -> None:
    desk.chunks.on_image(image(["a", "b"]), Changes(changed(["a", "b"])))
    assert desk.topics() == ["a", "b"]
    assert desk.timers.run_soon() == 0


def test_a_large_change_is_passed_on_in_turns_each_topic_once(desk: Desk) -> None:
    desk.chunks.on_image(image(MANY), Changes(changed(MANY)))
    assert len(desk.topics()) == PARTITIONS_A_TURN
    desk.timers.run_soon()
    assert desk.topics() == MANY
    assert max(len(pairs) for _, pairs, _ in desk.shown) == PARTITIONS_A_TURN


def test_a_large_topic_is_split(desk: Desk) -> None:
    count = 10 * PARTITIONS_A_TURN + 3
    desk.chunks.on_image(image(["a", "b"], count), Changes(changed(["a", "b"], count)))
    assert desk.partitions() == [("a", index) for index in range(PARTITIONS_A_TURN)]
    desk.timers.run_soon()
    assert desk.partitions() == [(name, index) for name in "ab" for index in range(count)]
    assert max(len(pairs) for _, pairs, _ in desk.shown) == PARTITIONS_A_TURN


def test_later_changes_show_the_latest_image(desk: Desk) -> None:
    desk.chunks.on_image(image(MANY, mark=1), Changes(changed(MANY)))
    gone = image(MANY, mark=1).topics[MANY[-1]]
    desk.chunks.on_image(image([*MANY[:-1], "new"], mark=2), Changes(changed(["new", MANY[-2]]), [gone]))
    assert desk.shown[1] == (2, [("new", 0)], [MANY[-1]]), "the small change is not kept waiting"
    desk.timers.run_soon()
    assert sorted(desk.topics()) == sorted([*MANY[:-1], "new"])
    assert all(offset == 2 for offset, _, _ in desk.shown[1:])


def test_partitions_of_a_deleted_topic_are_removed_in_turns(desk: Desk) -> None:
    count = 4 * PARTITIONS_A_TURN + 1
    (gone,) = image(["a"], count).topics.values()
    desk.chunks.on_image(image([]), Changes(removed=[gone]))
    assert desk.removed_in_turns == [PARTITIONS_A_TURN]
    desk.timers.run_soon()
    assert desk.removed_in_turns == [*[PARTITIONS_A_TURN] * 4, 1]


def test_nothing_is_passed_on_after_a_stop(desk: Desk) -> None:
    """A thread closes the logs then."""
    desk.chunks.on_image(image(MANY), Changes(changed(MANY)))
    desk.chunks.stop()
    desk.timers.run_soon()
    desk.chunks.on_image(image(["late"]), Changes(changed(["late"])))
    assert len(desk.topics()) == PARTITIONS_A_TURN


def test_when_done_calls_each_waiter_once(desk: Desk) -> None:
    calls: list[int] = []
    desk.chunks.when_done(lambda: calls.append(0))
    assert calls == [0]
    desk.chunks.on_image(image(MANY), Changes(changed(MANY)))
    desk.chunks.when_done(lambda: calls.append(len(desk.topics())))
    assert calls == [0]
    desk.timers.run_soon()
    assert calls == [0, len(MANY)]
