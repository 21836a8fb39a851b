"""The quotas of a broker at work: records what clients do, and says for how long they must pause.

Clients that share a quota share a rate. A client without a quota is not measured.
"""

from __future__ import annotations

from collections.abc import Hashable
from itertools import chain
from typing import Final

from moldau.base.limits import RATES_MAX
from moldau.security.quotas.entities import CLIENT_KEYS, Quota, Quotas, find_quota, short_client_id
from moldau.security.quotas.rates import Rate, Window

IDLE_MS: Final = 3_600_000
"""A rate without a value for so long is forgotten."""


class ClientLimits:
    def __init__(self, window: Window) -> None:
        self._window = window
        self._quotas: Quotas = {}
        self._keys: frozenset[str] = frozenset()
        self._rates: dict[str, dict[Hashable, Rate]] = {key: {} for key in CLIENT_KEYS}
        self._found: dict[tuple[str, str, str], Quota | None] = {}

    def set_quotas(self, quotas: Quotas) -> None:
        """Use other quotas from now on; the rates go on."""
        self._quotas = quotas
        self._keys = frozenset(chain.from_iterable(quotas.values()))
        self._found.clear()

    def is_limited(self, key: str) -> bool:
        """Return whether anybody has a quota for the key: if not, nothing has to be measured."""
        return key in self._keys

    def quota(self, key: str, user: str, client_id: str) -> Quota | None:
        wanted = (key, user, short_client_id(client_id))
        if wanted not in self._found:
            if len(self._found) >= RATES_MAX:
                self._found.clear()
            self._found[wanted] = find_quota(self._quotas, key, user, client_id)
        return self._found[wanted]

    def record(self, key: str, user: str, client_id: str, value: float, now_ms: int) -> int:
        """Add a value and return the pause in milliseconds."""
        quota = self.quota(key, user, client_id)
        if quota is None:
            return 0
        rate = self._rate(key, quota, now_ms)
        rate.record(value, now_ms)
        return rate.pause_ms(quota.limit, now_ms)

    def take_back(self, key: str, user: str, client_id: str, value: float, now_ms: int) -> None:
        """Undo a `record` of the same moment: what was recorded is not sent after all."""
        quota = self.quota(key, user, client_id)
        if quota is not None:
            self._rate(key, quota, now_ms).record(-value, now_ms)

    def _rate(self, key: str, quota: Quota, now_ms: int) -> Rate:
        rates = self._rates[key]
        rate = rates.pop(quota.shared_by, None) or Rate(self._window)
        rates[quota.shared_by] = rate  # the most recently used is the last
        if len(rates) > RATES_MAX:
            del rates[next(iter(rates))]
        return rate

    def forget_idle(self, now_ms: int) -> None:
        for rates in self._rates.values():
            for shared_by in [each for each, rate in rates.items() if rate.is_idle(now_ms, IDLE_MS)]:
                del rates[shared_by]
