"""DescribeUserScramCredentials v0 (KIP-554): which users have credentials, by mechanism; never the keys."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from moldau.base.clock import Timers
from moldau.base.errors import ErrorCode
from moldau.base.limits import LOOKUP_REQUEST_BYTES_MAX
from moldau.base.promise import Promise
from moldau.base.turns import LISTED_A_TURN
from moldau.metadata.current import CurrentImage
from moldau.security.acls.requirements import CLUSTER_DESCRIBE
from moldau.security.scram_credentials import ScramCredential
from moldau.server.handler import Caller, Handler
from moldau.server.handlers.replies import in_turns
from moldau.wire.apis import ApiKey
from moldau.wire.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)

DENIED = "Cluster authorization failed."


class DescribeUserScramCredentials(Handler):
    api = ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS
    versions = (0, 0)
    needs = (CLUSTER_DESCRIBE,)
    request_bytes_max = LOOKUP_REQUEST_BYTES_MAX

    def __init__(self, current: CurrentImage, timers: Timers) -> None:
        self._current = current
        self._timers = timers

    def answer(
        self, request: DescribeUserScramCredentialsRequest, caller: Caller
    ) -> DescribeUserScramCredentialsResponse | Promise[DescribeUserScramCredentialsResponse]:
        if not caller.access.allows(CLUSTER_DESCRIBE):
            code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED  # once more for each user, without its name, as in Kafka
            results = [DescribeUserScramCredentialsResult("", code, DENIED)] * len(request.users or ())
            return DescribeUserScramCredentialsResponse(0, code, DENIED, results)
        by_user: dict[str, list[CredentialInfo]] = {}
        credentials: Iterable[tuple[tuple[int, str], ScramCredential]] = self._current.image.scram_credentials.items()
        for (mechanism, user), credential in sorted(credentials):
            by_user.setdefault(user, []).append(CredentialInfo(mechanism, credential.iterations))
        named = Counter([user.name for user in request.users or ()]) or Counter(by_user.keys())
        return in_turns(
            self._timers,
            list(named.items()),
            lambda each: _result(*each, by_user.get(each[0])),
            lambda results: DescribeUserScramCredentialsResponse(error_message="", results=results),
            LISTED_A_TURN,
        )


def _result(user: str, count: int, infos: list[CredentialInfo] | None) -> DescribeUserScramCredentialsResult:
    if count > 1:
        message = f"Cannot describe SCRAM credentials for the same user twice in a single request: {user}"
        return DescribeUserScramCredentialsResult(user, ErrorCode.DUPLICATE_RESOURCE, message)
    if infos is None:
        message = f"Attempt to describe a user credential that does not exist: {user}"
        return DescribeUserScramCredentialsResult(user, ErrorCode.RESOURCE_NOT_FOUND, message)
    return DescribeUserScramCredentialsResult(user, error_message=None, credential_infos=infos)
