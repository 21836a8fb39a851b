"""How long the event loop was held up, and by what: counters for whoever exports them.

The parts that the loop calls (sockets, timers, finished flushes, responses of other nodes) measure each of their calls
and report those above `LONG_CALL_S`. Wall time, because that is what everybody else waits for; a machine without a free
processor shows here too (`runtime/slow_calls` tells it apart before it warns).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

LONG_CALL_S: Final = 0.005
VERY_LONG_CALL_S: Final = 0.050


class LoopWatch:
    __slots__ = ("api", "calls_above_5_ms", "calls_above_50_ms", "longest", "longest_us", "on_very_long")

    def __init__(self) -> None:
        self.calls_above_5_ms = 0
        self.calls_above_50_ms = 0
        self.longest_us = 0
        """The longest call since the start, or since `take_longest`."""
        self.longest = ""
        """What that call was."""
        self.api = ""
        """The API of the last request, from before it is decoded."""
        self.on_very_long: Callable[[str, float], None] = _ignore
        """Called with the description and the seconds of each call above `VERY_LONG_CALL_S`."""

    def take_longest(self) -> tuple[str, int]:
        """Return what the longest call was and its microseconds, and begin again."""
        taken = (self.longest, self.longest_us)
        self.longest, self.longest_us = "", 0
        return taken

    def note_call(self, call: Callable[..., object], took_s: float) -> None:
        """Note a call that took longer than `LONG_CALL_S`."""
        self.note(name_of(call), took_s)

    def note(self, what: str, took_s: float) -> None:
        self.calls_above_5_ms += 1
        if took_s * 1e6 > self.longest_us:
            self.longest_us = int(took_s * 1e6)
            self.longest = what
        if took_s > VERY_LONG_CALL_S:
            self.calls_above_50_ms += 1
            self.on_very_long(what, took_s)


def name_of(call: object) -> str:
    """Return a name of a function or generator for a log line, such as `Shard._write`. If a call has a text as its
    first argument, that is its purpose: `Housekeeping._next_step (purge)`."""
    purpose = ""
    while isinstance(call, partial):
        if call.args and isinstance(call.args[0], str):
            purpose = f" ({call.args[0]})"
        call = call.func
    name: str = getattr(call, "__qualname__", type(call).__qualname__)
    return name.replace(".<locals>", "") + purpose


def _ignore(what: str, took_s: float) -> None:
    pass


LOOP_WATCH: Final = LoopWatch()
"""The watch of this process: it has one event loop."""
