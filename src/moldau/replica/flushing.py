"""Bringing a log to disk, as those who wait for it see it: ask, and be told. Who does it is not known here."""

from __future__ import annotations

from typing import Protocol

from moldau.base.errors import StorageFault
from moldau.log.log import Log


class Flushable(Protocol):
    @property
    def log(self) -> Log: ...

    def flushed(self) -> None:
        """More of the log is on disk than before."""
        ...

    def flush_postponed(self, fault: StorageFault) -> None:
        """For want of room or descriptors: nothing is lost, and whoever asks again is tried again."""
        ...


class Flusher(Protocol):
    def request(self, log: Flushable) -> None: ...
