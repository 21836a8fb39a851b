"""JoinGroup v0–9, SyncGroup v0–5, Heartbeat v0–4, LeaveGroup v0–5: the classic protocol.

JoinGroup v4: the member comes back with the id it was given (KIP-394); v5: static members (KIP-345); v9: a static
leader that returns need not share out (KIP-814). SyncGroup v5 says which protocol it means. LeaveGroup v3
is for several members.
"""

from __future__ import annotations

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.promise import Promise, when_ready
from moldau.runtime.coordinators.group import GroupCoordinator
from moldau.server.handlers.answering import client_of, reply_or_error
from moldau.server.router import Caller
from moldau.wire.apis import ApiKey
from moldau.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from moldau.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from moldau.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity, MemberResponse
from moldau.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

NO_PROTOCOL_IS_NULL_FROM = 7
LEAVE_SEVERAL_FROM = 3


class JoinGroup:
    api = ApiKey.JOIN_GROUP
    versions = (0, 9)

    def __init__(self, coordinator: GroupCoordinator) -> None:
        self._coordinator = coordinator

    def answer(self, request: JoinGroupRequest, caller: Caller) -> JoinGroupResponse | Promise[JoinGroupResponse]:
        client = client_of(caller)
        answer = reply_or_error(
            lambda: self._coordinator.submit(request.group_id, lambda groups: groups.join(request, client)),
            lambda refused: JoinGroupResponse(error_code=_code(refused), member_id=request.member_id),
        )
        return when_ready(answer, lambda response: _fitting(response, caller.version))


def _fitting(response: JoinGroupResponse, version: int) -> JoinGroupResponse:
    """No protocol is null where that can be said."""
    response.protocol_name = response.protocol_name or (None if version >= NO_PROTOCOL_IS_NULL_FROM else "")
    return response


class SyncGroup:
    api = ApiKey.SYNC_GROUP
    versions = (0, 5)

    def __init__(self, coordinator: GroupCoordinator) -> None:
        self._coordinator = coordinator

    def answer(self, request: SyncGroupRequest, caller: Caller) -> SyncGroupResponse | Promise[SyncGroupResponse]:
        client = client_of(caller)
        return reply_or_error(
            lambda: self._coordinator.submit(request.group_id, lambda groups: groups.sync(request, client)),
            lambda refused: SyncGroupResponse(error_code=_code(refused)),
        )


class Heartbeat:
    api = ApiKey.HEARTBEAT
    versions = (0, 4)

    def __init__(self, coordinator: GroupCoordinator) -> None:
        self._coordinator = coordinator

    def answer(self, request: HeartbeatRequest, caller: Caller) -> HeartbeatResponse | Promise[HeartbeatResponse]:
        client = client_of(caller)
        return reply_or_error(
            lambda: self._coordinator.submit(request.group_id, lambda groups: groups.heartbeat(request, client)),
            # A coordinator that is being loaded is no reason to leave: the next heartbeat will be answered.
            lambda refused: HeartbeatResponse(
                error_code=0 if refused.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else refused.code
            ),
        )


class LeaveGroup:
    api = ApiKey.LEAVE_GROUP
    versions = (0, 5)

    def __init__(self, coordinator: GroupCoordinator) -> None:
        self._coordinator = coordinator

    def answer(self, request: LeaveGroupRequest, caller: Caller) -> LeaveGroupResponse | Promise[LeaveGroupResponse]:
        client = client_of(caller)
        is_one = caller.version < LEAVE_SEVERAL_FROM
        if is_one:
            request.members = [MemberIdentity(request.member_id)]
        answer = reply_or_error(
            lambda: self._coordinator.submit(request.group_id, lambda groups: groups.leave(request, client)),
            lambda refused: _leave_refused(request, refused),
        )
        if not is_one:
            return answer
        return when_ready(answer, _of_one)


def _leave_refused(request: LeaveGroupRequest, refused: KafkaError) -> LeaveGroupResponse:
    """A group that is not there has no such members: that is said of each."""
    if refused.code is not ErrorCode.UNKNOWN_MEMBER_ID:
        return LeaveGroupResponse(error_code=_code(refused))
    return LeaveGroupResponse(
        members=[MemberResponse(each.member_id, each.group_instance_id, refused.code) for each in request.members]
    )


def _of_one(response: LeaveGroupResponse) -> LeaveGroupResponse:
    if response.members:
        response.error_code = response.members[0].error_code
    return response


def _code(refused: KafkaError) -> ErrorCode:
    """What the log would not take is nothing these APIs have a word for."""
    too_large = refused.code is ErrorCode.RECORD_LIST_TOO_LARGE
    return ErrorCode.UNKNOWN_SERVER_ERROR if too_large else refused.code
