"""Those who wait until the log is acknowledged up to an offset, in the order of their offsets."""

from __future__ import annotations

from collections import deque

from moldau.base.errors import ErrorCode
from moldau.base.promise import Promise

Waiting = deque[tuple[int, Promise[ErrorCode]]]


def tell_passed(waiting: Waiting, offset: int) -> None:
    while waiting and waiting[0][0] < offset:
        waiting.popleft()[1].complete(ErrorCode.NONE)
