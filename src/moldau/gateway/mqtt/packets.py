"""The control packets of MQTT 3.1.1 and 5 as values, their encoding in both directions, and the reader of a stream.

A packet is a byte with its type and four flags, the length of the rest as a variable byte integer, and the rest. The
reader is strict: what the standard calls malformed or a protocol error ends the stream with a `Malformed` that says
why. Both versions have the same values; what a version does not have has its default.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from moldau.gateway.mqtt.properties import (
    NO_PROPERTIES,
    STRING_BYTES_MAX,
    BadPacket,
    PacketType,
    Properties,
    binary,
    encode_properties,
    int16,
    read_binary,
    read_byte,
    read_int16,
    read_properties,
    read_string,
    string,
    varint,
)
from moldau.gateway.mqtt.reasons import Reason

V3_1_1: Final = 4
V5: Final = 5

FILTERS_OF_PACKET_MAX: Final = 1_000
"""Filters in one SUBSCRIBE or UNSUBSCRIBE: a packet could have ten thousands of one byte."""

_BAD_IN_TOPIC = re.compile("[+#\0]")


class Will(NamedTuple):
    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    properties: Properties = NO_PROPERTIES


class Connect(NamedTuple):
    version: int
    client_id: str
    clean_start: bool = True
    keep_alive_s: int = 0
    user: str | None = None
    password: bytes | None = None
    will: Will | None = None
    properties: Properties = NO_PROPERTIES


class Connack(NamedTuple):
    session_present: bool
    reason: int
    """In MQTT 3.1.1 the return code."""
    properties: Properties = NO_PROPERTIES


class Publish(NamedTuple):
    topic: str
    """Empty only in MQTT 5: the topic alias says it."""
    payload: bytes
    qos: int = 0
    retain: bool = False
    dup: bool = False
    packet_id: int = 0
    """0 with QoS 0."""
    properties: Properties = NO_PROPERTIES


class Ack(NamedTuple):
    """PUBACK, PUBREC, PUBREL or PUBCOMP."""

    type: PacketType
    packet_id: int
    reason: int = 0
    properties: Properties = NO_PROPERTIES


class Requested(NamedTuple):
    """A filter in a SUBSCRIBE, with its options."""

    filter: str
    qos: int = 0
    no_local: bool = False
    retain_as_published: bool = False
    retain_handling: int = 0


class Subscribe(NamedTuple):
    packet_id: int
    requests: tuple[Requested, ...]
    properties: Properties = NO_PROPERTIES


class Suback(NamedTuple):
    packet_id: int
    reasons: bytes
    properties: Properties = NO_PROPERTIES


class Unsubscribe(NamedTuple):
    packet_id: int
    filters: tuple[str, ...]
    properties: Properties = NO_PROPERTIES


class Unsuback(NamedTuple):
    packet_id: int
    reasons: bytes = b""
    """Nothing in MQTT 3.1.1."""
    properties: Properties = NO_PROPERTIES


class Pingreq(NamedTuple):
    pass


class Pingresp(NamedTuple):
    pass


class Disconnect(NamedTuple):
    reason: int = 0
    properties: Properties = NO_PROPERTIES


class Auth(NamedTuple):
    reason: int = 0
    properties: Properties = NO_PROPERTIES


class Malformed(NamedTuple):
    """Where a stream of packets ends that breaks the standard."""

    reason: Reason
    what: str


Packet = (
    Connect
    | Connack
    | Publish
    | Ack
    | Subscribe
    | Suback
    | Unsubscribe
    | Unsuback
    | Pingreq
    | Pingresp
    | Disconnect
    | Auth
)


# --- reading ----------------------------------------------------------------------------------------------------------


class PacketReader:
    """Takes the bytes of a connection as they arrive, and returns the packets that are complete.

    The version is that of the CONNECT, which must be the first packet; a client that reads answers gives it.
    """

    __slots__ = ("_chunks", "_is_broken", "_needed", "control_bytes_max", "held_bytes", "publish_bytes_max", "version")

    def __init__(self, publish_bytes_max: int, control_bytes_max: int, version: int = 0) -> None:
        self.publish_bytes_max = publish_bytes_max
        self.control_bytes_max = control_bytes_max
        """Of all packets but PUBLISH."""
        self.version = version
        self.held_bytes = 0
        """Of the incomplete packet."""
        self._chunks: list[bytes] = []
        self._needed = 0
        self._is_broken = False

    def feed(self, data: bytes) -> list[Packet | Malformed]:
        """Return the complete packets. Nothing comes after a Malformed."""
        if self._is_broken:
            return []
        if self._chunks:
            self._chunks.append(data)
            self.held_bytes += len(data)
            if self.held_bytes < self._needed:
                return []
            data = b"".join(self._chunks)
            self._chunks = []
        packets: list[Packet | Malformed] = []
        try:
            position = self._read_packets(data, packets)
        except BadPacket as bad:
            self._is_broken = True
            self.held_bytes = 0
            packets.append(Malformed(bad.reason, bad.what))
            return packets
        self.held_bytes = len(data) - position
        if self.held_bytes:
            self._chunks.append(data[position:])
        return packets

    def _read_packets(self, data: bytes, packets: list[Packet | Malformed]) -> int:
        """Add the complete packets to the list; return where the incomplete one begins."""
        position, end, version, append = 0, len(data), self.version, packets.append
        while end - position >= 2:
            first, size, body = data[position], data[position + 1], position + 2
            if size >= 0x80:
                size, body = self._long_size(data, position + 1, end)
                if size < 0:
                    self._needed = end - position + 1
                    return position
            if first & 0xF0 == 0x30 and version:
                if size > self.publish_bytes_max:
                    raise BadPacket(Reason.PACKET_TOO_LARGE, f"a PUBLISH of {size} bytes")
                if (stop := body + size) > end:
                    self._needed = stop - position
                    return position
                append(_read_publish(data, first, body, stop, version))
            else:
                self._check(first, size)
                if (stop := body + size) > end:
                    self._needed = stop - position
                    return position
                packet = _read_control(data, first, body, stop, version)
                if isinstance(packet, Connect):
                    self.version = version = packet.version
                append(packet)
            position = stop
        self._needed = 2
        return position

    def _check(self, first: int, size: int) -> None:
        if not self.version and first != PacketType.CONNECT << 4:
            raise BadPacket(Reason.PROTOCOL_ERROR, "the first packet is not a CONNECT")
        if size > self.control_bytes_max:
            raise BadPacket(Reason.PACKET_TOO_LARGE, f"a packet of {size} bytes")

    def _long_size(self, data: bytes, position: int, end: int) -> tuple[int, int]:
        """Return a length of several bytes, and where the packet goes on; a negative one if the bytes are not there."""
        size = shift = 0
        while position < end:
            byte = data[position]
            position += 1
            size |= (byte & 0x7F) << shift
            if byte < 0x80:
                if byte == 0 and self.version == V5:
                    raise BadPacket(Reason.MALFORMED_PACKET, "the length of a packet has more bytes than it needs")
                return size, position
            shift += 7
            if shift > 21:
                raise BadPacket(Reason.MALFORMED_PACKET, "the length of a packet has more than four bytes")
        return -1, position


def _read_publish(data: bytes, first: int, position: int, stop: int, version: int) -> Publish:
    qos = first >> 1 & 3
    body = position + 2
    if body > stop or (end := body + (data[position] << 8 | data[position + 1])) > stop:
        raise BadPacket(Reason.MALFORMED_PACKET, "the packet ends too early")
    try:
        topic = str(data[body:end], "utf-8")
    except UnicodeDecodeError:
        raise BadPacket(Reason.MALFORMED_PACKET, "a topic name is not UTF-8") from None
    if _BAD_IN_TOPIC.search(topic):
        raise _bad_topic_name(topic)
    packet_id = 0
    if qos:
        if qos == 3:
            raise BadPacket(Reason.MALFORMED_PACKET, "a PUBLISH with QoS 3")
        packet_id, end = read_int16(data, end, stop)
        if not packet_id:
            raise BadPacket(Reason.PROTOCOL_ERROR, "a packet identifier is 0")
    elif first & 8:
        raise BadPacket(Reason.MALFORMED_PACKET, "a PUBLISH with QoS 0 and DUP")
    properties = NO_PROPERTIES
    if version == V5:
        if end < stop and not data[end]:
            end += 1
        else:
            properties, end = read_properties(data, end, stop, PacketType.PUBLISH)
    if not topic and properties.topic_alias is None:
        raise BadPacket(Reason.PROTOCOL_ERROR, "a PUBLISH without a topic name")
    return Publish(topic, data[end:stop], qos, first & 1 == 1, first & 8 == 8, packet_id, properties)


def _bad_topic_name(topic: str) -> BadPacket:
    if "\0" in topic:
        return BadPacket(Reason.MALFORMED_PACKET, "a topic name contains U+0000")
    return BadPacket(Reason.TOPIC_NAME_INVALID, "a topic name has a wildcard")


def _read_control(data: bytes, first: int, position: int, stop: int, version: int) -> Packet:
    kind, flags = PacketType(first >> 4), first & 15
    if kind is PacketType.PUBLISH:  # the version is not known yet
        raise BadPacket(Reason.PROTOCOL_ERROR, "the first packet is not a CONNECT")
    if kind is PacketType.WILL or (kind is PacketType.AUTH and version != V5):
        raise BadPacket(Reason.MALFORMED_PACKET, "a type of packet that there is not")
    if flags != _FLAGS.get(kind, 0):
        raise BadPacket(Reason.MALFORMED_PACKET, f"a {kind.name} with wrong flags")
    packet, position = _READERS[kind](data, position, stop, version, kind)
    if position != stop:
        raise BadPacket(Reason.MALFORMED_PACKET, f"a {kind.name} is longer than what is in it")
    return packet


_FLAGS: Final = {PacketType.PUBREL: 2, PacketType.SUBSCRIBE: 2, PacketType.UNSUBSCRIBE: 2}


def _properties(data: bytes, position: int, stop: int, version: int, kind: PacketType) -> tuple[Properties, int]:
    return read_properties(data, position, stop, kind) if version == V5 else (NO_PROPERTIES, position)


def _packet_id(data: bytes, position: int, stop: int) -> tuple[int, int]:
    packet_id, position = read_int16(data, position, stop)
    if not packet_id:
        raise BadPacket(Reason.PROTOCOL_ERROR, "a packet identifier is 0")
    return packet_id, position


def _read_connect(data: bytes, position: int, stop: int, version: int, kind: PacketType) -> tuple[Packet, int]:
    if version:
        raise BadPacket(Reason.PROTOCOL_ERROR, "a second CONNECT")
    name, position = read_binary(data, position, stop)
    level, position = read_byte(data, position, stop)
    if name != b"MQTT" or level not in (V3_1_1, V5):
        raise BadPacket(Reason.UNSUPPORTED_PROTOCOL_VERSION, "a CONNECT of another protocol, or another version of it")
    flags, position = read_byte(data, position, stop)
    will_qos = flags >> 3 & 3
    if flags & 1 or will_qos == 3 or (not flags & 4 and flags & 0x38):
        raise BadPacket(Reason.MALFORMED_PACKET, "a CONNECT with wrong flags")
    if level == V3_1_1 and flags & 0xC0 == 0x40:
        raise BadPacket(Reason.MALFORMED_PACKET, "a CONNECT with a password and no user name")
    keep_alive_s, position = read_int16(data, position, stop)
    properties, position = _properties(data, position, stop, level, kind)
    client_id, position = read_string(data, position, stop)
    will = user = password = None
    if flags & 4:
        will, position = _read_will(data, position, stop, level, flags)
    if flags & 0x80:
        user, position = read_string(data, position, stop)
    if flags & 0x40:
        password, position = read_binary(data, position, stop)
    clean_start = flags & 2 == 2
    return Connect(level, client_id, clean_start, keep_alive_s, user, password, will, properties), position


def _read_will(data: bytes, position: int, stop: int, version: int, flags: int) -> tuple[Will, int]:
    properties, position = _properties(data, position, stop, version, PacketType.WILL)
    topic, position = read_string(data, position, stop)
    if not topic or _BAD_IN_TOPIC.search(topic):
        raise BadPacket(Reason.TOPIC_NAME_INVALID, "the topic name of the will is empty or has a wildcard")
    payload, position = read_binary(data, position, stop)
    return Will(topic, payload, flags >> 3 & 3, flags & 0x20 == 0x20, properties), position


def _read_connack(data: bytes, position: int, stop: int, version: int, kind: PacketType) -> tuple[Packet, int]:
    flags, position = read_byte(data, position, stop)
    if flags > 1:
        raise BadPacket(Reason.MALFORMED_PACKET, "a CONNACK with wrong flags")
    reason, position = read_byte(data, position, stop)
    properties, position = _properties(data, position, stop, version, kind)
    return Connack(flags == 1, reason, properties), position


def _read_ack(data: bytes, position: int, stop: int, version: int, kind: PacketType) -> tuple[Packet, int]:
    packet_id, position = _packet_id(data, position, stop)
    reason, properties = 0, NO_PROPERTIES
    if version == V5 and position < stop:
        reason, position = read_byte(data, position, stop)
        if position < stop:
            properties, position = read_properties(data, position, stop, kind)
    return Ack(kind, packet_id, reason, properties), position


def _read_subscribe(data: bytes, position: int, stop: int, version: int, kind: PacketType) -> tuple[Packet, int]:
    packet_id, position = _packet_id(data, position, stop)
    properties, position = _properties(data, position, stop, version, kind)
    requests: list[Requested] = []
    while position < stop:
        text, position = _read_filter(data, position, stop, len(requests))
        options, position = read_byte(data, position, stop)
        if options & 3 == 3 or options & (0xC0 if version == V5 else 0xFC):
            raise BadPacket(Reason.MALFORMED_PACKET, "a subscription with wrong options")
        handling = options >> 4 & 3
        if handling == 3:
            raise BadPacket(Reason.PROTOCOL_ERROR, "a subscription with retain handling 3")
        requests.append(Requested(text, options & 3, options & 4 == 4, options & 8 == 8, handling))
    if not requests:
        raise BadPacket(Reason.PROTOCOL_ERROR, "a SUBSCRIBE without a filter")
    return Subscribe(packet_id, tuple(requests), properties), position


def _read_filter(data: bytes, position: int, stop: int, count: int) -> tuple[str, int]:
    if count >= FILTERS_OF_PACKET_MAX:
        raise BadPacket(Reason.QUOTA_EXCEEDED, f"more than {FILTERS_OF_PACKET_MAX} filters in one packet")
    text, position = read_string(data, position, stop)
    if not text:
        raise BadPacket(Reason.PROTOCOL_ERROR, "an empty filter")
    return text, position


def _read_suback(data: bytes, position: int, stop: int, version: int, kind: PacketType) -> tuple[Packet, int]:
    packet_id, position = _packet_id(data, position, stop)
    properties, position = _properties(data, position, stop, version, kind)
    if kind is PacketType.SUBACK:
        return Suback(packet_id, data[position:stop], properties), stop
    reasons_end = stop if version == V5 else position
    return Unsuback(packet_id, data[position:reasons_end], properties), reasons_end


def _read_unsubscribe(data: bytes, position: int, stop: int, version: int, kind: PacketType) -> tuple[Packet, int]:
    packet_id, position = _packet_id(data, position, stop)
    properties, position = _properties(data, position, stop, version, kind)
    filters: list[str] = []
    while position < stop:
        text, position = _read_filter(data, position, stop, len(filters))
        filters.append(text)
    if not filters:
        raise BadPacket(Reason.PROTOCOL_ERROR, "an UNSUBSCRIBE without a filter")
    return Unsubscribe(packet_id, tuple(filters), properties), position


def _read_ping(data: bytes, position: int, stop: int, version: int, kind: PacketType) -> tuple[Packet, int]:
    return Pingreq() if kind is PacketType.PINGREQ else Pingresp(), position


def _read_end(data: bytes, position: int, stop: int, version: int, kind: PacketType) -> tuple[Packet, int]:
    """DISCONNECT and AUTH."""
    reason, properties = 0, NO_PROPERTIES
    if version == V5 and position < stop:
        reason, position = read_byte(data, position, stop)
        if position < stop:
            properties, position = read_properties(data, position, stop, kind)
    made = Disconnect if kind is PacketType.DISCONNECT else Auth
    return made(reason, properties), position


_READERS: Final = {
    PacketType.CONNECT: _read_connect,
    PacketType.CONNACK: _read_connack,
    PacketType.PUBACK: _read_ack,
    PacketType.PUBREC: _read_ack,
    PacketType.PUBREL: _read_ack,
    PacketType.PUBCOMP: _read_ack,
    PacketType.SUBSCRIBE: _read_subscribe,
    PacketType.SUBACK: _read_suback,
    PacketType.UNSUBSCRIBE: _read_unsubscribe,
    PacketType.UNSUBACK: _read_suback,
    PacketType.PINGREQ: _read_ping,
    PacketType.PINGRESP: _read_ping,
    PacketType.DISCONNECT: _read_end,
    PacketType.AUTH: _read_end,
}


# --- writing ----------------------------------------------------------------------------------------------------------

PINGRESP_BYTES: Final = b"\xd0\0"


def encode(packet: Packet, version: int) -> bytes:
    match packet:
        case Publish():
            head, tail = publish_parts(packet, version)
            return head + int16(packet.packet_id) + tail if packet.qos else head + tail
        case Ack(kind, packet_id):
            return _framed(kind, int16(packet_id) + _reason(packet.reason, packet.properties, version))
        case Connect():
            return _framed(PacketType.CONNECT, _connect_body(packet))
        case Connack():
            body = bytes((packet.session_present, packet.reason))
            return _framed(PacketType.CONNACK, body + _encoded(packet.properties, version))
        case Subscribe():
            filters = b"".join(string(each.filter) + bytes((_options(each),)) for each in packet.requests)
            return _framed(PacketType.SUBSCRIBE, _with_id(packet.packet_id, packet.properties, version) + filters)
        case Unsubscribe():
            names = b"".join(map(string, packet.filters))
            return _framed(PacketType.UNSUBSCRIBE, _with_id(packet.packet_id, packet.properties, version) + names)
        case Suback():
            return _framed(PacketType.SUBACK, _with_id(packet.packet_id, packet.properties, version) + packet.reasons)
        case Unsuback():
            reasons = packet.reasons if version == V5 else b""
            return _framed(PacketType.UNSUBACK, _with_id(packet.packet_id, packet.properties, version) + reasons)
        case Pingreq():
            return b"\xc0\0"
        case Pingresp():
            return PINGRESP_BYTES
        case Disconnect():
            return _framed(PacketType.DISCONNECT, _reason(packet.reason, packet.properties, version))
        case Auth():
            return _framed(PacketType.AUTH, _reason(packet.reason, packet.properties, version))


def publish_parts(packet: Publish, version: int) -> tuple[bytes, bytes]:
    """Return what is before and behind the packet identifier, so that both can be sent to several clients. With QoS 0
    there is nothing between."""
    topic = string(packet.topic)
    tail = (encode_properties(packet.properties) if version == V5 else b"") + packet.payload
    first = PacketType.PUBLISH << 4 | packet.dup << 3 | packet.qos << 1 | packet.retain
    size = len(topic) + (2 if packet.qos else 0) + len(tail)
    return bytes((first,)) + varint(size) + topic, tail


def topic_name_fits(name: str) -> bool:
    """Whether MQTT can have this topic name."""
    return 0 < len(name.encode()) <= STRING_BYTES_MAX and not _BAD_IN_TOPIC.search(name)


def _framed(kind: PacketType, body: bytes) -> bytes:
    return bytes((kind << 4 | _FLAGS.get(kind, 0),)) + varint(len(body)) + body


def _encoded(properties: Properties, version: int) -> bytes:
    return encode_properties(properties) if version == V5 else b""


def _with_id(packet_id: int, properties: Properties, version: int) -> bytes:
    return int16(packet_id) + _encoded(properties, version)


def _reason(reason: int, properties: Properties, version: int) -> bytes:
    """Return the reason and properties; nothing for success without any, as is allowed."""
    if version != V5 or (reason == 0 and properties == NO_PROPERTIES):
        return b""
    return bytes((reason,)) + (b"" if properties == NO_PROPERTIES else encode_properties(properties))


def _options(each: Requested) -> int:
    return each.qos | each.no_local << 2 | each.retain_as_published << 3 | each.retain_handling << 4


def _connect_body(packet: Connect) -> bytes:
    will = packet.will
    flags = packet.clean_start << 1 | (packet.password is not None) << 6 | (packet.user is not None) << 7
    if will is not None:
        flags |= 4 | will.qos << 3 | will.retain << 5
    parts = [b"\0\x04MQTT", bytes((packet.version, flags)), int16(packet.keep_alive_s)]
    parts += [_encoded(packet.properties, packet.version), string(packet.client_id)]
    if will is not None:
        parts += [_encoded(will.properties, packet.version), string(will.topic), binary(will.payload)]
    if packet.user is not None:
        parts.append(string(packet.user))
    if packet.password is not None:
        parts.append(binary(packet.password))
    return b"".join(parts)
