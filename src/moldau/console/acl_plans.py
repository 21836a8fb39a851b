"""What a change of ACLs does: which are added or removed, and who gains or loses what by it. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final

from moldau.base.acl_operations import AclOperation
from moldau.console.failures import bad_request
from moldau.security.acls.authorizer import Authorizer, Decision, Rules
from moldau.security.acls.bindings import AclBinding, PatternType, Permission, ResourceType, covers
from moldau.security.acls.selection import operation_word, resource_word
from moldau.security.principals import USER

TYPES: Final = {each.name.lower(): each for each in ResourceType if each > ResourceType.ANY}
PATTERNS: Final = {each.name.lower(): each for each in (PatternType.LITERAL, PatternType.PREFIXED)}
PERMISSIONS: Final = {each.name.lower(): each for each in (Permission.ALLOW, Permission.DENY)}
OPERATIONS: Final = {operation_word(each): each for each in AclOperation if each > AclOperation.ANY}
RESOURCES_NOTED_MAX: Final = 20
FROM_NOW_ON: Final = "from then on only those whom an ACL allows may use it"
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


def plan_addition(wanted: Sequence[AclBinding], acls: Collection[AclBinding], rules: Rules) -> list[dict[str, Any]]:
    """`acls` are those that decide about the resources of the wanted ones."""
    before, after = rules.authorizer(acls), rules.authorizer({*acls, *wanted})
    changes = []
    for acl in wanted:
        old, new = _decision(before, acl), _decision(after, acl)
        if acl in acls:
            effect = "is there already"
        elif old.is_allowed and new.is_allowed:
            effect = f"{acl.principal} already may: {old}"
        else:
            effect = _effect(acl, old, new)
        changes.append(_change(acl, acls, old, new, effect))
    return changes


def plan_removal(unwanted: Sequence[AclBinding], acls: Collection[AclBinding], rules: Rules) -> list[dict[str, Any]]:
    before, after = rules.authorizer(acls), rules.authorizer(set(acls).difference(unwanted))
    changes = []
    for acl in unwanted:
        old, new = _decision(before, acl), _decision(after, acl)
        changes.append(_change(acl, acls, old, new, _effect(acl, old, new)))
    return changes


def _decision(authorizer: Authorizer, acl: AclBinding) -> Decision:
    """Decide about exactly whom and what the ACL names."""
    return authorizer.decide(acl.principal, acl.host, acl.operation, acl.resource_type, acl.pattern)


def _change(acl: AclBinding, acls: Collection[AclBinding], old: Decision, new: Decision, effect: str) -> dict[str, Any]:
    return {
        **acl_row(acl),
        "exists": acl in acls,
        "before": old.is_allowed,
        "after": new.is_allowed,
        "effect": effect,
    }


def _effect(acl: AclBinding, old: Decision, new: Decision) -> str:
    if old.is_allowed != new.is_allowed:
        return f"{acl.principal} {'gains' if new.is_allowed else 'loses'} it"
    return f"{acl.principal} still {'may' if new.is_allowed else 'may not'}: {new}"


def plan_notes(
    changes: Sequence[dict[str, Any]],
    before: Collection[AclBinding],
    after: Collection[AclBinding],
    rules: Rules,
    user: str | None,
) -> list[str]:
    """Return what is easily overlooked: what everybody may use until an ACL is about it, and one's own rights."""
    notes = []
    if rules.allows_everyone:
        resources = dict.fromkeys((TYPES[each["type"]], each["name"]) for each in changes)
        for kind, name in list(resources)[:RESOURCES_NOTED_MAX]:
            was, will_be = _is_covered(before, kind, name), _is_covered(after, kind, name)
            if not was and will_be:
                notes.append(f"The first ACL for the {resource_word(kind)} {name}: {FROM_NOW_ON}")
            elif was and not will_be:
                notes.append(f"The last ACL for the {resource_word(kind)} {name}: without it everybody may use it")
    if user is not None and any(
        each["principal"] == f"{USER}:{user}" and each["type"] == "cluster" and each["before"] and not each["after"]
        for each in changes
    ):
        notes.append(f"You are {user}: this takes rights on the cluster from yourself")
    return notes


def _is_covered(acls: Collection[AclBinding], kind: ResourceType, name: str) -> bool:
    return any(each.resource_type is kind and covers(each.pattern_type, each.pattern, name) for each in acls)
