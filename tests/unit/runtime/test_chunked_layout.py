"""Large changes are passed on in chunks: in the end everything, in its latest state, with other work in between."""

from __future__ import annotations

import pytest

from moldau.base.persistent_map import PersistentMap
from moldau.metadata.apply import Changes
from moldau.metadata.image import MetadataImage, PartitionState, TopicImage
from moldau.runtime.broker.chunked_layout import PARTITIONS_A_TURN, ChunkedLayout
from moldau.testing.clock import FakeTimers

STATE = PartitionState((1,), (1,), 1, 0, 0)


def image(names: list[str], partitions: int = 1, mark: int = 0) -> MetadataImage:
    topics = {name: TopicImage(name, name.encode().ljust(16), (STATE,) * partitions) for name in names}
    return MetadataImage(offset=mark, topics=PersistentMap(topics))


class Desk:
    def __init__(self) -> None:
        self.timers = FakeTimers()
        self.shown: list[tuple[int, list[str], list[str]]] = []
        self.pieces = ChunkedLayout(self._follow, self.timers)

    def _follow(self, image: MetadataImage, changes: Changes) -> None:
        removed = [topic.name for topic in changes.removed]
        self.shown.append((image.offset, sorted(changes.topics), removed))

    def topics(self) -> list[str]:
        return [name for _, names, _ in self.shown for name in names]


@pytest.fixture
def desk() -> Desk:
    return Desk()


MANY = [f"t{number:04}" for number in range(3 * PARTITIONS_A_TURN)]


def test_a_small_change_is_passed_on_at_once(desk: Desk) -> None:
    desk.pieces.on_image(image(["a", "b"]), Changes({"a", "b"}))
    assert desk.topics() == ["a", "b"]
    assert desk.timers.run_soon() == 0


def test_a_large_change_is_passed_on_in_turns_each_topic_once(desk: Desk) -> None:
    desk.pieces.on_image(image(MANY), Changes(set(MANY)))
    assert len(desk.topics()) == PARTITIONS_A_TURN
    desk.timers.run_soon()
    assert desk.topics() == MANY
    assert max(len(names) for _, names, _ in desk.shown) == PARTITIONS_A_TURN


def test_a_topic_is_never_split_however_large_it_is(desk: Desk) -> None:
    desk.pieces.on_image(image(["a", "b"], 10 * PARTITIONS_A_TURN), Changes({"a", "b"}))
    assert desk.topics() == ["a"]
    desk.timers.run_soon()
    assert desk.topics() == ["a", "b"]


def test_later_changes_show_the_latest_image(desk: Desk) -> None:
    desk.pieces.on_image(image(MANY, mark=1), Changes(set(MANY)))
    gone = image(MANY, mark=1).topics[MANY[-1]]
    desk.pieces.on_image(image([*MANY[:-1], "new"], mark=2), Changes({"new", MANY[-2]}, [gone]))
    assert desk.shown[1] == (2, ["new"], [MANY[-1]]), "the small change is not kept waiting"
    desk.timers.run_soon()
    assert sorted(desk.topics()) == sorted([*MANY[:-1], "new"])
    assert all(offset == 2 for offset, _, _ in desk.shown[1:])


def test_when_done_calls_each_waiter_once(desk: Desk) -> None:
    calls: list[int] = []
    desk.pieces.when_done(lambda: calls.append(0))
    assert calls == [0]
    desk.pieces.on_image(image(MANY), Changes(set(MANY)))
    desk.pieces.when_done(lambda: calls.append(len(desk.topics())))
    assert calls == [0]
    desk.timers.run_soon()
    assert calls == [0, len(MANY)]
