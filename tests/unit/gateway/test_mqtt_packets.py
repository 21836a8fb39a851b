"""The codec of MQTT: round trips, bytes of the standard, other implementations, and what must be refused."""

from __future__ import annotations

from random import Random

import pytest
from harness.mqtt_packets import random_packet
from hypothesis import given
from hypothesis import strategies as st

from moldau.gateway.mqtt.packets import (
    V3_1_1,
    V5,
    Ack,
    Connack,
    Connect,
    Disconnect,
    Malformed,
    Packet,
    PacketReader,
    Publish,
    Requested,
    Suback,
    Subscribe,
    Will,
    encode,
)
from moldau.gateway.mqtt.properties import PacketType, Properties, varint
from moldau.gateway.mqtt.reasons import Reason

VERSIONS = (V3_1_1, V5)
LARGE = 1 << 22


def reader(version: int, publish_bytes_max: int = LARGE, control_bytes_max: int = LARGE) -> PacketReader:
    return PacketReader(publish_bytes_max, control_bytes_max, version)


def read_one(data: bytes, version: int) -> Packet | Malformed:
    (packet,) = reader(version).feed(data)
    return packet


def reason(data: bytes, version: int = V5) -> Reason:
    packet = read_one(data, version)
    assert isinstance(packet, Malformed), packet
    return packet.reason


@given(seed=st.integers(0, 2**64), version=st.sampled_from(VERSIONS))
def test_every_packet_survives_a_round_trip_however_it_is_cut(seed: int, version: int) -> None:
    rng = Random(seed)
    sent = [
        random_packet(rng, version, kind) for kind in PacketType if (kind.value > 1 and version == V5) or kind != 15
    ]
    sent = [packet for packet in sent if not isinstance(packet, Connect)]
    stream = b"".join(encode(packet, version) for packet in sent)
    found: list[Packet | Malformed] = []
    reading = reader(version)
    while stream:
        size = rng.choice((1, 2, 3, 10, 100, 100_000))
        found += reading.feed(stream[:size])
        stream = stream[size:]
    assert found == sent
    assert reading.held_bytes == 0


@given(seed=st.integers(0, 2**64), version=st.sampled_from(VERSIONS))
def test_a_connect_says_the_version_of_what_follows(seed: int, version: int) -> None:
    rng = Random(seed)
    connect = random_packet(rng, version, PacketType.CONNECT)
    publish = random_packet(rng, version, PacketType.PUBLISH)
    reading = reader(0)
    assert reading.feed(encode(connect, version) + encode(publish, version)) == [connect, publish]
    assert reading.version == version


def test_bytes_of_the_standard() -> None:
    """The examples in sections 3.1.3.6 (figure 3.6), 2.2.3 (table 2.4) and 3.8.3 of MQTT 3.1.1, written out."""
    assert encode(Connect(V3_1_1, "", keep_alive_s=10), V3_1_1) == bytes.fromhex("100c00044d51545404 02 000a 0000")
    assert encode(Publish("a/b", b"", 1, packet_id=10), V3_1_1) == bytes.fromhex("32 07 0003 61 2f 62 000a")
    filters = Requested("a/b", 1), Requested("c/d", 2)
    subscribe = bytes.fromhex("82 0e 000a 0003 612f62 01 0003 632f64 02")
    assert encode(Subscribe(10, filters), V3_1_1) == subscribe
    assert encode(Suback(10, bytes([0, 2, 0x80])), V3_1_1) == bytes.fromhex("90 05 000a 00 02 80")
    for value, encoded in ((0, "00"), (127, "7f"), (128, "8001"), (16_383, "ff7f"), (268_435_455, "ffffff7f")):
        assert varint(value) == bytes.fromhex(encoded)
    v5 = Publish("a", b"x", properties=Properties(message_expiry_s=1, user_properties=(("k", "v"),)))
    assert encode(v5, V5) == bytes.fromhex("30 11 0001 61 0c 02 00000001 26 0001 6b 0001 76 78")
    assert encode(Ack(PacketType.PUBACK, 1, Reason.NOT_AUTHORIZED), V5) == bytes.fromhex("40 03 0001 87")
    assert encode(Disconnect(), V5) == bytes.fromhex("e000")


def test_packets_of_mqttools_are_read() -> None:
    """mqttools has only MQTT 5; tests/interop has other clients."""
    common = pytest.importorskip("mqttools.common", reason="mqttools is not installed")
    will = Will("w/t", b"gone", 1, True)
    packed = common.pack_connect("dev", True, "w/t", b"gone", True, 1, "anna", b"secret", 30, {})
    assert read_one(packed, 0) == Connect(V5, "dev", True, 30, "anna", b"secret", will)
    packed = common.pack_publish("a/b", b"x", False, {common.PropertyIds.CONTENT_TYPE: "json"})
    assert read_one(packed, V5) == Publish("a/b", b"x", properties=Properties(content_type="json"))
    flags, retain_handling = 0, 1
    packed = common.pack_subscribe("a/+", retain_handling, 7)
    assert read_one(packed, V5) == Subscribe(7, (Requested("a/+", flags, retain_handling=retain_handling),))


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ("3003 0001 61", None),
        ("36 05 0001 61 0001", Reason.MALFORMED_PACKET),  # QoS 3
        ("38 04 0001 61 00", Reason.MALFORMED_PACKET),  # DUP with QoS 0
        ("32 06 0001 61 0000 00", Reason.PROTOCOL_ERROR),  # packet identifier 0
        ("30 04 0001 23 00", Reason.TOPIC_NAME_INVALID),  # a wildcard
        ("30 04 0001 00 00", Reason.MALFORMED_PACKET),  # NUL
        ("30 06 0003 eda080 00", Reason.MALFORMED_PACKET),  # a surrogate
        ("30 03 0000 00", Reason.PROTOCOL_ERROR),  # no topic and no alias
        ("30 04 0005 61 00", Reason.MALFORMED_PACKET),  # the topic is longer than the packet
        ("30 01 00", Reason.MALFORMED_PACKET),
        ("30 06 0001 61 02 01 02", Reason.PROTOCOL_ERROR),  # payload format 2
        ("30 08 0001 61 04 0100 0100", Reason.PROTOCOL_ERROR),  # the same property twice
        ("30 07 0001 61 03 210001", Reason.MALFORMED_PACKET),  # a property of CONNECT
        ("30 06 0001 61 02 0b00", Reason.PROTOCOL_ERROR),  # subscription identifier 0
        ("30 06 0001 61 80 80 00", Reason.MALFORMED_PACKET),  # a length with more bytes than it needs
        ("30 0b 0001 61 05 08 0002 612b 00 00", Reason.PROTOCOL_ERROR),  # a response topic with a wildcard
        ("30 ffffffff 01", Reason.MALFORMED_PACKET),  # a length of five bytes
        ("30 8400 0001 61 00", Reason.MALFORMED_PACKET),
        ("80 06 0001 00 0001 61 00", Reason.MALFORMED_PACKET),  # SUBSCRIBE with flags 0
        ("82 03 0001 00", Reason.PROTOCOL_ERROR),  # without a filter
        ("82 07 0001 00 0001 61 03", Reason.MALFORMED_PACKET),  # QoS 3
        ("82 07 0001 00 0001 61 40", Reason.MALFORMED_PACKET),  # reserved options
        ("82 07 0001 00 0001 61 30", Reason.PROTOCOL_ERROR),  # retain handling 3
        ("a2 05 0001 00 0000", Reason.PROTOCOL_ERROR),  # an empty filter
        ("00 00", Reason.MALFORMED_PACKET),
        ("c1 00", Reason.MALFORMED_PACKET),
        ("c0 01 00", Reason.MALFORMED_PACKET),
        ("10 00", Reason.PROTOCOL_ERROR),  # a second CONNECT
    ],
)
def test_what_breaks_the_standard_is_refused_with_its_reason(data: str, expected: Reason | None) -> None:
    if expected is None:
        assert isinstance(read_one(bytes.fromhex(data), V5), Malformed)  # properties are missing
        assert read_one(bytes.fromhex(data), V3_1_1) == Publish("a", b"")
    else:
        assert reason(bytes.fromhex(data)) is expected


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ("100c 0004 4d515454 03 02 000a 0000", Reason.UNSUPPORTED_PROTOCOL_VERSION),
        ("100e 0006 4d5149736470 03 02 000a 0000", Reason.UNSUPPORTED_PROTOCOL_VERSION),
        ("100c 0004 4d515454 04 03 000a 0000", Reason.MALFORMED_PACKET),  # the reserved flag
        ("100c 0004 4d515454 04 0a 000a 0000", Reason.MALFORMED_PACKET),  # QoS of a will that is not there
        ("100e 0004 4d515454 04 42 000a 0000 0000", Reason.MALFORMED_PACKET),  # a password without a user
        ("100d 0004 4d515454 04 02 000a 0000 00", Reason.MALFORMED_PACKET),  # a byte too many
        ("30 03 0001 61", Reason.PROTOCOL_ERROR),  # no CONNECT
        ("c000", Reason.PROTOCOL_ERROR),
        ("10 8200 0000", Reason.MALFORMED_PACKET),
    ],
)
def test_a_bad_connect_is_refused_with_its_reason(data: str, expected: Reason) -> None:
    assert reason(bytes.fromhex(data), 0) is expected


def test_a_packet_over_the_limit_is_refused_before_its_bytes_arrive() -> None:
    reading = reader(V5, publish_bytes_max=100, control_bytes_max=50)
    before = encode(Publish("a", b"x" * 90), V5)
    packets = reading.feed(before + bytes.fromhex("3065"))
    assert packets == [Publish("a", b"x" * 90), Malformed(Reason.PACKET_TOO_LARGE, "a PUBLISH of 101 bytes")]
    assert reading.feed(before) == []
    assert reason_of_first(reader(0, 100, 50).feed(bytes.fromhex("1033"))) is Reason.PACKET_TOO_LARGE


def reason_of_first(packets: list[Packet | Malformed]) -> Reason:
    assert isinstance(packets[0], Malformed)
    return packets[0].reason


def test_many_properties_and_filters_are_refused() -> None:
    pairs = Properties(user_properties=(("", ""),) * 101)
    assert reason(encode(Publish("a", b"", properties=pairs), V5)) is Reason.QUOTA_EXCEEDED
    assert reason(encode(Subscribe(1, (Requested("a"),) * 1001), V5)) is Reason.QUOTA_EXCEEDED


def test_a_large_packet_in_many_pieces_is_joined_once() -> None:
    packet = Publish("a", b"x" * 1_000_000)
    data = encode(packet, V5)
    reading = reader(V5)
    pieces = [data[start : start + 10] for start in range(0, len(data), 10)]
    for piece in pieces[:-1]:
        assert reading.feed(piece) == []
    assert len(reading._chunks) == len(pieces) - 1
    assert reading.feed(pieces[-1]) == [packet]


def test_a_connack_may_have_two_flags_only() -> None:
    assert read_one(bytes.fromhex("20 03 01 00 00"), V5) == Connack(True, 0)
    assert reason(bytes.fromhex("20 03 02 00 00")) is Reason.MALFORMED_PACKET
