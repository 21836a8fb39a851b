"""What `acl_effects` found, in sentences: `User:ann loses read, describe on orders`. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from moldau.base.acl_operations import AclOperation
from moldau.console.acl_effects import EVERYBODY, Effect, Scope, is_pattern
from moldau.security.acls.bindings import AclBinding, PatternType, ResourceType
from moldau.security.acls.selection import ANY_HOST, Resource, listed, operation_word, operations_for, resource_word

TOO_MUCH: Final = "not compared: this is too much at once; change fewer ACLs at a time"
OWN: Final = "this takes rights from yourself"


def effect_words(acl: AclBinding, effect: Effect, super_users: bool, unchanged: str) -> str:
    """`super_users` says whether there are such, and `unchanged` is the word for what was and is allowed."""
    if not effect.is_compared:
        return TOO_MUCH
    left_out = f"; not compared: {', '.join(effect.scope.left_out)}" if effect.scope.left_out else ""
    if effect.differences:
        return listed([_sentence(group, effect.scope, super_users) for group in _groups(effect)], "; ") + left_out
    if left_out:
        return f"nobody who was compared gains or loses anything{left_out}"
    if effect.verdict is None:
        return "nobody gains or loses anything"
    verb = f"{unchanged} may" if effect.verdict.is_allowed else "still may not"
    return f"{acl.principal} {verb}: {effect.verdict}"


def own_losses(effects: Iterable[Effect], principal: str) -> list[str]:
    """Say what the principal itself loses, a text for each resource."""
    lost: dict[Resource, set[AclOperation]] = {}
    for effect in effects:
        key = principal if principal in effect.scope.principals else EVERYBODY
        for each in effect.differences:
            if each.principal == key and not each.is_gain:
                lost.setdefault(each.resource, set()).add(each.operation)
    return [f"{_operations(sorted(found), each.type)} on {_resource(each)}" for each, found in lost.items()]


def _resource(resource: Resource) -> str:
    kind = resource_word(resource.type)
    if resource.type is ResourceType.CLUSTER:
        return "the cluster"
    if not is_pattern(resource):
        return f"the {kind} {resource.name}"
    begin = f" that begin with {resource.name}" if resource.pattern_type is PatternType.PREFIXED else ""
    return f"{kind}s{begin}"


_Group = tuple[tuple[Any, ...], ...]
_PRINCIPALS, _HOSTS, _OPERATIONS, _RESOURCES = 1, 2, 3, 4


def _groups(effect: Effect) -> list[_Group]:
    """Join the differences that are alike but for one thing, first for the address."""
    groups: list[_Group] = [tuple((each,) for each in difference) for difference in effect.differences]
    for column in (_HOSTS, _OPERATIONS, _RESOURCES, _PRINCIPALS):
        joined: dict[_Group, tuple[Any, ...]] = {}
        for group in groups:
            key = (*group[:column], *group[column + 1 :])
            joined[key] = (*joined.get(key, ()), *group[column])
        groups = [(*key[:column], found, *key[column:]) for key, found in joined.items()]
    return groups


def _sentence(group: _Group, scope: Scope, super_users: bool) -> str:
    (is_gain,), principals, hosts, operations, resources = group
    is_one = len(principals) == 1 or EVERYBODY in principals
    verb = ("gain" if is_gain else "lose") + ("s" if is_one else "")
    what = _operations(operations, resources[0].type)
    return f"{_who(principals, scope, super_users)} {verb} {what}{_where(resources, scope)}{_from(hosts, scope)}"


def _who(principals: Sequence[str], scope: Scope, super_users: bool) -> str:
    if EVERYBODY not in principals:
        return listed(principals)
    others = [each for each in scope.principals if each not in principals]
    others += ["super users"] if super_users else []
    return f"everybody but {listed(others)}" if others else "everybody"


def _operations(operations: Sequence[AclOperation], kind: ResourceType) -> str:
    if len(operations) == len(operations_for(kind)) - 1 > 1:
        return "all operations"
    return ", ".join(map(operation_word, operations))


def _where(resources: Sequence[Resource], scope: Scope) -> str:
    """Name the resources, unless the ACL that is shown beside it names exactly these."""
    if len(resources) == len(scope.resources):
        return ""
    return " on " + listed([_other(each, scope) for each in resources])


def _other(resource: Resource, scope: Scope) -> str:
    """A pattern stands for what belongs to no narrower one."""
    if not is_pattern(resource):
        return resource.name
    if resource == scope.resources[0]:
        return f"all other {resource_word(resource.type)}s of it"
    return f"all others that begin with {resource.name}"


def _from(hosts: Sequence[str], scope: Scope) -> str:
    if len(hosts) == len(scope.hosts):
        return "" if ANY_HOST in hosts else f" from {listed(hosts)}"
    if ANY_HOST not in hosts:
        return f" from {listed(hosts)}"
    return f" but not from {listed([each for each in scope.hosts if each not in hosts])}"
