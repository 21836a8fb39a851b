"""What a change of ACLs does: which are added or removed, and who gains or loses what by it. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from moldau.base.acl_operations import AclOperation
from moldau.console.acl_effect_words import effect_words, own_losses
from moldau.console.acl_effects import Effect, effects_of, is_pattern
from moldau.security.acls.authorizer import Rules
from moldau.security.acls.bindings import AclBinding, PatternType, Permission, ResourceType, covers
from moldau.security.acls.selection import Resource, listed, operation_word, resource_word
from moldau.security.principals import USER
from moldau.web.failures import bad_request

TYPES: Final = {each.name.lower(): each for each in ResourceType if each > ResourceType.ANY}
PATTERNS: Final = {each.name.lower(): each for each in (PatternType.LITERAL, PatternType.PREFIXED)}
PERMISSIONS: Final = {each.name.lower(): each for each in (Permission.ALLOW, Permission.DENY)}
OPERATIONS: Final = {operation_word(each): each for each in AclOperation if each > AclOperation.ANY}
RESOURCES_NOTED_MAX: Final = 20
FROM_NOW_ON: Final = "from then on only those whom an ACL allows may use it"
DIRECTIONS: Final = (("gains", True), ("loses", False))
COLUMNS: Final = ("principal", "host", "permission", "operation", "type", "name", "pattern")


def acl_row(acl: AclBinding) -> dict[str, Any]:
    return {
        "principal": acl.principal,
        "host": acl.host,
        "permission": acl.permission.name.lower(),
        "operation": operation_word(acl.operation),
        "type": acl.resource_type.name.lower(),
        "name": acl.pattern,
        "pattern": acl.pattern_type.name.lower(),
    }


def acl_of(row: Any) -> AclBinding:
    """Return the ACL of a row that `acl_row` has made."""
    if (
        not isinstance(row, dict)
        or row.keys() != set(COLUMNS)
        or not all(isinstance(each, str) for each in row.values())
    ):
        raise bad_request(f"acls: expected a list of objects with the texts {', '.join(COLUMNS)}")
    try:
        return AclBinding(
            TYPES[row["type"]],
            row["name"],
            PATTERNS[row["pattern"]],
            row["principal"],
            row["host"],
            OPERATIONS[row["operation"]],
            PERMISSIONS[row["permission"]],
        )
    except KeyError as error:
        raise bad_request(f"acls: {str(error.args[0])[:40]!r} is no word of an ACL") from None


@dataclass(frozen=True, slots=True)
class Plan:
    """What happens to ACLs."""

    changes: list[dict[str, Any]]
    notes: list[str]
    """What is easily overlooked: what everybody may use until an ACL is about it, and one's own rights."""


def plan_addition(
    wanted: Sequence[AclBinding], acls: Collection[AclBinding], rules: Rules, user: str | None = None
) -> Plan:
    """`acls` are all that `acls_needed` names. `user` is who makes the change."""
    after = {*acls, *wanted}
    new = [each for each in wanted if each not in acls]
    return _plan(wanted, new, acls, after, rules, user)


def plan_removal(
    unwanted: Sequence[AclBinding], acls: Collection[AclBinding], rules: Rules, user: str | None = None
) -> Plan:
    return _plan(unwanted, unwanted, acls, set(acls).difference(unwanted), rules, user)


def acls_needed(changed: Iterable[AclBinding]) -> tuple[set[ResourceType], set[Resource]]:
    """Return of which types all ACLs are needed to say what the change of these does, and of which resources."""
    resources = {Resource(each.resource_type, each.pattern, each.pattern_type) for each in changed}
    types = {each.type for each in resources if is_pattern(each)}
    return types, {each for each in resources if each.type not in types}


def _plan(
    shown: Sequence[AclBinding],
    changed: Sequence[AclBinding],
    before: Collection[AclBinding],
    after: Collection[AclBinding],
    rules: Rules,
    user: str | None,
) -> Plan:
    me = None if user is None else f"{USER}:{user}"
    effects = dict(zip(changed, effects_of(changed, before, after, rules, me), strict=True))
    unchanged = "already" if len(after) > len(before) else "still"
    rows = [
        {
            **acl_row(acl),
            "exists": acl in before,
            **_gains_and_losses(effects.get(acl)),
            "effect": effect_words(acl, effects[acl], bool(rules.super_users), unchanged)
            if acl in effects
            else "is there already",
        }
        for acl in shown
    ]
    return Plan(rows, [*_coverage_notes(changed, before, after, rules), *_own_notes(effects.values(), rules, user)])


def _gains_and_losses(effect: Effect | None) -> dict[str, bool | None]:
    if effect is None:
        return {"gains": False, "loses": False}
    directions = {each.is_gain for each in effect.differences}
    is_complete = effect.is_compared and not effect.scope.left_out
    return {name: is_gain in directions or (False if is_complete else None) for name, is_gain in DIRECTIONS}


def _own_notes(effects: Collection[Effect], rules: Rules, user: str | None) -> list[str]:
    me = f"{USER}:{user}"
    if user is None or me in map(str, rules.super_users):
        return []
    lost = own_losses(effects, me)
    notes = [f"You are {user}: this takes rights from yourself: {listed(lost, '; ')}"] if lost else []
    if not all(each.is_compared for each in effects):
        notes.append(f"Not all of it was compared: it may take further rights, also from you, {user}")
    return notes


def _coverage_notes(
    changed: Sequence[AclBinding], before: Collection[AclBinding], after: Collection[AclBinding], rules: Rules
) -> list[str]:
    notes = []
    if rules.allows_everyone:
        resources = dict.fromkeys(each[:2] for each in changed)
        for kind, name in list(resources)[:RESOURCES_NOTED_MAX]:
            was, will_be = _is_covered(before, kind, name), _is_covered(after, kind, name)
            if not was and will_be:
                notes.append(f"The first ACL for the {resource_word(kind)} {name}: {FROM_NOW_ON}")
            elif was and not will_be:
                notes.append(f"The last ACL for the {resource_word(kind)} {name}: without it everybody may use it")
    return notes


def _is_covered(acls: Collection[AclBinding], kind: ResourceType, name: str) -> bool:
    return any(each.resource_type is kind and covers(each.pattern_type, each.pattern, name) for each in acls)
