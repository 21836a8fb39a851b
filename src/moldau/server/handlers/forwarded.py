"""Requests that the controller decides. They are authorized here. Then a broker forwards them to the node that leads
the quorum; on the controllers' own listener the controller is called directly. The response to a change is
sent when it is committed.

CreateTopics v2–7, DeleteTopics v1–6 (by id from v6), CreatePartitions v0–3, AlterConfigs v0–2 (configs that are not
named return to their defaults), IncrementalAlterConfigs v0–1 (KIP-339), ElectLeaders v0–2, AlterPartitionReassignments
v0–1 and ListPartitionReassignments v0 (KIP-455), UpdateFeatures v0–2, UnregisterBroker v0, DescribeQuorum v0–2,
AddRaftVoter v0–1 and RemoveRaftVoter v0 (KIP-853), CreateAcls v1–3, DeleteAcls v1–3, AlterClientQuotas v0–1 and
AlterUserScramCredentials v0 (KIP-554), CreateDelegationToken v1–3, RenewDelegationToken v1–2 and ExpireDelegationToken
v1–2. They are implemented in `metadata/controller/` and `raft/`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from moldau.base.clock import Timers
from moldau.base.errors import KafkaError
from moldau.base.limits import CONTROLLER_REQUEST_BYTES_MAX, DESCRIBE_QUORUM_BYTES_MAX
from moldau.base.promise import Promise
from moldau.base.steps import Steps, WaitingSteps
from moldau.runtime.controller.channel import AskController
from moldau.server.handlers.authorized_requests.authorized import Authorize
from moldau.server.handlers.error_responses import error_response
from moldau.server.handlers.replies import run_steps, steps_when_ready
from moldau.server.router import Caller
from moldau.wire.apis import ApiKey, response_class
from moldau.wire.schema import Message

FORWARDED: Final[dict[ApiKey, tuple[int, int]]] = {
    ApiKey.CREATE_TOPICS: (2, 7),
    ApiKey.DELETE_TOPICS: (1, 6),
    ApiKey.CREATE_PARTITIONS: (0, 3),
    ApiKey.ALTER_CONFIGS: (0, 2),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (0, 1),
    ApiKey.ELECT_LEADERS: (0, 2),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: (0, 1),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: (0, 0),
    ApiKey.UPDATE_FEATURES: (0, 2),
    ApiKey.ALTER_CLIENT_QUOTAS: (0, 1),
    ApiKey.UNREGISTER_BROKER: (0, 0),
    ApiKey.DESCRIBE_QUORUM: (0, 2),
    ApiKey.ADD_RAFT_VOTER: (0, 1),
    ApiKey.REMOVE_RAFT_VOTER: (0, 0),
    ApiKey.CREATE_ACLS: (1, 3),
    ApiKey.DELETE_ACLS: (1, 3),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: (0, 0),
    ApiKey.CREATE_DELEGATION_TOKEN: (1, 3),
    ApiKey.RENEW_DELEGATION_TOKEN: (1, 2),
    ApiKey.EXPIRE_DELEGATION_TOKEN: (1, 2),
}


class ForwardedHandler:
    """The handler of one forwarded API."""

    def __init__(
        self,
        api: ApiKey,
        versions: tuple[int, int],
        send_to_controller: AskController,
        authorize: Authorize,
        timers: Timers,
    ) -> None:
        self.api = api
        self.versions = versions
        is_description = api is ApiKey.DESCRIBE_QUORUM
        self.request_bytes_max = DESCRIBE_QUORUM_BYTES_MAX if is_description else CONTROLLER_REQUEST_BYTES_MAX
        self._send_to_controller = send_to_controller
        self._authorize = authorize
        self._timers = timers

    def answer(self, request: Message, caller: Caller) -> Message | Promise[Message]:
        return run_steps(self._timers, self._steps(request, caller))

    def _steps(self, request: Message, caller: Caller) -> WaitingSteps[Message | Promise[Message]]:
        allowed, with_refused = yield from self._authorize(request, caller.access)
        if allowed is None:
            return (yield from with_refused(response_class(self.api)()))

        def whole_response(response: Message | KafkaError) -> Steps[Message | Promise[Message]]:
            if isinstance(response, KafkaError):
                response = yield from error_response(allowed, response)
            return (yield from with_refused(response))

        reply = self._send_to_controller(self.api, allowed, caller.version, caller.client)
        # Encoded in a thread: the response may name all partitions of the cluster, or have all configs of thousands of
        # topics. Later requests of the connection are handled meanwhile.
        return steps_when_ready(self._timers, reply, whole_response)


def forwarded_handlers(
    send_to_controller: AskController, authorize: Mapping[ApiKey, Authorize], timers: Timers
) -> list[ForwardedHandler]:
    return [
        ForwardedHandler(api, versions, send_to_controller, authorize[api], timers)
        for api, versions in FORWARDED.items()
    ]
