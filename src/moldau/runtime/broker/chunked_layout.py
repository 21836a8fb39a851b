"""Passes a large change of the image to a listener in chunks, so that other work can run in between.

Laying out a partition creates files. Thousands at once would block a node for seconds, and the cluster would fence it.
Requests to partitions that are not laid out yet get a retriable error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from moldau.base.clock import Timers
from moldau.metadata.apply import Changes
from moldau.metadata.current import ImageListener
from moldau.metadata.image import MetadataImage

PARTITIONS_A_TURN: Final = 64


class ChunkedLayout:
    def __init__(self, follower: ImageListener, timers: Timers) -> None:
        self._follower = follower
        self._timers = timers
        self._image = MetadataImage()
        self._pending: dict[str, None] = {}
        """Changed topics that were not passed on yet."""
        self._is_scheduled = False
        self._waiting: list[Callable[[], None]] = []

    def on_image(self, image: MetadataImage, changes: Changes) -> None:
        """Pass a small change on at once, even while a large one is still in progress."""
        self._image = image
        for name in [name for name in self._pending if name not in image.topics]:
            del self._pending[name]
        topics = [name for name in sorted(changes.topics) if name not in self._pending]
        shown = self._first_chunk(topics)
        self._pending.update(dict.fromkeys(topics[len(shown) :]))
        self._follower(image, Changes(set(shown), changes.removed, changes.configs, changes.brokers))
        self._schedule()

    def when_done(self, call: Callable[[], None]) -> None:
        """Call when everything was passed on; at once if that is so already."""
        self._waiting.append(call)
        self._call_if_done()

    def _first_chunk(self, topics: list[str]) -> list[str]:
        """Return as many topics as fit into one turn, at least one."""
        count = 0
        for position, name in enumerate(topics):
            count += len(self._image.topics[name].partitions)
            if count > PARTITIONS_A_TURN and position:
                return topics[:position]
        return topics

    def _schedule(self) -> None:
        if self._pending and not self._is_scheduled:
            self._is_scheduled = True
            self._timers.soon(self._show_next)

    def _show_next(self) -> None:
        self._is_scheduled = False
        shown = self._first_chunk(list(self._pending))
        for name in shown:
            del self._pending[name]
        if shown:
            self._follower(self._image, Changes(set(shown)))
        self._schedule()
        self._call_if_done()

    def _call_if_done(self) -> None:
        if not self._pending:
            waiting, self._waiting = self._waiting, []
            for call in waiting:
                call()
