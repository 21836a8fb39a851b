"""DescribeUserScramCredentials and AlterUserScramCredentials."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from moldau.client.requests.ask import Ask, raise_error
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
    DescribeUserScramCredentialsResult,
    UserName,
)


def describe_credentials(ask: Ask, users: Iterable[str] = ()) -> Sequence[DescribeUserScramCredentialsResult]:
    """Return the credentials of these users, or of all if there are none, without the passwords."""
    request = DescribeUserScramCredentialsRequest([UserName(name) for name in users] or None)
    response = ask(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, request, DescribeUserScramCredentialsResponse)
    raise_error(response.error_code, response.error_message)
    return response.results


def alter_credentials(
    ask: Ask, upsertions: Sequence[ScramCredentialUpsertion] = (), deletions: Sequence[ScramCredentialDeletion] = ()
) -> None:
    """Set and delete credentials; raise the first error."""
    request = AlterUserScramCredentialsRequest(deletions, upsertions)
    response = ask(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, request, AlterUserScramCredentialsResponse)
    for result in response.results:
        raise_error(result.error_code, result.error_message)
