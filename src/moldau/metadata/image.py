"""What the cluster knows, as one immutable value. Everyone reads it, nobody changes it: a new one takes its place.

Lookups are by name or id and never grow with the number of topics.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from moldau.base.ids import Uuid

EMPTY: Mapping[str, str] = {}


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

    def endpoint(self, listener: str) -> Endpoint | None:
        return next((e for e in self.endpoints if e.listener == listener), None)


@dataclass(frozen=True, slots=True)
class MetadataImage:
    offset: int = -1
    """The last metadata offset that is in it."""
    epoch: int = 0
    topics: Mapping[str, TopicImage] = field(default_factory=dict)
    topic_names: Mapping[Uuid, str] = field(default_factory=dict)
    brokers: Mapping[int, BrokerImage] = field(default_factory=dict)
    configs: Mapping[tuple[int, str], Mapping[str, str]] = field(default_factory=dict)
    """What was set on a resource (type, name); what was not set is not here."""
    features: Mapping[str, int] = field(default_factory=dict)
    next_producer_id: int = 0

    def topic_by_id(self, topic_id: Uuid) -> TopicImage | None:
        name = self.topic_names.get(topic_id)
        return None if name is None else self.topics[name]

    def configs_of(self, resource_type: int, name: str) -> Mapping[str, str]:
        return self.configs.get((resource_type, name), EMPTY)

    def live_brokers(self) -> list[BrokerImage]:
        return [broker for broker in self.brokers.values() if not broker.fenced]
