"""What a user may do, in one line: front ends say it of a new user, and warn of one who may be misspelt."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from moldau.base.errors import ErrorCode, KafkaError
from moldau.operations.next_steps import NextStep, Note
from moldau.security.acls.authorizer import Rules
from moldau.security.acls.bindings import AclBinding, AclFilter
from moldau.security.principals import ANYBODY, USER, Principal

if TYPE_CHECKING:
    from moldau.client.admin.acls import Acls
    from moldau.client.admin.users import Users

SIMILAR_ENOUGH: Final = 0.6


@dataclass(frozen=True, slots=True)
class Rights:
    """What decides about a user."""

    has_authorizer: bool
    is_super_user: bool = False
    allows_everyone: bool = False
    """allow.everyone.if.no.acl.found."""
    acls: Sequence[AclBinding] = ()
    """Those of the user, and those of everybody."""

    def note(self, name: str) -> Note:
        if not self.has_authorizer:
            return Note(
                f"{name} may do everything, like everybody who can connect: the brokers have no authorizer"
                " (authorizer.class.name)"
            )
        if self.is_super_user:
            return Note(f"{name} may do everything: super.users names it")
        if self.acls:
            return Note(f"{name} may do what ACLs say that are there already", NextStep.SEE_ACLS, name)
        if self.allows_everyone:
            return Note(f"{name} may do everything that no ACL is about: allow.everyone.if.no.acl.found=true")
        return Note(f"{name} may do nothing yet", NextStep.ALLOW, name)


def rights_of(name: str, acls: Acls) -> Rights | None:
    """Ask a broker. None if it does not tell."""
    principal = Principal(USER, name)
    try:
        found = [acl for each in (principal, ANYBODY) for acl in acls.find(AclFilter(principal=str(each)))]
        rules = acls.rules() or Rules()
    except KafkaError as error:
        return Rights(has_authorizer=False) if error.code is ErrorCode.SECURITY_DISABLED else None
    return Rights(True, principal in rules.super_users, rules.allows_everyone, found)


def unknown_user_notes(principal: str, users: Users) -> list[Note]:
    """Return a note about a user who may be misspelt."""
    try:
        note = unknown_user_note(principal, users.all())
    except KafkaError:  # who may change ACLs may not always see users
        return []
    return [] if note is None else [note]


def unknown_user_note(principal: str, users: Collection[str]) -> Note | None:
    """Return a note if the principal looks like a user of SCRAM, but there is none with this name. It may be right: the
    users of PLAIN, of certificates and of tokens are in no list."""
    kind, _, name = principal.partition(":")
    if kind != USER or not users or name in users or name == ANYBODY.name or "=" in name:
        return None
    from difflib import get_close_matches  # imported only for unknown users

    close = get_close_matches(name, users, n=1, cutoff=SIMILAR_ENOUGH)
    text = f"{name} is not one of the users with a password"
    return Note(text, NextStep.NAME_SIMILAR_USER, close[0]) if close else Note(text, NextStep.ADD_USER, name)
