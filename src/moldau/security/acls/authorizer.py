"""Decides whether a principal may do something with a resource, by the rules of Kafka's StandardAuthorizer:

1. A super user may do everything.
2. One ACL that denies is enough to deny.
3. Otherwise one ACL that allows is enough. Who may read, write, delete or alter may also describe; who may alter
   configs may also describe them. That holds only for ACLs that allow.
4. Otherwise it is denied; but if no ACL covers the resource at all, `allow.everyone.if.no.acl.found` decides.

Decisions are remembered until an ACL changes, so that a request costs one lookup however many ACLs there are.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple
from weakref import WeakValueDictionary

from moldau.base.acl_operations import AclOperation
from moldau.security.acls.bindings import WILDCARD, AclBinding, PatternType, Permission, ResourceType
from moldau.security.acls.index import AclIndex
from moldau.security.principals import ANYBODY, Principal

DECISIONS_REMEMBERED_MAX: Final = 100_000
"""A client that names ever new resources must not use up the memory."""
REMEMBERED_NAME_LENGTH_MAX: Final = 256
"""The same for long names: those of topics are shorter, and a request may name 32 KiB. Longer names are decided anew
each time."""
_IMPLIED_BY: Final = {
    AclOperation.DESCRIBE: frozenset(
        [AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER, AclOperation.DESCRIBE]
    ),
    AclOperation.DESCRIBE_CONFIGS: frozenset([AclOperation.ALTER_CONFIGS, AclOperation.DESCRIBE_CONFIGS]),
}


class Decision(NamedTuple):
    """`rule` is the ACL that decided; None if none did, and `reason` says why."""

    is_allowed: bool
    reason: str
    rule: AclBinding | None = None

    def __str__(self) -> str:
        return self.reason if self.rule is None else f"{self.reason}: {self.rule}"


_SUPER_USER: Final = Decision(True, "super user")
_DEFAULT_DENY: Final = Decision(False, "no ACL allows it")


class Granted(defaultdict[tuple[AclOperation, ResourceType], set[str]]):
    """Resource names that one principal from one host is known to be allowed: a cache of positive answers shared by its
    connections. The authorizer empties it when an ACL changes."""

    __slots__ = ("__weakref__",)


class Authorizer:
    def __init__(self, super_users: Collection[Principal] = (), allow_everyone_without_acl: bool = False) -> None:
        self._super_users = frozenset(str(principal) for principal in super_users)
        self._without_acl = Decision(allow_everyone_without_acl, "no ACL covers the resource")
        self._index = AclIndex()
        self._remembered: dict[tuple[str, str, AclOperation, ResourceType, str], bool] = {}
        self._remembered_types: dict[tuple[str, str, AclOperation, ResourceType], bool] = {}
        self._granted: WeakValueDictionary[tuple[str, str], Granted] = WeakValueDictionary()

    def granted(self, principal: str, host: str) -> Granted:
        """Return what is known to be allowed: a lookup in it is faster than calling `allows`. It holds only names
        that `allows` remembers too, so it is bounded with these."""
        found = self._granted.get((principal, host))
        if found is None:
            found = self._granted[principal, host] = Granted(set)
        return found

    def change(self, added: Iterable[AclBinding], removed: Iterable[AclBinding] = ()) -> None:
        """Apply the changes of one batch of records. Additions come first: the batch may remove what it added."""
        for binding in added:
            self._index.add(binding)
        for binding in removed:
            self._index.remove(binding)
        self._forget()
        self._remembered_types.clear()

    def _forget(self) -> None:
        self._remembered.clear()
        for granted in self._granted.values():
            granted.clear()

    def allows(
        self, principal: str, host: str, operation: AclOperation, resource_type: ResourceType, name: str
    ) -> bool:
        key = (principal, host, operation, resource_type, name)
        remembered = self._remembered.get(key)
        if remembered is not None:
            return remembered
        if len(name) > REMEMBERED_NAME_LENGTH_MAX:
            return self.decide(*key).is_allowed
        if len(self._remembered) >= DECISIONS_REMEMBERED_MAX:
            self._forget()
        is_allowed = self._remembered[key] = self.decide(*key).is_allowed
        return is_allowed

    def decide(
        self, principal: str, host: str, operation: AclOperation, resource_type: ResourceType, name: str
    ) -> Decision:
        """Return the decision and the rule behind it."""
        if principal in self._super_users:
            return _SUPER_USER
        allowing, is_covered = None, False
        for binding in self._index.covering(resource_type, name):
            is_covered = True
            if not _concerns(binding, principal, host, operation):
                continue
            if binding.permission is Permission.DENY:
                return Decision(False, "an ACL denies it", binding)
            allowing = binding
        if allowing is not None:
            return Decision(True, "an ACL allows it", allowing)
        return _DEFAULT_DENY if is_covered else self._without_acl

    def allows_any(self, principal: str, host: str, operation: AclOperation, resource_type: ResourceType) -> bool:
        """Return whether the principal may do this with at least one resource of the type, which need not exist."""
        key = (principal, host, operation, resource_type)
        remembered = self._remembered_types.get(key)
        if remembered is None:
            if len(self._remembered_types) >= DECISIONS_REMEMBERED_MAX:
                self._remembered_types.clear()
            remembered = self._remembered_types[key] = self._decide_any(*key)
        return remembered

    def _decide_any(self, principal: str, host: str, operation: AclOperation, resource_type: ResourceType) -> bool:
        """As in Kafka: no operation implies another here."""
        # Kafka asks for the name "hardcode" to learn the default.
        if self.allows(principal, host, operation, resource_type, "hardcode"):
            return True
        concerned = [
            binding
            for binding in self._index.of_type(resource_type)
            if binding.operation in (operation, AclOperation.ALL) and _is_from(binding, principal, host)
        ]
        denied = {(b.pattern_type, b.pattern) for b in concerned if b.permission is Permission.DENY}
        if (PatternType.LITERAL, WILDCARD) in denied:
            return False
        allowed = [(b.pattern_type, b.pattern) for b in concerned if b.permission is Permission.ALLOW]
        return any(pattern not in denied and not _has_prefix_in(pattern[1], denied) for pattern in allowed)


@dataclass(frozen=True, slots=True)
class Rules:
    """What decides besides ACLs."""

    super_users: Collection[Principal] = ()
    allows_everyone: bool = False
    """allow.everyone.if.no.acl.found."""

    def authorizer(self, acls: Iterable[AclBinding]) -> Authorizer:
        authorizer = Authorizer(self.super_users, self.allows_everyone)
        authorizer.change(acls)
        return authorizer


def operations_decided_by(binding: AclBinding, operations: Iterable[AclOperation]) -> list[AclOperation]:
    """Return those of these operations about which the ACL has a say; its own operation if there are none."""
    return [each for each in operations if _is_about(binding, each)] or [binding.operation]


def _concerns(binding: AclBinding, principal: str, host: str, operation: AclOperation) -> bool:
    return _is_from(binding, principal, host) and _is_about(binding, operation)


def _is_about(binding: AclBinding, operation: AclOperation) -> bool:
    if binding.operation in (AclOperation.ALL, operation):
        return True
    return binding.permission is Permission.ALLOW and binding.operation in _IMPLIED_BY.get(operation, ())


def _is_from(binding: AclBinding, principal: str, host: str) -> bool:
    return binding.principal in (principal, _ANYBODY) and binding.host in (host, WILDCARD)


def _has_prefix_in(pattern: str, denied: Collection[tuple[PatternType, str]]) -> bool:
    """Return whether a denied prefix covers the whole pattern. The wildcard is covered by none."""
    if pattern == WILDCARD:
        return False
    return any((PatternType.PREFIXED, pattern[:length]) in denied for length in range(1, len(pattern) + 1))


_ANYBODY: Final = str(ANYBODY)
