"""JoinGroup to a classic group: who may join, with which member id, and whether the group must rebalance."""

from __future__ import annotations

import uuid
from typing import Final

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.promise import Promise
from moldau.coordinator.group.classic.group import ClassicGroup, ClassicMember, Protocol, State
from moldau.coordinator.group.classic.rebalance import (
    NEW_MEMBER_JOIN_TIMEOUT_MS,
    Effects,
    Rebalance,
    answer_join,
    answer_sync,
    join_response,
)
from moldau.coordinator.group.state import GroupState
from moldau.coordinator.machine import Client, Outcome
from moldau.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from moldau.wire.messages.sync_group import SyncGroupResponse

MEMBER_ID_REQUIRED_MIN_VERSION: Final = 4
"""From this version on, a new member must join again with the member id that it gets. The group then does not wait for
a client that never received its id (KIP-394)."""
SKIP_ASSIGNMENT_MIN_VERSION: Final = 9
ID_PREFIX_CHARACTERS_MAX: Final = 1_000
"""A member id begins with the client id or instance id. If that is longer, a part of it is enough: a string of more
than 32,767 bytes fits neither the record nor the response."""


class Joining:
    def __init__(self, state: GroupState, rebalance: Rebalance) -> None:
        self._state = state
        self._rebalance = rebalance

    def join(self, request: JoinGroupRequest, client: Client, effects: Effects) -> Outcome[JoinGroupResponse]:
        """Handle a JoinGroup. `effects` may have the tombstones of an empty consumer group that this one replaces."""
        group = self._group(request)
        if not self._has_room(group, request.member_id):
            group.remove(request.member_id)
            return _error_outcome(ErrorCode.GROUP_MAX_SIZE_REACHED)
        if not group.supports(request.protocol_type, [protocol.name for protocol in request.protocols]):
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        self._state.groups[group.group_id] = group
        waiting: Promise[JoinGroupResponse] = Promise()
        if request.member_id:
            return self._rejoin(group, request, client, waiting, effects)
        if request.group_instance_id is not None:
            return self._join_static(group, request, client, waiting, effects)
        member_id = self._new_member_id(client.client_id)
        if client.version >= MEMBER_ID_REQUIRED_MIN_VERSION:
            group.pending_members.add(member_id)
            self._rebalance.expect_heartbeat(group, member_id, request.session_timeout_ms)
            return _error_outcome(ErrorCode.MEMBER_ID_REQUIRED, member_id, effects)
        return self._add(group, request, client, member_id, waiting, effects)

    def _group(self, request: JoinGroupRequest) -> ClassicGroup:
        group = self._state.groups.get(request.group_id)
        if isinstance(group, ClassicGroup):
            return group
        if request.member_id:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        return ClassicGroup(request.group_id)

    def _has_room(self, group: ClassicGroup, member_id: str) -> bool:
        """Whether the group has room for the member. During a rebalance, only members that have joined count: if the
        group is above its size limit, the last to join lose their place."""
        member = group.members.get(member_id)
        if group.state is State.EMPTY:
            return True
        if group.state is State.PREPARING_REBALANCE:
            has_joined = member is not None and member.joining is not None
            return has_joined or group.joining_count < self._state.settings.max_size
        return member is not None or len(group.members) < self._state.settings.max_size

    def _add(
        self,
        group: ClassicGroup,
        request: JoinGroupRequest,
        client: Client,
        member_id: str,
        waiting: Promise[JoinGroupResponse],
        effects: Effects,
    ) -> Outcome[JoinGroupResponse]:
        member = ClassicMember(
            member_id,
            request.group_instance_id,
            client.client_id,
            client.host,
            rebalance_timeout_of(request, client),
            request.session_timeout_ms,
            protocols_of(request),
            joining=waiting,
            is_new=True,
        )
        if not group.members:
            group.protocol_type_or_none = request.protocol_type
        if group.state is State.PREPARING_REBALANCE and group.previous_state is State.EMPTY:
            group.new_member_added = True
        group.add(member)
        self._rebalance.expect_heartbeat(group, member_id, NEW_MEMBER_JOIN_TIMEOUT_MS)
        self._rebalance.after_join(group, effects)
        return Outcome(waiting, effects.records, effects.answers)

    def _rejoin(
        self,
        group: ClassicGroup,
        request: JoinGroupRequest,
        client: Client,
        waiting: Promise[JoinGroupResponse],
        effects: Effects,
    ) -> Outcome[JoinGroupResponse]:
        """Handle the join of a member, or of a client that has just got its member id."""
        if request.member_id in group.pending_members:
            if request.group_instance_id is not None:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)  # static members never have a pending member id
            return self._add(group, request, client, request.member_id, waiting, effects)
        member = group.check_member(request.member_id, request.group_instance_id)
        if group.state is State.EMPTY:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        is_same = member.protocols == protocols_of(request)
        if group.state is State.COMPLETING_REBALANCE and is_same:
            # It may have missed the response to its first JoinGroup.
            return Outcome(join_response(group, member))
        if group.state is State.STABLE and is_same and group.leader != member.member_id:
            return Outcome(join_response(group, member))
        self._wait(group, member, request, client, waiting, effects)
        self._rebalance.after_join(group, effects)
        return Outcome(waiting, effects.records, effects.answers)

    def _wait(
        self,
        group: ClassicGroup,
        member: ClassicMember,
        request: JoinGroupRequest,
        client: Client,
        waiting: Promise[JoinGroupResponse],
        effects: Effects,
    ) -> None:
        """Update the member from the request and let it wait for the others. Its older JoinGroup waits no longer."""
        retry = JoinGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS, member_id=member.member_id)
        answer_join(group, member, retry, effects)
        group.update(member, protocols_of(request), rebalance_timeout_of(request, client), request.session_timeout_ms)
        member.joining = waiting
        group.joining_count += 1

    # --- static members (KIP-345) -------------------------------------------------------------------------------

    def _join_static(
        self,
        group: ClassicGroup,
        request: JoinGroupRequest,
        client: Client,
        waiting: Promise[JoinGroupResponse],
        effects: Effects,
    ) -> Outcome[JoinGroupResponse]:
        instance_id = request.group_instance_id or ""
        member_id = self._new_member_id(instance_id)
        old_member_id = group.static_members.get(instance_id)
        if old_member_id is None:
            return self._add(group, request, client, member_id, waiting, effects)
        old_leader = group.leader
        self._fence(group, group.members[old_member_id], effects)
        self._rebalance.cancel_session_timeout(group, old_member_id)
        member = group.rename(old_member_id, member_id)
        self._wait(group, member, request, client, waiting, effects)
        self._rebalance.expect_heartbeat(group, member_id, member.session_timeout_ms)
        if group.state is State.STABLE and group.select_protocol() == group.protocol_name:
            return self._resume(group, member, client, old_leader, effects)
        if group.state is State.PREPARING_REBALANCE:
            self._rebalance.complete_join_if_all(group, effects)
        else:
            # The leader may already have sent an assignment for the old member id.
            self._rebalance.prepare(group, effects)
        return Outcome(waiting, effects.records, effects.answers)

    def _fence(self, group: ClassicGroup, member: ClassicMember, effects: Effects) -> None:
        """Fail the waiting requests of the member that had this instance id before."""
        code = ErrorCode.FENCED_INSTANCE_ID
        answer_join(group, member, JoinGroupResponse(error_code=code, member_id=member.member_id), effects)
        answer_sync(member, SyncGroupResponse(error_code=code), effects)

    def _resume(
        self, group: ClassicGroup, member: ClassicMember, client: Client, old_leader: str | None, effects: Effects
    ) -> Outcome[JoinGroupResponse]:
        """Answer without a rebalance: only the member id changes, the member keeps its assignment."""
        waiting = member.joining
        assert waiting is not None
        response = join_response(group, member, skip_assignment=group.leader == member.member_id)
        if client.version < SKIP_ASSIGNMENT_MIN_VERSION:
            # If it learned that it is the leader, it would send a new assignment, which the group would ignore.
            response.leader, response.members, response.skip_assignment = old_leader or "", (), False
        answer_join(group, member, response, effects)
        member.is_new = False
        record = group.record({member.member_id: member.assignment for member in group.members.values()})
        return Outcome(waiting, [*effects.records, record], effects.answers)

    def _new_member_id(self, client_or_instance_id: str) -> str:
        random_id = uuid.UUID(bytes=self._state.rng.randbytes(16), version=4)
        return f"{client_or_instance_id[:ID_PREFIX_CHARACTERS_MAX]}-{random_id}"


def protocols_of(request: JoinGroupRequest) -> tuple[Protocol, ...]:
    """Return the request's protocols; of several with the same name only the first."""
    protocols: dict[str, Protocol] = {}
    for protocol in request.protocols:
        protocols.setdefault(protocol.name, Protocol(protocol.name, bytes(protocol.metadata)))
    return tuple(protocols.values())


def rebalance_timeout_of(request: JoinGroupRequest, client: Client) -> int:
    """Return the rebalance timeout. Version 0 has only the session timeout."""
    return request.session_timeout_ms if client.version == 0 else max(request.rebalance_timeout_ms, 0)


def _error_outcome(code: ErrorCode, member_id: str = "", effects: Effects | None = None) -> Outcome[JoinGroupResponse]:
    response = JoinGroupResponse(error_code=code, member_id=member_id)
    return Outcome(response, effects.records, effects.answers) if effects else Outcome(response)
