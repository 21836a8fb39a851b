"""The APIs of the quorum, for the controllers' listener: the quorum driver answers each request.

Vote v0–2 (v1: voters by directory, KIP-853; v2: pre-votes, KIP-996), BeginQuorumEpoch v0–1, EndQuorumEpoch v0–1, Fetch
v4–18 of `__cluster_metadata` (v17: directory ids; v18: the fetcher's high watermark), FetchSnapshot v0–1,
DescribeQuorum v0–2, AddRaftVoter v0–1, RemoveRaftVoter v0, UpdateRaftVoter v0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from moldau.base.clock import Timers
from moldau.base.limits import DESCRIBE_QUORUM_BYTES_MAX, QUORUM_REQUEST_BYTES_MAX
from moldau.base.promise import Promise
from moldau.runtime.quorum.driver import QuorumDriver
from moldau.security.acls.access import Needs
from moldau.security.acls.denials import denied
from moldau.security.acls.requirements import CLUSTER_ACTION, CLUSTER_ALTER, CLUSTER_DESCRIBE
from moldau.server.handlers.error_responses import error_response
from moldau.server.handlers.replies import run_steps
from moldau.server.router import Caller
from moldau.wire.apis import ApiKey
from moldau.wire.schema import Message

VERSIONS = {
    ApiKey.VOTE: (0, 2),
    ApiKey.BEGIN_QUORUM_EPOCH: (0, 1),
    ApiKey.END_QUORUM_EPOCH: (0, 1),
    ApiKey.FETCH: (4, 18),
    ApiKey.FETCH_SNAPSHOT: (0, 1),
    ApiKey.DESCRIBE_QUORUM: (0, 2),
    ApiKey.ADD_RAFT_VOTER: (0, 1),
    ApiKey.REMOVE_RAFT_VOTER: (0, 0),
    ApiKey.UPDATE_RAFT_VOTER: (0, 0),
}
NEEDS: Final[Mapping[ApiKey, Needs]] = {
    ApiKey.DESCRIBE_QUORUM: CLUSTER_DESCRIBE,
    ApiKey.ADD_RAFT_VOTER: CLUSTER_ALTER,
    ApiKey.REMOVE_RAFT_VOTER: CLUSTER_ALTER,
}
"""What the requests of administrators need. Nodes send each other the rest, which need CLUSTER_ACTION."""


class QuorumHandler:
    """The handler of one of these APIs."""

    def __init__(self, api: ApiKey, driver: QuorumDriver, timers: Timers) -> None:
        self.api = api
        self.versions = VERSIONS[api]
        is_description = api is ApiKey.DESCRIBE_QUORUM
        self.request_bytes_max = DESCRIBE_QUORUM_BYTES_MAX if is_description else QUORUM_REQUEST_BYTES_MAX
        self._needs = NEEDS.get(api, CLUSTER_ACTION)
        self._driver = driver
        self._timers = timers

    def answer(self, request: Message, caller: Caller) -> Message | Promise[Any]:
        if not caller.access.allows(self._needs):
            return run_steps(self._timers, error_response(request, denied(self._needs)))
        return self._driver.answer(request, caller.version)


def quorum_handlers(driver: QuorumDriver, timers: Timers) -> list[QuorumHandler]:
    return [QuorumHandler(api, driver, timers) for api in VERSIONS]
