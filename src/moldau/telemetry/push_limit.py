"""Limits how often metrics are read from one connection: a client chooses its instance id, and could take a new one for
every push. Times are arguments, from the monotonic clock.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from moldau.base.limits import REMEMBERED_CONNECTIONS_MAX

INTERVALS_AHEAD: Final = 2
"""So many pushes may come before their time: the first one after a client asked, and the last one of a client."""


class PushLimit:
    def __init__(self) -> None:
        self._paid_until_ms: OrderedDict[str, int] = OrderedDict()
        """Each push of a connection takes up an interval; these are the ends of the last ones, by address."""

    def try_push(self, address: str, interval_ms: int, now_ms: int) -> bool:
        """Note a push and return True if the connection has not pushed too often."""
        latest_ms = now_ms + INTERVALS_AHEAD * interval_ms
        until_ms = max(self._paid_until_ms.get(address, now_ms), now_ms)
        until_ms = min(until_ms, latest_ms + interval_ms)  # the interval may have been longer before
        if until_ms > latest_ms:
            self._paid_until_ms[address] = until_ms
            return False
        self._paid_until_ms[address] = until_ms + interval_ms
        self._paid_until_ms.move_to_end(address)
        if len(self._paid_until_ms) > REMEMBERED_CONNECTIONS_MAX:
            self._paid_until_ms.popitem(last=False)
        return True

    def forget(self, address: str) -> None:
        self._paid_until_ms.pop(address, None)
