"""JoinGroup v0–9, SyncGroup v0–5, Heartbeat v0–4, LeaveGroup v0–5: the classic protocol.

JoinGroup v4: the member returns with the id it was given (KIP-394); v5: static members (KIP-345); v9: a static leader
that returns need not assign partitions (KIP-814). SyncGroup v5 names its protocol. LeaveGroup v3 is for several
members.
"""

from __future__ import annotations

from functools import partial

from moldau.base.clock import Timers
from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.promise import Promise, when_ready
from moldau.coordinator.group.classic.groups import check_protocol_present
from moldau.coordinator.group.consumer.patterns import PatternsNotMatched
from moldau.coordinator.group.groups import Groups
from moldau.coordinator.machine import Client
from moldau.runtime.coordinators.group import GroupCoordinator
from moldau.security.acls.requirements import GROUP_READ, TOPIC_DESCRIBE
from moldau.server.handler import Caller, Handler
from moldau.server.handlers.groups.matching import answer_when_matched
from moldau.server.handlers.replies import reply_or_error, reply_when_ready
from moldau.wire.apis import ApiKey
from moldau.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from moldau.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from moldau.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity, MemberResponse
from moldau.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

NULL_PROTOCOL_MIN_VERSION = 7
LEAVE_SEVERAL_MIN_VERSION = 3


class JoinGroup(Handler):
    api = ApiKey.JOIN_GROUP
    versions = (0, 9)
    needs = (GROUP_READ,)

    def __init__(self, groups: GroupCoordinator, timers: Timers) -> None:
        self._coordinator = groups
        self._timers = timers

    def answer(self, request: JoinGroupRequest, caller: Caller) -> JoinGroupResponse | Promise[JoinGroupResponse]:
        if not caller.access.allows(GROUP_READ, request.group_id):
            denied = JoinGroupResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
            return _with_protocol_name(denied, caller.version)
        client = caller.group_client
        may_describe = partial(caller.access.allows_quietly, TOPIC_DESCRIBE)

        def error_response(error: KafkaError) -> JoinGroupResponse:
            response = JoinGroupResponse(error_code=_error_code(error), member_id=request.member_id)
            return _with_protocol_name(response, caller.version)

        try:
            reply = self._coordinator.submit(
                request.group_id, lambda groups: groups.join(request, client, may_describe)
            )
        except PatternsNotMatched as unmatched:
            answer, group_id = partial(self.answer, request, caller), request.group_id
            return answer_when_matched(self._coordinator, self._timers, group_id, unmatched, answer, error_response)
        except KafkaError as error:
            return error_response(error)
        reply = reply_when_ready(reply, error_response) if isinstance(reply, Promise) else reply
        return when_ready(reply, lambda response: _with_protocol_name(response, caller.version))


def _with_protocol_name(response: JoinGroupResponse, version: int) -> JoinGroupResponse:
    """Set a missing protocol name to null in versions that allow it."""
    response.protocol_name = response.protocol_name or (None if version >= NULL_PROTOCOL_MIN_VERSION else "")
    return response


class SyncGroup(Handler):
    api = ApiKey.SYNC_GROUP
    versions = (0, 5)
    needs = (GROUP_READ,)

    def __init__(self, groups: GroupCoordinator) -> None:
        self._coordinator = groups

    def answer(self, request: SyncGroupRequest, caller: Caller) -> SyncGroupResponse | Promise[SyncGroupResponse]:
        client = caller.group_client
        is_allowed = caller.access.allows(GROUP_READ, request.group_id)
        return reply_or_error(
            lambda: self._sync(request, client) if is_allowed else _deny_sync(request, client),
            lambda error: SyncGroupResponse(error_code=_error_code(error)),
        )

    def _sync(self, request: SyncGroupRequest, client: Client) -> SyncGroupResponse | Promise[SyncGroupResponse]:
        return self._coordinator.submit(request.group_id, lambda groups: groups.sync(request, client))


def _deny_sync(request: SyncGroupRequest, client: Client) -> SyncGroupResponse:
    """Kafka reports a missing protocol before it checks the access."""
    check_protocol_present(request, client)
    return SyncGroupResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)


class Heartbeat(Handler):
    api = ApiKey.HEARTBEAT
    versions = (0, 4)
    needs = (GROUP_READ,)

    def __init__(self, groups: GroupCoordinator) -> None:
        self._coordinator = groups

    def answer(self, request: HeartbeatRequest, caller: Caller) -> HeartbeatResponse | Promise[HeartbeatResponse]:
        if not (caller.is_unrestricted or caller.access.allows(GROUP_READ, request.group_id)):
            return HeartbeatResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
        try:
            reply = self._coordinator.submit(request.group_id, Groups.heartbeat, request, caller.group_client)
        except KafkaError as error:
            return _heartbeat_error(error)
        return reply_when_ready(reply, _heartbeat_error) if isinstance(reply, Promise) else reply


def _heartbeat_error(error: KafkaError) -> HeartbeatResponse:
    # A coordinator that is loading is no reason to leave: it will answer the next heartbeat.
    is_loading = error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return HeartbeatResponse(error_code=0 if is_loading else error.code)


class LeaveGroup(Handler):
    api = ApiKey.LEAVE_GROUP
    versions = (0, 5)
    needs = (GROUP_READ,)

    def __init__(self, groups: GroupCoordinator) -> None:
        self._coordinator = groups

    def answer(self, request: LeaveGroupRequest, caller: Caller) -> LeaveGroupResponse | Promise[LeaveGroupResponse]:
        if not caller.access.allows(GROUP_READ, request.group_id):
            return LeaveGroupResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
        client = caller.group_client
        is_single = caller.version < LEAVE_SEVERAL_MIN_VERSION
        if is_single:
            request.members = [MemberIdentity(request.member_id)]
        reply = reply_or_error(
            lambda: self._coordinator.submit(request.group_id, lambda groups: groups.leave(request, client)),
            lambda error: _leave_error(request, error),
        )
        if not is_single:
            return reply
        return when_ready(reply, _single_member_response)


def _leave_error(request: LeaveGroupRequest, error: KafkaError) -> LeaveGroupResponse:
    """A group that does not exist has no such members: report the error for each."""
    if error.code is not ErrorCode.UNKNOWN_MEMBER_ID:
        return LeaveGroupResponse(error_code=_error_code(error))
    return LeaveGroupResponse(
        members=[MemberResponse(each.member_id, each.group_instance_id, error.code) for each in request.members]
    )


def _single_member_response(response: LeaveGroupResponse) -> LeaveGroupResponse:
    if response.members:
        response.error_code = response.members[0].error_code
    return response


def _error_code(error: KafkaError) -> ErrorCode:
    """Return an error code of these APIs; they have none for records that the log refuses as too large."""
    too_large = error.code is ErrorCode.RECORD_LIST_TOO_LARGE
    return ErrorCode.UNKNOWN_SERVER_ERROR if too_large else error.code
