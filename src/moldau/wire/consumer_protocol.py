"""What consumers of the classic protocol send each other through the coordinator: subscriptions and assignments.

The coordinator treats them as bytes, except to find the topics that a group reads and to convert a group between the
classic and the consumer protocol. Two bytes of version, then the body; a newer version only adds fields at the end.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Final, TypeVar

from moldau.base.buffers import Buffer
from moldau.base.errors import MalformedData
from moldau.wire.codec import decode_from, encode
from moldau.wire.schema import Message

PROTOCOL_TYPE: Final = "consumer"
NEVER_FLEXIBLE: Final = 2**15
_VERSION: Final = struct.Struct(">h")
_LENGTH_BYTES: Final = 4
"""The length before the user data."""
M = TypeVar("M", bound=Message)


class TopicPartitions(Message):
    __slots__ = ("partitions", "topic")
    SCHEMA = """
        topic string 0+
        partitions []int32 0+
    """

    def __init__(self, topic: str = "", partitions: Sequence[int] = ()) -> None:
        self.topic = topic
        self.partitions = partitions


class Subscription(Message):
    __slots__ = ("generation_id", "owned_partitions", "rack_id", "topics", "user_data")
    VERSIONS = (0, 3)
    FLEXIBLE = NEVER_FLEXIBLE
    SCHEMA = """
        topics []string 0+
        user_data bytes 0+ null=0+
        owned_partitions []TopicPartitions 1+
        generation_id int32 2+
        rack_id string 3+ null=3+
    """

    def __init__(
        self,
        topics: Sequence[str] = (),
        user_data: bytes | None = None,
        owned_partitions: Sequence[TopicPartitions] = (),
        generation_id: int = -1,
        rack_id: str | None = None,
    ) -> None:
        self.topics = topics
        self.user_data = user_data
        self.owned_partitions = owned_partitions
        self.generation_id = generation_id
        self.rack_id = rack_id


class Assignment(Message):
    __slots__ = ("assigned_partitions", "user_data")
    VERSIONS = (0, 3)
    FLEXIBLE = NEVER_FLEXIBLE
    SCHEMA = """
        assigned_partitions []TopicPartitions 0+
        user_data bytes 0+ null=0+
    """

    def __init__(self, assigned_partitions: Sequence[TopicPartitions] = (), user_data: bytes | None = None) -> None:
        self.assigned_partitions = assigned_partitions
        self.user_data = user_data


def read(cls: type[M], data: Buffer) -> tuple[M, int]:
    """Return the message and its version. Raises MalformedData for invalid bytes."""
    if len(data) < _VERSION.size:
        raise MalformedData(f"{cls.__name__} without its version")
    version: int = _VERSION.unpack_from(data)[0]
    if version < 0:
        raise MalformedData(f"{cls.__name__} has no version {version}")
    message, _ = decode_from(cls, data, min(version, cls.VERSIONS[1]), _VERSION.size)
    return message, version


def write(message: Subscription | Assignment, version: int) -> bytes:
    out = bytearray(_VERSION.pack(version))
    encode(message, min(version, message.VERSIONS[1]), out)
    return bytes(out)


def subscribed_topics(subscriptions: Iterable[bytes]) -> set[str]:
    """Return only the topic names. The bytes are read as version 0, with whose fields every version begins. Raise
    MalformedData if they are not that. Topics that many members share are decoded once: in order, subscriptions that
    begin with the same topics follow each other."""
    names: set[str] = set()
    last_topics: bytes | None = None
    for subscription in sorted(subscriptions):
        if last_topics is not None and subscription.startswith(last_topics, _VERSION.size):
            continue
        if len(subscription) < _VERSION.size:
            raise MalformedData("Subscription without its version")
        message, end = decode_from(Subscription, subscription, 0, _VERSION.size)
        names.update(message.topics)
        last_topics = subscription[_VERSION.size : end - _LENGTH_BYTES - len(message.user_data or b"")]
    return names
