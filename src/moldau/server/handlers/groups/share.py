"""ShareGroupHeartbeat v1 and ShareGroupDescribe v1 (KIP-932). Without the feature `share.version` both are refused
before anything else, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from moldau.base.acl_operations import OPERATIONS_OMITTED
from moldau.base.clock import Timers
from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.limits import LOOKUP_REQUEST_BYTES_MAX, PARTITIONS_REQUEST_BYTES_MAX
from moldau.base.promise import Promise
from moldau.base.steps import Steps, TurnItems, map_in_steps
from moldau.base.turns import CHANGES_A_TURN, ITEMS_A_TURN
from moldau.coordinator.group import listing
from moldau.coordinator.group.groups import Groups
from moldau.coordinator.machine import Outcome
from moldau.metadata.controller.features import SHARE_VERSION
from moldau.metadata.current import CurrentImage
from moldau.runtime.coordinators.group import GroupCoordinator
from moldau.security.acls.access import Access
from moldau.security.acls.allowed_operations import allowed_bits
from moldau.security.acls.bindings import ResourceType
from moldau.security.acls.requirements import GROUP_DESCRIBE, GROUP_READ, TOPIC_DESCRIBE
from moldau.server.handler import Caller, Handler
from moldau.server.handlers.groups.consumer import TOPICS_DENIED
from moldau.server.handlers.replies import reply_or_error, reply_when_ready, run_steps, uneven_in_turns
from moldau.wire.apis import ApiKey
from moldau.wire.messages.share_group_describe import (
    DescribedGroup,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)
from moldau.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse

MEMBER_ID_LENGTH_MAX: Final = 36
"""The length of a UUID as people write it."""


def serves_share_groups(current: CurrentImage) -> bool:
    return current.image.features.get(SHARE_VERSION, 0) > 0


class ShareGroupHeartbeat(Handler):
    api = ApiKey.SHARE_GROUP_HEARTBEAT
    versions = (1, 1)
    needs = (GROUP_READ, TOPIC_DESCRIBE)
    request_bytes_max = PARTITIONS_REQUEST_BYTES_MAX

    def __init__(self, current: CurrentImage, groups: GroupCoordinator, timers: Timers) -> None:
        self._current = current
        self._coordinator = groups
        self._timers = timers

    def answer(
        self, request: ShareGroupHeartbeatRequest, caller: Caller
    ) -> ShareGroupHeartbeatResponse | Promise[ShareGroupHeartbeatResponse]:
        if not serves_share_groups(self._current):
            return ShareGroupHeartbeatResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
        if not caller.is_unrestricted and not caller.access.allows(GROUP_READ, request.group_id):
            return ShareGroupHeartbeatResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
        if not 0 < len(request.member_id) <= MEMBER_ID_LENGTH_MAX:
            code, message = ErrorCode.INVALID_REQUEST, "Invalid member id in the request."
            return ShareGroupHeartbeatResponse(error_code=code, error_message=message)
        names = request.subscribed_topic_names
        if names and not caller.is_unrestricted:
            if len(names) > ITEMS_A_TURN:
                return run_steps(self._timers, self._steps(request, caller, names))
            if not all(caller.access.allows(TOPIC_DESCRIBE, name) for name in names):
                return ShareGroupHeartbeatResponse(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        return self._submit(request, caller)

    def _steps(
        self, request: ShareGroupHeartbeatRequest, caller: Caller, names: Sequence[str]
    ) -> Steps[ShareGroupHeartbeatResponse | Promise[ShareGroupHeartbeatResponse]]:
        """Authorize many topics in turns."""
        may_describe = partial(caller.access.allows, TOPIC_DESCRIBE)
        allowed = yield from map_in_steps(TurnItems(ITEMS_A_TURN), names, may_describe)
        if not all(allowed):
            return ShareGroupHeartbeatResponse(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        return self._submit(request, caller)

    def _submit(
        self, request: ShareGroupHeartbeatRequest, caller: Caller
    ) -> ShareGroupHeartbeatResponse | Promise[ShareGroupHeartbeatResponse]:
        try:
            reply = self._coordinator.submit(request.group_id, Groups.share_heartbeat, request, caller.group_client)
        except KafkaError as error:
            return _heartbeat_error(error)
        return reply_when_ready(reply, _heartbeat_error) if isinstance(reply, Promise) else reply


def _heartbeat_error(error: KafkaError) -> ShareGroupHeartbeatResponse:
    # In this protocol a request with an empty group id is invalid as a whole.
    code = ErrorCode.INVALID_REQUEST if error.code is ErrorCode.INVALID_GROUP_ID else error.code
    if code is ErrorCode.RECORD_LIST_TOO_LARGE:
        code = ErrorCode.UNKNOWN_SERVER_ERROR
    return ShareGroupHeartbeatResponse(error_code=code, error_message=error.message)


class ShareGroupDescribe(Handler):
    api = ApiKey.SHARE_GROUP_DESCRIBE
    versions = (1, 1)
    needs = (GROUP_DESCRIBE, TOPIC_DESCRIBE)
    request_bytes_max = LOOKUP_REQUEST_BYTES_MAX

    def __init__(self, current: CurrentImage, groups: GroupCoordinator, timers: Timers) -> None:
        self._current = current
        self._coordinator = groups
        self._timers = timers

    def answer(
        self, request: ShareGroupDescribeRequest, caller: Caller
    ) -> ShareGroupDescribeResponse | Promise[ShareGroupDescribeResponse]:
        return uneven_in_turns(
            self._timers,
            list(dict.fromkeys(request.group_ids)),
            lambda group_id: self._describe_group(group_id, request.include_authorized_operations, caller.access),
            lambda groups: ShareGroupDescribeResponse(groups=groups),
            CHANGES_A_TURN,
        )

    def _describe_group(self, group_id: str, with_operations: bool, access: Access) -> tuple[Any, int]:
        """Return the group, or a promise of it, and how many parts it has."""
        if not serves_share_groups(self._current):
            return DescribedGroup(ErrorCode.UNSUPPORTED_VERSION, None, group_id), 1
        if not access.allows(GROUP_DESCRIBE, group_id):
            return DescribedGroup(ErrorCode.GROUP_AUTHORIZATION_FAILED, None, group_id), 1
        operations = allowed_bits(access, ResourceType.GROUP, group_id) if with_operations else OPERATIONS_OMITTED
        parts = 1

        def describe(groups: Groups) -> Outcome[DescribedGroup]:
            nonlocal parts
            described = listing.describe_share_group(groups.state, group_id, operations)
            names = _assigned_names(described)
            parts += len(described.members) + len(names)
            if not all(access.allows(TOPIC_DESCRIBE, name) for name in dict.fromkeys(names)):
                raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, TOPICS_DENIED)
            return Outcome(described)

        reply = reply_or_error(
            lambda: self._coordinator.submit(group_id, describe),
            lambda error: DescribedGroup(error.code, error.message, group_id),
        )
        return reply, parts


def _assigned_names(group: DescribedGroup) -> list[str]:
    return [
        topic.topic_name
        for member in group.members
        if member.assignment is not None
        for topic in member.assignment.topic_partitions
    ]
