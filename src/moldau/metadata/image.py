"""The cluster's metadata as one immutable value. A change makes a new image that replaces the old one.

Lookups are by name or id, in a time that does not depend on the number of topics. The maps that grow with the cluster
are persistent (`PersistentMap`): a new image shares everything unchanged with the old one. The maps have no defined
order: sort them before you write or send their entries.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from moldau.base.ids import ZERO_UUID, Uuid
from moldau.base.persistent_map import PersistentMap
from moldau.security.acls.bindings import AclBinding
from moldau.security.delegation_tokens import DelegationToken
from moldau.security.quotas.entities import Entity
from moldau.security.scram_credentials import ScramCredential

EMPTY: Mapping[str, str] = {}

DIRECTORY_MIGRATING: Final = ZERO_UUID
"""The directory of a replica whose broker never reported its directories."""
DIRECTORY_UNASSIGNED: Final = bytes(15) + b"\x01"
"""The directory of a replica whose broker has several and has not reported yet which one it chose."""

RECOVERED: Final = 0
RECOVERING: Final = 1
"""The leader was elected uncleanly, and has not reported yet that it recovered its log."""


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
        """Return the directory of a replica, DIRECTORY_MIGRATING if it is unknown."""
        if len(self.directories) != len(self.replicas) or broker_id not in self.replicas:
            return DIRECTORY_MIGRATING
        return self.directories[self.replicas.index(broker_id)]


@dataclass(frozen=True, slots=True)
class TopicImage:
    name: str
    id: Uuid
    partitions: tuple[PartitionState, ...]
    source_id: Uuid | None = None
    """The topic that this one is a view of. A view has no records of partitions: it shares those of its source, and
    has none if the source was deleted."""

    @property
    def is_view(self) -> bool:
        return self.source_id is not None

    @property
    def is_orphan(self) -> bool:
        """Whether it is a view whose source was deleted."""
        return self.is_view and not self.partitions

    @property
    def stored_id(self) -> Uuid:
        """The id of the topic that has the records: of a view, that of its source."""
        return self.source_id or self.id

    @property
    def replication_factor(self) -> int:
        return len(self.partitions[0].replicas) if self.partitions else 0


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The address of a broker's or controller's listener."""

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
    """The lowest and the highest supported level of each feature."""
    cannot_write: bool = False
    """Whether its disk refuses writes, as it says in its heartbeats. It still serves reads."""

    @property
    def is_active(self) -> bool:
        """Whether the broker may become a leader or join an ISR."""
        return not self.fenced and not self.in_controlled_shutdown

    def endpoint(self, listener: str) -> Endpoint | None:
        return next((e for e in self.endpoints if e.listener == listener), None)

    def has_directory(self, directory: Uuid) -> bool:
        """Whether the broker still has that directory. One that restarted with other disks has lost its replicas."""
        return directory in self.log_dirs or directory in (DIRECTORY_MIGRATING, DIRECTORY_UNASSIGNED)

    @property
    def default_directory(self) -> Uuid:
        """The directory of a new replica, as far as it is known before the broker chooses one."""
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
    """The offset of the last metadata record that is in the image."""
    epoch: int = 0
    topics: PersistentMap[str, TopicImage] = field(default_factory=PersistentMap)
    topic_names: PersistentMap[Uuid, str] = field(default_factory=PersistentMap)
    brokers: PersistentMap[int, BrokerImage] = field(default_factory=PersistentMap)
    configs: PersistentMap[tuple[int, str], Mapping[str, str]] = field(default_factory=PersistentMap)
    """The configs that were set on a resource (type, name), without defaults."""
    features: Mapping[str, int] = field(default_factory=dict)
    next_producer_id: int = 0
    names_by_collision_key: PersistentMap[str, str] = field(default_factory=PersistentMap)
    """Topic names by `collision_key(name)` (base/topic_names): no two topics may have the same key."""
    features_off: frozenset[str] = frozenset()
    """Features that were set to level 0, unlike features that were never set."""
    controllers: PersistentMap[int, ControllerImage] = field(default_factory=PersistentMap)
    acls: PersistentMap[Uuid, AclBinding] = field(default_factory=PersistentMap)
    acl_ids: PersistentMap[AclBinding, Uuid] = field(default_factory=PersistentMap)
    """The reverse of `acls`."""
    scram_credentials: PersistentMap[tuple[int, str], ScramCredential] = field(default_factory=PersistentMap)
    """By mechanism and user."""
    client_quotas: PersistentMap[Entity, Mapping[str, float]] = field(default_factory=PersistentMap)
    delegation_tokens: PersistentMap[str, DelegationToken] = field(default_factory=PersistentMap)
    """By id, also those that have expired and are not removed yet."""
    views: PersistentMap[str, Uuid] = field(default_factory=PersistentMap)
    """The names of the topics that are views, with the ids of their sources."""

    def topic_by_id(self, topic_id: Uuid) -> TopicImage | None:
        name = self.topic_names.get(topic_id)
        return None if name is None else self.topics[name]

    def configs_of(self, resource_type: int, name: str) -> Mapping[str, str]:
        return self.configs.get((resource_type, name), EMPTY)

    def live_brokers(self) -> list[BrokerImage]:
        """Return the brokers that are not fenced, ordered by id."""
        return [self.brokers[broker_id] for broker_id in sorted(self.brokers) if not self.brokers[broker_id].fenced]
