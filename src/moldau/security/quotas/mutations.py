"""The quota of partitions that a client may create and delete, `controller_mutation_rate` (KIP-599).

The active controller keeps a token bucket for the clients that share a quota: one quota for the whole cluster. A
request may overdraw its bucket once. While the bucket is overdrawn, newer versions of the requests are refused with
THROTTLING_QUOTA_EXCEEDED; older ones do not know that error: they are served, and the client is paused.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

from moldau.base.errors import ErrorCode, KafkaError
from moldau.security.principals import Client
from moldau.security.quotas.entities import CONTROLLER_MUTATION_RATE, Quota, Quotas, find_quota
from moldau.security.quotas.rates import TokenBucket

BUCKETS_MAX: Final = 100_000
"""A client that uses ever new client ids must not use up the memory: then the oldest bucket is forgotten."""
EXCEEDED: Final = "The throttling quota has been exceeded."


class MutationQuota:
    """The quota of one request."""

    def __init__(self, bucket: TokenBucket, limit: float, is_strict: bool, now_ms: int) -> None:
        self._bucket = bucket
        self._limit = limit
        self._is_strict = is_strict
        self._now_ms = now_ms
        self.pause_ms = 0
        """How long the client must pause."""

    def charge(self, partitions: int) -> None:
        """Count partitions that are created or deleted. Raise KafkaError if the quota is exceeded and the client knows
        that error."""
        if self._is_strict:
            self.pause_ms = self._bucket.debt_ms(self._limit, self._now_ms)
            if self.pause_ms:
                raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, EXCEEDED)
        self._bucket.take(partitions, self._limit, self._now_ms)
        if not self._is_strict:
            self.pause_ms = self._bucket.debt_ms(self._limit, self._now_ms)


class MutationLimits:
    """The token buckets of all clients with a quota. `burst_seconds`: a full bucket has the tokens of this time."""

    def __init__(self, burst_seconds: float) -> None:
        self._burst_seconds = burst_seconds
        self._buckets: dict[Hashable, TokenBucket] = {}

    def quota(self, quotas: Quotas, client: Client | None, is_strict: bool, now_ms: int) -> MutationQuota | None:
        """Return the quota of a request; None if it is not limited: no quota is for its client, or a broker itself
        sends it."""
        if client is None or not quotas:
            return None
        found = find_quota(quotas, CONTROLLER_MUTATION_RATE, client.principal.name, client.client_id)
        if found is None:
            return None
        return MutationQuota(self._bucket(found), found.limit, is_strict, now_ms)

    def _bucket(self, quota: Quota) -> TokenBucket:
        bucket = self._buckets.pop(quota.shared_by, None) or TokenBucket(self._burst_seconds)
        self._buckets[quota.shared_by] = bucket  # the most recently used is the last
        if len(self._buckets) > BUCKETS_MAX:
            del self._buckets[next(iter(self._buckets))]
        return bucket
