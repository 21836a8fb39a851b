"""The retained messages in memory: the last message with RETAIN of each name, within a limit of bytes. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from moldau.gateway.mqtt.messages import Message
from moldau.gateway.mqtt.topics import Place, TopicRules, matches
from moldau.gateway.ports import FoundRecord, Headers

OVERHEAD_BYTES: Final = 500
"""Of a retained message, beside its payload, name and headers."""
SLACK: Final = 1.1
"""Messages that other gateways accepted at the same moment may be over the limit together: they are kept."""
LOOKED_AT_PER_STEP: Final = 1_000


class _Retained(NamedTuple):
    payload: bytes
    headers: Headers
    bytes: int


class RetainedMessages:
    def __init__(self, rules: TopicRules, bytes_max: int) -> None:
        self._rules = rules
        self._bytes_max = bytes_max
        self._by_topic: dict[str, dict[str, _Retained]] = {}
        """By Kafka topic and by name."""
        self.bytes = 0
        self._reserved = 0
        self.left_out = 0
        """Messages that were read and for which there was no room."""

    def __len__(self) -> int:
        return sum(map(len, self._by_topic.values()))

    def reserve(self, name: str, payload: bytes, headers: Headers) -> int | None:
        """Reserve room for a message, beside that of the one that its name has; return the bytes, which are to be given
        back when it has been applied. None: there is no room."""
        before = self._find(name)
        more = max(0, _size(name, payload, headers) - (before.bytes if before else 0)) if payload else 0
        if more and self.bytes + self._reserved + more > self._bytes_max:
            return None
        self._reserved += more
        return more

    def give_back(self, size: int) -> None:
        self._reserved -= size

    def apply(self, record: FoundRecord) -> None:
        """Take a record of the topic of retained messages; an empty one removes the message of its name."""
        try:
            name = (record.key or b"").decode()
        except UnicodeDecodeError:
            return
        place = self._rules.place(name)
        if not isinstance(place, Place):
            return  # the rules have changed since
        payload = record.value or b""
        size = _size(name, payload, record.headers)
        messages = self._by_topic.setdefault(place.topic, {})
        if (before := messages.pop(name, None)) is not None:
            self.bytes -= before.bytes
        if payload and self.bytes + size <= self._bytes_max * SLACK:
            messages[name] = _Retained(payload, record.headers, size)
            self.bytes += size
        elif payload:
            self.left_out += 1
        if not messages:
            del self._by_topic[place.topic]

    def matching(self, text: str, topics: Iterable[str]) -> Iterator[Message | None]:
        """Yield the messages that a filter matches in these Kafka topics, and None now and then: looking at all takes
        long, and others must get their turn."""
        levels = text.split("/")
        for topic in topics:
            messages = self._by_topic.get(topic, {})
            names = list(messages) if "+" in levels or levels[-1] == "#" else [text]
            for count, name in enumerate(names, 1):
                found = messages.get(name)
                if found is not None and matches(levels, name.split("/")):
                    yield Message(name, found.payload, found.headers)
                if count % LOOKED_AT_PER_STEP == 0:
                    yield None

    def _find(self, name: str) -> _Retained | None:
        place = self._rules.place(name)
        return self._by_topic.get(place.topic, {}).get(name) if isinstance(place, Place) else None


def _size(name: str, payload: bytes, headers: Headers) -> int:
    of_headers = sum(len(header) + len(value or b"") for header, value in headers)
    return OVERHEAD_BYTES + 2 * len(name) + len(payload) + of_headers
