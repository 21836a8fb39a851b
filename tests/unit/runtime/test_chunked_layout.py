"""Large changes are passed on in chunks: in the end everything, in its latest state, with other work in between."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from moldau.base.persistent_map import PersistentMap
from moldau.base.promise import Promise
from moldau.metadata.apply import Changes
from moldau.metadata.image import MetadataImage, PartitionState, TopicImage
from moldau.runtime.broker import chunked_layout
from moldau.runtime.broker.chunked_layout import AT_ONCE_MAX, PARTITIONS_A_TURN, ChunkedLayout
from moldau.runtime.internal_errors import InternalErrors
from moldau.testing.clock import FakeTimers

STATE = PartitionState((1,), (1,), 1, 0, 0)
Partition = tuple[str, int]


def image(names: list[str], partitions: int = 1, mark: int = 0) -> MetadataImage:
    topics = {name: TopicImage(name, name.encode().ljust(16), (STATE,) * partitions) for name in names}
    return MetadataImage(offset=mark, topics=PersistentMap(topics))


def changed(names: list[str], partitions: int = 1) -> dict[str, set[int]]:
    return {name: set(range(partitions)) for name in names}


class SlowFiles:
    """Creates files in a thread that a test runs."""

    def __init__(self) -> None:
        self.new: set[Partition] = set()
        self.being_created: list[Partition] = []
        self.done: Promise[None] = Promise()
        self.discarded = 0
        self.is_broken = False

    def needs_files(self, image: MetadataImage, topic: str, index: int) -> bool:
        assert image.topics[topic].partitions[index], "the image has it"
        return (topic, index) in self.new

    def prepare(self, image: MetadataImage, partitions: Iterable[Partition]) -> Promise[None]:
        assert not self.being_created, "the next chunk is not begun before this one is passed on"
        assert not self.is_broken, "broken"
        self.being_created = list(partitions)
        self.done = Promise()
        return self.done

    def finish(self) -> None:
        self.new -= set(self.being_created)
        self.being_created = []
        self.done.complete(None)

    def discard_unused(self) -> None:
        self.discarded += 1


class Desk:
    def __init__(self) -> None:
        self.timers = FakeTimers()
        self.passed_on: list[tuple[int, list[Partition], list[str]]] = []
        self.broken: set[str] = set()
        """Topics at which the listener fails."""
        self.removals_left = 0
        self.removed_in_turns: list[int] = []
        self.files = SlowFiles()
        self.chunks = ChunkedLayout(self._on_image, self._finish_some, self.files, self.timers)

    def _on_image(self, image: MetadataImage, changes: Changes) -> None:
        assert not self.broken & changes.topics.keys(), "broken"
        removed = [topic.name for topic in changes.removed]
        self.removals_left += sum(len(topic.partitions) for topic in changes.removed)
        pairs = [(name, index) for name in sorted(changes.topics) for index in sorted(changes.topics[name])]
        self.passed_on.append((image.offset, pairs, removed))

    def _finish_some(self, count: int) -> bool:
        assert self.removals_left >= 0, "broken"
        removed = min(count, self.removals_left)
        self.removals_left -= removed
        if removed:
            self.removed_in_turns.append(removed)
        return self.removals_left > 0

    def partitions(self) -> list[Partition]:
        return [pair for _, pairs, _ in self.passed_on for pair in pairs]

    def topics(self) -> list[str]:
        return [name for name, _ in self.partitions()]


@pytest.fixture
def desk(monkeypatch: pytest.MonkeyPatch) -> Desk:
    monkeypatch.setattr(chunked_layout, "INTERNAL_ERRORS", InternalErrors())
    return Desk()


MANY = [f"t{number:04}" for number in range(AT_ONCE_MAX + PARTITIONS_A_TURN)]


def test_a_small_change_is_passed_on_at_once(desk: Desk) -> None:
    desk.chunks.on_image(image(["a", "b"]), Changes(changed(["a", "b"])))
    assert desk.topics() == ["a", "b"]
    assert desk.timers.run_soon() == 0


def test_a_large_change_is_passed_on_in_turns_each_topic_once(desk: Desk) -> None:
    desk.chunks.on_image(image(MANY), Changes(changed(MANY)))
    assert desk.topics() == []
    desk.timers.run_one_soon()
    assert len(desk.topics()) == PARTITIONS_A_TURN
    desk.timers.run_soon()
    assert desk.topics() == MANY
    assert max(len(pairs) for _, pairs, _ in desk.passed_on) == PARTITIONS_A_TURN


def test_a_large_topic_is_split(desk: Desk) -> None:
    count = 10 * PARTITIONS_A_TURN + 3
    desk.chunks.on_image(image(["a", "b"], count), Changes(changed(["a", "b"], count)))
    desk.timers.run_one_soon()
    assert desk.partitions() == [("a", index) for index in range(PARTITIONS_A_TURN)]
    desk.timers.run_soon()
    assert desk.partitions() == [(name, index) for name in "ab" for index in range(count)]
    assert max(len(pairs) for _, pairs, _ in desk.passed_on) == PARTITIONS_A_TURN


def test_later_changes_pass_the_latest_image_on(desk: Desk) -> None:
    desk.chunks.on_image(image(MANY, mark=1), Changes(changed(MANY)))
    gone = image(MANY, mark=1).topics[MANY[-1]]
    desk.chunks.on_image(image([*MANY[:-1], "new"], mark=2), Changes(changed(["new", MANY[-2]]), [gone]))
    assert desk.passed_on[1] == (2, [("new", 0)], [MANY[-1]]), "the small change is not kept waiting"
    desk.timers.run_soon()
    assert sorted(desk.topics()) == sorted([*MANY[:-1], "new"])
    assert all(offset == 2 for offset, _, _ in desk.passed_on[1:])


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
    desk.timers.run_one_soon()
    desk.chunks.stop()
    desk.timers.run_soon()
    desk.chunks.on_image(image(["late"]), Changes(changed(["late"])))
    assert len(desk.topics()) == PARTITIONS_A_TURN


def test_when_done_calls_each_callback_once(desk: Desk) -> None:
    calls: list[int] = []
    desk.chunks.when_done(lambda: calls.append(0))
    assert calls == [0]
    desk.chunks.on_image(image(MANY), Changes(changed(MANY)))
    desk.chunks.when_done(lambda: calls.append(len(desk.topics())))
    assert calls == [0]
    desk.timers.run_soon()
    assert calls == [0, len(MANY)]


def test_a_chunk_is_passed_on_when_its_files_are_there(desk: Desk) -> None:
    desk.files.new = {(name, 0) for name in MANY}
    desk.chunks.on_image(image(MANY), Changes(changed(MANY)))
    for count in range(0, len(MANY), PARTITIONS_A_TURN):
        desk.timers.run_soon()
        assert len(desk.topics()) == count
        assert len(desk.files.being_created) == PARTITIONS_A_TURN
        desk.files.finish()
    assert desk.topics() == MANY
    assert desk.timers.run_soon() == 0
    assert desk.files.discarded == len(MANY) // PARTITIONS_A_TURN


def test_a_small_change_does_not_wait_for_the_files_of_a_large_one(desk: Desk) -> None:
    desk.files.new = {(name, 0) for name in MANY}
    desk.chunks.on_image(image(MANY), Changes(changed(MANY)))
    desk.timers.run_soon()
    desk.chunks.on_image(image([*MANY, "new"]), Changes(changed(["new"])))
    assert desk.topics() == ["new"]


def test_a_partition_whose_files_are_being_created_waits_for_them(desk: Desk) -> None:
    desk.files.new = {(name, 0) for name in MANY}
    desk.chunks.on_image(image(MANY, mark=1), Changes(changed(MANY)))
    desk.timers.run_soon()
    desk.chunks.on_image(image(MANY, mark=2), Changes(changed([MANY[0]])))
    desk.timers.run_soon()
    assert desk.topics() == []
    desk.files.finish()
    assert desk.passed_on[-1][0] == 2, "with the latest image"
    assert desk.topics()[0] == MANY[0]
    while desk.timers.run_soon():
        assert (MANY[0], 0) not in desk.files.being_created, "it has its files"
        desk.files.finish()
    assert desk.topics() == MANY


def test_a_topic_that_is_deleted_while_its_files_are_created_is_not_passed_on(desk: Desk) -> None:
    desk.files.new = {(name, 0) for name in MANY}
    desk.chunks.on_image(image(MANY), Changes(changed(MANY)))
    desk.timers.run_soon()
    gone = image(MANY).topics[MANY[0]]
    again = image(MANY, mark=3)
    desk.chunks.on_image(again, Changes(changed([MANY[0]]), [gone]))
    assert desk.topics() == [], "a new topic of this name waits until nobody uses its directory"
    desk.files.finish()
    assert MANY[0] not in desk.topics()
    while desk.timers.run_soon():
        if desk.files.being_created:
            desk.files.finish()
    assert sorted(desk.topics()) == MANY


def test_changes_that_need_no_files_do_not_wait_for_the_thread(desk: Desk) -> None:
    big = [f"new{number:04}" for number in range(AT_ONCE_MAX + 1)]
    desk.files.new = {(name, 0) for name in big}
    desk.chunks.on_image(image(big), Changes(changed(big)))
    desk.timers.run_soon()
    (gone,) = image(["gone"], 3 * PARTITIONS_A_TURN).topics.values()
    desk.chunks.on_image(image([*big, *MANY]), Changes(changed(MANY), [gone]))
    desk.timers.run_soon()
    assert desk.topics() == MANY
    assert desk.removals_left == 0
    while desk.files.being_created:
        desk.files.finish()
        desk.timers.run_soon()
    assert sorted(desk.topics()) == sorted([*MANY, *big])


def test_when_done_waits_for_files(desk: Desk) -> None:
    calls: list[int] = []
    desk.files.new = {(name, 0) for name in MANY[-1:]}
    desk.chunks.on_image(image(MANY), Changes(changed(MANY)))
    desk.chunks.when_done(lambda: calls.append(len(desk.topics())))
    desk.timers.run_soon()
    assert not calls
    desk.files.finish()
    assert calls == [len(MANY)]


def test_files_that_are_ready_after_a_stop_are_not_used(desk: Desk) -> None:
    desk.files.new = {(name, 0) for name in MANY}
    desk.chunks.on_image(image(MANY), Changes(changed(MANY)))
    desk.timers.run_soon()
    desk.chunks.stop()
    desk.files.finish()
    assert desk.topics() == []
    assert desk.files.discarded == 1


def test_partitions_that_an_image_no_longer_has_are_not_passed_on(desk: Desk) -> None:
    """A view stays when its source is deleted, without partitions."""
    desk.chunks.on_image(image(MANY), Changes(changed(MANY)))
    view = MANY[-1]
    topics = {**dict(image(MANY).topics.items()), view: TopicImage(view, bytes(16), ())}
    without = MetadataImage(offset=2, topics=PersistentMap(topics))
    desk.chunks.on_image(without, Changes({view: set()}))
    desk.timers.run_soon()
    assert sorted(desk.topics()) == MANY[:-1]


def test_a_view_that_becomes_an_ordinary_topic_of_fewer_partitions_stops_nothing(desk: Desk) -> None:
    ordinary = image(MANY)
    view = TopicImage("a view", bytes(16), (STATE,) * 100, MANY[0].encode().ljust(16))

    def with_view(*partitions: PartitionState) -> MetadataImage:
        topic = TopicImage(view.name, bytes(16), partitions)
        return MetadataImage(topics=PersistentMap({**dict(ordinary.topics.items()), view.name: topic}))

    desk.chunks.on_image(with_view(*view.partitions), Changes(changed(MANY) | {view.name: set(range(100))}))
    desk.chunks.on_image(with_view(), Changes({view.name: set()}))
    desk.chunks.on_image(ordinary, Changes(removed=[TopicImage(view.name, bytes(16), ())]))
    desk.chunks.on_image(with_view(STATE), Changes({view.name: {0}}))
    desk.timers.run_soon()
    assert sorted(desk.partitions()) == sorted([(view.name, 0), *((name, 0) for name in MANY)])


def test_one_partition_that_cannot_be_passed_on_loses_no_other(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    desk.broken = {MANY[3]}
    calls: list[None] = []
    desk.chunks.on_image(image(MANY), Changes(changed(MANY)))
    desk.chunks.when_done(lambda: calls.append(None))
    desk.timers.run_soon()
    assert desk.topics() == [name for name in MANY if name != MANY[3]]
    assert calls
    assert f"{MANY[3]}-0 cannot be laid out" in caplog.text


def test_files_that_cannot_be_prepared_hold_nothing_up(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    desk.files.new = {(name, 0) for name in MANY[:40]}
    desk.files.is_broken = True
    desk.chunks.on_image(image(MANY), Changes(changed(MANY)))
    desk.timers.run_soon()
    assert sorted(desk.topics()) == MANY
    assert "the files of new partitions cannot be prepared" in caplog.text


def test_removals_that_fail_go_on_with_the_next_image(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    desk.chunks.on_image(image(MANY), Changes(changed(MANY)))
    desk.removals_left = -1
    desk.timers.run_soon()
    assert desk.topics() == MANY
    assert "work of several turns failed" in caplog.text
    desk.removals_left = 3 * PARTITIONS_A_TURN
    desk.chunks.on_image(image(MANY), Changes())
    desk.timers.run_soon()
    assert desk.removals_left == 0
