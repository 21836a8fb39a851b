"""Work that is prepared on the loop and done in a thread: one at a time, and not at all once something later has made
it void. The one lock among the pure packages.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class WriteOrder:
    __slots__ = ("_last", "_lock", "_void_up_to")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last = 0
        self._void_up_to = 0

    def take(self) -> int:
        """A turn for what is being prepared."""
        self._last += 1
        return self._last

    @contextmanager
    def at(self, turn: int) -> Iterator[bool]:
        """Nobody else is at work meanwhile. Tells whether there is anything left to do."""
        with self._lock:
            yield turn > self._void_up_to

    def done(self, turn: int) -> None:
        """For who is at its turn: it has done all that those before it would."""
        self._void_up_to = turn

    def void(self) -> None:
        """Nothing that was prepared before this is done after it."""
        with self._lock:
            self._void_up_to = self._last
