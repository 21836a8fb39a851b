"""Passes a large change of the image to a listener in chunks, so that other work can run in between.

Laying out a partition creates files, removing one renames its directory. Thousands at once would block a node for
seconds, and the cluster would fence it. So the files of a large change are created in a thread, and its partitions are
opened some in each turn. A small change is passed on at once: clients use a new topic as soon as it is created.
Requests to partitions that are not laid out yet get a retriable error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from typing import Final, Protocol

from moldau.base.clock import Timers
from moldau.base.promise import Promise
from moldau.metadata.apply import Changes
from moldau.metadata.current import ImageListener
from moldau.metadata.image import MetadataImage

PARTITIONS_A_TURN: Final = 16


class NewFiles(Protocol):
    """Creates the files of new partitions in a thread."""

    def prepare(self, image: MetadataImage, partitions: Iterable[tuple[str, int]]) -> Promise[None] | None:
        """Return a promise that is completed when the files are there; None if none are needed."""

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
        self._pending: dict[tuple[str, int], None] = {}
        """Changed partitions that were not passed on yet."""
        self._chunk: dict[tuple[str, int], None] = {}
        """Those of them that are passed on as soon as their files are there."""
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
                self._pending.pop((topic.name, index), None)
                self._chunk.pop((topic.name, index), None)
        shown: dict[str, set[int]] = {name: set() for name, indexes in changes.topics.items() if not indexes}
        is_small = sum(map(len, changes.topics.values())) <= PARTITIONS_A_TURN
        for name in sorted(changes.topics):
            for index in sorted(changes.topics[name]):
                if is_small and (name, index) not in self._pending and (name, index) not in self._being_prepared:
                    shown.setdefault(name, set()).add(index)
                else:
                    self._pending[name, index] = None
        self._follower(image, Changes(shown, changes.removed, changes.configs, changes.brokers))
        self._has_removals = self._remove_some(PARTITIONS_A_TURN)
        self._schedule()

    def when_done(self, call: Callable[[], None]) -> None:
        """Call when everything was passed on; at once if that is so already."""
        self._waiting.append(call)
        self._call_if_done()

    def stop(self) -> None:
        """Pass nothing more on: the logs are about to be closed. The next start lays out the rest."""
        self._is_stopped = True

    def _schedule(self) -> None:
        if (self._pending or self._has_removals) and not self._is_scheduled and not self._being_prepared:
            self._is_scheduled = True
            self._timers.soon(self._begin_chunk)

    def _begin_chunk(self) -> None:
        if self._is_stopped:
            return
        self._is_scheduled = False
        self._chunk = dict.fromkeys(islice(self._pending, PARTITIONS_A_TURN))
        for each in self._chunk:
            del self._pending[each]
        ready = self._new_files.prepare(self._image, self._chunk)
        if ready is None:
            self._show_chunk()
        else:
            self._being_prepared = frozenset(self._chunk)
            ready.then(lambda _: self._on_prepared())

    def _on_prepared(self) -> None:
        self._being_prepared = frozenset()
        if not self._is_stopped:
            self._show_chunk()
            self._new_files.discard_unused()

    def _show_chunk(self) -> None:
        shown: dict[str, set[int]] = {}
        for name, index in self._chunk:
            shown.setdefault(name, set()).add(index)
        self._chunk = {}
        if shown:
            self._follower(self._image, Changes(shown))
        self._has_removals = self._remove_some(PARTITIONS_A_TURN)
        self._schedule()
        self._call_if_done()

    def _call_if_done(self) -> None:
        if not self._pending and not self._chunk:
            waiting, self._waiting = self._waiting, []
            for call in waiting:
                call()
