"""What is kept of a client beyond its connection: its subscriptions, and how far it has got in each Kafka topic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from moldau.gateway.mqtt.messages import sender_of
from moldau.gateway.mqtt.packets import Requested, Will
from moldau.gateway.ports import Account


class Subscription(NamedTuple):
    filter: str
    qos: int
    topics: tuple[str, ...]
    """The Kafka topics that may have what it matches."""
    no_local: bool = False
    retain_as_published: bool = False
    identifier: int | None = None

    @classmethod
    def of(cls, request: Requested, topics: tuple[str, ...], identifier: int | None) -> Subscription:
        qos = min(request.qos, 1)
        return cls(request.filter, qos, topics, request.no_local, request.retain_as_published, identifier)


class Progress:
    """How far a session has got in a Kafka topic: the next offset of each partition, and the offsets before it that the
    client has not acknowledged."""

    __slots__ = ("_again", "_next", "_unacknowledged")

    def __init__(self, positions: Mapping[int, int]) -> None:
        self._next = dict(positions)
        self._unacknowledged: dict[int, dict[int, None]] = {}
        self._again: dict[int, set[int]] = {}
        """Offsets that are to be delivered once more: an earlier connection did not acknowledge them."""

    def is_due(self, partition: int, offset: int) -> bool:
        """Whether the record at this offset is to be delivered now; it counts as seen then."""
        if offset >= self._next.get(partition, 0):
            self._next[partition] = offset + 1
            return True
        again = self._again.get(partition)
        if again is None or offset not in again:
            return False
        again.discard(offset)
        return True

    def sent(self, partition: int, offset: int) -> None:
        self._unacknowledged.setdefault(partition, {})[offset] = None

    def acknowledged(self, partition: int, offset: int) -> None:
        self._unacknowledged.get(partition, {}).pop(offset, None)

    def advance(self, positions: Mapping[int, int]) -> None:
        """Everything before these offsets has been looked at."""
        for partition, position in positions.items():
            if position > self._next.get(partition, 0):
                self._next[partition] = position

    def committed(self) -> dict[int, int]:
        """Return where a new connection begins: behind the last record before which all are acknowledged."""
        return {
            partition: min(self._unacknowledged.get(partition) or (position,))
            for partition, position in self._next.items()
        }

    def begin_again(self, bounds: Mapping[int, tuple[int, int]]) -> dict[int, int]:
        """A new connection reads what is not acknowledged once more; return from where.

        The bounds are the first offset and the end of each partition. Records before the first have been deleted, new
        partitions are read from their start, and what ends before the next offset is another topic with the same name.
        """
        for partition in self._next.keys() | bounds.keys():
            first, end = bounds.get(partition, (0, 0))
            position = self._next.get(partition, first)
            if partition not in bounds or position > end:
                position = first
            self._next[partition] = max(first, position)
            kept = [offset for offset in self._unacknowledged.get(partition, ()) if first <= offset < position]
            self._unacknowledged[partition] = dict.fromkeys(kept)
            self._again[partition] = set(kept)
        return {partition: position for partition, position in self.committed().items() if partition in bounds}


class Mark(NamedTuple):
    """Where a message with QoS 1 came from."""

    progress: Progress
    partition: int
    offset: int


@dataclass(eq=False, slots=True)
class Session:
    key: str
    """The user and the client identifier, with U+0000 between: users do not take over each other's sessions."""
    expiry_s: int = 0
    """How long it stays when the client is away."""
    subscriptions: dict[str, Subscription] = field(default_factory=dict)
    progress: dict[str, Progress] = field(default_factory=dict)
    """By Kafka topic."""
    away_since_ms: int | None = None
    will: PendingWill | None = None
    places_written: dict[str, dict[int, int]] = field(default_factory=dict)
    is_written: bool = False
    """Whether `_mqtt_sessions` has a record of it."""
    written_offset: int = -1
    """Of that record."""
    again: dict[Mark, int] = field(default_factory=dict)
    """Packet identifiers of messages that the last connection did not acknowledge."""

    @property
    def is_persistent(self) -> bool:
        return self.expiry_s > 0

    @property
    def sender(self) -> bytes | None:
        """How its messages name it, if that matters to it."""
        return sender_of(self.key) if any(each.no_local for each in self.subscriptions.values()) else None

    @property
    def expires_at_ms(self) -> int | None:
        return None if self.away_since_ms is None else self.away_since_ms + 1000 * self.expiry_s

    def places(self) -> dict[str, dict[int, int]]:
        """Return where it is in each Kafka topic of which it has subscriptions with QoS 1."""
        kept = {topic for each in self.subscriptions.values() if each.qos for topic in each.topics}
        return {topic: progress.committed() for topic, progress in self.progress.items() if topic in kept}

    def topics(self) -> set[str]:
        return {topic for each in self.subscriptions.values() for topic in each.topics}


class PendingWill(NamedTuple):
    """A will that is due some time after its connection ended."""

    will: Will
    account: Account
    due_ms: int


def session_key(user: str, client_id: str) -> str:
    return f"{user}\0{client_id}"
