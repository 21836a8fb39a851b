"""Members of a consumer group that use the classic protocol: JoinGroup, SyncGroup, Heartbeat, LeaveGroup.

The coordinator assigns the partitions, so there is no leader and no request waits. JoinGroup reports what the member
owns and returns its epoch as the generation; SyncGroup returns its assignment; Heartbeat makes it join again to revoke
partitions, to report that it did, or to get partitions that others revoked.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from moldau.base.errors import ErrorCode, KafkaError, MalformedData
from moldau.base.ids import uuid_text
from moldau.coordinator.group.classic.groups import check_protocol_present, check_session_timeout
from moldau.coordinator.group.classic.joining import MEMBER_ID_REQUIRED_MIN_VERSION, protocols_of, rebalance_timeout_of
from moldau.coordinator.group.consumer.change import Change
from moldau.coordinator.group.consumer.group import ConsumerGroup
from moldau.coordinator.group.consumer.heartbeat import ConsumerGroups, mark_topics_resolved
from moldau.coordinator.group.consumer.member import ConsumerMember, MemberState
from moldau.coordinator.group.consumer.validate import check_group_size, check_instance
from moldau.coordinator.group.migration.assignment_codec import by_topic_id, write_assignment
from moldau.coordinator.group.migration.conversions import Conversions
from moldau.coordinator.group.state import GroupState
from moldau.coordinator.machine import Client, MayUseTopic, Outcome
from moldau.metadata.controller.topics import new_uuid
from moldau.wire.consumer_protocol import PROTOCOL_TYPE, read
from moldau.wire.log_records.consumer_protocol import Subscription
from moldau.wire.log_records.offsets import ClassicMemberMetadata, ClassicProtocol
from moldau.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from moldau.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from moldau.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity, MemberResponse
from moldau.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

MIGRATION_DISABLED: Final = "disabled"


class ClassicMembers:
    def __init__(self, state: GroupState, consumer: ConsumerGroups, conversions: Conversions) -> None:
        self._state = state
        self._patterns = consumer.patterns
        self._removal = consumer.removal
        self._conversions = conversions

    # --- JoinGroup ----------------------------------------------------------------------------------------------

    def join(
        self, group: ConsumerGroup, request: JoinGroupRequest, client: Client, may_describe: MayUseTopic
    ) -> Outcome[JoinGroupResponse]:
        check_session_timeout(request, self._state.settings)
        member_id = request.member_id or uuid_text(new_uuid(self._state.rng))
        check_group_size(group, member_id, self._state.settings.consumer_max_size)
        self._check_protocols(group, request)
        subscription = _subscription(request)
        if (
            not request.member_id
            and request.group_instance_id is None
            and client.version >= MEMBER_ID_REQUIRED_MIN_VERSION
        ):
            # The id is not stored: a client that joins with an unknown member id is a new member.
            return Outcome(JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id))
        replaced, change = self._new_change(group, request, member_id, subscription)
        change.update_member(_with_request(change.before, request, client, subscription))
        change.resolve_topics(self._patterns, may_describe)
        response = JoinGroupResponse(protocol_type=PROTOCOL_TYPE, member_id=member_id)
        outcome = None if replaced is None else self._downgrade(change, replaced, subscription, response)
        return outcome or self._join(change, subscription, response)

    def _downgrade(
        self, change: Change, replaced: ConsumerMember, subscription: Subscription, response: JoinGroupResponse
    ) -> Outcome[JoinGroupResponse] | None:
        """Make the group a classic one if `replaced`, which comes back as a classic member, was its last consumer; else
        return None. If the classic group is too large for one record, the group stays a consumer group."""
        group, is_target_due = change.group, change.epoch > change.group.assignment_epoch
        downgraded = self._conversions.downgrade_on_replace(group, replaced, change.member, is_target_due)
        if downgraded is None:
            return None
        converted, conversion = downgraded
        response.generation_id, response.protocol_name = converted.generation, converted.protocol_name
        outcome = self._removal.outcome_of_downgrade(group, conversion, response)
        outcome.on_refused = lambda _: self._join(change, subscription, response)
        return outcome

    def _join(
        self, change: Change, subscription: Subscription, response: JoinGroupResponse
    ) -> Outcome[JoinGroupResponse]:
        """Complete the change and the response, which has the member's own first protocol."""
        change.update_target()
        is_reassigned = change.reconcile(by_topic_id(subscription.owned_partitions, self._state.current.image))
        self._expect_sync(change, is_reassigned)
        classic = change.member.classic_member_metadata
        assert classic is not None
        response.generation_id = change.member.member_epoch
        response.protocol_name = classic.supported_protocols[0].name
        return Outcome(response, change.records, on_refused=mark_topics_resolved(change))

    def _check_protocols(self, group: ConsumerGroup, request: JoinGroupRequest) -> None:
        """Raise KafkaError unless all classic members share a protocol: the group may become a classic one."""
        if self._state.settings.consumer_migration_policy == MIGRATION_DISABLED:
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        counts = group.classic_protocol_counts
        is_shared = any(counts.get(each.name, 0) == group.classic_member_count for each in request.protocols)
        if request.protocol_type != PROTOCOL_TYPE or not is_shared:
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)

    def _new_change(
        self, group: ConsumerGroup, request: JoinGroupRequest, member_id: str, subscription: Subscription
    ) -> tuple[ConsumerMember | None, Change]:
        """Return the static member that the sender is or replaces, if any, and the change of the sender."""
        instance_id = request.group_instance_id
        static = None if instance_id is None else group.static_member(instance_id)
        if instance_id is not None and request.member_id:
            static = check_instance(static, instance_id, member_id)
        elif static is not None:
            change = Change(self._state, group, static.rejoined_as(member_id))
            change.replace_static_member(static)
            return static, change
        member = group.members.get(member_id)
        if member is None and subscription.owned_partitions:
            # It does not know yet that it was removed. Other members may own its partitions now.
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        return static, Change(self._state, group, member or ConsumerMember(member_id=member_id))

    def _expect_sync(self, change: Change, is_reassigned: bool) -> None:
        group_id, member = change.group.group_id, change.member
        self._removal.cancel_classic_deadlines(group_id, member.member_id)
        self._removal.extend_session(group_id, member)
        self._removal.remove_after(member.rebalance_timeout_ms, "sync", group_id, member.member_id)
        if is_reassigned:
            self._removal.expect_revocation(group_id, member)

    # --- SyncGroup and Heartbeat --------------------------------------------------------------------------------

    def sync(self, group: ConsumerGroup, request: SyncGroupRequest, client: Client) -> Outcome[SyncGroupResponse]:
        check_protocol_present(request, client)
        member, classic = _classic_member(group, request.member_id, request.group_instance_id, request.generation_id)
        protocols = classic.supported_protocols
        # Not only the first, which JoinGroup returns: a member that joined before an upgrade has the classic group's.
        known_names = (None, *(protocol.name for protocol in protocols))
        if request.protocol_type not in (None, PROTOCOL_TYPE) or request.protocol_name not in known_names:
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        # A member that must revoke partitions has already joined again: it gets what it keeps.
        if member.member_epoch < group.assignment_epoch and member.state is not MemberState.UNREVOKED:
            raise self._rejoin_error(group, member)
        self._state.deadlines.cancel(("sync", group.group_id, member.member_id))
        self._removal.extend_session(group.group_id, member)
        response = SyncGroupResponse(protocol_type=request.protocol_type, protocol_name=request.protocol_name)
        response.assignment = write_assignment(member.assigned, self._state.current.image, protocols[0].metadata)
        return Outcome(response)

    def heartbeat(self, group: ConsumerGroup, request: HeartbeatRequest) -> Outcome[HeartbeatResponse]:
        member, _ = _classic_member(group, request.member_id, request.group_instance_id, request.generation_id)
        self._removal.extend_session(group.group_id, member)
        if _must_rejoin(group, member):
            raise self._rejoin_error(group, member)
        return Outcome(HeartbeatResponse())

    def _rejoin_error(self, group: ConsumerGroup, member: ConsumerMember) -> KafkaError:
        """Return the error that makes a member join again. Its rebalance timeout starts with the first such error."""
        if ("join", group.group_id, member.member_id) not in self._state.deadlines:
            self._removal.remove_after(member.rebalance_timeout_ms, "join", group.group_id, member.member_id)
        return KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)

    # --- LeaveGroup ---------------------------------------------------------------------------------------------

    def leave(self, group: ConsumerGroup, request: LeaveGroupRequest) -> Outcome[LeaveGroupResponse]:
        """Remove members of either protocol: an administrator may remove any member."""
        leaving: dict[str, ConsumerMember] = {}
        results = []
        for identity in request.members:
            result = MemberResponse(identity.member_id, identity.group_instance_id)
            try:
                member = _leaving_member(group, identity)
                leaving[member.member_id] = member
            except KafkaError as error:
                result.error_code = error.code
            results.append(result)
        response = LeaveGroupResponse(members=results)
        return self._removal.remove(group, list(leaving.values()), response) if leaving else Outcome(response)


def _subscription(request: JoinGroupRequest) -> Subscription:
    """Return the subscription of the first protocol: it is the same for all protocols of a member."""
    try:
        return read(Subscription, request.protocols[0].metadata)[0]
    except MalformedData as error:
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, str(error)) from error


def _with_request(
    member: ConsumerMember, request: JoinGroupRequest, client: Client, subscription: Subscription
) -> ConsumerMember:
    """Return the member with the request's fields. It uses the classic protocol from now on."""
    return replace(
        member,
        client_id=client.client_id,
        client_host=client.host,
        instance_id=request.group_instance_id or member.instance_id,
        rack_id=subscription.rack_id or member.rack_id,
        rebalance_timeout_ms=rebalance_timeout_of(request, client),
        topic_names=frozenset(subscription.topics),
        pattern="",
        classic_member_metadata=ClassicMemberMetadata(
            request.session_timeout_ms, [ClassicProtocol(*protocol) for protocol in protocols_of(request)]
        ),
    )


def _classic_member(
    group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int
) -> tuple[ConsumerMember, ClassicMemberMetadata]:
    """Return the member. Raise KafkaError unless it uses the classic protocol and is in that generation."""
    if instance_id is None:
        member = group.member(member_id)
    else:
        member = check_instance(group.static_member(instance_id), instance_id, member_id)
    if member.classic_member_metadata is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
    if generation != member.member_epoch:
        raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
    return member, member.classic_member_metadata


def _must_rejoin(group: ConsumerGroup, member: ConsumerMember) -> bool:
    """Whether the member must join again: there is a new epoch, or the topics must be resolved and only classic members
    can do it, or partitions of its target are free. A member that must revoke partitions is in an older epoch."""
    if member.member_epoch < group.epoch:
        return True
    if group.must_resolve_topics and group.classic_member_count == len(group.members):
        return True
    return member.state is MemberState.UNRELEASED and not _waits_for_others(group, member)


def _waits_for_others(group: ConsumerGroup, member: ConsumerMember) -> bool:
    return any(
        (topic_id, partition) in group.owners
        for topic_id, partitions in group.target_of(member.member_id).items()
        for partition in partitions - member.assigned.get(topic_id, {}).keys()
    )


def _leaving_member(group: ConsumerGroup, identity: MemberIdentity) -> ConsumerMember:
    instance_id = identity.group_instance_id
    if instance_id is None:
        return group.member(identity.member_id)
    static = group.static_member(instance_id)
    # An administrator removes a static member by its instance id alone.
    member_id = identity.member_id or group.static_members.get(instance_id, "")
    return check_instance(static, instance_id, member_id)
