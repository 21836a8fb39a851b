"""Computes what a heartbeat changes, without changing the group. These steps collect the records:

update_member      take over what the member sent about itself
resolve_topics     if topics of the group, a subscription or the initialized partitions changed, bump the group epoch
update_target      compute the target assignment of all members for that epoch
reconcile          give this member its target
initialize_states  find the partitions that have no state yet
"""

from __future__ import annotations

from collections.abc import Mapping

from moldau.base.ids import Uuid
from moldau.coordinator.group.assignors.simple import ShareSubscriber, assign
from moldau.coordinator.group.configs import may_assign
from moldau.coordinator.group.share import records
from moldau.coordinator.group.share.group import ShareGroup
from moldau.coordinator.group.share.initializing import (
    BY_OFFSET_RESET,
    Initialization,
    assignable,
    has_unassigned,
    missing_states,
)
from moldau.coordinator.group.share.member import NO_PARTITIONS, PartitionsByTopicId, ShareMember
from moldau.coordinator.group.state import GroupState
from moldau.coordinator.group.subscriptions import Subscriptions, metadata_hash
from moldau.coordinator.machine import CoordinatorRecord


class ShareChange:
    def __init__(self, state: GroupState, group: ShareGroup, before: ShareMember) -> None:
        self._state = state
        self._image = state.current.image
        self.group = group
        self.before = before
        """The member before the request."""
        self.member = before
        self.epoch = group.epoch
        self.assignment_epoch = group.assignment_epoch
        self.target: PartitionsByTopicId = NO_PARTITIONS
        self.subscriptions: Subscriptions = group.subscriptions
        self.has_resolved_topics = False
        self.records: list[CoordinatorRecord] = []
        self.initialization: Initialization | None = None

    def update_member(self, member: ShareMember) -> None:
        self.member = member
        if member != self.before or member.member_id not in self.group.members:
            self.records.append(records.member_metadata(self.group.group_id, member))

    def resolve_topics(self) -> None:
        has_changed = self.member.topic_names != self.before.topic_names
        if self.group.assignment_epoch >= self.group.epoch and has_unassigned(self.group, self._image):
            has_changed = True
        if not (has_changed or self.group.must_resolve_topics):
            return
        self.subscriptions = self.group.subscriptions.copy()
        self.subscriptions.add(self.member)
        if self.member.member_id in self.group.members:
            self.subscriptions.remove(self.before)
        new_hash = metadata_hash(self.subscriptions.topics, self._image)
        self.has_resolved_topics = True
        if has_changed or new_hash != self.group.metadata_hash:
            self.epoch += 1
            self.records.append(records.group_epoch(self.group.group_id, self.epoch, new_hash))

    def update_target(self) -> None:
        group, group_id = self.group, self.group.group_id
        if group.assignment_epoch >= self.epoch or not self._may_assign_now():
            self.target = group.target_of(self.member.member_id)
            return
        members = {**group.members, self.member.member_id: self.member}
        assignment = assign(self._subscribers(members), assignable(group, self.subscriptions.topics, self._image))
        for member_id, target in assignment.items():
            if target != group.targets.get(member_id):
                self.records.append(records.member_target(group_id, member_id, target))
        self.records.append(records.target_epoch(group_id, self.epoch, self._state.clock.now_ms()))
        self.assignment_epoch = self.epoch
        self.target = assignment[self.member.member_id]

    def _may_assign_now(self) -> bool:
        times = self._state.configs.share_times_of(self.group.group_id)
        return may_assign(self.group.assignment_timestamp_ms, times, self._state.clock.now_ms())

    def _subscribers(self, members: Mapping[str, ShareMember]) -> dict[str, ShareSubscriber]:
        """Return the members for the assignor. The topic ids of members with the same subscription are looked up
        once."""
        topic_ids = {names: self._topic_ids(names) for names in {each.topic_names for each in members.values()}}
        return {
            member_id: ShareSubscriber(topic_ids[member.topic_names], self.group.target_of(member_id))
            for member_id, member in members.items()
        }

    def _topic_ids(self, names: frozenset[str]) -> frozenset[Uuid]:
        topics = self._image.topics
        return frozenset(topics[name].id for name in names if name in topics)

    def reconcile(self) -> None:
        if self.epoch == self.group.epoch and self.member.member_epoch == self.assignment_epoch:
            return
        subscribed = self._topic_ids(self.member.topic_names)
        assigned = {topic_id: found for topic_id, found in self.target.items() if topic_id in subscribed}
        reconciled = self.member.in_epoch(self.assignment_epoch, assigned)
        if reconciled != self.member:
            self.member = reconciled
            self.records.append(records.member_assignment(self.group.group_id, reconciled))

    def initialize_states(self) -> None:
        missing = missing_states(
            self.group,
            self.subscriptions.topics,
            self._image,
            self._state.clock.monotonic_ms(),
            self._state.settings.share_initialize_retry_interval_ms,
        )
        if missing:
            states = self.group.states.with_initializing(missing)
            self.records.append(records.state_partitions(self.group.group_id, states))
            self.initialization = Initialization(
                self.group.group_id,
                self.epoch,
                {topic_id: dict.fromkeys(topic.partitions, BY_OFFSET_RESET) for topic_id, topic in missing.items()},
            )
