"""How many connections a node has, and how fast new ones come: by node, by listener and by address. The rules are those
of Kafka's ConnectionQuotas:

- Too many connections, or too many new ones: the listener accepts no more for a while; clients wait.
- Too many from one address (`max.connections.per.ip`): the connection is closed.
- An address is above its `connection_creation_rate`: its connection is closed after a pause, and not counted.
- The limits of the node do not stop the listener of the brokers, if there is another listener.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final, NamedTuple

from moldau.base.address_counts import canonical_address
from moldau.base.connection_settings import ConnectionMaxima, ListenerMaxima
from moldau.base.limits import INT32_MAX, RATES_MAX
from moldau.security.quotas.entities import CONNECTION_CREATION_RATE, IP, Quotas
from moldau.security.quotas.rates import Rate, Window

RATE_MIN: Final = 1e-3
"""What a limit of 0 means: a connection now and then, as in Kafka."""
_NO_MAXIMA: Final = ListenerMaxima()


class Refusal(NamedTuple):
    """A connection that is closed: at once, or after `delay_ms` if its address comes too fast."""

    reason: str
    delay_ms: int = 0


class ConnectionQuotas:
    def __init__(self, maxima: ConnectionMaxima, window: Window, broker_listener: str = "") -> None:
        """`broker_listener` is the name of the listener that brokers use among each other."""
        self._maxima = maxima
        self._window = window
        self._protected = broker_listener if len(maxima.listeners) > 1 else ""
        self.total = 0
        self._by_listener: Counter[str] = Counter()
        self._by_address: Counter[str] = Counter()
        self._node_rate = Rate(window)
        self._listener_rates: dict[str, Rate] = {}
        self._address_limits: dict[str | None, float] = {}
        self._address_rates: dict[str, Rate] = {}
        self._waiting: list[Callable[[], None]] = []

    def configure(self, maxima: ConnectionMaxima) -> None:
        self._maxima = maxima
        self._wake()

    def set_quotas(self, quotas: Quotas) -> None:
        """Use other limits of addresses from now on; the rates go on."""
        limits: dict[str | None, float] = {}
        for entity, values in quotas.items():
            limit = values.get(CONNECTION_CREATION_RATE)
            if limit is not None:
                limits |= {
                    None if name is None else canonical_address(name): limit for kind, name in entity if kind == IP
                }
        self._address_limits = limits

    def has_slot(self, listener: str) -> bool:
        """Return whether the listener may accept another connection."""
        if self._by_listener[listener] >= self._maxima_of(listener).connections_max:
            return False
        return listener == self._protected or self.total < self._maxima.connections_max

    def excess(self, listener: str) -> int:
        """Return how many connections of this listener must be closed, because brokers took the place, or the limit was
        lowered."""
        if listener == self._protected:
            return 0
        return max(0, self.total - self._maxima.connections_max)

    def when_slot_is_free(self, call: Callable[[], None]) -> None:
        """Call when a connection is closed or the limits change; the caller asks `has_slot` again."""
        self._waiting.append(call)

    def enter(self, listener: str, host: str, now_ms: int) -> Refusal | None:
        """Count a new connection; None if it may stay."""
        address = canonical_address(host)
        delay_ms = self._address_delay_ms(address, now_ms)
        if delay_ms:
            return Refusal("connection_creation_rate of the address is exceeded", delay_ms)
        self._record(listener, now_ms)
        limit = self._maxima.per_ip_overrides.get(address, self._maxima.per_ip_max)
        if self._by_address[address] >= limit:
            if not self._by_address[address]:
                del self._by_address[address]
            return Refusal(f"max.connections.per.ip={limit} is reached")
        self._by_address[address] += 1
        self._by_listener[listener] += 1
        self.total += 1
        return None

    def leave(self, listener: str, host: str) -> None:
        address = canonical_address(host)
        self._by_address[address] -= 1
        if not self._by_address[address]:
            del self._by_address[address]
        self._by_listener[listener] -= 1
        self.total -= 1
        assert self.total >= 0, "a connection left twice"
        self._wake()

    def accept_pause_ms(self, listener: str, now_ms: int) -> int:
        """Return for how long the listener must not accept connections, so that the rates fall to their limits."""
        pause_ms = 0
        if (limit := self._maxima_of(listener).new_per_s_max) != INT32_MAX:
            pause_ms = self._listener_rate(listener).pause_ms(max(limit, RATE_MIN), now_ms)
        if listener != self._protected and (limit := self._maxima.new_per_s_max) != INT32_MAX:
            pause_ms = max(pause_ms, self._node_rate.pause_ms(max(limit, RATE_MIN), now_ms))
        return min(pause_ms, self._window.size_ms)

    def _maxima_of(self, listener: str) -> ListenerMaxima:
        return self._maxima.listeners.get(listener, _NO_MAXIMA)

    def _listener_rate(self, listener: str) -> Rate:
        return self._listener_rates.setdefault(listener, Rate(self._window))

    def _record(self, listener: str, now_ms: int) -> None:
        if self._maxima_of(listener).new_per_s_max != INT32_MAX:
            self._listener_rate(listener).record(1, now_ms)
        if listener != self._protected and self._maxima.new_per_s_max != INT32_MAX:
            self._node_rate.record(1, now_ms)

    def _address_delay_ms(self, address: str, now_ms: int) -> int:
        """Count a new connection of an address with a limit; return how long it comes too early."""
        if not self._address_limits:
            return 0
        limit = self._address_limits.get(address, self._address_limits.get(None))
        if limit is None:
            return 0
        rate = self._address_rates.pop(address, None) or Rate(self._window)
        self._address_rates[address] = rate  # the most recently used is the last
        if len(self._address_rates) > RATES_MAX:
            del self._address_rates[next(iter(self._address_rates))]
        rate.record(1, now_ms)
        delay_ms = min(rate.pause_ms(limit, now_ms), self._window.size_ms)
        if delay_ms:
            rate.record(-1, now_ms)
        return delay_ms

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for call in waiting:
            call()
