"""Random packets of MQTT, valid ones, for tests of the codec and for the fuzzer."""

from __future__ import annotations

from random import Random
from typing import Any

from moldau.gateway.mqtt.packets import (
    V5,
    Ack,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Publish,
    Requested,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
    Will,
)
from moldau.gateway.mqtt.properties import NO_PROPERTIES, PacketType, Properties, may_have

FLAGS = {
    "payload_format",
    "request_problem_information",
    "request_response_information",
    "maximum_qos",
    "retain_available",
    "wildcard_subscription_available",
    "subscription_identifiers_available",
    "shared_subscription_available",
}
OF_32_BITS = {"message_expiry_s", "session_expiry_s", "will_delay_s", "maximum_packet_size"}
OF_16_BITS = {"server_keep_alive_s", "receive_maximum", "topic_alias_maximum", "topic_alias"}
LETTERS = "abcz/0 äß€😀.-_$"


def text(rng: Random, least: int = 0) -> str:
    return "".join(rng.choice(LETTERS) for _ in range(rng.randint(least, 12)))


def data(rng: Random) -> bytes:
    return rng.randbytes(rng.choice((0, 1, 5, 130, 20_000) if rng.random() < 0.1 else (0, 1, 5)))


def properties(rng: Random, packet: PacketType, version: int) -> Properties:
    if version != V5 or rng.random() < 0.3:
        return NO_PROPERTIES
    names = [name for name in may_have(packet) if rng.random() < 0.4]
    if "authentication_data" in names and "authentication_method" not in names:
        names.remove("authentication_data")
    found = {name: value(rng, name, packet) for name in names}
    return Properties(**found) if found else NO_PROPERTIES


def value(rng: Random, name: str, packet: PacketType) -> Any:
    if name in FLAGS:
        return rng.randint(0, 1)
    if name in OF_32_BITS:
        return rng.choice((1, 300, 2**32 - 1))
    if name in OF_16_BITS:
        return rng.choice((1, 300, 2**16 - 1))
    if name == "subscription_identifiers":
        count = rng.randint(1, 3) if packet is PacketType.PUBLISH else 1
        return tuple(rng.choice((1, 127, 128, 16_384, 268_435_455)) for _ in range(count))
    if name == "user_properties":
        return tuple((text(rng), text(rng)) for _ in range(rng.randint(1, 3)))
    if name in ("correlation_data", "authentication_data"):
        return rng.randbytes(rng.randint(0, 9))
    return text(rng, 1)


def packet_id(rng: Random) -> int:
    return rng.choice((1, 10, 256, 65_535))


def publish(rng: Random, version: int) -> Publish:
    qos = rng.randint(0, 2)
    found = properties(rng, PacketType.PUBLISH, version)
    least = 0 if found.topic_alias is not None else 1
    dup = bool(qos) and rng.random() < 0.5
    number = packet_id(rng) if qos else 0
    return Publish(text(rng, least), data(rng), qos, rng.random() < 0.5, dup, number, found)


def connect(rng: Random, version: int) -> Connect:
    user = rng.choice((None, text(rng)))
    password = rng.choice((None, rng.randbytes(4))) if user is not None or version == V5 else None
    will = None
    if rng.random() < 0.5:
        of_will = properties(rng, PacketType.WILL, version)
        will = Will(text(rng, 1), data(rng), rng.randint(0, 2), rng.random() < 0.5, of_will)
    keep_alive_s = rng.choice((0, 1, 65_535))
    found = properties(rng, PacketType.CONNECT, version)
    return Connect(version, text(rng), rng.random() < 0.5, keep_alive_s, user, password, will, found)


def requested(rng: Random, version: int) -> Requested:
    if version != V5:
        return Requested(text(rng, 1), rng.randint(0, 2))
    return Requested(text(rng, 1), rng.randint(0, 2), rng.random() < 0.5, rng.random() < 0.5, rng.randint(0, 2))


def random_packet(rng: Random, version: int, of: PacketType | None = None) -> Packet:
    """Return a packet of that type, or of any, that a client or a server may send."""
    kind = of or rng.choice([each for each in PacketType if each.value and (version == V5 or each != PacketType.AUTH)])
    found = properties(rng, kind, version)
    reason = rng.choice((0, 0, 0x80, 0x97)) if version == V5 else 0
    match kind:
        case PacketType.CONNECT:
            return connect(rng, version)
        case PacketType.CONNACK:
            return Connack(rng.random() < 0.5, reason, found)
        case PacketType.PUBLISH:
            return publish(rng, version)
        case PacketType.SUBSCRIBE:
            requests = tuple(requested(rng, version) for _ in range(rng.randint(1, 3)))
            return Subscribe(packet_id(rng), requests, found)
        case PacketType.SUBACK:
            return Suback(packet_id(rng), bytes(rng.choice((0, 1, 2, 0x80)) for _ in range(rng.randint(1, 3))), found)
        case PacketType.UNSUBSCRIBE:
            return Unsubscribe(packet_id(rng), tuple(text(rng, 1) for _ in range(rng.randint(1, 3))), found)
        case PacketType.UNSUBACK:
            return Unsuback(packet_id(rng), bytes([0, 17]) if version == V5 else b"", found)
        case PacketType.PINGREQ:
            return Pingreq()
        case PacketType.PINGRESP:
            return Pingresp()
        case PacketType.DISCONNECT:
            return Disconnect(reason, found)
        case PacketType.AUTH:
            return Auth(reason, found)
        case _:
            return Ack(kind, packet_id(rng), reason, found)
