"""Passes a large change of the image to a listener in chunks, so that other work can run in between.

Laying out a partition creates files, removing one renames its directory. Thousands at once would block a node for
seconds, and the cluster would fence it. So the files of a large change are created in a thread, and its partitions are
opened some in each turn. A small change is passed on at once: clients use a new topic as soon as it is created.
Requests to partitions that are not laid out yet get a retriable error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import islice, repeat
from typing import Final, Protocol

from moldau.base.clock import Timers
from moldau.base.promise import Promise
from moldau.metadata.apply import Changes
from moldau.metadata.current import ImageListener
from moldau.metadata.image import MetadataImage

Partitions = dict[tuple[str, int], None]
"""Topics and indexes, in their order."""
PARTITIONS_A_TURN: Final = 16
AT_ONCE_MAX: Final = 64
"""A change of so many partitions is small. The topics of coordinators have 50, and clients use them at once: they may
wait long after an answer that there is no coordinator yet."""


class NewFiles(Protocol):
    """Creates the files of new partitions in a thread."""

    def needs_files(self, image: MetadataImage, topic: str, index: int) -> bool: ...

    def prepare(self, image: MetadataImage, partitions: Iterable[tuple[str, int]]) -> Promise[None]:
        """Return a promise that is completed when the files are there."""

    def discard_unused(self) -> None:
        """Delete what was prepared, and not used by the listener."""


class ChunkedLayout:
    def __init__(
        self, follower: ImageListener, remove_some: Callable[[int], bool], new_files: NewFiles, timers: Timers
    ) -> None:
        """`remove_some` removes at most so many partitions of deleted topics, goes on with other work of several turns,
        and returns whether some is left."""
        self._follower = follower
        self._remove_some = remove_some
        self._new_files = new_files
        self._has_removals = False
        self._timers = timers
        self._image = MetadataImage()
        self._pending: Partitions = {}
        """Changed partitions that were not passed on yet."""
        self._new: Partitions = {}
        """Those of them that are new and wait for the thread to create their files."""
        self._chunk: Partitions = {}
        """Those whose files the thread is creating now."""
        self._being_prepared: frozenset[tuple[str, int]] = frozenset()
        """The whole chunk, also if topics were deleted since: nobody else may create their files now."""
        self._is_scheduled = False
        self._is_stopped = False
        self._waiting: list[Callable[[], None]] = []

    def on_image(self, image: MetadataImage, changes: Changes) -> None:
        """Pass a small change on at once, even while a large one is still in progress."""
        if self._is_stopped:
            return
        self._image = image
        for topic in changes.removed:
            for index in range(len(topic.partitions)):
                for waiting in (self._pending, self._new, self._chunk):
                    waiting.pop((topic.name, index), None)
        shown: dict[str, set[int]] = {name: set() for name, indexes in changes.topics.items() if not indexes}
        if sum(map(len, changes.topics.values())) <= AT_ONCE_MAX:
            shown |= self._without_waiting(changes.topics)
        else:
            for name in sorted(changes.topics):
                self._pending.update(dict.fromkeys(zip(repeat(name), sorted(changes.topics[name]), strict=False)))
        self._follower(image, Changes(shown, changes.removed, changes.configs, changes.brokers))
        self._has_removals = self._remove_some(PARTITIONS_A_TURN)
        self._schedule()

    def _without_waiting(self, topics: Mapping[str, Iterable[int]]) -> dict[str, set[int]]:
        """Return the partitions that can be passed on at once. One that waits already is shown once, in its latest
        state."""
        shown: dict[str, set[int]] = {}
        for name in sorted(topics):
            for index in sorted(topics[name]):
                each = (name, index)
                if each in self._pending or each in self._new or each in self._being_prepared:
                    self._pending[each] = None
                else:
                    shown.setdefault(name, set()).add(index)
        return shown

    def when_done(self, call: Callable[[], None]) -> None:
        """Call when everything was passed on; at once if that is so already."""
        self._waiting.append(call)
        self._call_if_done()

    def stop(self) -> None:
        """Pass nothing more on: the logs are about to be closed. The next start lays out the rest."""
        self._is_stopped = True

    def _schedule(self) -> None:
        can_prepare = self._new and not self._being_prepared
        if (self._pending or self._has_removals or can_prepare) and not self._is_scheduled:
            self._is_scheduled = True
            self._timers.soon(self._next_turn)

    def _next_turn(self) -> None:
        """Pass some partitions on that need no new files, and let the thread create those of some others."""
        if self._is_stopped:
            return
        self._is_scheduled = False
        self._show(each for each in _take_some(self._pending) if not self._defer_if_new(each))
        self._has_removals = self._remove_some(PARTITIONS_A_TURN)
        if self._new and not self._being_prepared:
            self._chunk = _take_some(self._new)
            self._being_prepared = frozenset(self._chunk)
            self._new_files.prepare(self._image, self._being_prepared).then(lambda _: self._on_prepared())
        self._schedule()
        self._call_if_done()

    def _defer_if_new(self, each: tuple[str, int]) -> bool:
        """Let a partition that has no files yet wait until it has, and return whether it does."""
        if each in self._new:
            return True
        if each in self._being_prepared or self._new_files.needs_files(self._image, *each):
            self._new[each] = None
            return True
        return False

    def _on_prepared(self) -> None:
        self._being_prepared = frozenset()
        if self._is_stopped:
            self._new_files.discard_unused()
            return
        chunk, self._chunk = self._chunk, {}
        for each in chunk:  # it may have changed meanwhile: it is shown in its latest state now
            self._new.pop(each, None)
            self._pending.pop(each, None)
        self._show(chunk)
        self._new_files.discard_unused()
        self._schedule()
        self._call_if_done()

    def _show(self, partitions: Iterable[tuple[str, int]]) -> None:
        shown: dict[str, set[int]] = {}
        for name, index in partitions:
            topic = self._image.topics.get(name)
            if topic is not None and index < len(topic.partitions):  # else it was a view, whose source was deleted
                shown.setdefault(name, set()).add(index)
        if shown:
            self._follower(self._image, Changes(shown))

    def _call_if_done(self) -> None:
        if not self._pending and not self._new and not self._chunk:
            waiting, self._waiting = self._waiting, []
            for call in waiting:
                call()


def _take_some(partitions: Partitions) -> Partitions:
    """Remove and return the first partitions, as many as fit in a turn."""
    some = dict.fromkeys(islice(partitions, PARTITIONS_A_TURN))
    for each in some:
        del partitions[each]
    return some
