"""The requests of the classic protocol to the groups of one shard: JoinGroup, SyncGroup, Heartbeat, LeaveGroup.

A group with members of both protocols is a consumer group; `migration` handles classic requests to it.
"""

from __future__ import annotations

from typing import Final

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.promise import Promise
from moldau.coordinator.group.classic.group import ClassicGroup, State
from moldau.coordinator.group.classic.joining import Joining
from moldau.coordinator.group.classic.rebalance import Effects, Rebalance, answer_sync
from moldau.coordinator.group.group import Group
from moldau.coordinator.group.settings import GroupSettings
from moldau.coordinator.group.state import GroupState
from moldau.coordinator.machine import Client, Outcome
from moldau.wire.log_records.offsets import GroupMetadataKey, GroupMetadataValue
from moldau.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from moldau.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from moldau.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity, MemberResponse
from moldau.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

PROTOCOL_REQUIRED_MIN_VERSION: Final = 5
"""From this version on, SyncGroup must have the protocol type and name."""


class ClassicGroups:
    def __init__(self, state: GroupState) -> None:
        self._state = state
        self._rebalance = Rebalance(state)
        self._joining = Joining(state, self._rebalance)

    def join(self, request: JoinGroupRequest, client: Client) -> Outcome[JoinGroupResponse]:
        check_session_timeout(request, self._state.settings)
        group = self._state.groups.get(request.group_id)
        if group is None or isinstance(group, ClassicGroup):
            return self._joining.join(request, client, Effects())
        return self._replace(group, request, client)

    def _replace(self, group: Group, request: JoinGroupRequest, client: Client) -> Outcome[JoinGroupResponse]:
        """Join a classic group that replaces an empty consumer group and keeps its offsets."""
        if not group.is_empty or group.stays_when_empty:
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        outcome = self._joining.join(request, client, Effects([*group.tombstones()]))

        def restore(error: KafkaError) -> Outcome[None]:
            self._state.groups[group.group_id] = group
            self._rebalance.cancel_join_timeout(group.group_id)
            raise error

        outcome.on_refused = restore
        return outcome

    def sync(self, request: SyncGroupRequest, client: Client) -> Outcome[SyncGroupResponse]:
        check_protocol_present(request, client)
        group = self._group(request.group_id)
        if group.is_empty:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        member = group.check_member(request.member_id, request.group_instance_id)
        if request.generation_id != group.generation:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        if group.state is State.PREPARING_REBALANCE:
            # Before the check of the protocol: a member that joined a consumer group was told its own protocol.
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
        for requested, current in (
            (request.protocol_type, group.protocol_type_or_none),
            (request.protocol_name, group.protocol_name),
        ):
            if requested is not None and current is not None and requested != current:
                raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        self._rebalance.on_sync(group, member.member_id)
        if group.state is State.STABLE:
            return Outcome(_sync_response(group, member.assignment))
        effects = Effects()
        answer_sync(member, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS), effects)
        member.syncing = Promise()
        if group.leader != member.member_id:
            return Outcome(member.syncing, answers=effects.answers)
        return self._assign(group, request, member.syncing, effects)

    def _assign(
        self, group: ClassicGroup, request: SyncGroupRequest, waiting: Promise[SyncGroupResponse], effects: Effects
    ) -> Outcome[SyncGroupResponse]:
        """Append the leader's assignment. When it is applied, the group is stable; members that wait get their part."""
        assignments = {each.member_id: bytes(each.assignment) for each in request.assignments}
        record = group.record(assignments)
        waiting_before = [(member, member.syncing) for member in group.members.values()]
        for member in group.members.values():
            if answer_sync(member, _sync_response(group, assignments.get(member.member_id, b"")), effects):
                self._rebalance.expect_heartbeat(group, member.member_id, member.session_timeout_ms)

        def rebalance_again(error: KafkaError) -> Outcome[None]:
            """The record is too large for the log: answer all members with the error and start a new rebalance."""
            for member, syncing in waiting_before:
                member.syncing = syncing
            failed = Effects()
            self._rebalance.fail_sync(group, error.code, failed)
            self._rebalance.prepare(group, failed)
            return failed.outcome()

        return Outcome(waiting, [record], effects.answers, rebalance_again)

    def heartbeat(self, request: HeartbeatRequest, client: Client) -> Outcome[HeartbeatResponse]:
        group = self._state.groups.get(request.group_id)
        if not isinstance(group, ClassicGroup):
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        member = group.check_member(request.member_id, request.group_instance_id)
        if request.generation_id != group.generation:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        self._rebalance.extend_session(group, member)
        if group.state is State.PREPARING_REBALANCE:
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
        return Outcome(HeartbeatResponse())

    def leave(self, request: LeaveGroupRequest, client: Client) -> Outcome[LeaveGroupResponse]:
        group = self._group(request.group_id)
        effects = Effects()
        results = [self._leave(group, identity, effects) for identity in request.members]
        if any(not result.error_code for result in results):
            self._rebalance.after_loss(group, effects)
        return Outcome(LeaveGroupResponse(members=results), effects.records, effects.answers)

    def _leave(self, group: ClassicGroup, identity: MemberIdentity, effects: Effects) -> MemberResponse:
        result = MemberResponse(identity.member_id, identity.group_instance_id)
        member_id = identity.member_id
        if not member_id and identity.group_instance_id is not None:
            # An administrator removes a static member by its instance id alone.
            member_id = group.static_members.get(identity.group_instance_id, "")
        try:
            if member_id in group.pending_members:
                self._rebalance.cancel_session_timeout(group, member_id)
                group.remove(member_id)
            else:
                member = group.check_member(member_id, identity.group_instance_id)
                self._rebalance.expel(group, member, effects)
        except KafkaError as refused:
            result.error_code = refused.code
        return result

    def extend_session(self, group: ClassicGroup, member_id: str) -> None:
        """Restart the session timeout of a member that sent another request than a heartbeat."""
        self._rebalance.extend_session(group, group.members[member_id])

    def _group(self, group_id: str) -> ClassicGroup:
        group = self._state.groups.get(group_id)
        if not isinstance(group, ClassicGroup):
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        return group

    # --- the log ------------------------------------------------------------------------------------------------

    def apply(self, key: GroupMetadataKey, value: GroupMetadataValue | None) -> None:
        group = self._state.groups.get(key.group)
        if value is None:
            if isinstance(group, ClassicGroup):
                del self._state.groups[key.group]
            return
        if not isinstance(group, ClassicGroup):
            group = self._state.groups[key.group] = ClassicGroup(key.group)
        group.load(value)

    def loaded(self) -> None:
        """Start the session timeouts. Called when the log was replayed. A group with members but no leader was about to
        rebalance: its rebalance starts now."""
        for group in self._state.groups.values():
            if isinstance(group, ClassicGroup):
                for member in group.members.values():
                    self._rebalance.expect_heartbeat(group, member.member_id, member.session_timeout_ms)
                if group.members and group.leader is None:
                    self._rebalance.prepare(group, Effects())


def check_session_timeout(request: JoinGroupRequest, settings: GroupSettings) -> None:
    if not settings.min_session_timeout_ms <= request.session_timeout_ms <= settings.max_session_timeout_ms:
        raise KafkaError(ErrorCode.INVALID_SESSION_TIMEOUT)


def check_protocol_present(request: SyncGroupRequest, client: Client) -> None:
    if client.version >= PROTOCOL_REQUIRED_MIN_VERSION and (
        request.protocol_type is None or request.protocol_name is None
    ):
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)


def _sync_response(group: ClassicGroup, assignment: bytes) -> SyncGroupResponse:
    return SyncGroupResponse(
        protocol_type=group.protocol_type_or_none, protocol_name=group.protocol_name, assignment=assignment
    )
