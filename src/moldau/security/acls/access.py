"""What the principal of one connection may do. Handlers ask with the needs of their API; they decide nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, NamedTuple, Protocol

from moldau.base.acl_operations import AclOperation
from moldau.security.acls.authorizer import REMEMBERED_NAME_LENGTH_MAX, Authorizer, Decision
from moldau.security.acls.bindings import CLUSTER_NAME, ResourceType
from moldau.security.principals import ANONYMOUS, Principal


class Needs(NamedTuple):
    """An operation on a kind of resource that an API requires."""

    operation: AclOperation
    resource: ResourceType


OnDenied = Callable[[str, str, Needs, str, Callable[[], Decision]], None]
"""Called with a principal, its host, what it may not do with the resource of a name, and a function that returns the
decision."""


class Access(Protocol):
    @property
    def principal(self) -> Principal: ...

    @property
    def is_unrestricted(self) -> bool:
        """Whether everything is allowed, always: where no authorizer is configured. Then nobody need ask."""

    def allows(self, needs: Needs, name: str = CLUSTER_NAME) -> bool:
        """Return whether the principal may do this with the resource of that name. A denial goes into the audit log."""

    def allows_quietly(self, needs: Needs, name: str = CLUSTER_NAME) -> bool:
        """The same without the audit log: for a filter, or where another permission is as good."""

    def is_known_to_allow(self, needs: Needs, names: Iterable[str]) -> bool:
        """Return True only if the principal may do this with all these resources. False may also mean that some of the
        decisions are not remembered. For long lists: it is much cheaper than a question for each name."""

    def allows_any(self, needs: Needs) -> bool:
        """Return whether the principal may do this with at least one resource of the kind."""


class Unrestricted:
    """The access of everybody where no authorizer is configured, and of a node to itself."""

    is_unrestricted: Final = True

    def __init__(self, principal: Principal = ANONYMOUS) -> None:
        self.principal = principal

    def allows(self, needs: Needs, name: str = CLUSTER_NAME) -> bool:
        return True

    allows_quietly = allows

    def is_known_to_allow(self, needs: Needs, names: Iterable[str]) -> bool:
        return True

    def allows_any(self, needs: Needs) -> bool:
        return True


UNRESTRICTED: Final = Unrestricted()


class Restricted:
    """The access of a principal from one host, by the ACLs at the time of each question."""

    __slots__ = ("_authorizer", "_granted", "_host", "_name", "_on_denied", "principal")
    is_unrestricted: Final = False

    def __init__(
        self, authorizer: Authorizer, principal: Principal, host: str, on_denied: OnDenied = lambda *denial: None
    ) -> None:
        self._authorizer = authorizer
        self._host = host
        self._name = str(principal)
        self._on_denied = on_denied
        self._granted = authorizer.granted(self._name, host)
        self.principal = principal

    def allows(self, needs: Needs, name: str = CLUSTER_NAME) -> bool:
        if name in self._granted[needs] or self._decide(needs, name):
            return True
        decide = partial(self._authorizer.decide, self._name, self._host, needs[0], needs[1], name)
        self._on_denied(self._name, self._host, needs, name, decide)
        return False

    def allows_quietly(self, needs: Needs, name: str = CLUSTER_NAME) -> bool:
        return name in self._granted[needs] or self._decide(needs, name)

    def _decide(self, needs: Needs, name: str) -> bool:
        is_allowed = self._authorizer.allows(self._name, self._host, needs[0], needs[1], name)
        if is_allowed and len(name) <= REMEMBERED_NAME_LENGTH_MAX:
            self._granted[needs].add(name)
        return is_allowed

    def is_known_to_allow(self, needs: Needs, names: Iterable[str]) -> bool:
        return self._granted[needs].issuperset(names)

    def allows_any(self, needs: Needs) -> bool:
        return self._authorizer.allows_any(self._name, self._host, needs[0], needs[1])
