"""Large metadata changes are passed on in chunks, with other work in between; in the end the latest state of all."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from harness.raised_faults import own_work

from moldau.base.persistent_map import PersistentMap
from moldau.base.promise import Promise
from moldau.base.turns import LAID_OUT_A_TURN
from moldau.metadata.apply import Changes
from moldau.metadata.image import MetadataImage, PartitionState, TopicImage
from moldau.runtime.broker.chunked_layout import AT_ONCE_MAX, ChunkedLayout
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
        assert image.topics[topic].partitions[index], "the image has the partition"
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


class LayoutHarness:
    def __init__(self) -> None:
        self.timers = FakeTimers()
        self.passed_on: list[tuple[int, list[Partition], list[str]]] = []
        self.broken: set[str] = set()
        """Topics at which the listener fails."""
        self.removals_left = 0
        self.removed_in_turns: list[int] = []
        self.files = SlowFiles()
        self.chunks = ChunkedLayout(self._on_image, self._finish_some, self.files, own_work(self.timers))

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
def harness() -> LayoutHarness:
    return LayoutHarness()


MANY = [f"t{number:04}" for number in range(AT_ONCE_MAX + LAID_OUT_A_TURN)]


def test_a_small_change_is_passed_on_at_once(harness: LayoutHarness) -> None:
    harness.chunks.on_image(image(["a", "b"]), Changes(changed(["a", "b"])))
    assert harness.topics() == ["a", "b"]
    assert harness.timers.run_soon() == 0


def test_a_large_change_is_passed_on_in_turns_each_topic_once(harness: LayoutHarness) -> None:
    harness.chunks.on_image(image(MANY), Changes(changed(MANY)))
    assert harness.topics() == []
    harness.timers.run_one_soon()
    assert len(harness.topics()) == LAID_OUT_A_TURN
    harness.timers.run_soon()
    assert harness.topics() == MANY
    assert max(len(pairs) for _, pairs, _ in harness.passed_on) == LAID_OUT_A_TURN


def test_a_large_topic_is_split(harness: LayoutHarness) -> None:
    count = 10 * LAID_OUT_A_TURN + 3
    harness.chunks.on_image(image(["a", "b"], count), Changes(changed(["a", "b"], count)))
    harness.timers.run_one_soon()
    assert harness.partitions() == [("a", index) for index in range(LAID_OUT_A_TURN)]
    harness.timers.run_soon()
    assert harness.partitions() == [(name, index) for name in "ab" for index in range(count)]
    assert max(len(pairs) for _, pairs, _ in harness.passed_on) == LAID_OUT_A_TURN


def test_later_changes_pass_on_the_latest_image(harness: LayoutHarness) -> None:
    harness.chunks.on_image(image(MANY, mark=1), Changes(changed(MANY)))
    gone = image(MANY, mark=1).topics[MANY[-1]]
    harness.chunks.on_image(image([*MANY[:-1], "new"], mark=2), Changes(changed(["new", MANY[-2]]), [gone]))
    assert harness.passed_on[1] == (2, [("new", 0)], [MANY[-1]]), "the small change does not wait for the large one"
    harness.timers.run_soon()
    assert sorted(harness.topics()) == sorted([*MANY[:-1], "new"])
    assert all(offset == 2 for offset, _, _ in harness.passed_on[1:])


def test_partitions_of_a_deleted_topic_are_removed_in_turns(harness: LayoutHarness) -> None:
    count = 4 * LAID_OUT_A_TURN + 1
    (gone,) = image(["a"], count).topics.values()
    harness.chunks.on_image(image([]), Changes(removed=[gone]))
    assert harness.removed_in_turns == [LAID_OUT_A_TURN]
    harness.timers.run_soon()
    assert harness.removed_in_turns == [*[LAID_OUT_A_TURN] * 4, 1]


def test_nothing_is_passed_on_after_a_stop(harness: LayoutHarness) -> None:
    """After a stop, a thread closes the logs."""
    harness.chunks.on_image(image(MANY), Changes(changed(MANY)))
    harness.timers.run_one_soon()
    harness.chunks.stop()
    harness.timers.run_soon()
    harness.chunks.on_image(image(["late"]), Changes(changed(["late"])))
    assert len(harness.topics()) == LAID_OUT_A_TURN


def test_when_done_calls_each_callback_once(harness: LayoutHarness) -> None:
    calls: list[int] = []
    harness.chunks.when_done(lambda: calls.append(0))
    assert calls == [0]
    harness.chunks.on_image(image(MANY), Changes(changed(MANY)))
    harness.chunks.when_done(lambda: calls.append(len(harness.topics())))
    assert calls == [0]
    harness.timers.run_soon()
    assert calls == [0, len(MANY)]


def test_a_chunk_is_passed_on_when_its_files_are_created(harness: LayoutHarness) -> None:
    harness.files.new = {(name, 0) for name in MANY}
    harness.chunks.on_image(image(MANY), Changes(changed(MANY)))
    for count in range(0, len(MANY), LAID_OUT_A_TURN):
        harness.timers.run_soon()
        assert len(harness.topics()) == count
        assert len(harness.files.being_created) == LAID_OUT_A_TURN
        harness.files.finish()
    assert harness.topics() == MANY
    assert harness.timers.run_soon() == 0
    assert harness.files.discarded == len(MANY) // LAID_OUT_A_TURN


def test_a_small_change_does_not_wait_for_the_files_of_a_large_one(harness: LayoutHarness) -> None:
    harness.files.new = {(name, 0) for name in MANY}
    harness.chunks.on_image(image(MANY), Changes(changed(MANY)))
    harness.timers.run_soon()
    harness.chunks.on_image(image([*MANY, "new"]), Changes(changed(["new"])))
    assert harness.topics() == ["new"]


def test_a_partition_whose_files_are_being_created_waits_for_them(harness: LayoutHarness) -> None:
    harness.files.new = {(name, 0) for name in MANY}
    harness.chunks.on_image(image(MANY, mark=1), Changes(changed(MANY)))
    harness.timers.run_soon()
    harness.chunks.on_image(image(MANY, mark=2), Changes(changed([MANY[0]])))
    harness.timers.run_soon()
    assert harness.topics() == []
    harness.files.finish()
    assert harness.passed_on[-1][0] == 2, "the partition is passed on with the latest image"
    assert harness.topics()[0] == MANY[0]
    while harness.timers.run_soon():
        assert (MANY[0], 0) not in harness.files.being_created, "its files exist already"
        harness.files.finish()
    assert harness.topics() == MANY


def test_a_topic_that_is_deleted_while_its_files_are_created_is_not_passed_on(harness: LayoutHarness) -> None:
    harness.files.new = {(name, 0) for name in MANY}
    harness.chunks.on_image(image(MANY), Changes(changed(MANY)))
    harness.timers.run_soon()
    gone = image(MANY).topics[MANY[0]]
    again = image(MANY, mark=3)
    harness.chunks.on_image(again, Changes(changed([MANY[0]]), [gone]))
    assert harness.topics() == [], "a new topic of this name waits until its directory is no longer used"
    harness.files.finish()
    assert MANY[0] not in harness.topics()
    while harness.timers.run_soon():
        if harness.files.being_created:
            harness.files.finish()
    assert sorted(harness.topics()) == MANY


def test_changes_that_need_no_files_do_not_wait_for_the_thread(harness: LayoutHarness) -> None:
    big = [f"new{number:04}" for number in range(AT_ONCE_MAX + 1)]
    harness.files.new = {(name, 0) for name in big}
    harness.chunks.on_image(image(big), Changes(changed(big)))
    harness.timers.run_soon()
    (gone,) = image(["gone"], 3 * LAID_OUT_A_TURN).topics.values()
    harness.chunks.on_image(image([*big, *MANY]), Changes(changed(MANY), [gone]))
    harness.timers.run_soon()
    assert harness.topics() == MANY
    assert harness.removals_left == 0
    while harness.files.being_created:
        harness.files.finish()
        harness.timers.run_soon()
    assert sorted(harness.topics()) == sorted([*MANY, *big])


def test_when_done_waits_for_files(harness: LayoutHarness) -> None:
    calls: list[int] = []
    harness.files.new = {(name, 0) for name in MANY[-1:]}
    harness.chunks.on_image(image(MANY), Changes(changed(MANY)))
    harness.chunks.when_done(lambda: calls.append(len(harness.topics())))
    harness.timers.run_soon()
    assert not calls
    harness.files.finish()
    assert calls == [len(MANY)]


def test_files_that_are_ready_after_a_stop_are_not_used(harness: LayoutHarness) -> None:
    harness.files.new = {(name, 0) for name in MANY}
    harness.chunks.on_image(image(MANY), Changes(changed(MANY)))
    harness.timers.run_soon()
    harness.chunks.stop()
    harness.files.finish()
    assert harness.topics() == []
    assert harness.files.discarded == 1


def test_partitions_that_an_image_no_longer_has_are_not_passed_on(harness: LayoutHarness) -> None:
    """A view stays when its source is deleted, without partitions."""
    harness.chunks.on_image(image(MANY), Changes(changed(MANY)))
    view = MANY[-1]
    topics = {**dict(image(MANY).topics.items()), view: TopicImage(view, bytes(16), ())}
    without = MetadataImage(offset=2, topics=PersistentMap(topics))
    harness.chunks.on_image(without, Changes({view: set()}))
    harness.timers.run_soon()
    assert sorted(harness.topics()) == MANY[:-1]


def test_a_view_that_becomes_a_topic_of_fewer_partitions_does_not_stop_the_layout(harness: LayoutHarness) -> None:
    ordinary = image(MANY)
    view = TopicImage("a view", bytes(16), (STATE,) * 100, MANY[0].encode().ljust(16))

    def with_view(*partitions: PartitionState) -> MetadataImage:
        topic = TopicImage(view.name, bytes(16), partitions)
        return MetadataImage(topics=PersistentMap({**dict(ordinary.topics.items()), view.name: topic}))

    harness.chunks.on_image(with_view(*view.partitions), Changes(changed(MANY) | {view.name: set(range(100))}))
    harness.chunks.on_image(with_view(), Changes({view.name: set()}))
    harness.chunks.on_image(ordinary, Changes(removed=[TopicImage(view.name, bytes(16), ())]))
    harness.chunks.on_image(with_view(STATE), Changes({view.name: {0}}))
    harness.timers.run_soon()
    assert sorted(harness.partitions()) == sorted([(view.name, 0), *((name, 0) for name in MANY)])


@pytest.mark.parametrize("broken", ["partition", "files", "removal"])
def test_an_unexpected_error_in_a_later_turn_is_raised(harness: LayoutHarness, broken: str) -> None:
    """To whoever runs the node's own work: that stops the node."""
    harness.chunks.on_image(image(MANY), Changes(changed(MANY)))
    if broken == "partition":
        harness.broken = {MANY[3]}
    elif broken == "files":
        harness.files.new = {(name, 0) for name in MANY[:40]}
        harness.files.is_broken = True
    else:
        harness.removals_left = -1
    with pytest.raises(AssertionError, match="broken"):
        harness.timers.run_soon()
