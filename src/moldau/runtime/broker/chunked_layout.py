"""Shows a follower of the image a great change in pieces, others having their turn in between.

To lay out a partition is to make files. Thousands at once would keep a node from being heard of for seconds, and the
cluster would take it for dead. What is not laid out yet is refused with an error that clients try again on.
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
        """Topics that have changed and were not shown yet."""
        self._is_going = False
        self._waiting: list[Callable[[], None]] = []

    def on_image(self, image: MetadataImage, changes: Changes) -> None:
        """A small change is shown whole, at once, even while a great one is still under way elsewhere."""
        self._image = image
        for name in [name for name in self._pending if name not in image.topics]:
            del self._pending[name]
        topics = [name for name in sorted(changes.topics) if name not in self._pending]
        shown = self._some(topics)
        self._pending.update(dict.fromkeys(topics[len(shown) :]))
        self._follower(image, Changes(set(shown), changes.removed, changes.configs, changes.brokers))
        self._go_on_soon()

    def when_done(self, call: Callable[[], None]) -> None:
        """Calls when nothing is left to be shown: now, if that is so."""
        self._waiting.append(call)
        self._tell_if_done()

    def _some(self, topics: list[str]) -> list[str]:
        """As many of them as one turn bears, and one at least."""
        count = 0
        for place, name in enumerate(topics):
            count += len(self._image.topics[name].partitions)
            if count > PARTITIONS_A_TURN and place:
                return topics[:place]
        return topics

    def _go_on_soon(self) -> None:
        if self._pending and not self._is_going:
            self._is_going = True
            self._timers.soon(self._go_on)

    def _go_on(self) -> None:
        self._is_going = False
        shown = self._some(list(self._pending))
        for name in shown:
            del self._pending[name]
        if shown:
            self._follower(self._image, Changes(set(shown)))
        self._go_on_soon()
        self._tell_if_done()

    def _tell_if_done(self) -> None:
        if not self._pending:
            waiting, self._waiting = self._waiting, []
            for call in waiting:
                call()
