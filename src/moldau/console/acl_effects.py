"""Who gains and who loses what by a change of ACLs. Pure.

An ACL may stand for many operations, resources, principals and addresses. It is enough to compare those that other ACLs
name, and one of all the others: the authorizer decides about all the others alike.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final, NamedTuple, TypeVar

from moldau.base.acl_operations import AclOperation
from moldau.security.acls.authorizer import Authorizer, Decision, Rules, operations_decided_by
from moldau.security.acls.bindings import CLUSTER_NAME, WILDCARD, AclBinding, PatternType, ResourceType, covers
from moldau.security.acls.selection import ANY_HOST, Resource, operations_for
from moldau.security.principals import ANYBODY

T = TypeVar("T")
RESOURCES_MAX: Final = 30
PRINCIPALS_MAX: Final = 30
HOSTS_MAX: Final = 6
COMPARED_MAX: Final = 50_000
"""Decisions that one plan compares: less than a second."""
EVERYBODY: Final = str(ANYBODY)
_UNNAMED: Final = "\uffff"
"""No character: it makes the name of a resource that no ACL names."""


class Difference(NamedTuple):
    """`principal` may be everybody whom no ACL names, `host` every address that no ACL names, and `resource` a pattern:
    all that belongs to it and to none that is compared and narrower."""

    is_gain: bool
    principal: str
    host: str
    operation: AclOperation
    resource: Resource


@dataclass(frozen=True, slots=True)
class Scope:
    """About what an ACL may make a difference, with all that other ACLs name there, up to a bound."""

    principals: Sequence[str]
    hosts: Sequence[str]
    operations: Sequence[AclOperation]
    resources: Sequence[Resource]
    left_out: Sequence[str] = ()
    """How many more there are, in words."""

    @property
    def size(self) -> int:
        return len(self.principals) * len(self.hosts) * len(self.operations) * len(self.resources)


@dataclass(frozen=True, slots=True)
class Effect:
    scope: Scope
    differences: Sequence[Difference] = ()
    verdict: Decision | None = None
    """What holds before and after for all of the scope; None if they are not all alike."""
    is_compared: bool = True
    """False if there was too much to compare."""


def effects_of(
    changed: Sequence[AclBinding],
    before: Collection[AclBinding],
    after: Collection[AclBinding],
    rules: Rules,
    user: str | None,
) -> list[Effect]:
    """Return the effect of the change on what each ACL is about. `user`, a principal, is compared before others."""
    concerned = _Concerned({*before, *after}, rules, user)
    scopes = [concerned.scope(acl) for acl in changed]
    principals = {EVERYBODY, *(each for scope in scopes for each in scope.principals)}
    comparison = _Comparison(rules.authorizer(_of(principals, before)), rules.authorizer(_of(principals, after)))
    effects, left = [], COMPARED_MAX
    for scope in scopes:
        left -= scope.size
        effects.append(comparison.effect(scope) if left >= 0 else Effect(scope, is_compared=False))
    return effects


def _of(principals: Collection[str], acls: Iterable[AclBinding]) -> Iterator[AclBinding]:
    """Yield the ACLs of these principals, and one for each pattern: that others have ACLs there decides too."""
    patterns = set()
    for acl in acls:
        if acl.principal in principals or acl[:3] not in patterns:
            patterns.add(acl[:3])
            yield acl


class _Comparison:
    def __init__(self, before: Authorizer, after: Authorizer) -> None:
        self._before, self._after = before, after

    def effect(self, scope: Scope) -> Effect:
        differences, decisions = [], []
        for principal, host, operation, resource in product(
            scope.principals, scope.hosts, scope.operations, scope.resources
        ):
            asked = (principal, host, operation, resource.type, name_in(resource))
            old, new = self._before.decide(*asked), self._after.decide(*asked)
            decisions.append(new)
            if old.is_allowed != new.is_allowed:
                differences.append(Difference(new.is_allowed, principal, host, operation, resource))
        is_alike = not differences and len({each.is_allowed for each in decisions}) == 1
        return Effect(scope, differences, decisions[0] if is_alike else None)


class _Concerned:
    """The ACLs that are about something that a change is about too."""

    def __init__(self, acls: Collection[AclBinding], rules: Rules, user: str | None) -> None:
        self._acls: dict[ResourceType, list[AclBinding]] = {}
        for acl in acls:
            self._acls.setdefault(acl.resource_type, []).append(acl)
        self._rules, self._user = rules, user
        self._super_users = frozenset(map(str, rules.super_users))
        self._near: dict[tuple[ResourceType, str, PatternType], list[AclBinding]] = {}

    def scope(self, acl: AclBinding) -> Scope:
        near = self._near.get(acl[:3])
        if near is None:
            near = self._near[acl[:3]] = [each for each in self._acls[acl.resource_type] if _meet(acl, each)]
        # Where everybody may use what no ACL is about, an ACL takes that from all others.
        is_for_all = self._rules.allows_everyone
        principals = {acl.principal}
        if is_for_all or acl.principal == EVERYBODY:
            principals |= {EVERYBODY, *(each.principal for each in near)} - self._super_users
        hosts, operations = {acl.host}, operations_decided_by(acl, operations_for(acl.resource_type)[1:])
        if is_for_all or acl.host == ANY_HOST:
            hosts |= {ANY_HOST, *(each.host for each in near if each.principal in {*principals, EVERYBODY})}
        if is_for_all:
            operations = operations_for(acl.resource_type)[1:]
        left_out: list[str] = []
        return Scope(
            _first(principals, (acl.principal, EVERYBODY, self._user), PRINCIPALS_MAX, "principal", left_out),
            _first(hosts, (acl.host, ANY_HOST), HOSTS_MAX, "address", left_out),
            operations,
            _first(_resources(acl, near), (_pattern(acl),), RESOURCES_MAX, "resource", left_out),
            left_out,
        )


def _pattern(acl: AclBinding) -> Resource:
    if acl.resource_type is ResourceType.CLUSTER:
        return Resource(acl.resource_type, CLUSTER_NAME)  # there is no other
    return Resource(acl.resource_type, acl.pattern, acl.pattern_type)


def _resources(acl: AclBinding, near: Iterable[AclBinding]) -> set[Resource]:
    """Return the pattern of the ACL, and what other ACLs name within it."""
    whole = _pattern(acl)
    if not is_pattern(whole):
        return {whole}
    return {whole, *(each for each in map(_pattern, near) if _is_within(each, whole))}


def is_pattern(resource: Resource) -> bool:
    """Whether it stands for any number of resources."""
    return resource.pattern_type is PatternType.PREFIXED or resource.name == WILDCARD


def name_in(resource: Resource) -> str:
    """Return the name of a resource that belongs to the pattern, and which no ACL names."""
    if not is_pattern(resource):
        return resource.name
    return (resource.name if resource.pattern_type is PatternType.PREFIXED else "") + _UNNAMED


def _is_within(inner: Resource, outer: Resource) -> bool:
    if outer.pattern_type is PatternType.LITERAL:
        return True
    return inner.name.startswith(outer.name) and not (is_pattern(inner) and inner.pattern_type is PatternType.LITERAL)


def _meet(one: AclBinding, other: AclBinding) -> bool:
    """Whether there can be a resource that both cover."""
    first, second = _pattern(one), _pattern(other)
    return covers(first.pattern_type, first.name, name_in(second)) or covers(
        second.pattern_type, second.name, name_in(first)
    )


def _first(found: Collection[T], important: Iterable[T | None], most: int, noun: str, left_out: list[str]) -> list[T]:
    """Return so many of what was found, the important ones first; note how many are left out."""
    first = [each for each in dict.fromkeys(important) if each is not None and each in found]
    others = sorted((each for each in found if each not in first), key=str)
    if (more := len(found) - most) > 0:
        left_out.append(f"{more} more {noun}{'' if more == 1 else 'es' if noun.endswith('s') else 's'}")
    return [*first, *others][:most]
