"""Finds connections to close: idle ones, those that send or read too slowly, and the least active ones if there are too
many. The listener asks from time to time; requests and responses cost nothing for it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from math import isfinite
from typing import Final, NamedTuple, Protocol

from moldau.base.connection_settings import ConnectionLimits
from moldau.base.counters import CLOSED_EVICTED, CLOSED_IDLE, CLOSED_SLOW_READER, CLOSED_SLOW_REQUEST
from moldau.base.limits import REQUEST_GRACE_S

READ_PERIOD_S: Final = 600.0
"""The period over which the rate of reading is measured if idle connections are not closed; otherwise it is their
time."""


class SweptConnection(Protocol):
    last_active: float
    blocked_since: float | None
    """Since when the socket takes less than there is to send; None if it takes all."""
    sent_since: int
    """How many bytes it took since then."""
    reading_since: float | None
    """Since when requests are read; None while they are not, for example because the client is above its quota."""

    @property
    def is_waiting_for_us(self) -> bool: ...

    @property
    def is_idle(self) -> bool: ...

    @property
    def arriving(self) -> tuple[int, int] | None:
        """The number of an incomplete request, and how many bytes of it have arrived."""

    def close(self, reason: str = "", closed_by: str = ...) -> None: ...


class Closing(NamedTuple):
    connection: SweptConnection
    reason: str
    """Empty if the client is not at fault."""
    closed_by: str


class _Arrival(NamedTuple):
    """An incomplete request at the start of the measured period."""

    number: int
    received: int
    since_s: float


class Sweeper:
    """`idle_s_max` may be infinite: idle connections are not closed then."""

    def __init__(self, limits: ConnectionLimits, idle_s_max: float) -> None:
        self._limits = limits
        self._idle_s_max = idle_s_max
        self._read_period_s = idle_s_max if isfinite(idle_s_max) else READ_PERIOD_S
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
        """Find requests that have been arriving since an earlier sweep, slower than the limit. Time in which they were
        not read does not count."""
        arrivals: dict[SweptConnection, _Arrival] = {}
        for each in connections:
            arriving = each.arriving
            if arriving is None:
                continue
            number, received = arriving
            seen = self._arrivals.get(each)
            reading_since = each.reading_since
            if seen is None or seen.number != number or reading_since is None or reading_since > seen.since_s:
                arrivals[each] = _Arrival(number, received, now_s)
                continue
            elapsed_s = now_s - seen.since_s
            if elapsed_s < REQUEST_GRACE_S:
                arrivals[each] = seen
            elif (
                received - seen.received < elapsed_s * self._limits.request_bytes_per_s_min
                and not each.is_waiting_for_us
            ):
                yield Closing(each, "its request arrives too slowly", CLOSED_SLOW_REQUEST)
            else:
                arrivals[each] = _Arrival(number, received, now_s)
        self._arrivals = arrivals

    def _slow_readers(self, connections: Collection[SweptConnection], now_s: float) -> Iterator[Closing]:
        for each in connections:
            since_s = each.blocked_since
            if since_s is None or now_s - since_s < self._read_period_s:
                continue
            if each.sent_since < (now_s - since_s) * self._limits.response_bytes_per_s_min:
                yield Closing(each, "it reads its responses too slowly", CLOSED_SLOW_READER)
            else:
                each.blocked_since, each.sent_since = now_s, 0
