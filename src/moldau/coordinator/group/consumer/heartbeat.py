"""ConsumerGroupHeartbeat (KIP-848): the one request by which a member joins, stays, gets and revokes partitions, and
leaves. Also the replay and the topic changes of a shard's consumer groups.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import uuid_text
from moldau.base.steps import Steps, TurnItems
from moldau.coordinator.group.consumer import records
from moldau.coordinator.group.consumer.apply import ConsumerGroupRecordApplier
from moldau.coordinator.group.consumer.change import Change
from moldau.coordinator.group.consumer.group import ConsumerGroup
from moldau.coordinator.group.consumer.member import (
    JOIN_EPOCH,
    NO_TARGET,
    STATIC_LEAVE_EPOCH,
    ConsumerMember,
    MemberState,
    Partitions,
)
from moldau.coordinator.group.consumer.member_removal import MemberRemoval
from moldau.coordinator.group.consumer.migration import NO_CONVERSION, Conversion, Migration, NoMigration
from moldau.coordinator.group.consumer.patterns import Patterns
from moldau.coordinator.group.consumer.validate import (
    check_epoch,
    check_group_size,
    check_instance,
    check_instance_released,
    check_request,
    is_full_request,
    owned_partitions,
)
from moldau.coordinator.group.state import GroupState
from moldau.coordinator.group.subscriptions import SubscribedGroups
from moldau.coordinator.group.topic_changes import TopicChanges
from moldau.coordinator.machine import Client, MayUseTopic, OnRefused, Outcome, any_topic
from moldau.metadata.controller.topics import new_uuid
from moldau.wire.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ResponseTopicPartitions,
)
from moldau.wire.schema import Message


class ConsumerGroups:
    def __init__(self, state: GroupState, migration: Migration | None = None) -> None:
        self._state = state
        self._migration: Migration = migration or NoMigration()
        self._subscribed_groups = SubscribedGroups()
        self.patterns = Patterns(state.current, self._subscribed_groups.by_pattern)
        self._applier = ConsumerGroupRecordApplier(state, self._subscribed_groups)
        self.removal = MemberRemoval(state, self._migration)

    # --- the request --------------------------------------------------------------------------------------------

    def heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, client: Client, may_describe: MayUseTopic = any_topic
    ) -> Outcome[ConsumerGroupHeartbeatResponse]:
        outcome = self._keep_alive(request, client)
        if outcome is not None:
            return outcome
        check_request(request, client.version, self._state.settings.consumer_assignors)
        if request.member_epoch < JOIN_EPOCH:
            return self._leave(request)
        return self._join_or_stay(request, client, may_describe)

    def _keep_alive(
        self, request: ConsumerGroupHeartbeatRequest, client: Client
    ) -> Outcome[ConsumerGroupHeartbeatResponse] | None:
        """Answer a heartbeat by which nothing can change: of a member that has all its partitions and says nothing new,
        in a group without news. That is nearly every one. Return None for any other."""
        state, epoch = self._state, request.member_epoch
        group = state.groups.get(request.group_id)
        if epoch <= 0 or not isinstance(group, ConsumerGroup) or not _is_keep_alive(request):
            return None
        member = group.members.get(request.member_id)
        if (
            member is None
            or not epoch == member.member_epoch == group.assignment_epoch == group.epoch
            or member.state is not MemberState.STABLE
            or group.must_resolve_topics
            or member.pattern
            or member.classic_member_metadata is not None
            or (member.client_id, member.client_host) != client[:2]
            or member.member_id in group.unconfirmed
        ):
            return None
        configs = state.configs
        is_known = configs.resolved_from is state.current.image.configs
        times = (configs.times.get(group.group_id) if is_known else None) or configs.times_of(group.group_id)
        session = "session", group.group_id, member.member_id
        if not state.deadlines.postpone(session, state.clock.monotonic_ms() + times.session_timeout_ms):
            return None
        interval_ms = times.heartbeat_interval_ms
        return Outcome(ConsumerGroupHeartbeatResponse(0, 0, None, member.member_id, epoch, interval_ms))

    def _join_or_stay(
        self, request: ConsumerGroupHeartbeatRequest, client: Client, may_describe: MayUseTopic
    ) -> Outcome[ConsumerGroupHeartbeatResponse]:
        group, conversion = self._group_for(request)
        check_group_size(group, request.member_id, self._state.settings.consumer_max_size)
        change = self._new_change(group, request)
        change.records[:0] = conversion.records
        change.update_member(_with_request(change.before, request, client))
        if change.has_subscription_changed:
            self.patterns.check(change.member.pattern)
        change.resolve_topics(self.patterns, may_describe)
        change.update_target()
        is_reassigned = change.reconcile(owned_partitions(request))
        on_applied = None
        if conversion is NO_CONVERSION:
            self._set_deadlines(change, is_reassigned)
        else:
            # Not before: if the log refuses the records, a classic member with this id keeps its own session.
            on_applied = partial(self._on_created, conversion, change, is_reassigned)
        response = self._response(request, change)
        return Outcome(response, change.records, conversion.answers, mark_topics_resolved(change), on_applied)

    def _group_for(self, request: ConsumerGroupHeartbeatRequest) -> tuple[ConsumerGroup, Conversion]:
        """Return the consumer group. If a new one or a conversion is needed, return the future group and the
        conversion that creates it."""
        group = self._state.groups.get(request.group_id)
        if isinstance(group, ConsumerGroup):
            return group, NO_CONVERSION
        if request.member_epoch != JOIN_EPOCH:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no consumer group {request.group_id}")
        if group is not None and group.stays_when_empty:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group_id} is not a consumer group.")
        if group is None or group.is_empty:
            return ConsumerGroup(request.group_id), Conversion(() if group is None else group.tombstones())
        return self._migration.upgrade(group)

    def _on_created(self, conversion: Conversion, change: Change, is_reassigned: bool) -> None:
        """Complete the soft state of a group that was just created: its topics are resolved, and the session of its
        first consumer starts. After an upgrade, start those of the members that still use the classic protocol."""
        if conversion.on_applied is not None:
            conversion.on_applied()
        group_id = change.group.group_id
        group = self._state.groups[group_id]
        assert isinstance(group, ConsumerGroup)
        group.must_resolve_topics = False
        for member in group.members.values():
            if member.is_classic:
                self.removal.extend_session(group_id, member)
        self._set_deadlines(change, is_reassigned)

    def _new_change(self, group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest) -> Change:
        """Check the sender and return its change: an existing member, a new one, or a static member that came back."""
        member_id = request.member_id or uuid_text(new_uuid(self._state.rng))
        member = group.members.get(member_id)
        if request.instance_id is not None:
            static = group.static_member(request.instance_id)
            if request.member_epoch != JOIN_EPOCH:
                member = check_instance(static, request.instance_id, member_id)
            elif static is not None:
                check_instance_released(static, request.instance_id)
                change = Change(self._state, group, static.rejoined_as(member_id))
                change.replace_static_member(static)
                return change
        if member is None:
            member = (
                ConsumerMember(member_id=member_id) if request.member_epoch == JOIN_EPOCH else group.member(member_id)
            )
        check_epoch(member, request.member_epoch, owned_partitions(request))
        return Change(self._state, group, member)

    def _set_deadlines(self, change: Change, is_reassigned: bool) -> None:
        group_id = change.group.group_id
        if change.before.is_classic:
            self.removal.cancel_classic_deadlines(group_id, change.before.member_id)
        self.removal.extend_session(group_id, change.member)
        if is_reassigned:
            self.removal.expect_revocation(group_id, change.member)

    def _response(self, request: ConsumerGroupHeartbeatRequest, change: Change) -> ConsumerGroupHeartbeatResponse:
        """Return the response. It has the assignment if that is new, if the member has not confirmed it, or asks for
        it."""
        member = change.member
        owned = NO_TARGET if request.member_epoch == JOIN_EPOCH else owned_partitions(request)
        is_confirmed = change.group.confirms(change.before, member, owned)
        is_new = request.member_epoch == JOIN_EPOCH or member.assigned != change.before.assigned
        must_send = is_new or not is_confirmed or is_full_request(request)
        return ConsumerGroupHeartbeatResponse(
            member_id=member.member_id,
            member_epoch=member.member_epoch,
            heartbeat_interval_ms=self._state.configs.times_of(request.group_id).heartbeat_interval_ms,
            assignment=_response_assignment(member.assigned) if must_send else None,
        )

    def _leave(self, request: ConsumerGroupHeartbeatRequest) -> Outcome[ConsumerGroupHeartbeatResponse]:
        group = self._state.groups.get(request.group_id)
        if not isinstance(group, ConsumerGroup):
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no consumer group {request.group_id}")
        response = ConsumerGroupHeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch)
        if request.instance_id is None:
            member = group.member(request.member_id)
        else:
            member = check_instance(group.static_member(request.instance_id), request.instance_id, request.member_id)
        if request.member_epoch != STATIC_LEAVE_EPOCH:
            return self.removal.remove(group, [member], response)
        return Outcome(response, [records.member_assignment(group.group_id, member.temporarily_left())])

    # --- log and topics ----------------------------------------------------------------------------------------------

    def apply(self, key: Message, value: Message | None) -> None:
        self._applier.apply(key, value)

    def loaded(self) -> None:
        """Start the session and revocation timeouts. Called when the log was replayed."""
        for group in self._state.groups.values():
            if isinstance(group, ConsumerGroup):
                for member in group.members.values():
                    self.removal.extend_session(group.group_id, member)
                    self.removal.expect_revocation(group.group_id, member)

    def topics_changed(self, changes: TopicChanges) -> None:
        """Mark the groups that read created, deleted or grown topics: their next heartbeat resolves their topics. New
        topics that match patterns are left to `match_new_topics`."""
        affected: set[str] = set()
        by_topic = self._subscribed_groups.by_topic
        for name in changes.names & by_topic.keys():  # walks through the smaller of both
            affected |= by_topic[name]
        for pattern in self.patterns.remove_deleted(changes.deleted):
            affected |= self._subscribed_groups.by_pattern[pattern]
        self._mark(affected)

    def match_new_topics(self, names: Sequence[str], turn: TurnItems) -> Steps[None]:
        """Match new topics with all patterns in turns of the loop, and mark the groups that read them by a pattern."""
        for pattern in self.patterns.match_new_topics(names, turn):
            if pattern is None:
                yield
            else:
                self._mark(self._subscribed_groups.by_pattern.get(pattern, ()))

    def _mark(self, group_ids: Iterable[str]) -> None:
        for group_id in group_ids:
            group = self._state.groups.get(group_id)
            if isinstance(group, ConsumerGroup):
                group.must_resolve_topics = True


def mark_topics_resolved(change: Change) -> OnRefused | None:
    """Mark the group's topics as resolved. Return a callback that undoes this if the log refuses the records."""
    if not change.has_resolved_topics:
        return None
    change.group.must_resolve_topics = False

    def undo(error: KafkaError) -> Outcome[None]:
        change.group.must_resolve_topics = True
        raise error

    return undo


def _with_request(member: ConsumerMember, request: ConsumerGroupHeartbeatRequest, client: Client) -> ConsumerMember:
    """Return the member with the fields of the request; absent fields stay as they were. The member now uses the
    consumer protocol, even if it used the classic one before."""
    names, pattern = request.subscribed_topic_names, request.subscribed_topic_regex
    timeout_ms = request.rebalance_timeout_ms
    is_same = (client.client_id, client.host) == (member.client_id, member.client_host) and not member.is_classic
    if is_same and _is_keep_alive(request):
        return member
    after = replace(
        member,
        client_id=client.client_id,
        client_host=client.host,
        instance_id=member.instance_id if request.instance_id is None else request.instance_id,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        rebalance_timeout_ms=member.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        topic_names=member.topic_names if names is None else frozenset(names),
        pattern=member.pattern if pattern is None else pattern,
        server_assignor=member.server_assignor if request.server_assignor is None else request.server_assignor,
        classic_member_metadata=None,
    )
    return member if after == member else after


def _is_keep_alive(request: ConsumerGroupHeartbeatRequest) -> bool:
    """Whether the request only keeps the session alive, as nearly all heartbeats do."""
    return (
        request.subscribed_topic_names is None
        and request.subscribed_topic_regex is None
        and request.rebalance_timeout_ms == -1
        and request.instance_id is None
        and request.rack_id is None
        and request.server_assignor is None
    )


def _response_assignment(assigned: Partitions) -> Assignment:
    return Assignment([ResponseTopicPartitions(topic_id, sorted(assigned[topic_id])) for topic_id in sorted(assigned)])
