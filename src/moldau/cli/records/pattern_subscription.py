"""A group's subscription to all topics that match a pattern, including future ones.

librdkafka accepts a pattern itself, but evaluates it with C's regular expressions, where `\\d` matches nothing. So
names are matched here, and the consumer subscribes again when the list of names changes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from moldau.base.errors import KafkaError, MalformedData
from moldau.client.requests.metadata import metadata

if TYPE_CHECKING:
    from moldau.client.cluster import Cluster
    from moldau.client.confluent import Consumer

REFRESH_SECONDS: Final = 3.0
FIRST_REFRESH_SECONDS: Final = 0.3
"""How often topics are listed while none matches yet."""


ANSWER_SECONDS: Final = 1.0
"""How long the cluster may take to list topics: nothing is read meanwhile."""


class PatternSubscription:
    def __init__(
        self,
        consumer: Consumer,
        cluster: Cluster,
        matches: Callable[[str], bool],
        callbacks: Mapping[str, Callable[..., None]] | None = None,
    ) -> None:
        self._consumer = consumer
        self._cluster = cluster
        self._matches = matches
        self._callbacks: Mapping[str, Any] = callbacks or {}
        self._names: list[str] = []
        self._next_refresh = 0.0

    def refresh(self, now: float) -> None:
        """Subscribe to new topics, if a refresh is due. `now` is the time of a monotonic clock.

        If the broker does not answer, the subscription stays as it is until the next refresh.
        """
        if now < self._next_refresh:
            return
        try:
            topics = metadata(self._cluster.asking_within(ANSWER_SECONDS)).topics
            names = sorted(
                each.name for each in topics if each.name and not each.error_code and self._matches(each.name)
            )
        except (KafkaError, OSError, MalformedData):
            self._cluster.close()
            names = []
        if names and names != self._names:
            self._names = names
            self._consumer.subscribe(names, **self._callbacks)
        self._next_refresh = now + (REFRESH_SECONDS if self._names else FIRST_REFRESH_SECONDS)
