"""What is known of a group, as plain values, and the one thing in it that has to be decoded: an assignment.

How these are asked for is groups.py, how they are drawn is each tool's. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from moldau.base.errors import KafkaError, MalformedData
from moldau.base.ids import TopicPartition
from moldau.wire.consumer_protocol import Assignment, read

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
BATCH_NUMBER: Final = "moldau: the number of a micro-batch, not an offset"
"""The metadata of what Spark's exactly-once sink commits (spark/exactly_once/wire.py): nobody lags behind it."""


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
    metadata: str = ""


CommittedOffsets = Mapping[TopicPartition, Committed]
Described = dict[str, DescribedGroup | KafkaError]


def holds_batch_numbers(committed: CommittedOffsets) -> bool:
    """Whether a group is no reader's, but where a Spark query keeps the number of the last batch it wrote."""
    return any(each.metadata == BATCH_NUMBER for each in committed.values())


def state_name(said: str) -> str:
    """A state as Kafka writes it, whatever the case it is given in."""
    known = {state.lower(): state for state in (*STATES, "NotReady")}
    return known.get(said.lower(), UNKNOWN)


def type_name(said: str) -> str:
    known = {name.lower(): name for name in TYPES}
    return known.get(said.lower(), UNKNOWN)


def decode_assignment(data: bytes) -> frozenset[TopicPartition]:
    """The partitions in a classic member's assignment, which the leader of the group wrote and no broker reads.

    No bytes at all: nothing is assigned yet. Bytes in another form are the private matter of members that only call
    themselves consumers: nothing is known to be assigned.
    """
    try:
        topics = read(Assignment, data)[0].assigned_partitions if data else ()
    except MalformedData:
        return frozenset()
    return frozenset(TopicPartition(each.topic, index) for each in topics for index in each.partitions)
