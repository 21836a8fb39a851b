"""Lists, adds and removes the users of SCRAM. Only a salted hash of a password is sent."""

from __future__ import annotations

import os

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.limits import SALT_BYTES
from moldau.client.cluster_admin import ClusterAdmin
from moldau.security.sasl.mechanism import SCRAM_MECHANISMS
from moldau.security.sasl.scram_messages import ITERATIONS_MIN, ScramKeys
from moldau.security.scram_credentials import ScramMechanism
from moldau.wire.apis import ApiKey
from moldau.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from moldau.wire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)

Credentials = dict[str, int]
"""The mechanisms of a user, and the iterations of each."""


class Users:
    def __init__(self, admin: ClusterAdmin) -> None:
        self._admin = admin

    def all(self) -> dict[str, Credentials]:
        response = self._admin.ask(
            ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
            DescribeUserScramCredentialsRequest(users=None),
            DescribeUserScramCredentialsResponse,
        )
        return {
            result.user: {str(ScramMechanism(info.mechanism)): info.iterations for info in result.credential_infos}
            for result in sorted(response.results, key=lambda result: result.user)
            if result.credential_infos
        }

    def set_password(self, user: str, password: str, iterations: int = ITERATIONS_MIN) -> None:
        """Set the password for both mechanisms; add the user if there is none."""
        for mechanism in SCRAM_MECHANISMS.values():  # a request may change one mechanism of a user
            salt = os.urandom(SALT_BYTES)
            salted = ScramKeys(mechanism).salted_password(password, salt, iterations)
            upsertion = ScramCredentialUpsertion(user, mechanism, iterations, salt, salted)
            self._alter(AlterUserScramCredentialsRequest(upsertions=[upsertion]))

    def remove(self, user: str) -> bool:
        """Remove all credentials of a user; return False if there are none."""
        mechanisms = self.all().get(user, {})
        for name in mechanisms:
            deletion = ScramCredentialDeletion(user, SCRAM_MECHANISMS[name])
            self._alter(AlterUserScramCredentialsRequest(deletions=[deletion]))
        return bool(mechanisms)

    def _alter(self, request: AlterUserScramCredentialsRequest) -> None:
        response = self._admin.ask(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, request, AlterUserScramCredentialsResponse)
        for result in response.results:
            if result.error_code:
                raise KafkaError(ErrorCode(result.error_code), result.error_message)
