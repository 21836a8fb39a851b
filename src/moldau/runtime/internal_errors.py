"""Logs internal errors with their traceback, without flooding the log: the first from each place in the code at once,
then at most one in ten seconds with a count, and at most ten a second in all.

A client may be able to cause the same error with every request, and a traceback has kilobytes: it must not fill the
disk.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from types import TracebackType
from typing import Any, Final

from moldau.base.errors import MalformedData, StorageFault
from moldau.base.promise import Promise, unanswered_by

_REQUESTS: Final = logging.getLogger("moldau.server")
REPEAT_S: Final = 10.0
PER_SECOND_MAX: Final = 10
PLACES_MAX: Final = 256

_Place = tuple[str, str, int]
"""The type of an exception, and the file and line that raised it."""


@dataclass(slots=True)
class _Logged:
    at_s: float
    unlogged: int = 0


class InternalErrors:
    """May be used by several threads: a lost count does no harm."""

    def __init__(self, now_s: Callable[[], float] = monotonic) -> None:
        self._now_s = now_s
        self._logged: dict[_Place, _Logged] = {}
        self._second = 0
        self._in_second = 0

    def log(self, log: logging.Logger, message: str, *arguments: object) -> None:
        """Log the exception that is being handled."""
        error = sys.exception()
        assert error is not None, "no exception is being handled"
        now_s = self._now_s()
        place = (type(error).__qualname__, *_raised_at(error.__traceback__))
        last = self._logged.get(place)
        if (last is not None and now_s - last.at_s < REPEAT_S) or not self._has_room(now_s):
            if last is not None:
                last.unlogged += 1
            return
        more = f" ({last.unlogged} more like it before this one)" if last is not None and last.unlogged else ""
        if last is None and len(self._logged) >= PLACES_MAX:
            del self._logged[next(iter(self._logged))]
        self._logged[place] = _Logged(now_s)
        log.error(message + "%s", *arguments, more, exc_info=error)

    def _has_room(self, now_s: float) -> bool:
        if int(now_s) != self._second:
            self._second, self._in_second = int(now_s), 0
        self._in_second += 1
        return self._in_second <= PER_SECOND_MAX


def _raised_at(traceback: TracebackType | None) -> tuple[str, int]:
    if traceback is None:
        return "", 0
    while traceback.tb_next is not None:
        traceback = traceback.tb_next
    return traceback.tb_frame.f_code.co_filename, traceback.tb_lineno


INTERNAL_ERRORS: Final = InternalErrors()
"""Of this process: it writes one log."""


def closing_error(fault: Exception, what: str, log: logging.Logger = _REQUESTS) -> MalformedData:
    """Return the reply of a request that failed, which closes its connection. Called while the fault is handled, and
    logs it if it is a bug of ours, as the router does in the first turn."""
    if isinstance(fault, MalformedData):
        return fault
    if isinstance(fault, StorageFault):
        return MalformedData(str(fault))
    INTERNAL_ERRORS.log(log, what)
    return MalformedData(f"failed here: {what}: {fault!r}")


def complete_alone(waiting: Promise[Any], value: Any, log: logging.Logger, who: str) -> None:
    """Complete the promise of one of many requests. What the request does with the value concerns it alone: an
    unexpected exception there is logged and closes its connection, and the others get theirs."""
    try:
        waiting.complete(value)
    except Exception as fault:
        end_alone(fault, log, who)


def end_alone(fault: Exception, log: logging.Logger, who: str) -> None:
    """The part of `complete_alone` that handles the exception."""
    unanswered = unanswered_by(fault)
    error = closing_error(fault, f"a request failed after {who} had answered", log)
    if unanswered is not None:
        complete_alone(unanswered, error, log, who)
