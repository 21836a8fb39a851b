"""Finds connections to close: idle ones, those that send or read too slowly, and the least active ones if there are too
many. The listener asks from time to time; requests and responses cost nothing for it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple, Protocol

from moldau.base.connection_settings import ConnectionLimits
from moldau.base.counters import CLOSED_EVICTED, CLOSED_IDLE, CLOSED_SLOW_READER, CLOSED_SLOW_REQUEST
from moldau.base.limits import REQUEST_GRACE_S


class SweptConnection(Protocol):
    last_active: float
    blocked_since: float | None
    sent_since: int

    @property
    def is_waiting_for_us(self) -> bool: ...

    @property
    def is_idle(self) -> bool: ...

    @property
    def arriving(self) -> tuple[bytearray, int] | None: ...

    def close(self, reason: str = "", closed_by: str = ...) -> None: ...


class Closing(NamedTuple):
    connection: SweptConnection
    reason: str
    """Empty if the client is not at fault."""
    closed_by: str


class _Arrival(NamedTuple):
    """An incomplete request when it was first seen."""

    buffer: bytearray
    received: int
    since_s: float


class Sweeper:
    def __init__(self, limits: ConnectionLimits, idle_s_max: float) -> None:
        self._limits = limits
        self._idle_s_max = idle_s_max
        self._arrivals: dict[SweptConnection, _Arrival] = {}

    def to_close(self, connections: Collection[SweptConnection], now_s: float, excess: int) -> list[Closing]:
        """Return the connections to close; `excess` is how many there are too many."""
        found = [*self._idle(connections, now_s), *self._slow_senders(connections, now_s)]
        found += self._slow_readers(connections, now_s)
        closing = {each.connection: each for each in found}
        if excess > len(closing):
            rest = sorted((each for each in connections if each not in closing), key=lambda each: each.last_active)
            for each in rest[: excess - len(closing)]:
                closing[each] = Closing(each, "max.connections is exceeded", CLOSED_EVICTED)
        return list(closing.values())

    def _idle(self, connections: Collection[SweptConnection], now_s: float) -> Iterator[Closing]:
        oldest_s = now_s - self._idle_s_max
        for each in connections:
            if each.last_active < oldest_s and not each.is_waiting_for_us:
                yield Closing(each, "" if each.is_idle else "idle for too long", CLOSED_IDLE)

    def _slow_senders(self, connections: Collection[SweptConnection], now_s: float) -> Iterator[Closing]:
        """Find requests that have been arriving since an earlier sweep, slower than the limit."""
        arrivals: dict[SweptConnection, _Arrival] = {}
        for each in connections:
            arriving = each.arriving
            if arriving is None:
                continue
            buffer, received = arriving
            seen = self._arrivals.get(each)
            if seen is None or seen.buffer is not buffer:
                arrivals[each] = _Arrival(buffer, received, now_s)
                continue
            elapsed_s = now_s - seen.since_s
            if elapsed_s < REQUEST_GRACE_S:
                arrivals[each] = seen
            elif received - seen.received < elapsed_s * self._limits.request_rate_min and not each.is_waiting_for_us:
                yield Closing(each, "its request arrives too slowly", CLOSED_SLOW_REQUEST)
            else:
                arrivals[each] = _Arrival(buffer, received, now_s)
        self._arrivals = arrivals

    def _slow_readers(self, connections: Collection[SweptConnection], now_s: float) -> Iterator[Closing]:
        for each in connections:
            since_s = each.blocked_since
            if since_s is None or now_s - since_s < self._idle_s_max:
                continue
            if each.sent_since < (now_s - since_s) * self._limits.response_rate_min:
                yield Closing(each, "it reads its responses too slowly", CLOSED_SLOW_READER)
            else:
                each.blocked_since, each.sent_since = now_s, 0
