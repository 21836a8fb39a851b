"""Users: those with a password in the cluster (SCRAM), and whoever else ACLs and settings name.

A password is hashed here, only the hash is sent to the cluster, and no answer, error or log line has it.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from moldau.base.acl_operations import AclOperation
from moldau.base.errors import ErrorCode
from moldau.client.admin.acls import Acls
from moldau.client.admin.delegation_tokens import DelegationTokens
from moldau.client.admin.users import Credentials, Users
from moldau.console.call import Call, Endpoint, now_ms
from moldau.console.endpoints.acls import check_access_changes, needs, rows_of_acls
from moldau.console.listing import LIST_PARAMETERS, list_query, page_of
from moldau.console.next_steps import worded
from moldau.console.options import CREDENTIAL_LENGTH_MAX
from moldau.operations.rights import rights_of
from moldau.operations.tokens import tokens_note
from moldau.security.principals import ANYBODY, USER
from moldau.web.failures import ApiError, bad_request, not_found

COLUMNS: Final = ("principal", "kind", "acls")
SHOWN_LENGTH_MAX: Final = 60
PASSWORD, CERTIFICATE, EVERYBODY, OTHER = "password", "certificate", "everybody", "other"


def list_users(call: Call) -> dict[str, Any]:
    query = list_query(call.query, COLUMNS, "principal")
    try:
        acls: Counter[str] | None = Counter(row["principal"] for row in rows_of_acls(call))
    except ApiError as error:
        if error.code != ErrorCode.SECURITY_DISABLED.name:
            raise
        acls = None
    return page_of(user_rows(_credentials(call), acls), query, "principal")


def _credentials(call: Call) -> dict[str, Credentials]:
    def read() -> dict[str, Credentials]:
        with call.access.admin() as admin:
            return Users(admin).all()

    with needs(AclOperation.DESCRIBE, "see users"):
        return call.access.lately.get("users", read)


def user_rows(credentials: dict[str, Credentials], acls: Counter[str] | None) -> list[dict[str, Any]]:
    """Return a row for each user with a password and each principal of an ACL; `acls` are counts, None if unknown."""
    with_password = {f"{USER}:{name}": name for name in credentials}
    return [
        {
            "principal": principal,
            "name": (name := with_password.get(principal)),
            "kind": _kind(principal, name),
            "mechanisms": sorted(credentials[name]) if name is not None else [],
            "acls": None if acls is None else acls[principal],
        }
        for principal in sorted({*with_password, *(acls or ())})
    ]


def _kind(principal: str, name: str | None) -> str:
    if name is not None:
        return PASSWORD
    if principal == str(ANYBODY):
        return EVERYBODY
    return CERTIFICATE if "=" in principal else OTHER


# --- changes ------------------------------------------------------------------------------------------------------


def add_user(call: Call) -> dict[str, Any]:
    execute = call.field("execute", bool, False)
    _require_private(call)
    name = _name(call.field("name", str).strip())
    password = _password(call, execute)
    with needs(AclOperation.ALTER, "add users"), call.access.admin() as admin:
        check_access_changes(call, admin)
        users = Users(admin)
        if name in users.all():
            raise ApiError(409, "CONFLICT", f"there is a user {_short(name)} already; give it a new password instead")
        rights = rights_of(name, Acls(admin))
        if execute:
            users.set_password(name, password)
            call.access.lately.changed(lambda: name in users.all())
    notes = [] if rights is None else [worded(rights.note(name))]
    return _answer(execute, name, "is added, with a password for SCRAM-SHA-256 and SCRAM-SHA-512", notes)


def change_password(call: Call) -> dict[str, Any]:
    execute, name = call.field("execute", bool, False), call.path["user"]
    _require_private(call)
    password = _password(call, execute)
    notes = ["The old password is refused from then on; connections that are open stay open."]
    if name == call.access.user:
        notes.append("You are this user: log out and in again with the new password, also in other tabs.")
    with needs(AclOperation.ALTER, "change passwords"), call.access.admin() as admin:
        check_access_changes(call, admin)
        users = Users(admin)
        _existing(name, users)
        if execute:
            users.set_password(name, password)
            call.access.lately.changed(lambda: name in users.all())
    return _answer(execute, name, "gets a new password", notes)


def remove_user(call: Call) -> dict[str, Any]:
    execute, name = call.field("execute", bool, False) if call.body else False, call.path["user"]
    with needs(AclOperation.ALTER, "remove users"), call.access.admin() as admin:
        check_access_changes(call, admin)
        users = Users(admin)
        _existing(name, users)
        notes = ["Connections that are open stay open."]
        if (note := tokens_note(name, DelegationTokens(admin), now_ms())) is not None:
            notes.append(worded(note))
        if execute:
            users.remove(name)
            call.access.lately.changed(lambda: name not in users.all())
    notes += _left_acls(call, name)
    if name == call.access.user:
        notes.append("You are this user: you cannot log in again after it.")
    return _answer(execute, name, "is removed", notes)


def _left_acls(call: Call, name: str) -> list[str]:
    """Say how many ACLs would hold for a later user of the same name."""
    try:
        count = sum(row["principal"] == f"{USER}:{name}" for row in rows_of_acls(call))
    except ApiError:  # no authorizer, or not allowed to see them
        return []
    return [f"Its ACLs stay ({count}); a new user of this name would have them."] if count else []


def _answer(execute: bool, name: str, effect: str, notes: list[str]) -> dict[str, Any]:
    return {"executed": execute, "changes": [{"user": name, "effect": effect}], "notes": notes}


def _existing(name: str, users: Users) -> None:
    if name not in users.all():
        raise not_found(f"no user {_short(name)} has a password in this cluster")


def _require_private(call: Call) -> None:
    """Refuse before anybody sends a password."""
    if call.options.passwords_problem is not None:
        raise ApiError(403, "INSECURE", call.options.passwords_problem)


def _name(name: str) -> str:
    if not 0 < len(name) <= CREDENTIAL_LENGTH_MAX or not name.isprintable():
        raise bad_request(f"name: expected 1 to {CREDENTIAL_LENGTH_MAX} characters that can be shown")
    return name


def _password(call: Call, execute: bool) -> str:
    """Return the password. The plan needs none."""
    password = call.field("password", str, "")
    if (execute or password) and not 0 < len(password) <= CREDENTIAL_LENGTH_MAX:
        raise bad_request(f"password: expected 1 to {CREDENTIAL_LENGTH_MAX} characters")
    return password


def _short(name: str) -> str:
    return name if len(name) <= SHOWN_LENGTH_MAX else f"{name[:SHOWN_LENGTH_MAX]}…"


ENDPOINTS: Final = (
    Endpoint("GET", "/api/users", list_users, LIST_PARAMETERS),
    Endpoint("POST", "/api/users", add_user, fields=("name", "password", "execute")),
    Endpoint("PATCH", "/api/users/{user}", change_password, fields=("password", "execute")),
    Endpoint("DELETE", "/api/users/{user}", remove_user, fields=("execute",)),
)
