"""What the cluster answered a moment ago: pages, orders and filters of one list do not read thousands of ACLs again."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Final, TypeVar, cast

KEPT_SECONDS: Final = 3.0
SEEN_SECONDS: Final = 2.0
POLL_SECONDS: Final = 0.02

T = TypeVar("T")


class ReadLately:
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._kept: dict[str, tuple[float, Any]] = {}
        self._changes = 0
        self._lock = threading.Lock()

    def get(self, name: str, read: Callable[[], T]) -> T:
        """Return what was read lately, or read it now. Nobody waits for another's reading."""
        with self._lock:
            kept = self._kept.get(name)
            if kept is not None and self._clock() - kept[0] < KEPT_SECONDS:
                return cast(T, kept[1])
            changes = self._changes
        new = read()
        with self._lock:
            if changes == self._changes:  # else it may be older than the change
                self._kept[name] = (self._clock(), new)
        return new

    def changed(self, is_seen: Callable[[], bool]) -> None:
        """Forget everything once the brokers have seen a change. The one that is asked may hear of it a little later;
        after some seconds the lists are shown anyway."""
        deadline = self._clock() + SEEN_SECONDS
        while not is_seen() and self._clock() < deadline:
            time.sleep(POLL_SECONDS)
        with self._lock:
            self._changes += 1
            self._kept.clear()
