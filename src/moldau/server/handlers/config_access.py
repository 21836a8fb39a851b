"""Who may describe or alter the configs of a topic, group, broker or another resource."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from moldau.base.errors import KafkaError
from moldau.metadata.records import ConfigResource
from moldau.security.acls.access import Access, Needs
from moldau.security.acls.bindings import CLUSTER_NAME, ResourceType
from moldau.security.acls.denials import denied
from moldau.security.acls.requirements import (
    CLUSTER_ALTER_CONFIGS,
    CLUSTER_DESCRIBE_CONFIGS,
    GROUP_ALTER_CONFIGS,
    GROUP_DESCRIBE_CONFIGS,
    TOPIC_ALTER_CONFIGS,
    TOPIC_DESCRIBE_CONFIGS,
)

_DESCRIBE: Final[Mapping[int, Needs]] = {
    ConfigResource.TOPIC: TOPIC_DESCRIBE_CONFIGS,
    ConfigResource.GROUP: GROUP_DESCRIBE_CONFIGS,
    ConfigResource.BROKER: CLUSTER_DESCRIBE_CONFIGS,
    ConfigResource.BROKER_LOGGER: CLUSTER_DESCRIBE_CONFIGS,
    ConfigResource.CLIENT_METRICS: CLUSTER_DESCRIBE_CONFIGS,
}
_ALTER: Final[Mapping[int, Needs]] = {
    ConfigResource.TOPIC: TOPIC_ALTER_CONFIGS,
    ConfigResource.GROUP: GROUP_ALTER_CONFIGS,
    ConfigResource.BROKER: CLUSTER_ALTER_CONFIGS,
    ConfigResource.BROKER_LOGGER: CLUSTER_ALTER_CONFIGS,
    ConfigResource.CLIENT_METRICS: CLUSTER_ALTER_CONFIGS,
}


def is_known_kind(kind: int) -> bool:
    """Whether Kafka has such resources, whether or not they are supported here."""
    return kind in _DESCRIBE


def describing_error(access: Access, kind: int, name: str) -> KafkaError | None:
    """Return the error for a client that may not describe the configs of this resource; None if it may."""
    return _error(access, _DESCRIBE.get(kind), name)


def altering_error(access: Access, kind: int, name: str) -> KafkaError | None:
    """Return the error for a client that may not alter the configs of this resource; None if it may."""
    return _error(access, _ALTER.get(kind), name)


def _error(access: Access, needs: Needs | None, name: str) -> KafkaError | None:
    if needs is None:  # an unknown kind of resource, which is refused as such
        return None
    is_of_cluster = needs.resource is ResourceType.CLUSTER
    return None if access.allows(needs, CLUSTER_NAME if is_of_cluster else name) else denied(needs)
