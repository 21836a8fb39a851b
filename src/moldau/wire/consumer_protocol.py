"""Reads and writes what consumers of the classic protocol send each other through the coordinator: subscriptions and
assignments.

The coordinator treats them as bytes, except to find the topics that a group reads and to convert a group between the
classic and the consumer protocol. Two bytes of version, then the body; a newer version only adds fields at the end.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final, TypeVar

from moldau.base.buffers import Buffer
from moldau.base.errors import MalformedData
from moldau.wire.codec import decode_from, encode
from moldau.wire.log_records.consumer_protocol import Assignment, Subscription
from moldau.wire.schema import Message

PROTOCOL_TYPE: Final = "consumer"
_VERSION: Final = struct.Struct(">h")
_LENGTH_BYTES: Final = 4
"""The length before the user data."""
M = TypeVar("M", bound=Message)


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
