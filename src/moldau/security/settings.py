"""The security settings of a node, from properties with Kafka's names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from moldau.base.setting_sources import Values
from moldau.security.acls.authorizer import Authorizer
from moldau.security.principals import Principal, parse_super_users

STANDARD_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
AUTHORIZER_CLASS: Final = "authorizer.class.name"
SUPER_USERS: Final = "super.users"
ALLOW_EVERYONE: Final = "allow.everyone.if.no.acl.found"


@dataclass(frozen=True, slots=True)
class AuthorizerSettings:
    is_enabled: bool = False
    super_users: frozenset[Principal] = frozenset()
    allow_everyone_without_acl: bool = False

    def authorizer(self) -> Authorizer | None:
        """Return a new authorizer without ACLs; None if access is not controlled."""
        return Authorizer(self.super_users, self.allow_everyone_without_acl) if self.is_enabled else None


def read_authorizer(values: Values) -> AuthorizerSettings:
    name = values.text(AUTHORIZER_CLASS)
    if name not in (None, STANDARD_AUTHORIZER):
        raise values.error(AUTHORIZER_CLASS, f"not supported; expected {STANDARD_AUTHORIZER}, or nothing")
    try:
        super_users = parse_super_users(values.text(SUPER_USERS) or "")
    except ValueError as wrong:
        raise values.error(SUPER_USERS, str(wrong)) from None
    for key in (SUPER_USERS, ALLOW_EVERYONE):
        if name is None and key in values:
            raise values.error(key, f"has no effect without {AUTHORIZER_CLASS}={STANDARD_AUTHORIZER}")
    return AuthorizerSettings(name is not None, super_users, values.boolean(ALLOW_EVERYONE))
