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

from moldau.base.long_work import LongWork
from moldau.base.promise import Promise
from moldau.base.steps import Steps
from moldau.base.turns import LAID_OUT_A_TURN
from moldau.metadata.apply import Changes
from moldau.metadata.current import ImageListener
from moldau.metadata.image import MetadataImage
from moldau.runtime.own_work import OwnWork

PartitionSet = dict[tuple[str, int], None]
"""Topics and indexes, in their order."""
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
    """A changed partition is in one of these until it is passed on:

    - `_pending`: it waits for its turn. If it has files, or needs none, it is passed on then.
    - `_new`: it had its turn, and waits for the thread to create its files.
    - `_chunk`: the thread is creating its files. It is passed on when they are there.

    One of `_new` or `_chunk` that changes again is in `_pending` too, and yet passed on once, in its latest state.

    `_being_prepared` is the chunk as the thread got it, also if topics were deleted since: nobody else may create their
    files now.
    """

    def __init__(
        self, listener: ImageListener, finish_some: Callable[[int], bool], new_files: NewFiles, own_work: OwnWork
    ) -> None:
        """`finish_some` goes on with the work of several turns that the listener began: it removes at most so many
        partitions of deleted topics, and applies changes of configs and brokers. It returns whether work is left."""
        self._listener = listener
        self._finish_some = finish_some
        self._new_files = new_files
        self._has_unfinished = False
        self._own_work = own_work
        self._image = MetadataImage()
        self._pending: PartitionSet = {}
        self._new: PartitionSet = {}
        self._chunk: PartitionSet = {}
        self._being_prepared: frozenset[tuple[str, int]] = frozenset()
        self._work: LongWork[None] | None = None
        self._is_stopped = False
        self._done_callbacks: list[Callable[[], None]] = []

    def on_image(self, image: MetadataImage, changes: Changes) -> None:
        """Pass a small change on at once, even while a large one is still in progress."""
        if self._is_stopped:
            return
        self._image = image
        for partitions in filter(None, (self._pending, self._new, self._chunk)):
            for topic in changes.removed:
                for index in range(len(topic.partitions)):
                    partitions.pop((topic.name, index), None)
        passed_on: dict[str, set[int]] = {name: set() for name, indexes in changes.topics.items() if not indexes}
        if sum(map(len, changes.topics.values())) <= AT_ONCE_MAX:
            passed_on |= self._not_in_progress(changes.topics)
        else:
            for name in sorted(changes.topics):
                self._pending.update(dict.fromkeys(zip(repeat(name), sorted(changes.topics[name]), strict=False)))
        self._listener(image, Changes(passed_on, changes.removed, changes.configs, changes.brokers))
        self._has_unfinished = self._finish_some(LAID_OUT_A_TURN)
        self._schedule()

    def _not_in_progress(self, topics: Mapping[str, Iterable[int]]) -> dict[str, set[int]]:
        """Return the partitions that can be passed on at once. The others will be passed on once, in their latest
        state."""
        found: dict[str, set[int]] = {}
        for name in sorted(topics):
            for index in sorted(topics[name]):
                each = (name, index)
                if each in self._pending or each in self._new or each in self._being_prepared:
                    self._pending[each] = None
                else:
                    found.setdefault(name, set()).add(index)
        return found

    def when_done(self, call: Callable[[], None]) -> None:
        """Call when everything was passed on; at once if that is so already."""
        self._done_callbacks.append(call)
        self._call_if_done()

    def stop(self) -> None:
        """Pass nothing more on: the logs are about to be closed. The next start lays out the rest."""
        self._is_stopped = True
        if self._work is not None:
            self._work.cancel()

    def _schedule(self) -> None:
        if self._can_go_on() and (self._work is None or not self._work.is_running):
            self._work = self._own_work.long_work(self._turns())
            self._work.go_on_after(None)

    def _can_go_on(self) -> bool:
        return bool(self._pending or self._has_unfinished or (self._new and not self._being_prepared))

    def _turns(self) -> Steps[None]:
        self._take_turn()
        while self._can_go_on():
            yield
            self._take_turn()

    def _take_turn(self) -> None:
        """Pass some partitions on that need no new files, and let the thread create those of some others."""
        some = self._in_image(_take_some(self._pending))
        self._pass_on([each for each in some if not self._defer_if_new(each)])
        self._has_unfinished = self._finish_some(LAID_OUT_A_TURN)
        if self._new and not self._being_prepared:
            self._prepare_some()
        self._call_if_done()

    def _defer_if_new(self, each: tuple[str, int]) -> bool:
        """Let a partition that has no files yet wait until it has, and return whether it does."""
        if each in self._new:
            return True
        if each in self._being_prepared or self._new_files.needs_files(self._image, *each):
            self._new[each] = None
            return True
        return False

    def _prepare_some(self) -> None:
        self._chunk = dict.fromkeys(self._in_image(_take_some(self._new)))
        if not self._chunk:
            return
        self._being_prepared = frozenset(self._chunk)
        prepared = self._new_files.prepare(self._image, self._being_prepared)
        prepared.then(self._own_work.guard(self._on_prepared))

    def _on_prepared(self, _: None) -> None:
        self._being_prepared = frozenset()
        if self._is_stopped:
            self._new_files.discard_unused()
            return
        chunk, self._chunk = self._chunk, {}
        for each in chunk:  # it may have changed meanwhile: it is passed on in its latest state now
            self._new.pop(each, None)
            self._pending.pop(each, None)
        self._pass_on(self._in_image(chunk))
        self._new_files.discard_unused()
        self._schedule()
        self._call_if_done()

    def _in_image(self, partitions: Iterable[tuple[str, int]]) -> list[tuple[str, int]]:
        """Return the partitions that the image has: a view has none any more when its source is deleted."""
        topics = self._image.topics
        return [(name, index) for name, index in partitions if name in topics and index < len(topics[name].partitions)]

    def _pass_on(self, partitions: list[tuple[str, int]]) -> None:
        if not partitions:
            return
        indexes: dict[str, set[int]] = {}
        for name, index in partitions:
            indexes.setdefault(name, set()).add(index)
        self._listener(self._image, Changes(indexes))

    def _call_if_done(self) -> None:
        if not self._pending and not self._new and not self._chunk:
            callbacks, self._done_callbacks = self._done_callbacks, []
            for call in callbacks:
                call()


def _take_some(partitions: PartitionSet) -> PartitionSet:
    """Remove and return the first partitions, as many as fit in a turn."""
    some = dict.fromkeys(islice(partitions, LAID_OUT_A_TURN))
    for each in some:
        del partitions[each]
    return some
