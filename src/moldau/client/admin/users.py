"""Lists, adds and removes the users of SCRAM. Only a salted hash of a password is sent."""

from __future__ import annotations

import os

from moldau.base.limits import SALT_BYTES
from moldau.client.admin.cluster_admin import ClusterAdmin
from moldau.client.requests.scram import alter_credentials, describe_credentials
from moldau.security.sasl.mechanism import SCRAM_MECHANISMS
from moldau.security.sasl.scram_messages import ITERATIONS_MIN, ScramKeys
from moldau.security.scram_credentials import ScramMechanism
from moldau.wire.messages.alter_user_scram_credentials import ScramCredentialDeletion, ScramCredentialUpsertion

Credentials = dict[str, int]
"""The mechanisms of a user, and the iterations of each."""


class Users:
    def __init__(self, admin: ClusterAdmin) -> None:
        self._admin = admin

    def all(self) -> dict[str, Credentials]:
        return {
            result.user: {str(ScramMechanism(info.mechanism)): info.iterations for info in result.credential_infos}
            for result in sorted(describe_credentials(self._admin.ask), key=lambda result: result.user)
            if result.credential_infos
        }

    def set_password(self, user: str, password: str, iterations: int = ITERATIONS_MIN) -> None:
        """Set the password for both mechanisms; add the user if there is none."""
        for mechanism in SCRAM_MECHANISMS.values():  # a request may change one mechanism of a user
            salt = os.urandom(SALT_BYTES)
            salted = ScramKeys(mechanism).salted_password(password, salt, iterations)
            upsertion = ScramCredentialUpsertion(user, mechanism, iterations, salt, salted)
            alter_credentials(self._admin.ask, upsertions=[upsertion])

    def remove(self, user: str) -> bool:
        """Remove all credentials of a user; return False if there are none."""
        mechanisms = self.all().get(user, {})
        for name in mechanisms:
            deletion = ScramCredentialDeletion(user, SCRAM_MECHANISMS[name])
            alter_credentials(self._admin.ask, deletions=[deletion])
        return bool(mechanisms)
