"""Groups as plain values, and the decoding of a member's assignment.

groups.py requests them; each tool formats them. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from moldau.base.errors import KafkaError, MalformedData
from moldau.base.ids import TopicPartition
from moldau.wire.consumer_protocol import read
from moldau.wire.log_records.consumer_protocol import Assignment

CLASSIC: Final = "Classic"
CONSUMER: Final = "Consumer"
SHARE: Final = "Share"
EMPTY: Final = "Empty"
DEAD: Final = "Dead"
CONSUMER_PROTOCOL_TYPE: Final = "consumer"
SHARE_PROTOCOL_TYPE: Final = "share"
STATES: Final = (
    "PreparingRebalance",
    "CompletingRebalance",
    "Stable",
    "Dead",
    "Empty",
    "Assigning",
    "Reconciling",
)
"""The states of classic and consumer groups."""
SHARE_STATES: Final = (EMPTY, "Stable", DEAD)
TYPES: Final = (CONSUMER, CLASSIC, SHARE, "Streams")
UNKNOWN: Final = "Unknown"
MICRO_BATCH_ID_METADATA: Final = "moldau: the number of a micro-batch, not an offset"
"""The metadata of the commits of Spark's exactly-once sink (spark/exactly_once/wire.py), which stores micro-batch ids
in the place of offsets."""


class Node(NamedTuple):
    node_id: int
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class ListedGroup(NamedTuple):
    """A group in a listing. `type` and `state` are empty if the broker is too old to send them."""

    group_id: str
    type: str
    protocol_type: str
    state: str

    @property
    def is_consumer_group(self) -> bool:
        """In Kafka's sense: groups of consumers, and groups that only store offsets."""
        return self.type in (CLASSIC, CONSUMER, "") and self.protocol_type in (CONSUMER_PROTOCOL_TYPE, "")

    @property
    def is_share_group(self) -> bool:
        return self.type == SHARE


@dataclass(frozen=True, slots=True)
class Member:
    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    assignment: frozenset[TopicPartition]
    target: frozenset[TopicPartition] | None = None
    """The member's target assignment; only groups of type Consumer have it."""
    epoch: int | None = None
    upgraded: bool | None = None
    """Whether the member of a Consumer group uses the new protocol."""


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


class ShareOffset(NamedTuple):
    """Where a share group is in a partition: all records before it are acknowledged or archived.

    `lag` is how many records it has not acknowledged; None if the broker does not know it, or is too old to say.
    """

    start_offset: int
    leader_epoch: int | None = None
    lag: int | None = None


CommittedOffsets = Mapping[TopicPartition, Committed]
ShareOffsets = Mapping[TopicPartition, ShareOffset | KafkaError | None]
"""The offset of each partition: None if the group has not begun to read it, or why its coordinator does not know."""
Described = dict[str, DescribedGroup | KafkaError]


def holds_micro_batch_ids(committed: CommittedOffsets) -> bool:
    """Return whether these are no offsets of consumers, but ids of micro-batches that a Spark query has written."""
    return any(each.metadata == MICRO_BATCH_ID_METADATA for each in committed.values())


def state_name(name: str) -> str:
    """Return a state as Kafka writes it, for a name in any case."""
    by_lower_case = {state.lower(): state for state in (*STATES, "NotReady")}
    return by_lower_case.get(name.lower(), UNKNOWN)


def type_name(name: str) -> str:
    by_lower_case = {each.lower(): each for each in TYPES}
    return by_lower_case.get(name.lower(), UNKNOWN)


def decode_assignment(data: bytes) -> frozenset[TopicPartition]:
    """Return the partitions in a classic member's assignment, as the leader of the group wrote it.

    Empty bytes mean that nothing is assigned yet. Bytes in another format are private to members that only call
    themselves consumers: no assignment is known.
    """
    try:
        topics = read(Assignment, data)[0].assigned_partitions if data else ()
    except MalformedData:
        return frozenset()
    return frozenset(TopicPartition(each.topic, index) for each in topics for index in each.partitions)
