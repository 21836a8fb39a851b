"""ConsumerGroupHeartbeat v0–1 and ConsumerGroupDescribe v0–1: the consumer protocol (KIP-848).

Heartbeat v1: the client generates its own member id, and may subscribe by a regular expression.
"""

from __future__ import annotations

from typing import Any

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.promise import Promise
from moldau.coordinator.group import listing
from moldau.coordinator.machine import Outcome
from moldau.runtime.coordinators.group import GroupCoordinator
from moldau.server.handlers.replies import client_of, combine_replies, reply_or_error
from moldau.server.router import Caller
from moldau.wire.apis import ApiKey
from moldau.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)
from moldau.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)


class ConsumerGroupHeartbeat:
    api = ApiKey.CONSUMER_GROUP_HEARTBEAT
    versions = (0, 1)

    def __init__(self, coordinator: GroupCoordinator) -> None:
        self._coordinator = coordinator

    def answer(
        self, request: ConsumerGroupHeartbeatRequest, caller: Caller
    ) -> ConsumerGroupHeartbeatResponse | Promise[ConsumerGroupHeartbeatResponse]:
        client = client_of(caller)
        return reply_or_error(
            lambda: self._coordinator.submit(
                request.group_id, lambda groups: groups.consumer.heartbeat(request, client)
            ),
            _heartbeat_error,
        )


def _heartbeat_error(error: KafkaError) -> ConsumerGroupHeartbeatResponse:
    # In this protocol a request with an empty group id is invalid as a whole.
    code = ErrorCode.INVALID_REQUEST if error.code is ErrorCode.INVALID_GROUP_ID else error.code
    if code is ErrorCode.RECORD_LIST_TOO_LARGE:
        code = ErrorCode.UNKNOWN_SERVER_ERROR
    return ConsumerGroupHeartbeatResponse(error_code=code, error_message=error.message)


class ConsumerGroupDescribe:
    api = ApiKey.CONSUMER_GROUP_DESCRIBE
    versions = (0, 1)

    def __init__(self, coordinator: GroupCoordinator) -> None:
        self._coordinator = coordinator

    def answer(
        self, request: ConsumerGroupDescribeRequest, caller: Caller
    ) -> ConsumerGroupDescribeResponse | Promise[ConsumerGroupDescribeResponse]:
        groups = [
            self._describe_group(group_id, request.include_authorized_operations) for group_id in request.group_ids
        ]
        return combine_replies(groups, lambda groups: ConsumerGroupDescribeResponse(groups=groups))

    def _describe_group(self, group_id: str, with_operations: bool) -> Any:
        return reply_or_error(
            lambda: self._coordinator.submit(
                group_id,
                lambda groups: Outcome(listing.describe_consumer_group(groups.state, group_id, with_operations)),
            ),
            lambda error: DescribedGroup(error.code, error.message, group_id),
        )
