"""Who gains and who loses what by a change of ACLs. Pure.

An ACL may stand for many operations, resources, principals and addresses. It is enough to compare those that other ACLs
name, and one of all the others: the authorizer decides about all the others alike.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, product
from typing import Final, NamedTuple

from moldau.base.acl_operations import AclOperation
from moldau.security.acls.authorizer import Authorizer, Decision, Rules, operations_decided_by
from moldau.security.acls.bindings import CLUSTER_NAME, WILDCARD, AclBinding, PatternType, ResourceType, covers
from moldau.security.acls.index import AclIndex
from moldau.security.acls.selection import ANY_HOST, Resource, operations_for
from moldau.security.principals import ANYBODY

RESOURCES_MAX: Final = 20
PRINCIPALS_MAX: Final = 20
HOSTS_MAX: Final = 4
COMPARED_MAX: Final = 20_000
"""Decisions that one plan compares: about a second."""
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


_NOT_COMPARED: Final = Effect(Scope((), (), (), ()), is_compared=False)


def effects_of(
    changed: Sequence[AclBinding],
    before: Collection[AclBinding],
    after: Collection[AclBinding],
    rules: Rules,
    user: str | None,
) -> list[Effect]:
    """Return the effect of the change on what each ACL is about. `user`, a principal, is compared before others."""
    concerned = _Concerned({*before, *after}, rules, user)
    old, new = _Decisions(before, rules), _Decisions(after, rules)
    effects, left = [], COMPARED_MAX
    for acl in changed:
        effect = _NOT_COMPARED
        if (left := left - concerned.cost_to_find(acl)) >= 0:
            scope = concerned.scope(acl)
            if (left := left - scope.size) >= 0:
                effect = _effect(scope, old, new)
        effects.append(effect)
    return effects


def _effect(scope: Scope, old: _Decisions, new: _Decisions) -> Effect:
    differences, verdicts = [], set()
    for asked in product(scope.principals, scope.hosts, scope.operations, scope.resources):
        was_allowed, is_allowed = old.allows(*asked), new.allows(*asked)
        verdicts.add(is_allowed)
        if was_allowed != is_allowed:
            differences.append(Difference(is_allowed, *asked))
    if differences or len(verdicts) > 1:
        return Effect(scope, differences)
    first = (scope.principals[0], scope.hosts[0], scope.operations[0], scope.resources[0])
    return Effect(scope, verdict=new.decide(*first))


class _Decisions:
    """An authorizer of all ACLs, and for speed one for each principal with those that matter to it."""

    def __init__(self, acls: Collection[AclBinding], rules: Rules) -> None:
        self._rules, self._all = rules, rules.authorizer(acls)
        self._acls: dict[str, list[AclBinding]] = {}
        for acl in acls:
            self._acls.setdefault(acl.principal, []).append(acl)
        self._covering = list({acl[:3]: acl for acl in acls}.values()) if rules.allows_everyone else []
        """One for each pattern: that somebody has an ACL there takes it from all others."""
        self._authorizers: dict[str, Authorizer] = {}

    def allows(self, principal: str, host: str, operation: AclOperation, resource: Resource) -> bool:
        authorizer = self._authorizers.get(principal)
        if authorizer is None:
            own = chain(self._covering, *(self._acls.get(each, ()) for each in {principal, EVERYBODY}))
            authorizer = self._authorizers[principal] = self._rules.authorizer(own)
        return authorizer.allows(principal, host, operation, resource.type, name_in(resource))

    def decide(self, principal: str, host: str, operation: AclOperation, resource: Resource) -> Decision:
        return self._all.decide(principal, host, operation, resource.type, name_in(resource))


@dataclass(frozen=True, slots=True)
class _Near:
    """What ACLs name that are about something that a pattern is about too."""

    resources: Sequence[Resource]
    """The pattern itself, and what is within it."""
    hosts: Mapping[str, Collection[str]]
    """The addresses by the principals."""


class _Concerned:
    """Finds what a change of an ACL may concern."""

    def __init__(self, acls: Iterable[AclBinding], rules: Rules, user: str | None) -> None:
        self._acls: dict[Resource, list[AclBinding]] = {}
        self._index = AclIndex()
        for acl in acls:
            self._acls.setdefault(_pattern(acl), []).append(acl)
            self._index.add(acl)
        self._rules, self._user = rules, user
        self._super_users = frozenset(map(str, rules.super_users))
        self._near_patterns: dict[Resource, _Near] = {}

    def scope(self, acl: AclBinding) -> Scope:
        near, all_operations = self._near(_pattern(acl)), operations_for(acl.resource_type)[1:]
        # Where everybody may use what no ACL is about, an ACL takes that from all others.
        is_for_all = self._rules.allows_everyone
        principals = {acl.principal}
        if is_for_all or acl.principal == EVERYBODY:
            principals |= {EVERYBODY, *near.hosts} - self._super_users
        hosts = {acl.host}
        if is_for_all or acl.host == ANY_HOST:
            hosts.add(ANY_HOST)
            hosts.update(*(near.hosts.get(each, ()) for each in {*principals, EVERYBODY}))
        return Scope(
            _first(principals, (acl.principal, EVERYBODY, self._user), PRINCIPALS_MAX),
            _first(hosts, (acl.host, ANY_HOST), HOSTS_MAX),
            all_operations if is_for_all else operations_decided_by(acl, all_operations),
            near.resources[:RESOURCES_MAX],
            _left_out(
                principals=len(principals) - PRINCIPALS_MAX,
                addresses=len(hosts) - HOSTS_MAX,
                resources=len(near.resources) - RESOURCES_MAX,
            ),
        )

    def cost_to_find(self, acl: AclBinding) -> int:
        """Return what `scope` costs, in decisions: so little that one ACL is always compared."""
        pattern = _pattern(acl)
        is_searched = is_pattern(pattern) and pattern not in self._near_patterns
        return min(len(self._acls) // 10, COMPARED_MAX // 4) if is_searched else 0

    def _near(self, pattern: Resource) -> _Near:
        if (known := self._near_patterns.get(pattern)) is not None:
            return known
        within: list[Resource] = []
        if is_pattern(pattern):
            met = [each for each in self._acls if _meet(pattern, each)]
            within = sorted((each for each in met if each != pattern and _is_within(each, pattern)), key=_by_name)
            acls = chain.from_iterable(self._acls[each] for each in met)
        else:
            acls = chain(self._index.covering(pattern.type, pattern.name))
        hosts: dict[str, set[str]] = {}
        for acl in acls:
            hosts.setdefault(acl.principal, set()).add(acl.host)
        self._near_patterns[pattern] = near = _Near([pattern, *within], hosts)
        return near


def _pattern(acl: AclBinding) -> Resource:
    if acl.resource_type is ResourceType.CLUSTER:
        return Resource(acl.resource_type, CLUSTER_NAME)  # there is no other
    return Resource(acl.resource_type, acl.pattern, acl.pattern_type)


def is_pattern(resource: Resource) -> bool:
    """Whether it stands for any number of resources."""
    return resource.pattern_type is PatternType.PREFIXED or resource.name == WILDCARD


def name_in(resource: Resource) -> str:
    """Return the name of a resource that belongs to the pattern, and which no ACL names."""
    if not is_pattern(resource):
        return resource.name
    return (resource.name if resource.pattern_type is PatternType.PREFIXED else "") + _UNNAMED


def _meet(one: Resource, other: Resource) -> bool:
    """Whether there can be a resource that belongs to both."""
    return one.type is other.type and (_is_within(one, other) or _is_within(other, one))


def _is_within(inner: Resource, outer: Resource) -> bool:
    return covers(outer.pattern_type, outer.name, name_in(inner))


def _first(found: Collection[str], important: Iterable[str | None], most: int) -> list[str]:
    """Return so many of what was found, the important ones first."""
    first = [each for each in dict.fromkeys(important) if each is not None and each in found]
    return [*first, *sorted({*found}.difference(first))][:most]


def _left_out(**counts: int) -> list[str]:
    return [f"{more} more {noun}" for noun, more in counts.items() if more > 0]


def _by_name(resource: Resource) -> tuple[str, PatternType]:
    return resource.name, resource.pattern_type
