"""A group's subscription to all topics that match a pattern, the ones yet to come included.

librdkafka could be given the pattern itself, but reads it as its C library does: `\\d` would match nothing there. So
names are matched here, and the consumer subscribes anew when they change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from moldau.client.confluent import Consumer

LOOK_SECONDS: Final = 3.0
FIRST_LOOKS_SECONDS: Final = 0.3
"""How often while there is nothing to read yet."""
ANSWER_SECONDS: Final = 1.0


class PatternSubscription:
    def __init__(
        self,
        consumer: Consumer,
        wanted: Callable[[str], bool],
        callbacks: Mapping[str, Callable[..., None]] | None = None,
    ) -> None:
        self._consumer = consumer
        self._wanted = wanted
        self._callbacks: Mapping[str, Any] = callbacks or {}
        self._names: list[str] = []
        self._next_look = 0.0

    def look(self, now: float) -> None:
        """Subscribes to what is new, if it is time to look. `now` is a monotonic clock's.

        A broker that does not answer is asked again later; until then the subscription stays as it is.
        """
        from moldau.client.confluent import KafkaException

        if now < self._next_look:
            return
        try:
            topics = self._consumer.list_topics(timeout=ANSWER_SECONDS).topics
        except KafkaException:
            topics = {}
        names = sorted(name for name, topic in topics.items() if topic.error is None and self._wanted(name))
        if names and names != self._names:
            self._names = names
            self._consumer.subscribe(names, **self._callbacks)
        self._next_look = now + (LOOK_SECONDS if self._names else FIRST_LOOKS_SECONDS)
