"""Fields of MQTT packets: numbers, strings, and the properties of MQTT 5 with the packets that may have them.

Readers take the bytes, a position and the end of what may be read; they return the value and the next position, or
raise `BadPacket`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final, NamedTuple

from moldau.gateway.mqtt.reasons import Reason

VARINT_MAX: Final = 268_435_455
STRING_BYTES_MAX: Final = 65_535
USER_PROPERTIES_MAX: Final = 100
"""User properties of a packet. Each becomes a header of a record, and a packet of a megabyte could have 200,000."""


class BadPacket(Exception):
    """A packet that breaks the standard, or is over a limit."""

    def __init__(self, reason: Reason, what: str) -> None:
        super().__init__(what)
        self.reason = reason
        self.what = what


class PacketType(IntEnum):
    WILL = 0
    """No packet: the will in a CONNECT has properties of its own."""
    CONNECT = 1
    CONNACK = 2
    PUBLISH = 3
    PUBACK = 4
    PUBREC = 5
    PUBREL = 6
    PUBCOMP = 7
    SUBSCRIBE = 8
    SUBACK = 9
    UNSUBSCRIBE = 10
    UNSUBACK = 11
    PINGREQ = 12
    PINGRESP = 13
    DISCONNECT = 14
    AUTH = 15


@dataclass(slots=True)
class Properties:
    """What a packet of MQTT 5 may have besides; None or nothing: it is not there."""

    payload_format: int | None = None
    message_expiry_s: int | None = None
    content_type: str | None = None
    response_topic: str | None = None
    correlation_data: bytes | None = None
    subscription_identifiers: tuple[int, ...] = ()
    session_expiry_s: int | None = None
    assigned_client_id: str | None = None
    server_keep_alive_s: int | None = None
    authentication_method: str | None = None
    authentication_data: bytes | None = None
    request_problem_information: int | None = None
    will_delay_s: int | None = None
    request_response_information: int | None = None
    response_information: str | None = None
    server_reference: str | None = None
    reason_string: str | None = None
    receive_maximum: int | None = None
    topic_alias_maximum: int | None = None
    topic_alias: int | None = None
    maximum_qos: int | None = None
    retain_available: int | None = None
    user_properties: tuple[tuple[str, str], ...] = ()
    maximum_packet_size: int | None = None
    wildcard_subscription_available: int | None = None
    subscription_identifiers_available: int | None = None
    shared_subscription_available: int | None = None


NO_PROPERTIES: Final = Properties()
"""Shared by all packets without any; never changed."""


# --- numbers and strings ----------------------------------------------------------------------------------------------


def read_byte(data: bytes, position: int, end: int) -> tuple[int, int]:
    if position >= end:
        raise BadPacket(Reason.MALFORMED_PACKET, "the packet ends too early")
    return data[position], position + 1


def read_int16(data: bytes, position: int, end: int) -> tuple[int, int]:
    if position + 2 > end:
        raise BadPacket(Reason.MALFORMED_PACKET, "the packet ends too early")
    return data[position] << 8 | data[position + 1], position + 2


def read_int32(data: bytes, position: int, end: int) -> tuple[int, int]:
    if position + 4 > end:
        raise BadPacket(Reason.MALFORMED_PACKET, "the packet ends too early")
    return int.from_bytes(data[position : position + 4], "big"), position + 4


def read_varint(data: bytes, position: int, end: int) -> tuple[int, int]:
    """Read a variable byte integer of at most four bytes, no more of them than needed."""
    value = shift = 0
    while True:
        byte, position = read_byte(data, position, end)
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > 21:
            raise BadPacket(Reason.MALFORMED_PACKET, "a variable byte integer has more than four bytes")
    if byte == 0 and shift:
        raise BadPacket(Reason.MALFORMED_PACKET, "a variable byte integer has more bytes than it needs")
    return value, position


def read_binary(data: bytes, position: int, end: int) -> tuple[bytes, int]:
    size, position = read_int16(data, position, end)
    if position + size > end:
        raise BadPacket(Reason.MALFORMED_PACKET, "the packet ends too early")
    return data[position : position + size], position + size


def read_string(data: bytes, position: int, end: int) -> tuple[str, int]:
    raw, position = read_binary(data, position, end)
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        raise BadPacket(Reason.MALFORMED_PACKET, "a string is not UTF-8") from None
    if "\0" in text:
        raise BadPacket(Reason.MALFORMED_PACKET, "a string contains U+0000")
    return text, position


def varint(value: int) -> bytes:
    assert 0 <= value <= VARINT_MAX
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def int16(value: int) -> bytes:
    return value.to_bytes(2, "big")


def binary(value: bytes) -> bytes:
    return len(value).to_bytes(2, "big") + value


def string(value: str) -> bytes:
    raw = value.encode()
    return len(raw).to_bytes(2, "big") + raw


# --- the table --------------------------------------------------------------------------------------------------------


class _Kind(NamedTuple):
    read: Callable[[bytes, int, int], tuple[Any, int]]
    encode: Callable[[Any], bytes]


def _read_flag(data: bytes, position: int, end: int) -> tuple[int, int]:
    value, position = read_byte(data, position, end)
    if value > 1:
        raise BadPacket(Reason.PROTOCOL_ERROR, "a property that is 0 or 1 has another value")
    return value, position


def _read_pair(data: bytes, position: int, end: int) -> tuple[tuple[str, str], int]:
    name, position = read_string(data, position, end)
    value, position = read_string(data, position, end)
    return (name, value), position


def _not_zero(read: Callable[[bytes, int, int], tuple[int, int]]) -> Callable[[bytes, int, int], tuple[int, int]]:
    def checked(data: bytes, position: int, end: int) -> tuple[int, int]:
        value, position = read(data, position, end)
        if value == 0:
            raise BadPacket(Reason.PROTOCOL_ERROR, "a property that must not be 0 is 0")
        return value, position

    return checked


def _int32(value: int) -> bytes:
    return value.to_bytes(4, "big")


def _pair(value: tuple[str, str]) -> bytes:
    return string(value[0]) + string(value[1])


def _one_byte(value: int) -> bytes:
    return bytes((value,))


_FLAG: Final = _Kind(_read_flag, _one_byte)
_INT16: Final = _Kind(read_int16, int16)
_INT16_NOT_ZERO: Final = _Kind(_not_zero(read_int16), int16)
_INT32: Final = _Kind(read_int32, _int32)
_INT32_NOT_ZERO: Final = _Kind(_not_zero(read_int32), _int32)
_VARINT_NOT_ZERO: Final = _Kind(_not_zero(read_varint), varint)
_STRING: Final = _Kind(read_string, string)
_BINARY: Final = _Kind(read_binary, binary)
_PAIR: Final = _Kind(_read_pair, _pair)

_MESSAGE: Final = frozenset({PacketType.PUBLISH, PacketType.WILL})
_CONNECTION: Final = frozenset({PacketType.CONNECT, PacketType.CONNACK})
_CONNECT: Final = frozenset({PacketType.CONNECT})
_CONNACK: Final = frozenset({PacketType.CONNACK})
_EVERYWHERE: Final = frozenset(PacketType) - {PacketType.PINGREQ, PacketType.PINGRESP}
_WITH_REASON: Final = _EVERYWHERE - _MESSAGE - {PacketType.CONNECT, PacketType.SUBSCRIBE, PacketType.UNSUBSCRIBE}


class _Row(NamedTuple):
    name: str
    kind: _Kind
    packets: frozenset[PacketType]


_ROWS: Final[dict[int, _Row]] = {
    0x01: _Row("payload_format", _FLAG, _MESSAGE),
    0x02: _Row("message_expiry_s", _INT32, _MESSAGE),
    0x03: _Row("content_type", _STRING, _MESSAGE),
    0x08: _Row("response_topic", _STRING, _MESSAGE),
    0x09: _Row("correlation_data", _BINARY, _MESSAGE),
    0x0B: _Row("subscription_identifiers", _VARINT_NOT_ZERO, frozenset({PacketType.PUBLISH, PacketType.SUBSCRIBE})),
    0x11: _Row("session_expiry_s", _INT32, _CONNECTION | {PacketType.DISCONNECT}),
    0x12: _Row("assigned_client_id", _STRING, _CONNACK),
    0x13: _Row("server_keep_alive_s", _INT16, _CONNACK),
    0x15: _Row("authentication_method", _STRING, _CONNECTION | {PacketType.AUTH}),
    0x16: _Row("authentication_data", _BINARY, _CONNECTION | {PacketType.AUTH}),
    0x17: _Row("request_problem_information", _FLAG, _CONNECT),
    0x18: _Row("will_delay_s", _INT32, frozenset({PacketType.WILL})),
    0x19: _Row("request_response_information", _FLAG, _CONNECT),
    0x1A: _Row("response_information", _STRING, _CONNACK),
    0x1C: _Row("server_reference", _STRING, _CONNACK | {PacketType.DISCONNECT}),
    0x1F: _Row("reason_string", _STRING, _WITH_REASON),
    0x21: _Row("receive_maximum", _INT16_NOT_ZERO, _CONNECTION),
    0x22: _Row("topic_alias_maximum", _INT16, _CONNECTION),
    0x23: _Row("topic_alias", _INT16, frozenset({PacketType.PUBLISH})),
    0x24: _Row("maximum_qos", _FLAG, _CONNACK),
    0x25: _Row("retain_available", _FLAG, _CONNACK),
    0x26: _Row("user_properties", _PAIR, _EVERYWHERE),
    0x27: _Row("maximum_packet_size", _INT32_NOT_ZERO, _CONNECTION),
    0x28: _Row("wildcard_subscription_available", _FLAG, _CONNACK),
    0x29: _Row("subscription_identifiers_available", _FLAG, _CONNACK),
    0x2A: _Row("shared_subscription_available", _FLAG, _CONNACK),
}


def size_of(properties: Properties) -> int:
    """Return about how many bytes the properties of a message take."""
    if properties is NO_PROPERTIES:
        return 0
    texts = len(properties.content_type or "") + len(properties.response_topic or "")
    users = sum(len(name) + len(value) for name, value in properties.user_properties)
    return texts + len(properties.correlation_data or b"") + users


def may_have(packet: PacketType) -> list[str]:
    """Return the names of the properties that a packet may have."""
    return [row.name for row in _ROWS.values() if packet in row.packets]


def read_properties(data: bytes, position: int, end: int, packet: PacketType) -> tuple[Properties, int]:
    size, position = read_varint(data, position, end)
    if size == 0:
        return NO_PROPERTIES, position
    stop = position + size
    if stop > end:
        raise BadPacket(Reason.MALFORMED_PACKET, "the properties are longer than the packet")
    found: dict[str, Any] = {}
    users: list[tuple[str, str]] = []
    while position < stop:
        # The table has only identifiers below 0x80, whose variable byte integer is one byte.
        row = _ROWS.get(data[position])
        if row is None or packet not in row.packets:
            raise BadPacket(Reason.MALFORMED_PACKET, f"a property that {packet.name} cannot have")
        value, position = row.kind.read(data, position + 1, stop)
        if row.name == "user_properties":
            users.append(value)
            if len(users) > USER_PROPERTIES_MAX:
                raise BadPacket(Reason.QUOTA_EXCEEDED, f"more than {USER_PROPERTIES_MAX} user properties")
        elif row.name == "subscription_identifiers":
            found[row.name] = (*_again(found, row.name, packet), value)
        elif row.name in found:
            raise BadPacket(Reason.PROTOCOL_ERROR, "a property is there twice")
        else:
            found[row.name] = value
    _check_together(found)
    return Properties(**found, user_properties=tuple(users)), position


def _again(found: dict[str, Any], name: str, packet: PacketType) -> tuple[int, ...]:
    """Return the subscription identifiers so far. Only a PUBLISH to a client has several: one for each subscription."""
    before: tuple[int, ...] = found.get(name, ())
    if before and packet is not PacketType.PUBLISH:
        raise BadPacket(Reason.PROTOCOL_ERROR, "a property is there twice")
    if len(before) >= USER_PROPERTIES_MAX:
        raise BadPacket(Reason.QUOTA_EXCEEDED, f"more than {USER_PROPERTIES_MAX} subscription identifiers")
    return before


def _check_together(found: dict[str, Any]) -> None:
    if "authentication_data" in found and "authentication_method" not in found:
        raise BadPacket(Reason.PROTOCOL_ERROR, "authentication data without a method")
    response_topic = found.get("response_topic")
    if response_topic is not None and (not response_topic or "+" in response_topic or "#" in response_topic):
        raise BadPacket(Reason.PROTOCOL_ERROR, "the response topic is empty or has a wildcard")


def encode_properties(properties: Properties) -> bytes:
    """Return the properties with their length before them."""
    if properties is NO_PROPERTIES:
        return b"\0"
    parts = bytearray()
    for number, row in _ROWS.items():
        value = getattr(properties, row.name)
        if value is None or value == ():
            continue
        for each in value if isinstance(value, tuple) else (value,):
            parts.append(number)
            parts += row.kind.encode(each)
    return varint(len(parts)) + parts
