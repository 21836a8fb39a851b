"""Keeps clients to their quotas: the response is sent at once, with the pause in it, and then the connection is muted.

Counted are the bytes of a produce request, the bytes of a fetch response to a consumer, and the time that a request
takes. A node without any quota measures nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

from moldau.base.clock import Clock
from moldau.base.counters import REQUESTS_THROTTLED, Counters
from moldau.security.acls.access import Access
from moldau.security.acls.requirements import CLUSTER_ACTION
from moldau.security.principals import Client, Principal
from moldau.security.quotas.entities import CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE, REQUEST_PERCENTAGE, Quotas
from moldau.security.quotas.limits import ClientLimits
from moldau.server.conversation import LongReply
from moldau.server.handler import Handler
from moldau.wire.codec import Framer, Outgoing, size_of
from moldau.wire.messages.fetch import FetchResponse
from moldau.wire.messages.share_fetch import ShareFetchResponse
from moldau.wire.schema import Message

C = TypeVar("C")
R = TypeVar("R")
TIME_PAUSE_MS_MAX: Final = 1000
"""The longest pause for the time that requests take, as in Kafka."""
PERCENT_PER_SECOND: Final = 100.0


class NotThrottling:
    """For a node that serves no clients."""

    is_active: Final = False


class Throttling:
    def __init__(
        self,
        limits: ClientLimits,
        clock: Clock,
        counters: Counters | None = None,
        now_s: Callable[[], float] = time.perf_counter,
    ) -> None:
        """`now_s` returns the time by which requests are measured."""
        self.limits = limits
        self._clock = clock
        self._counters = counters or Counters()
        self.now_s = now_s
        self.is_active = False
        """Whether any client has a quota."""

    def set_quotas(self, quotas: Quotas) -> None:
        self.limits.set_quotas(quotas)
        keys = (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE)
        self.is_active = any(map(self.limits.is_limited, keys))

    def pause_ms(
        self, handler: Handler, principal: Principal, client_id: str, request_bytes: int, took_s: float
    ) -> int:
        """Count a request, and return how long its client must pause."""
        now_ms, user = self._clock.monotonic_ms(), principal.name
        pause = 0
        if handler.counts_as_produced:
            pause = self.limits.record(PRODUCER_BYTE_RATE, user, client_id, request_bytes, now_ms)
        if self.limits.is_limited(REQUEST_PERCENTAGE):
            used = took_s * PERCENT_PER_SECOND
            time_pause = self.limits.record(REQUEST_PERCENTAGE, user, client_id, used, now_ms)
            pause = max(pause, min(time_pause, TIME_PAUSE_MS_MAX))
        if pause:
            self._counters.add(REQUESTS_THROTTLED)
        return pause

    def fetch_pause_ms(self, principal: Principal, client_id: str, response: FetchResponse | ShareFetchResponse) -> int:
        """Count the records of a fetch response, and return how long its client must pause."""
        size = sum(size_of(data.records) for topic in response.responses for data in topic.partitions if data.records)
        pause = self.limits.record(CONSUMER_BYTE_RATE, principal.name, client_id, size, self._clock.monotonic_ms())
        if pause:
            self._counters.add(REQUESTS_THROTTLED)
        return pause


class ThrottledRequest:
    """A request that is counted for the quotas of its client."""

    def __init__(
        self,
        throttling: Throttling,
        handler: Handler,
        client: Client,
        access: Access,
        request: Message,
        size: int,
        decoding_s: float = 0.0,
    ) -> None:
        """`decoding_s` is the time for which it was decoded in a thread."""
        self._throttling = throttling
        self._handler = handler
        self._client = client
        self._size = size
        self._took_s = decoding_s
        self._long: LongReply | None = None
        self._is_exempt = handler.is_of_node(request) and access.allows_quietly(CLUSTER_ACTION)

    def measured(self, answer: Callable[[Any, C], R]) -> Callable[[Any, C], R]:
        """Return the function that answers it, and measures the time of that."""

        def answer_measured(request: Any, caller: C) -> R:
            began_s = self._throttling.now_s()
            response = answer(request, caller)
            self._took_s += self._throttling.now_s() - began_s
            if isinstance(response, LongReply):
                self._long = response
            return response

        return answer_measured

    def frame(self, frame: Framer, correlation_id: int, response: Any) -> Outgoing:
        """Frame the response with the pause in it."""
        pause_ms = self.set_pause(response)
        return pausing(pause_ms, frame(correlation_id, response))

    def set_pause(self, response: Any) -> int:
        """Count the request; write the pause into the response, and return it."""
        pause_ms = self.pause_ms()
        if isinstance(response, FetchResponse | ShareFetchResponse) and not self._is_exempt:
            pause_ms = max(pause_ms, self._throttling.fetch_pause_ms(*self._client, response))
        if pause_ms and hasattr(response, "throttle_time_ms"):
            response.throttle_time_ms = max(response.throttle_time_ms, pause_ms)
        return pause_ms

    def pause_ms(self) -> int:
        """Count the request, and return how long its client must pause."""
        if self._is_exempt:
            return 0
        took_s = self._took_s + (0.0 if self._long is None else self._long.took_s)
        return self._throttling.pause_ms(self._handler, *self._client, self._size, took_s)


def pausing(pause_ms: int, framed: Outgoing) -> Outgoing:
    """Make the connection pause after the response, for at least this time."""
    framed.pause_ms = max(framed.pause_ms, pause_ms)
    return framed
