"""The target of MQTT: mutated streams of packets, cut into pieces."""

from __future__ import annotations

import itertools
from random import Random
from typing import NamedTuple

from fuzz_checks import Limits, Violation
from fuzz_mutations import mutate
from fuzz_wire import Stateless
from harness.mqtt_packets import random_packet

from moldau.gateway.mqtt.packets import V3_1_1, V5, Connect, Malformed, PacketReader, encode
from moldau.gateway.mqtt.properties import PacketType

PACKET_BYTES_MAX = 8192
VARINT_BYTES_MAX = 4


class Stream(NamedTuple):
    pieces: tuple[bytes, ...]
    version: int
    """That of the server's side of a connection is 0 until its CONNECT."""


class MqttPackets(Stateless):
    """What is read without an error can be written, and is read again as the same packet."""

    name = "mqtt"
    limits = Limits(operations=2_000, per_byte=60, memory=400_000)

    def make(self, rng: Random) -> Stream:
        version = rng.choice((V3_1_1, V5))
        is_server = rng.random() < 0.5
        packets = [random_packet(rng, version, PacketType.CONNECT)] if is_server else []
        packets += [random_packet(rng, version) for _ in range(rng.randint(1, 4))]
        damaged = rng.randrange(len(packets))
        encoded = [encode(packet, version) for packet in packets]
        encoded[damaged] = bytes(mutate(encoded[damaged], rng))
        stream = b"".join(encoded)
        cuts = sorted(rng.randrange(len(stream) + 1) for _ in range(rng.choice((0, 0, 1, 5))))
        edges = [0, *cuts, len(stream)]
        pieces = tuple(stream[start:end] for start, end in itertools.pairwise(edges))
        return Stream(pieces, 0 if is_server else version)

    def size_of(self, made: Stream) -> int:
        return sum(map(len, made.pieces))

    def run(self, made: Stream) -> None:
        reader = PacketReader(PACKET_BYTES_MAX, PACKET_BYTES_MAX, made.version)
        for piece in made.pieces:
            for packet in reader.feed(piece):
                if isinstance(packet, Malformed):
                    if reader.held_bytes or reader.feed(b"\xc0\0"):
                        raise Violation("it reads on after an error")
                    return
                known = 0 if isinstance(packet, Connect) else reader.version
                again = encode(packet, reader.version)
                if PacketReader(PACKET_BYTES_MAX, PACKET_BYTES_MAX, known).feed(again) != [packet]:
                    raise Violation(f"{type(packet).__name__} is not the same when it is written and read again")
            if reader.held_bytes > PACKET_BYTES_MAX + 1 + VARINT_BYTES_MAX:
                raise Violation(f"{reader.held_bytes} bytes are held")
