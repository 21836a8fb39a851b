"""Every message in every version is encoded as kio and kafka-python encode it, and decoded from their bytes.

Values are made from seeds, so a failure names the message, version, filling and seed that make it again.
MOLDAU_CODEC_SEEDS sets the number of MIXED values for each version (3 by default).
"""

from __future__ import annotations

import os

import pytest
from harness.depth import deep
from harness.random_messages import Filling, every_message, random_message
from oracles import KafkaPython, Kio, Oracle

from moldau.wire.codec import decode, encode
from moldau.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from moldau.wire.schema import Message, fields_of

SEEDS = int(os.environ.get("MOLDAU_CODEC_SEEDS", deep(1)))
VALUES = [(Filling.LEAST, 0), (Filling.MOST, 0), *((Filling.MIXED, seed) for seed in range(SEEDS))]
MESSAGES = list(every_message())
ORACLES: list[Oracle] = [Kio(), KafkaPython()]


def encoded(message: Message, version: int) -> bytes:
    out = bytearray()
    encode(message, version, out)
    return bytes(out)


@pytest.mark.parametrize("cls", MESSAGES, ids=lambda cls: cls.__name__)
def test_bytes_and_values_equal_those_of_both_oracles(cls: type[Message]) -> None:
    low, high = cls.VERSIONS
    for version in range(low, high + 1):
        oracles = [oracle for oracle in ORACLES if oracle.knows(cls, version)]
        assert oracles
        for filling, seed in VALUES:
            message = random_message(cls, version, filling, seed)
            ours = encoded(message, version)
            here = f"{cls.__name__} v{version} {filling} seed {seed}"
            assert decode(cls, ours, version) == message, here
            for oracle in oracles:
                name = oracle.__class__.__name__
                assert oracle.encode(message, version) == ours, f"{here}: {name} writes differently"
                assert oracle.decode(cls, ours, version) == message, f"{here}: {name} reads differently"


def test_kafka_python_has_the_messages_of_every_client_request() -> None:
    """The second oracle must not be missing silently: it packages 52 APIs, each with request and response."""
    judged = {cls for cls in MESSAGES if KafkaPython().knows(cls, cls.VERSIONS[1])}
    assert len(judged) >= 98


def test_a_message_of_defaults_round_trips() -> None:
    """Handlers set only fields that differ from the default; the defaults of the others must be encodable."""
    for cls in MESSAGES:
        low, high = cls.VERSIONS
        for version in range(low, high + 1):
            present = [field for field in fields_of(cls) if version in field.versions]
            needed = [f for f in present if f.struct and not f.is_array and f.tag is None and version not in f.nullable]
            message = cls(**{field.name: field.struct() for field in needed if field.struct is not None})
            if any(getattr(message, f.name) is None and f.tag is None and version not in f.nullable for f in present):
                continue  # null by default but not nullable in this version: the sender must set it
            assert decode(cls, encoded(message, version), version) == message, f"{cls.__name__} v{version}"


def test_null_is_the_default_where_empty_means_something_else() -> None:
    """kio does not have these defaults and kafka-python not these messages: null is "as before", empty is "none"."""
    assert ConsumerGroupHeartbeatRequest().topic_partitions is None


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_buffer_can_be_read(kind: type) -> None:
    for cls in MESSAGES:
        version = cls.VERSIONS[1]
        message = random_message(cls, version, Filling.MIXED, "buffers")
        assert decode(cls, kind(encoded(message, version)), version) == message
