"""A PUBLISH as a record of Kafka, and back.

The payload is the value. What MQTT 5 has besides becomes headers:

    content-type               content type
    mqtt.response-topic        response topic
    mqtt.correlation-data      correlation data, as bytes
    mqtt.payload-format        1: the payload is UTF-8
    mqtt.expires-at-ms         when it expires, in milliseconds since 1970
    mqtt.retain                1: it was published with RETAIN
    mqtt.sender                who sent it, a hash; only of clients that have a subscription with no-local
    anything else              user properties; one whose name is in this table gets `mqtt.user.` before its name

Headers whose values are not UTF-8, or longer than 65,535 bytes, are no user properties: subscribers do not get them.
"""

from __future__ import annotations

import hashlib
from typing import Final

from moldau.gateway.mqtt.packets import Publish, publish_parts
from moldau.gateway.mqtt.properties import NO_PROPERTIES, STRING_BYTES_MAX, USER_PROPERTIES_MAX, Properties, size_of
from moldau.gateway.ports import FoundRecord, Headers

CONTENT_TYPE: Final = "content-type"
RESPONSE_TOPIC: Final = "mqtt.response-topic"
CORRELATION_DATA: Final = "mqtt.correlation-data"
PAYLOAD_FORMAT: Final = "mqtt.payload-format"
EXPIRES_AT: Final = "mqtt.expires-at-ms"
RETAIN: Final = "mqtt.retain"
SENDER: Final = "mqtt.sender"
USER: Final = "mqtt.user."


def sender_of(session_key: str) -> bytes:
    """Return how records name their sender: the same after a restart, and no secret."""
    return hashlib.sha256(session_key.encode()).hexdigest()[:16].encode()


def headers_of(publish: Publish, now_ms: int, sender: bytes | None = None) -> Headers:
    properties = publish.properties
    if properties is NO_PROPERTIES and not publish.retain and sender is None:
        return ()
    found: list[tuple[str, bytes | None]] = []
    if properties.content_type is not None:
        found.append((CONTENT_TYPE, properties.content_type.encode()))
    if properties.response_topic is not None:
        found.append((RESPONSE_TOPIC, properties.response_topic.encode()))
    if properties.correlation_data is not None:
        found.append((CORRELATION_DATA, properties.correlation_data))
    if properties.payload_format:
        found.append((PAYLOAD_FORMAT, b"1"))
    if properties.message_expiry_s is not None:
        found.append((EXPIRES_AT, b"%d" % (now_ms + 1000 * properties.message_expiry_s)))
    if publish.retain:
        found.append((RETAIN, b"1"))
    if sender is not None:
        found.append((SENDER, sender))
    for name, value in properties.user_properties:
        is_ours = name == CONTENT_TYPE or name.startswith("mqtt.")
        found.append((USER + name if is_ours else name, value.encode()))
    return tuple(found)


class Message:
    """A record on its way to subscribers, maybe to many: its packets are encoded once for all that get the same."""

    __slots__ = ("_parts", "_properties", "expires_at_ms", "name", "payload", "sender", "size", "was_retain")

    def __init__(self, name: str, payload: bytes, headers: Headers) -> None:
        self.name = name
        self.payload = payload
        self.was_retain = False
        """Whether it was published with RETAIN."""
        self.sender: bytes | None = None
        self.expires_at_ms: int | None = None
        self._properties = NO_PROPERTIES if not headers else self._read(headers)
        self.size = len(name) + len(payload) + size_of(self._properties)
        self._parts: dict[tuple[int, int, bool, tuple[int, ...]], tuple[bytes, bytes]] = {}

    def has_expired(self, now_ms: int) -> bool:
        return self.expires_at_ms is not None and self.expires_at_ms <= now_ms

    def parts(
        self, version: int, qos: int, retain: bool, identifiers: tuple[int, ...], now_ms: int
    ) -> tuple[bytes, bytes]:
        """Return what is before and behind the packet identifier."""
        kind = version, qos, retain, identifiers
        if (known := self._parts.get(kind)) is not None:
            return known
        properties = self._properties
        if identifiers or self.expires_at_ms is not None:
            properties = self._with(identifiers, now_ms)
        made = publish_parts(Publish(self.name, self.payload, qos, retain, properties=properties), version)
        if self.expires_at_ms is None:
            self._parts[kind] = made
        return made

    def _with(self, identifiers: tuple[int, ...], now_ms: int) -> Properties:
        before = self._properties
        left_s = None if self.expires_at_ms is None else max(0, -(-(self.expires_at_ms - now_ms) // 1000))
        return Properties(
            payload_format=before.payload_format,
            message_expiry_s=left_s,
            content_type=before.content_type,
            response_topic=before.response_topic,
            correlation_data=before.correlation_data,
            user_properties=before.user_properties,
            subscription_identifiers=identifiers,
        )

    def _read(self, headers: Headers) -> Properties:
        found = Properties()
        users: list[tuple[str, str]] = []
        for name, value in headers:
            if value is None or len(value) > STRING_BYTES_MAX:
                continue
            match name:
                case _ if name == CORRELATION_DATA:
                    found.correlation_data = value
                case _ if name == SENDER:
                    self.sender = value
                case _ if name == RETAIN:
                    self.was_retain = value == b"1"
                case _:
                    self._read_text(name, value, found, users)
        found.user_properties = tuple(users[:USER_PROPERTIES_MAX])
        return NO_PROPERTIES if found == NO_PROPERTIES else found

    def _read_text(self, name: str, value: bytes, found: Properties, users: list[tuple[str, str]]) -> None:
        text = _mqtt_text(value)
        if text is None:
            return
        if name == CONTENT_TYPE:
            found.content_type = text
        elif name == RESPONSE_TOPIC:
            if text and "+" not in text and "#" not in text:
                found.response_topic = text
        elif name == PAYLOAD_FORMAT:
            found.payload_format = 1 if text == "1" else None
        elif name == EXPIRES_AT:
            if text.isascii() and text.isdigit() and len(text) < 16:
                self.expires_at_ms = int(text)
        else:
            own = name.removeprefix(USER)
            if "\0" not in own and len(own.encode()) <= STRING_BYTES_MAX:
                users.append((own, text))


def message_of(name: str, record: FoundRecord) -> Message:
    return Message(name, record.value or b"", record.headers)


def _mqtt_text(value: bytes) -> str | None:
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text
