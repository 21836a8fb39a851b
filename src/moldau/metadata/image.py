"""What the cluster knows, as one immutable value. Everyone reads it, nobody changes it: a new one takes its place.

Lookups are by name or id and never grow with the number of topics. The maps that grow with the cluster are persistent
(`PersistentMap`): a new image shares with the old one all that did not change. They have no order of their own: who
tells of many things sorts them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from moldau.base.ids import ZERO_UUID, Uuid
from moldau.base.persistent_map import PersistentMap

EMPTY: Mapping[str, str] = {}

DIRECTORY_MIGRATING: Final = ZERO_UUID
"""A replica whose broker never told its directories."""
DIRECTORY_UNASSIGNED: Final = bytes(15) + b"\x01"
"""A replica whose broker has several directories and did not say yet in which of them it put it."""

RECOVERED: Final = 0
RECOVERING: Final = 1
"""A leader that was elected although it was not in sync, and has not said yet that it has put its log in order."""


@dataclass(frozen=True, slots=True)
class PartitionState:
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int
    removing_replicas: tuple[int, ...] = ()
    adding_replicas: tuple[int, ...] = ()
    directories: tuple[Uuid, ...] = ()
    leader_recovery_state: int = RECOVERED

    @property
    def is_reassigning(self) -> bool:
        return bool(self.removing_replicas or self.adding_replicas)

    def directory_of(self, broker_id: int) -> Uuid:
        """Where a replica lies, as far as it was ever told."""
        if len(self.directories) != len(self.replicas) or broker_id not in self.replicas:
            return DIRECTORY_MIGRATING
        return self.directories[self.replicas.index(broker_id)]


@dataclass(frozen=True, slots=True)
class TopicImage:
    name: str
    id: Uuid
    partitions: tuple[PartitionState, ...]

    @property
    def replication_factor(self) -> int:
        return len(self.partitions[0].replicas) if self.partitions else 0


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where clients of one listener find a broker."""

    listener: str
    host: str
    port: int
    security_protocol: int


@dataclass(frozen=True, slots=True)
class BrokerImage:
    id: int
    epoch: int
    incarnation_id: Uuid
    endpoints: tuple[Endpoint, ...]
    rack: str | None
    fenced: bool
    log_dirs: tuple[Uuid, ...] = ()
    in_controlled_shutdown: bool = False
    features: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """The least and the highest level of each feature that it supports."""

    @property
    def is_active(self) -> bool:
        """Only such a broker may become leader or join an ISR."""
        return not self.fenced and not self.in_controlled_shutdown

    def endpoint(self, listener: str) -> Endpoint | None:
        return next((e for e in self.endpoints if e.listener == listener), None)

    def has_directory(self, directory: Uuid) -> bool:
        """Whether what was put there is still there: a broker that came back with other disks has lost it."""
        return directory in self.log_dirs or directory in (DIRECTORY_MIGRATING, DIRECTORY_UNASSIGNED)

    @property
    def default_directory(self) -> Uuid:
        """Where a new replica will lie, as far as that is known before the broker puts it there."""
        if not self.log_dirs:
            return DIRECTORY_MIGRATING
        return self.log_dirs[0] if len(self.log_dirs) == 1 else DIRECTORY_UNASSIGNED


@dataclass(frozen=True, slots=True)
class ControllerImage:
    id: int
    incarnation_id: Uuid
    endpoints: tuple[Endpoint, ...]
    features: Mapping[str, tuple[int, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MetadataImage:
    offset: int = -1
    """The last metadata offset that is in it."""
    epoch: int = 0
    topics: PersistentMap[str, TopicImage] = field(default_factory=PersistentMap)
    topic_names: PersistentMap[Uuid, str] = field(default_factory=PersistentMap)
    brokers: PersistentMap[int, BrokerImage] = field(default_factory=PersistentMap)
    configs: PersistentMap[tuple[int, str], Mapping[str, str]] = field(default_factory=PersistentMap)
    """What was set on a resource (type, name); what was not set is not here."""
    features: Mapping[str, int] = field(default_factory=dict)
    next_producer_id: int = 0
    colliding_names: PersistentMap[str, str] = field(default_factory=PersistentMap)
    """By `names.collision_key`, the topic that has it: no other with that key may stand beside it."""
    features_off: frozenset[str] = frozenset()
    """Features that were set to level 0: not the same as features that nobody ever spoke of."""
    controllers: PersistentMap[int, ControllerImage] = field(default_factory=PersistentMap)

    def topic_by_id(self, topic_id: Uuid) -> TopicImage | None:
        name = self.topic_names.get(topic_id)
        return None if name is None else self.topics[name]

    def configs_of(self, resource_type: int, name: str) -> Mapping[str, str]:
        return self.configs.get((resource_type, name), EMPTY)

    def live_brokers(self) -> list[BrokerImage]:
        """Those that are not fenced, by id."""
        return [self.brokers[broker_id] for broker_id in sorted(self.brokers) if not self.brokers[broker_id].fenced]
