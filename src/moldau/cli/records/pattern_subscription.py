"""A group's subscription to all topics that match a pattern, including future ones.

librdkafka accepts a pattern itself, but evaluates it with C's regular expressions, where `\\d` matches nothing. So
names are matched here, and the consumer subscribes again when the list of names changes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from moldau.client.confluent import Consumer

REFRESH_SECONDS: Final = 3.0
FIRST_REFRESH_SECONDS: Final = 0.3
"""How often topics are listed while none matches yet."""
ANSWER_SECONDS: Final = 1.0


class PatternSubscription:
    def __init__(
        self,
        consumer: Consumer,
        matches: Callable[[str], bool],
        callbacks: Mapping[str, Callable[..., None]] | None = None,
    ) -> None:
        self._consumer = consumer
        self._matches = matches
        self._callbacks: Mapping[str, Any] = callbacks or {}
        self._names: list[str] = []
        self._next_refresh = 0.0

    def refresh(self, now: float) -> None:
        """Subscribe to new topics, if a refresh is due. `now` is the time of a monotonic clock.

        If the broker does not answer, the subscription stays as it is until the next refresh.
        """
        from moldau.client.confluent import KafkaException

        if now < self._next_refresh:
            return
        try:
            topics = self._consumer.list_topics(timeout=ANSWER_SECONDS).topics
        except KafkaException:
            topics = {}
        names = sorted(name for name, topic in topics.items() if topic.error is None and self._matches(name))
        if names and names != self._names:
            self._names = names
            self._consumer.subscribe(names, **self._callbacks)
        self._next_refresh = now + (REFRESH_SECONDS if self._names else FIRST_REFRESH_SECONDS)
