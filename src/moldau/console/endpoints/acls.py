"""ACLs: the list, what a change would do, the change, and the test whether somebody may do something."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from moldau.base.acl_operations import AclOperation
from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.topic_names import topic_name_problem
from moldau.client.admin.acls import Acls
from moldau.client.admin.cluster_admin import ClusterAdmin
from moldau.client.admin.users import Users
from moldau.console.acl_plans import (
    COLUMNS,
    PERMISSIONS,
    TYPES,
    acl_of,
    acl_row,
    acls_needed,
    plan_addition,
    plan_removal,
)
from moldau.console.call import Call, Endpoint
from moldau.console.listing import LIST_PARAMETERS, list_query, page_of
from moldau.console.next_steps import worded
from moldau.operations.rights import unknown_user_notes
from moldau.security.acls.authorizer import Rules
from moldau.security.acls.bindings import CLUSTER_NAME, AclBinding, AclFilter, PatternType, ResourceType
from moldau.security.acls.selection import (
    ANY_HOST,
    ROLES,
    UNKNOWN_RULES,
    Resource,
    UnusableAcl,
    Wording,
    bindings,
    decide_from,
    decision_line,
    filter_for,
    host_of,
    operation_word,
    operations_for,
    operations_named,
    principal_of,
    resource_word,
    star_notes,
)
from moldau.security.principals import PRINCIPAL_LENGTH_MAX
from moldau.security.quotas.entities import CLIENT_KEYS, IP_KEYS
from moldau.web.failures import NOT_ALLOWED, ApiError, bad_request

NAME_LENGTH_MAX: Final = 1000
ADDRESS_LENGTH_MAX: Final = 100
"""More of what cannot be an address is not repeated in the error."""
CHANGES_MAX: Final = 1000
"""ACLs that one request adds or removes."""
RESOURCES_ASKED_MAX: Final = 50
"""For more resources all ACLs are read at once."""
EXCEPTIONS_MAX: Final = 100
"""Addresses in the answer of a test."""
CHOOSABLE: Final = ("topic", "group", "transactional_id", "cluster")
"""Those that `moldau acl` names too."""
NO_AUTHORIZER: Final = (
    "Everybody who can connect may do everything: the brokers have no authorizer. To turn it on, set"
    " `authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer` and `super.users=User:NAME` on"
    " all nodes and start them again, or begin with `moldau start --secure`."
)
WORDING: Final = Wording()


@contextmanager
def needs(operation: AclOperation, what: str) -> Iterator[None]:
    """Say which right is missing, and which of the client's values is wrong."""
    try:
        yield
    except UnusableAcl as error:
        raise bad_request(str(error)) from error
    except KafkaError as error:
        if error.code is ErrorCode.SECURITY_DISABLED:
            raise ApiError(400, error.code.name, NO_AUTHORIZER) from error
        if error.code is not ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            raise
        right = f"{operation.name} on the cluster"
        raise ApiError(403, NOT_ALLOWED, f"you may not {what}: that needs {right}; ask for an ACL") from error


def check_access_changes(call: Call, admin: ClusterAdmin) -> None:
    """Refuse a change, and its plan, in a console whose users may not change who may do what."""
    problem = call.options.access_problem(lambda: _has_authorizer(Acls(admin)))
    if problem is not None:
        raise ApiError(403, NOT_ALLOWED, problem)


def overview(call: Call) -> dict[str, Any]:
    """What the page needs to know before it offers anything."""
    with call.access.admin() as admin:
        permitted = admin.permitted_operations()
        has_authorizer = _has_authorizer(Acls(admin))
        rules = Acls(admin).rules() if has_authorizer else None
    problem = call.options.access_problem(lambda: has_authorizer)
    may_change = problem is None and not call.options.read_only
    return {
        "authorizer": has_authorizer,
        "note": None if has_authorizer else NO_AUTHORIZER,
        "user": call.access.user,
        "super_users": None if rules is None else sorted(map(str, rules.super_users)),
        "allows_everyone": None if rules is None else rules.allows_everyone,
        "sees": {
            "acls": has_authorizer and AclOperation.DESCRIBE in permitted,
            "users": AclOperation.DESCRIBE in permitted,
            "quotas": AclOperation.DESCRIBE_CONFIGS in permitted,
        },
        "may": {
            "acls": may_change and has_authorizer and AclOperation.ALTER in permitted,
            "users": may_change and AclOperation.ALTER in permitted,
            "quotas": may_change and AclOperation.ALTER_CONFIGS in permitted,
        },
        "changes_note": problem,
        "passwords_note": call.options.passwords_problem,
        "operations": {name: [operation_word(each) for each in operations_for(TYPES[name])] for name in CHOOSABLE},
        "roles": {role: [kind.name.lower() for kind in kinds] for role, kinds in ROLES.items()},
        "quotas": {"client": list(CLIENT_KEYS), "ip": list(IP_KEYS)},
    }


def _has_authorizer(acls: Acls) -> bool:
    try:
        acls.find(AclFilter(ResourceType.CLUSTER, CLUSTER_NAME, PatternType.LITERAL, "User:ANONYMOUS"))
    except KafkaError as error:
        if error.code not in (ErrorCode.SECURITY_DISABLED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED):
            raise
        return error.code is not ErrorCode.SECURITY_DISABLED
    return True


# --- the list -----------------------------------------------------------------------------------------------------


def rows_of_acls(call: Call) -> list[dict[str, Any]]:
    def read() -> list[dict[str, Any]]:
        with call.access.admin() as admin:
            return [acl_row(each) for each in Acls(admin).find(AclFilter())]

    with needs(AclOperation.DESCRIBE, "see ACLs"):
        return call.access.lately.get("acls", read)


def list_acls(call: Call) -> dict[str, Any]:
    query = list_query(call.query, COLUMNS, "principal")
    rows = rows_of_acls(call)
    page = page_of(_chosen(rows, call.query), query, "principal", filtered=("principal", "name"))
    return {**page, "total": len(rows)}


def _chosen(rows: list[dict[str, Any]], query: Mapping[str, str]) -> list[dict[str, Any]]:
    for name, known in (("type", TYPES), ("permission", PERMISSIONS)):
        wanted = query.get(name)
        if wanted and wanted not in known:
            raise bad_request(f"{name}: {wanted[:40]!r} is none; expected one of {', '.join(known)}")
        if wanted:
            rows = [row for row in rows if row[name] == wanted]
    for name, column in (("principal", "principal"), ("resource", "name")):
        wanted = query.get(name, "").strip()
        if wanted.startswith("="):  # exactly this, as in a search for records
            rows = [row for row in rows if row[column] == wanted[1:]]
        elif wanted:
            rows = [row for row in rows if wanted.lower() in row[column].lower()]
    return rows


# --- changes ------------------------------------------------------------------------------------------------------


def add_acls(call: Call) -> dict[str, Any]:
    execute = call.field("execute", bool, False)
    principal, host, resources = _principal(call), call.field("host", str, ANY_HOST) or ANY_HOST, _resources(call)
    permission = call.field("permission", str)
    if permission not in PERMISSIONS:
        raise bad_request("permission: expected allow or deny")
    roles = _texts(call, "roles")
    unknown = [role for role in roles if role not in ROLES]
    if unknown or (roles and permission == "deny"):
        raise bad_request(f"roles: expected some of {', '.join(ROLES)}, and only with allow")
    with needs(AclOperation.ALTER, "change ACLs"):
        operations = operations_named(_texts(call, "operations"))
        address = host_of(host[:ADDRESS_LENGTH_MAX])
        wanted = bindings(principal, address, PERMISSIONS[permission], operations, roles, resources, WORDING)
        if len(wanted) > CHANGES_MAX:
            raise bad_request(f"these are more than {CHANGES_MAX} ACLs; add them in parts")
        with call.access.admin() as admin:
            check_access_changes(call, admin)
            acls, rules = _deciding(admin, wanted)
            new = [each for each in wanted if each not in acls]
            unknown_user = unknown_user_notes(principal, Users(admin))
            if execute and new:
                Acls(admin).create(new)
                call.access.lately.changed(lambda: Acls(admin).find(filter_for(new[-1])) == [new[-1]])
    known = rules or Rules()
    plan = plan_addition(wanted, acls, known, call.access.user)
    notes = [*star_notes(resources, WORDING), *_group_note(roles, resources), *map(worded, unknown_user), *plan.notes]
    return _answer(execute, plan.changes, notes, rules)


def remove_acls(call: Call) -> dict[str, Any]:
    """Remove exactly the ACLs that were shown."""
    execute = call.field("execute", bool, False)
    unwanted = list(dict.fromkeys(acl_of(each) for each in call.field("acls", list)))
    if not 0 < len(unwanted) <= CHANGES_MAX:
        raise bad_request(f"acls: expected 1 to {CHANGES_MAX} of them")
    with needs(AclOperation.ALTER, "change ACLs"), call.access.admin() as admin:
        check_access_changes(call, admin)
        acls, rules = _deciding(admin, unwanted)
        there = [each for each in unwanted if each in acls]
        if execute and there:
            Acls(admin).delete([filter_for(each) for each in there])
            call.access.lately.changed(lambda: not Acls(admin).find(filter_for(there[-1])))
    known = rules or Rules()
    plan = plan_removal(there, acls, known, call.access.user)
    notes = plan.notes
    if len(there) < len(unwanted):
        notes.append(f"{len(unwanted) - len(there)} of these ACLs are gone already")
    return _answer(execute, plan.changes, notes, rules)


def _answer(execute: bool, changes: list[dict[str, Any]], notes: list[str], rules: Rules | None) -> dict[str, Any]:
    return {"executed": execute, "changes": changes, "notes": _notes(notes, rules)}


def _notes(notes: Sequence[str], rules: Rules | None) -> list[str]:
    """Return the notes as the page shows them; the command line writes a word before each."""
    return [each.removeprefix("note: ") for each in notes] + ([] if rules is not None else [UNKNOWN_RULES])


def _deciding(admin: ClusterAdmin, changed: Sequence[AclBinding]) -> tuple[set[AclBinding], Rules | None]:
    """Return the ACLs and the rules that decide about the resources of these ACLs."""
    acls, (types, resources) = Acls(admin), acls_needed(changed)
    if len(resources) > RESOURCES_ASKED_MAX:
        return set(acls.find(AclFilter())), acls.rules()
    of_types = {each for kind in types for each in acls.find(AclFilter(kind))}
    return of_types | acls.covering(resources), acls.rules()


def _group_note(roles: Sequence[str], resources: Sequence[Resource]) -> list[str]:
    kinds = {each.type for each in resources}
    if "consumer" not in roles or ResourceType.TOPIC not in kinds or ResourceType.GROUP in kinds:
        return []
    return ["This is not enough to join a consumer group: name the group too"]


# --- the test -----------------------------------------------------------------------------------------------------


def may_do(call: Call) -> dict[str, Any]:
    """Say whether a principal may do something, and by which rule, as `moldau acl test` does."""
    query = {name: call.query.get(name, "").strip() for name in ("principal", "operation", "type", "name", "host")}
    if query["type"] not in CHOOSABLE:
        raise bad_request(f"type: expected one of {', '.join(CHOOSABLE)}")
    resource = _resource({"type": query["type"], "name": query["name"]})
    host = query["host"] or ANY_HOST
    with needs(AclOperation.DESCRIBE, "see ACLs"):
        principal = principal_of(checked_text("principal", query["principal"], PRINCIPAL_LENGTH_MAX))
        operation = _one_operation(query["operation"], resource.type)
        host = host_of(host[:ADDRESS_LENGTH_MAX])
        with call.access.admin() as admin:
            rules = Acls(admin).rules()
            notes = unknown_user_notes(principal, Users(admin))
            acls = Acls(admin).covering([resource])
    authorizer = (rules or Rules()).authorizer(acls)
    decision, exceptions = decide_from(authorizer, acls, principal, host, operation, resource)
    return {
        "allowed": decision.is_allowed,
        "exceptions": exceptions[:EXCEPTIONS_MAX],
        "answer": decision_line(principal, operation, resource, decision, exceptions),
        "reason": decision.reason,
        "rule": None if decision.rule is None else acl_row(decision.rule),
        "principal": principal,
        "host": host,
        "notes": _notes([worded(each) for each in notes], rules),
    }


def _one_operation(text: str, kind: ResourceType) -> AclOperation:
    operations = operations_named([text[:40]])
    if len(operations) != 1 or operations[0] not in operations_for(kind):
        known = ", ".join(map(operation_word, operations_for(kind)))
        raise bad_request(f"operation: {text[:40]!r} is none of a {resource_word(kind)}; it has {known}")
    return operations[0]


# --- what is named ------------------------------------------------------------------------------------------------


def _principal(call: Call) -> str:
    return _principal_of(checked_text("principal", call.field("principal", str).strip(), PRINCIPAL_LENGTH_MAX))


def _principal_of(text: str) -> str:
    try:
        return principal_of(text)
    except UnusableAcl as error:
        raise bad_request(f"principal: {error}") from error


def _resources(call: Call) -> list[Resource]:
    given: list[Any] = call.field("resources", list)
    if not 0 < len(given) <= CHANGES_MAX:
        raise bad_request(f"resources: name 1 to {CHANGES_MAX} of them")
    return [_resource(each) for each in given]


def _resource(given: Any) -> Resource:
    if not isinstance(given, dict) or given.keys() - {"type", "name", "prefix"}:
        raise bad_request("resources: expected objects with type, name and prefix")
    kind, name, prefix = given.get("type"), given.get("name"), given.get("prefix", False)
    if kind not in CHOOSABLE:
        raise bad_request(f"type: expected one of {', '.join(CHOOSABLE)}")
    if not isinstance(prefix, bool):
        raise bad_request("prefix: expected true or false")
    if kind == "cluster":
        return Resource(ResourceType.CLUSTER, CLUSTER_NAME)
    if not isinstance(name, str):
        raise bad_request("name: expected a text")
    name = checked_text("name", name.strip(), NAME_LENGTH_MAX)
    problem = topic_name_problem(name) if kind == "topic" and "*" not in name else None
    if problem is not None:
        raise bad_request(f"name: no topic can have it: {problem}")
    return Resource(TYPES[kind], name, PatternType.PREFIXED if prefix else PatternType.LITERAL)


def _texts(call: Call, name: str) -> list[str]:
    values: list[Any] = call.field(name, list, [])
    if len(values) > len(AclOperation) or not all(isinstance(each, str) and len(each) < 100 for each in values):
        raise bad_request(f"{name}: expected a short list of short texts")
    return values


def checked_text(name: str, text: str, length_max: int) -> str:
    """Return a text that can be a name: not empty, not endless, without characters that nobody can see."""
    if not 0 < len(text) <= length_max:
        raise bad_request(f"{name}: expected 1 to {length_max} characters")
    if not text.isprintable():
        raise bad_request(f"{name}: has a character that cannot be shown")
    return text


ENDPOINTS: Final = (
    Endpoint("GET", "/api/access", overview),
    Endpoint("GET", "/api/access/test", may_do, ("principal", "operation", "type", "name", "host")),
    Endpoint("GET", "/api/acls", list_acls, (*LIST_PARAMETERS, "principal", "resource", "type", "permission")),
    Endpoint(
        "POST", "/api/acls", add_acls,
        fields=("permission", "principal", "host", "operations", "roles", "resources", "execute"),
    ),
    Endpoint("POST", "/api/acls/remove", remove_acls, fields=("acls", "execute")),
)  # fmt: skip
