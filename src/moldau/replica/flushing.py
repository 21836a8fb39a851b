"""Bringing a log to disk, as those who wait for it see it: ask, and be told. Who does it is not known here."""

from __future__ import annotations

from typing import Protocol

from moldau.log.log import Log


class Flushable(Protocol):
    @property
    def log(self) -> Log: ...

    def flushed(self) -> None:
        """More of the log is on disk than before."""
        ...


class Flusher(Protocol):
    def request(self, log: Flushable) -> None: ...
