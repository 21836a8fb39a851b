"""ShareGroupHeartbeat (KIP-932): the one request by which a member joins, stays, gets partitions and leaves. Also the
replay and the topic changes of a shard's share groups.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final, TypeVar

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import Uuid
from moldau.base.promise import Promise
from moldau.base.steps import TurnItems
from moldau.coordinator.group.share import records
from moldau.coordinator.group.share.apply import ShareGroupRecordApplier
from moldau.coordinator.group.share.change import ShareChange
from moldau.coordinator.group.share.group import ShareGroup
from moldau.coordinator.group.share.initializing import Initialization
from moldau.coordinator.group.share.member import JOIN_EPOCH, PartitionsByTopicId, ShareMember
from moldau.coordinator.group.share.validate import check_epoch, check_group_size, check_request
from moldau.coordinator.group.state import GroupState
from moldau.coordinator.group.subscriptions import SubscribedGroups, metadata_hash
from moldau.coordinator.group.topic_changes import TopicChanges
from moldau.coordinator.machine import NOTHING, Answer, Client, Outcome
from moldau.wire.messages.share_group_heartbeat import (
    Assignment,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)
from moldau.wire.schema import Message

R = TypeVar("R")
Initialize = Callable[[Initialization], None]
"""Has the states of partitions made, and submits `initializing.on_made` when it knows which ones were."""


def ignore_initialization(initialization: Initialization) -> None:
    """The `Initialize` of a machine that only reads the log."""


WAITING_INTERVAL_MS: Final = 200
"""The heartbeat interval of a member without partitions whose group is getting some."""


class ShareGroups:
    def __init__(self, state: GroupState, initialize: Initialize = ignore_initialization) -> None:
        self._state = state
        self._initialize = initialize
        self._subscribed_groups = SubscribedGroups()
        self._applier = ShareGroupRecordApplier(state, self._subscribed_groups)

    # --- the request --------------------------------------------------------------------------------------------

    def heartbeat(self, request: ShareGroupHeartbeatRequest, client: Client) -> Outcome[ShareGroupHeartbeatResponse]:
        outcome = self._keep_alive(request, client)
        if outcome is not None:
            return outcome
        check_request(request)
        if request.member_epoch < JOIN_EPOCH:
            return self._leave(request)
        return self._join_or_stay(request, client)

    def _keep_alive(
        self, request: ShareGroupHeartbeatRequest, client: Client
    ) -> Outcome[ShareGroupHeartbeatResponse] | None:
        """Answer a heartbeat by which nothing can change: of a member that has its partitions and says nothing new, in
        a group without news. That is nearly every one. Return None for any other."""
        state, epoch = self._state, request.member_epoch
        group = state.groups.get(request.group_id)
        if (
            epoch <= 0
            or not isinstance(group, ShareGroup)
            or group.must_resolve_topics
            or not group.is_settled
            or request.subscribed_topic_names is not None
            or request.rack_id is not None
        ):
            return None
        member = group.members.get(request.member_id)
        if (
            member is None
            or not epoch == member.member_epoch == group.assignment_epoch == group.epoch
            or (member.client_id, member.client_host) != client[:2]
        ):
            return None
        times = state.configs.share_times_of(group.group_id)
        session = "session", group.group_id, member.member_id
        if not state.deadlines.postpone(session, state.clock.monotonic_ms() + times.session_timeout_ms):
            return None
        interval_ms = times.heartbeat_interval_ms
        return Outcome(ShareGroupHeartbeatResponse(0, 0, None, member.member_id, epoch, interval_ms))

    def _join_or_stay(
        self, request: ShareGroupHeartbeatRequest, client: Client
    ) -> Outcome[ShareGroupHeartbeatResponse]:
        group = self._group_for(request)
        check_group_size(group, request.member_id, self._state.settings.share_max_size)
        if request.member_epoch == JOIN_EPOCH:
            member = group.members.get(request.member_id) or ShareMember(member_id=request.member_id)
        else:
            member = group.member(request.member_id)
        check_epoch(member, request.member_epoch)
        change = ShareChange(self._state, group, member)
        change.update_member(_with_request(member, request, client))
        change.resolve_topics()
        change.update_target()
        change.reconcile()
        change.initialize_states()
        self._extend_session(request.group_id, request.member_id)
        return self._outcome(request, change)

    def _group_for(self, request: ShareGroupHeartbeatRequest) -> ShareGroup:
        group = self._state.groups.get(request.group_id)
        if group is None and request.member_epoch == JOIN_EPOCH:
            return ShareGroup(request.group_id)
        return self.find(request.group_id)

    def find(self, group_id: str) -> ShareGroup:
        """Return the share group. Raise KafkaError if there is none with this id, or a group of another type."""
        return find_share_group(self._state, group_id)

    def _outcome(
        self, request: ShareGroupHeartbeatRequest, change: ShareChange
    ) -> Outcome[ShareGroupHeartbeatResponse]:
        answers = []
        if change.initialization is not None:
            # The states may be made only when the log has them as initializing: if this coordinator is replaced, the
            # next one knows of them.
            committed: Promise[Initialization | KafkaError] = Promise()
            committed.then(lambda result: None if isinstance(result, KafkaError) else self._initialize(result))
            answers.append(Answer(committed, change.initialization))

        def on_applied() -> None:
            group = self._state.groups.get(request.group_id)
            if isinstance(group, ShareGroup):
                group.must_resolve_topics = group.must_resolve_topics and not change.has_resolved_topics
                group.is_settled = _is_settled(change, group)

        if not change.records:
            on_applied()
        return Outcome(self._response(request, change), change.records, answers, on_applied=on_applied)

    def _response(self, request: ShareGroupHeartbeatRequest, change: ShareChange) -> ShareGroupHeartbeatResponse:
        """Return the response. It has the assignment if that is new, if the member asks for it, or if it has not got
        the last response."""
        member = change.member
        is_missed = request.member_epoch != change.before.member_epoch  # so it is also for a member that joins again
        is_new = member.assigned != change.before.assigned
        must_send = request.member_epoch == JOIN_EPOCH or is_missed or is_new
        if request.subscribed_topic_names is not None:
            must_send = True
        return ShareGroupHeartbeatResponse(
            member_id=member.member_id,
            member_epoch=member.member_epoch,
            heartbeat_interval_ms=self._interval_ms(request.group_id, change),
            assignment=_response_assignment(member.assigned) if must_send else None,
        )

    def _interval_ms(self, group_id: str, change: ShareChange) -> int:
        """Return when the member is to come again: soon while it waits for its first partitions, unless they take
        longer than the usual interval. In Apache Kafka a new group waits for that, five seconds."""
        usual_ms = self._state.configs.share_times_of(group_id).heartbeat_interval_ms
        if change.member.assigned:
            return usual_ms
        lately_ms = self._state.clock.monotonic_ms() - usual_ms
        is_making = change.initialization is not None or any(
            topic.since_ms > lately_ms for topic in change.group.states.initializing.values()
        )
        is_waiting = is_making or change.assignment_epoch < change.epoch
        return min(usual_ms, WAITING_INTERVAL_MS) if is_waiting else usual_ms

    # --- members that go ----------------------------------------------------------------------------------------

    def _leave(self, request: ShareGroupHeartbeatRequest) -> Outcome[ShareGroupHeartbeatResponse]:
        group = self.find(request.group_id)
        member = group.member(request.member_id)
        response = ShareGroupHeartbeatResponse(member_id=member.member_id, member_epoch=request.member_epoch)
        return self._remove(group, member, response)

    def _remove(self, group: ShareGroup, member: ShareMember, response: R) -> Outcome[R]:
        """Return the records that remove a member and bump the group epoch. The next heartbeat of any other member
        computes the new target assignment. Its session goes on until they are applied: if the log refuses them, it must
        still time out."""
        subscriptions = group.subscriptions.copy()
        subscriptions.remove(member)
        new_hash = metadata_hash(subscriptions.topics, self._state.current.image)
        key = "session", group.group_id, member.member_id
        written = [
            *records.member_tombstones(group.group_id, member.member_id),
            records.group_epoch(group.group_id, group.epoch + 1, new_hash),
        ]
        return Outcome(response, written, on_applied=lambda: self._state.deadlines.cancel(key))

    def _extend_session(self, group_id: str, member_id: str) -> None:
        timeout_ms = self._state.configs.share_times_of(group_id).session_timeout_ms
        at_ms = self._state.clock.monotonic_ms() + timeout_ms
        self._state.deadlines.schedule(
            ("session", group_id, member_id), at_ms, lambda: self._on_timeout(group_id, member_id)
        )

    def _on_timeout(self, group_id: str, member_id: str) -> Outcome[None]:
        group = self._state.groups.get(group_id)
        member = group.members.get(member_id) if isinstance(group, ShareGroup) else None
        if not isinstance(group, ShareGroup) or member is None:
            return NOTHING
        assert isinstance(member, ShareMember)
        return self._remove(group, member, None)

    # --- log and topics ----------------------------------------------------------------------------------------------

    def applies(self, key: Message) -> bool:
        """Whether this is the key of a share group's record."""
        return key.__class__ in self._applier.appliers

    def apply(self, key: Message, value: Message | None) -> None:
        self._applier.appliers[key.__class__](key, value)

    def loaded(self) -> None:
        """Start the session timeouts. Called when the log was replayed."""
        for group in self._state.groups.values():
            if isinstance(group, ShareGroup):
                for member_id in group.members:
                    self._extend_session(group.group_id, member_id)

    def topics_changed(self, changes: TopicChanges) -> None:
        """Mark the groups that read created, deleted or grown topics: their next heartbeat looks at their topics."""
        by_topic = self._subscribed_groups.by_topic
        for name in changes.names & by_topic.keys():
            for group_id in by_topic[name]:
                group = self._state.groups.get(group_id)
                if isinstance(group, ShareGroup):
                    group.must_resolve_topics = True

    def forget_topics(self, is_deleted: Callable[[Uuid], bool], turn: TurnItems) -> Iterator[Outcome[None] | None]:
        """Yield the removal of the states of deleted topics, and None where a turn of the loop ends. The share
        coordinators delete the states themselves."""
        for group in [each for each in self._state.groups.values() if isinstance(each, ShareGroup)]:
            deleted = {each for each in group.states.topic_ids() if is_deleted(each)}
            if deleted and self._state.groups.get(group.group_id) is group:
                left = group.states.without_topics(deleted)
                yield Outcome(None, [records.state_partitions(group.group_id, left)])
            if turn.ends_after(1):
                yield None


def find_share_group(state: GroupState, group_id: str) -> ShareGroup:
    group = state.groups.get(group_id)
    if not isinstance(group, ShareGroup):
        message = f"Group {group_id} not found." if group is None else f"Group {group_id} is not a share group."
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, message)
    return group


def _is_settled(change: ShareChange, group: ShareGroup) -> bool:
    """Whether only another record, or a change of topics, can make the next heartbeat of a member change something."""
    return not change.records and group.assignment_epoch >= group.epoch and not group.states.initializing


def _with_request(member: ShareMember, request: ShareGroupHeartbeatRequest, client: Client) -> ShareMember:
    """Return the member with the fields of the request; absent fields stay as they were."""
    names = request.subscribed_topic_names
    return replace(
        member,
        client_id=client.client_id,
        client_host=client.host,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        topic_names=member.topic_names if names is None else frozenset(names),
    )


def _response_assignment(assigned: PartitionsByTopicId) -> Assignment:
    return Assignment([TopicPartitions(topic_id, sorted(assigned[topic_id])) for topic_id in sorted(assigned)])
