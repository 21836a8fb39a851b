"""Passes a large change of the image to a listener in chunks, so that other work can run in between.

Laying out a partition creates files, removing one renames its directory. Thousands at once would block a node for
seconds, and the cluster would fence it. Requests to partitions that are not laid out yet get a retriable error.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Final

from moldau.base.clock import Timers
from moldau.metadata.apply import Changes
from moldau.metadata.current import ImageListener
from moldau.metadata.image import MetadataImage

PARTITIONS_A_TURN: Final = 16


class ChunkedLayout:
    def __init__(self, follower: ImageListener, remove_some: Callable[[int], bool], timers: Timers) -> None:
        """`remove_some` removes at most so many partitions of deleted topics, goes on with other work of several turns,
        and returns whether some is left."""
        self._follower = follower
        self._remove_some = remove_some
        self._has_removals = False
        self._timers = timers
        self._image = MetadataImage()
        self._pending: dict[tuple[str, int], None] = {}
        """Changed partitions that were not passed on yet."""
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
        shown: dict[str, set[int]] = {name: set() for name, indexes in changes.topics.items() if not indexes}
        room = PARTITIONS_A_TURN
        for name in sorted(changes.topics):
            for index in sorted(changes.topics[name]):
                if room and (name, index) not in self._pending:
                    shown.setdefault(name, set()).add(index)
                    room -= 1
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
        if (self._pending or self._has_removals) and not self._is_scheduled:
            self._is_scheduled = True
            self._timers.soon(self._show_next)

    def _show_next(self) -> None:
        if self._is_stopped:
            return
        self._is_scheduled = False
        shown: dict[str, set[int]] = {}
        for name, index in list(islice(self._pending, PARTITIONS_A_TURN)):
            del self._pending[name, index]
            shown.setdefault(name, set()).add(index)
        if shown:
            self._follower(self._image, Changes(shown))
        self._has_removals = self._remove_some(PARTITIONS_A_TURN)
        self._schedule()
        self._call_if_done()

    def _call_if_done(self) -> None:
        if not self._pending:
            waiting, self._waiting = self._waiting, []
            for call in waiting:
                call()
