"""Ids: nodes, topics' UUIDs, topic partitions, producers."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from typing import Final, NamedTuple, NewType

NodeId = NewType("NodeId", int)

Uuid = bytes
"""Sixteen bytes, as on the wire. Kafka writes them as 22 characters of URL-safe base64."""

ZERO_UUID: Final[Uuid] = bytes(16)
METADATA_TOPIC_UUID: Final[Uuid] = bytes(15) + b"\x01"


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class ProducerIdAndEpoch(NamedTuple):
    producer_id: int
    epoch: int


def uuid_text(uuid: Uuid) -> str:
    return base64.urlsafe_b64encode(uuid).rstrip(b"=").decode()


def uuid_from_text(text: str) -> Uuid:
    """The inverse of `uuid_text`. Raise ValueError for anything that is not 16 bytes in URL-safe base64."""
    if "+" in text or "/" in text:
        raise ValueError(f"{text!r} is not a Kafka UUID: use - and _ in place of + and /")
    # urlsafe_b64decode would ignore characters that do not belong there.
    plain = text.replace("-", "+").replace("_", "/")
    try:
        raw = base64.b64decode(plain + "=" * (-len(text) % 4), validate=True)
    except ValueError:
        raise ValueError(f"{text!r} is not a Kafka UUID: it is not URL-safe base64") from None
    if len(raw) != 16:
        raise ValueError(f"{text!r} is not a Kafka UUID: it has {len(raw)} bytes, not 16")
    return raw


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Return the partition indexes by topic."""
    indexes: dict[str, list[int]] = {}
    for topic, index in partitions:
        indexes.setdefault(topic, []).append(index)
    return indexes
