"""The operations that a principal may do with a resource, as bits of a response."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from moldau.base.acl_operations import (
    CLUSTER_OPERATIONS,
    DELEGATION_TOKEN_OPERATIONS,
    GROUP_OPERATIONS,
    TOPIC_OPERATIONS,
    TRANSACTIONAL_ID_OPERATIONS,
    USER_OPERATIONS,
    operations_of,
)
from moldau.security.acls.access import UNRESTRICTED, Access, Needs
from moldau.security.acls.bindings import CLUSTER_NAME, ResourceType

SUPPORTED: Final = {
    ResourceType.TOPIC: TOPIC_OPERATIONS,
    ResourceType.GROUP: GROUP_OPERATIONS,
    ResourceType.CLUSTER: CLUSTER_OPERATIONS,
    ResourceType.TRANSACTIONAL_ID: TRANSACTIONAL_ID_OPERATIONS,
    ResourceType.DELEGATION_TOKEN: DELEGATION_TOKEN_OPERATIONS,
    ResourceType.USER: USER_OPERATIONS,
}
"""The operations that exist for each type of resource, as bits."""
_NEEDS: Final[Mapping[ResourceType, tuple[Needs, ...]]] = {
    resource: tuple(Needs(operation, resource) for operation in operations_of(bits))
    for resource, bits in SUPPORTED.items()
}


def allowed_bits(access: Access, resource: ResourceType, name: str = CLUSTER_NAME) -> int:
    """Return the operations that exist for the kind of resource and that are allowed with the one of that name."""
    if access is UNRESTRICTED:
        return SUPPORTED[resource]
    return sum(1 << needs.operation for needs in _NEEDS[resource] if access.allows_quietly(needs, name))
