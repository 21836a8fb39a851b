"""The settings of the authorizer, from properties with Kafka's names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from moldau.base.setting_sources import Values
from moldau.base.settings.security import ALLOW_EVERYONE_IF_NO_ACL_FOUND, AUTHORIZER_CLASS_NAME, SUPER_USERS
from moldau.security.acls.authorizer import Authorizer
from moldau.security.principals import Principal, parse_super_users

STANDARD_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
_PRINCIPAL_AFTER_COMMA: Final = re.compile(r",\s*(?=[A-Za-z]+:)")
"""A comma alone is no mistake: distinguished names (CN=a,O=b) contain commas."""


@dataclass(frozen=True, slots=True)
class AuthorizerSettings:
    is_enabled: bool = False
    super_users: frozenset[Principal] = frozenset()
    allow_everyone_without_acl: bool = False

    def authorizer(self) -> Authorizer | None:
        """Return a new authorizer without ACLs; None if access is not controlled."""
        return Authorizer(self.super_users, self.allow_everyone_without_acl) if self.is_enabled else None


def read_authorizer(values: Values) -> AuthorizerSettings:
    name = values.text(AUTHORIZER_CLASS_NAME)
    if name not in (None, STANDARD_AUTHORIZER):
        raise values.error(AUTHORIZER_CLASS_NAME, f"not supported; expected {STANDARD_AUTHORIZER}, or nothing")
    if name is None:
        return AuthorizerSettings()  # like Kafka, which reads the others only if an authorizer does
    try:
        super_users = parse_super_users(values.text(SUPER_USERS) or "")
    except ValueError as wrong:
        raise values.error(SUPER_USERS, str(wrong)) from None
    return AuthorizerSettings(True, super_users, values.boolean(ALLOW_EVERYONE_IF_NO_ACL_FOUND))


def warn_of_authorizer(values: Values) -> Iterator[str]:
    """Yield a line for each setting without effect, if nobody may add the first ACL, or if several super users are
    written as one."""
    if values.text(AUTHORIZER_CLASS_NAME) is None:
        for key, is_set in (
            (SUPER_USERS, values.text(SUPER_USERS)),
            (ALLOW_EVERYONE_IF_NO_ACL_FOUND, values.boolean(ALLOW_EVERYONE_IF_NO_ACL_FOUND)),
        ):
            if is_set:
                yield (
                    f"{values.origin(key)}: {key} has no effect without {AUTHORIZER_CLASS_NAME}={STANDARD_AUTHORIZER}:"
                    " everybody may do everything"
                )
        return
    super_users = values.text(SUPER_USERS) or ""
    if not super_users.strip("; ") and not values.boolean(ALLOW_EVERYONE_IF_NO_ACL_FOUND):
        origin = values.origin(AUTHORIZER_CLASS_NAME)
        yield (
            f"{origin}: {AUTHORIZER_CLASS_NAME} without {SUPER_USERS}: nobody may do anything, and nobody may add ACLs;"
            f" set e.g. {SUPER_USERS}=User:admin"
        )
    if _PRINCIPAL_AFTER_COMMA.search(super_users):
        separated = _PRINCIPAL_AFTER_COMMA.sub(";", super_users)
        yield (
            f"{values.origin(SUPER_USERS)}: {SUPER_USERS}: users are separated by semicolons, and a comma is part"
            f" of a name; expected {SUPER_USERS}={separated}"
        )
