"""What the principal of one connection may do. Handlers ask with the needs of their API; they decide nothing."""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol

from moldau.base.acl_operations import AclOperation
from moldau.security.acls.authorizer import Authorizer
from moldau.security.acls.bindings import CLUSTER_NAME, ResourceType
from moldau.security.principals import ANONYMOUS, Principal


class Needs(NamedTuple):
    """An operation on a kind of resource that an API requires."""

    operation: AclOperation
    resource: ResourceType


class Access(Protocol):
    @property
    def principal(self) -> Principal: ...

    def allows(self, needs: Needs, name: str = CLUSTER_NAME) -> bool:
        """Return whether the principal may do this with the resource of that name."""

    def allows_any(self, needs: Needs) -> bool:
        """Return whether the principal may do this with at least one resource of the kind."""


class Unrestricted:
    """The access of everybody where no authorizer is configured, and of a node to itself."""

    def __init__(self, principal: Principal = ANONYMOUS) -> None:
        self.principal = principal

    def allows(self, needs: Needs, name: str = CLUSTER_NAME) -> bool:
        return True

    def allows_any(self, needs: Needs) -> bool:
        return True


UNRESTRICTED: Final = Unrestricted()


class Restricted:
    """The access of a principal from one host, by the ACLs at the time of each question."""

    __slots__ = ("_authorizer", "_host", "_name", "principal")

    def __init__(self, authorizer: Authorizer, principal: Principal, host: str) -> None:
        self._authorizer = authorizer
        self._host = host
        self._name = str(principal)
        self.principal = principal

    def allows(self, needs: Needs, name: str = CLUSTER_NAME) -> bool:
        return self._authorizer.allows(self._name, self._host, needs[0], needs[1], name)

    def allows_any(self, needs: Needs) -> bool:
        return self._authorizer.allows_any(self._name, self._host, needs[0], needs[1])
