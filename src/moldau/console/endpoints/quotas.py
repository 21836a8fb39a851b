"""Quotas of users, client ids and addresses: the list, what a change would do, and the change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from moldau.base.acl_operations import AclOperation
from moldau.client.admin.quotas import Limits, Quotas
from moldau.console.call import Call, Endpoint
from moldau.console.endpoints.acls import NAME_LENGTH_MAX, check_access_changes, checked_text, needs
from moldau.console.listing import LIST_PARAMETERS, list_query, page_of
from moldau.security.quotas.entities import CLIENT_ID, CLIENT_KEYS, IP, IP_KEYS, USER, Entity
from moldau.web.failures import bad_request

KINDS: Final = {"user": USER, "client_id": CLIENT_ID, "ip": IP}
"""The kinds of entities by their names in the API, in the order in which titles have them."""
TITLES: Final = {"user": "user", "client_id": "client id", "ip": "address"}
VALUE_MAX: Final = 2**63 - 1
COLUMNS: Final = ("title", *CLIENT_KEYS, *IP_KEYS)


def list_quotas(call: Call) -> dict[str, Any]:
    query = list_query(call.query, COLUMNS, "title")

    def read() -> list[dict[str, Any]]:
        with call.access.admin() as admin:
            return [quota_row(entity, limits) for entity, limits in Quotas(admin.ask).all().items()]

    with needs(AclOperation.DESCRIBE_CONFIGS, "see quotas"):
        return page_of(call.access.lately.get("quotas", read), query, "title")


def quota_row(entity: Entity, limits: Limits) -> dict[str, Any]:
    names = dict(entity)
    return {
        "entity": {name: names[kind] for name, kind in KINDS.items() if kind in names},
        "title": title_of(names),
        **{key: limits.get(key) for key in (*CLIENT_KEYS, *IP_KEYS)},
    }


def title_of(names: Mapping[str, str | None]) -> str:
    """Name an entity in words: `user ann, every client id without its own`."""
    return ", ".join(
        f"{TITLES[name]} {names[kind]}" if names[kind] is not None else f"every {TITLES[name]} without its own"
        for name, kind in KINDS.items()
        if kind in names
    )


def change_quota(call: Call) -> dict[str, Any]:
    execute, names = call.field("execute", bool, False), _entity(call)
    known = IP_KEYS if IP in names else CLIENT_KEYS
    limits, removed = _limits(call, known), _removed(call, known)
    if not limits and not removed:
        raise bad_request("name what to set or unset")
    if limits.keys() & set(removed):
        raise bad_request("a quota is both set and unset")
    entity: Entity = frozenset(names.items())
    with needs(AclOperation.ALTER_CONFIGS, "change quotas"), call.access.admin() as admin:
        check_access_changes(call, admin)
        quotas = Quotas(admin.ask)
        before = quotas.of(list(names.items())).get(entity, {})
        there = [key for key in removed if key in before]
        if execute and (limits or there):
            quotas.alter(list(names.items()), limits, there)
            after = {**{key: value for key, value in before.items() if key not in removed}, **limits}
            call.access.lately.changed(lambda: quotas.of(list(names.items())).get(entity, {}) == after)
    changes = [
        {"quota": key, "before": before.get(key), "after": limits.get(key)}
        for key in known
        if key in limits or key in there
    ]
    return {"executed": execute, "title": title_of(names), "changes": changes, "notes": _notes(names, changes)}


def _notes(names: Mapping[str, str | None], changes: list[dict[str, Any]]) -> list[str]:
    if not changes:
        return ["Nothing would change: there is no such quota."]
    if any(name is None for name in names.values()):
        return ["It holds for each one that has no quota of its own, not for all together."]
    return []


def _entity(call: Call) -> dict[str, str | None]:
    """Return the kinds and names; null is the default of a kind."""
    given: dict[str, Any] = call.field("entity", dict)
    if not given or given.keys() - KINDS.keys() or ("ip" in given and len(given) > 1):
        raise bad_request("entity: expected user, client_id or both, or ip alone")
    names: dict[str, str | None] = {}
    for name, value in given.items():
        if value is not None and not isinstance(value, str):
            raise bad_request(f"{name}: expected a text, or null for all without a quota of their own")
        names[KINDS[name]] = None if value is None else checked_text(name, value.strip(), NAME_LENGTH_MAX)
    return names


def _limits(call: Call, known: tuple[str, ...]) -> Limits:
    given: dict[str, Any] = call.field("set", dict, {})
    for key, value in given.items():
        _check_key(key, known)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= VALUE_MAX:
            raise bad_request(f"{key}: expected a number above 0")
    return {key: float(value) for key, value in given.items()}


def _removed(call: Call, known: tuple[str, ...]) -> list[str]:
    given: list[Any] = call.field("unset", list, [])
    for key in given:
        _check_key(key, known)
    return list(dict.fromkeys(given))


def _check_key(key: Any, known: tuple[str, ...]) -> None:
    if key not in known:
        raise bad_request(f"{str(key)[:40]!r} is no quota of these; they have {', '.join(known)}")


ENDPOINTS: Final = (
    Endpoint("GET", "/api/quotas", list_quotas, LIST_PARAMETERS),
    Endpoint("POST", "/api/quotas", change_quota, fields=("entity", "set", "unset", "execute")),
)
