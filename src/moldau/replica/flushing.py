"""The interface to whoever flushes logs to disk."""

from __future__ import annotations

from typing import Protocol

from moldau.base.errors import StorageFault
from moldau.log.log import Log


class Flushable(Protocol):
    @property
    def log(self) -> Log: ...

    def flushed(self) -> None:
        """Called when more of the log is on disk."""
        ...

    def flush_postponed(self, fault: StorageFault) -> None:
        """Called if disk space or file descriptors are short. Nothing is lost; the next request tries again."""
        ...


class Flusher(Protocol):
    def request(self, owner: Flushable) -> None: ...
