"""What is known of a group, as plain values, and the one thing in it that has to be decoded: an assignment.

How these are asked for is groups.py, how they are drawn is each tool's. Pure.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from moldau.base.errors import KafkaError
from moldau.base.ids import TopicPartition

CLASSIC: Final = "Classic"
CONSUMER: Final = "Consumer"
EMPTY: Final = "Empty"
DEAD: Final = "Dead"
CONSUMER_PROTOCOL: Final = "consumer"
STATES: Final = (
    "PreparingRebalance",
    "CompletingRebalance",
    "Stable",
    "Dead",
    "Empty",
    "Assigning",
    "Reconciling",
)
"""What a classic or consumer group can be in."""
TYPES: Final = (CONSUMER, CLASSIC, "Share", "Streams")
UNKNOWN: Final = "Unknown"


class Node(NamedTuple):
    node_id: int
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class ListedGroup(NamedTuple):
    """A line of a listing. `type` and `state` are empty where the broker is too old to tell."""

    group_id: str
    type: str
    protocol_type: str
    state: str

    @property
    def is_consumer_group(self) -> bool:
        """Kafka's meaning: groups of consumers, and groups that only hold offsets."""
        return self.type in (CLASSIC, CONSUMER, "") and self.protocol_type in (CONSUMER_PROTOCOL, "")


@dataclass(frozen=True, slots=True)
class Member:
    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    assignment: frozenset[TopicPartition]
    target: frozenset[TopicPartition] | None = None
    """Where the group wants the member to be; only groups of type Consumer tell."""
    epoch: int | None = None
    upgraded: bool | None = None
    """Whether it speaks the new protocol, in a group of type Consumer."""


@dataclass(frozen=True, slots=True)
class DescribedGroup:
    group_id: str
    type: str
    protocol_type: str
    state: str
    assignor: str
    coordinator: Node
    members: tuple[Member, ...]
    epoch: int | None = None
    assignment_epoch: int | None = None

    @property
    def is_active(self) -> bool:
        return self.state not in (EMPTY, DEAD)


class Committed(NamedTuple):
    offset: int
    leader_epoch: int | None = None


CommittedOffsets = Mapping[TopicPartition, Committed]
Described = dict[str, DescribedGroup | KafkaError]


def state_name(said: str) -> str:
    """A state as Kafka writes it, whatever the case it is given in."""
    known = {state.lower(): state for state in (*STATES, "NotReady")}
    return known.get(said.lower(), UNKNOWN)


def type_name(said: str) -> str:
    known = {name.lower(): name for name in TYPES}
    return known.get(said.lower(), UNKNOWN)


def decode_assignment(data: bytes) -> frozenset[TopicPartition]:
    """The partitions in a classic member's assignment, which the leader of the group wrote and no broker reads.

    int16 version, int32 count of topics, then for each an int16 length with the name and an int32 count of int32
    indexes; user data follows and is of no interest. No bytes at all: nothing is assigned yet. Bytes in another form
    are the private matter of members that only call themselves consumers: nothing is known to be assigned.
    """
    if not data:
        return frozenset()
    found: set[TopicPartition] = set()
    try:
        _, topics = struct.unpack_from(">hi", data)
        position = 6
        for _ in range(topics):
            (length,) = struct.unpack_from(">h", data, position)
            name = bytes(data[position + 2 : position + 2 + length]).decode()
            position += 2 + length
            (count,) = struct.unpack_from(">i", data, position)
            indexes = struct.unpack_from(f">{count}i", data, position + 4)
            position += 4 + 4 * count
            found.update(TopicPartition(name, index) for index in indexes)
    except (struct.error, UnicodeDecodeError):
        return frozenset()
    return frozenset(found)
