"""Order of writes that are prepared on the event loop and carried out in a thread.

One runs at a time, and none runs once a later change has made it void. The only lock in the pure packages.
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
        """Return the number of a write that is being prepared."""
        self._last += 1
        return self._last

    @contextmanager
    def at(self, number: int) -> Iterator[bool]:
        """Hold the lock and yield whether the write of this number still has to be done."""
        with self._lock:
            yield number > self._void_up_to

    def done(self, number: int) -> None:
        """Void all earlier writes: the one of this number, which holds the lock, has done their work too."""
        self._void_up_to = number

    def void(self) -> None:
        """Void every write that was prepared before this call."""
        with self._lock:
            self._void_up_to = self._last
