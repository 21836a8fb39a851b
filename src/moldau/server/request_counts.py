"""Counts of requests as plain integers, and the time of a sample of them: metrics read both."""

from __future__ import annotations

from time import perf_counter
from typing import Final

TIMED_EVERY: Final = 16
"""Of so many requests of an API and version, the time of one is measured: two readings of the clock would cost each
request as much as all its counting."""
NOT_TIMED: Final = 0.0


class RequestCounts:
    """Requests of one API in one version, and the seconds that some of them took; metrics read it."""

    __slots__ = ("failures", "key", "local_s", "requests", "timed", "total_s", "version")

    def __init__(self, key: int, version: int) -> None:
        self.key = key
        self.version = version
        self.requests = 0
        self.failures = 0
        """Requests that closed their connection. An error code in a response is not a failure."""
        self.timed = 0
        """The requests whose times were measured."""
        self.local_s = 0.0
        """Their time in handlers, on the event loop."""
        self.total_s = 0.0
        """Their time until there was a response."""

    def note_handled(self, began_s: float, has_to_wait: bool) -> None:
        """Called when the handler of a request whose time is measured has returned."""
        took_s = perf_counter() - began_s
        self.timed += 1
        self.local_s += took_s
        if not has_to_wait:
            self.total_s += took_s

    def note_response(self, began_s: float) -> None:
        """Called when the response of such a request is there, if its handler had to wait for it."""
        self.total_s += perf_counter() - began_s
