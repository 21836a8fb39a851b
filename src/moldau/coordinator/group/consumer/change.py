"""Computes what a request of one member changes, without changing the group. These steps collect the records:

update_member   take over what the member sent about itself
resolve_topics  find the topics that the group reads; if they or a subscription changed, bump the group epoch
update_target   compute the target assignment of all members for that epoch, unless the last one is too recent
reconcile       give this member what it can have of its target now
"""

from __future__ import annotations

from typing import Final

from moldau.coordinator.group.configs import may_assign
from moldau.coordinator.group.consumer import records
from moldau.coordinator.group.consumer.group import ConsumerGroup
from moldau.coordinator.group.consumer.member import NO_TARGET, ConsumerMember, TargetAssignment
from moldau.coordinator.group.consumer.patterns import Patterns
from moldau.coordinator.group.consumer.reconcile import Owned, reconciled
from moldau.coordinator.group.consumer.target import (
    compute_assignment,
    members_after_change,
    preferred_assignor,
)
from moldau.coordinator.group.state import GroupState
from moldau.coordinator.group.subscriptions import ResolvedPattern, Subscriptions, add_to_count, metadata_hash
from moldau.coordinator.machine import CoordinatorRecord, MayUseTopic

PATTERN_REFRESH_MS: Final = 600_000
"""How long the topics of a pattern are kept if no topic is created or deleted: the members may be allowed to see other
topics by now. Kafka's default of `group.consumer.regex.refresh.interval.ms`."""


class Change:
    def __init__(self, state: GroupState, group: ConsumerGroup, before: ConsumerMember) -> None:
        self._state = state
        self.group = group
        self.before = before
        """The member before the request. A static member that came back already has its new member id here."""
        self.member = before
        self.replaced_member_id: str | None = None
        """The former member id of a static member that came back."""
        self.epoch = group.epoch
        self.assignment_epoch = group.assignment_epoch
        self.target: TargetAssignment = NO_TARGET
        self.subscriptions: Subscriptions = group.subscriptions
        self.has_resolved_topics = False
        self.records: list[CoordinatorRecord] = []

    @property
    def has_subscription_changed(self) -> bool:
        return not self.member.has_same_subscription(self.before)

    def replace_static_member(self, replaced: ConsumerMember) -> None:
        """Give the metadata and assignments of `replaced`, a static member that came back, to its new member id."""
        group_id = self.group.group_id
        self.replaced_member_id = replaced.member_id
        self.records += records.member_tombstones(group_id, replaced.member_id)
        self.records.append(records.member_metadata(group_id, self.before))
        target = self.group.target_of(replaced.member_id)
        self.records.append(records.member_target(group_id, self.before.member_id, target))
        self.records.append(records.member_assignment(group_id, self.before))

    def update_member(self, member: ConsumerMember) -> None:
        self.member = member
        if member != self.before:
            self.records.append(records.member_metadata(self.group.group_id, member))

    def resolve_topics(self, patterns: Patterns, may_describe: MayUseTopic) -> None:
        """Resolve the topics of the group. Those that match a pattern, but that this client may not describe, are left
        out for all members with the pattern, as in Kafka. Raise PatternsNotMatched if patterns must be matched
        first."""
        if not (self.has_subscription_changed or self.group.must_resolve_topics or self._is_pattern_old()):
            return
        self.subscriptions = self.group.subscriptions.copy()
        self.subscriptions.add(self.member)
        self.subscriptions.remove(self.before)
        has_changed = self._resolve_patterns(patterns, may_describe)
        new_hash = metadata_hash(self.subscriptions.topics, self._state.current.image)
        self.has_resolved_topics = True
        if self.has_subscription_changed or has_changed or new_hash != self.group.metadata_hash:
            self.epoch += 1
            self.records.append(records.group_epoch(self.group.group_id, self.epoch, new_hash))

    def _is_pattern_old(self) -> bool:
        """Return whether the topics of the member's pattern were resolved too long ago."""
        resolved = self.group.subscriptions.resolved.get(self.member.pattern) if self.member.pattern else None
        return resolved is not None and self._state.clock.now_ms() - resolved.timestamp_ms >= PATTERN_REFRESH_MS

    def _resolve_patterns(self, patterns: Patterns, may_describe: MayUseTopic) -> bool:
        """Resolve new patterns; after a change of topics, all patterns; after some time, the pattern of the member.
        Return whether one matches other topics than before."""
        group_id = self.group.group_id
        old_pattern = self.member.pattern if self._is_pattern_old() else None
        to_resolve = [
            pattern
            for pattern in self.subscriptions.patterns
            if pattern not in self.subscriptions.resolved or self.group.must_resolve_topics or pattern == old_pattern
        ]
        patterns.require(to_resolve)
        self.records += [
            records.pattern_tombstone(group_id, pattern) for pattern in self.subscriptions.drop_unused_patterns()
        ]
        has_changed = False
        for pattern in to_resolve:
            previous = self.subscriptions.resolved.get(pattern)
            topics = _describable(patterns.topics(pattern), may_describe)
            is_changed = previous is None or previous.topics != topics
            if is_changed or pattern == old_pattern:
                resolved = ResolvedPattern(topics, self._state.current.image.offset, self._state.clock.now_ms())
                self.subscriptions.set_resolved(pattern, resolved)
                self.records.append(records.resolved_pattern(group_id, pattern, resolved))
                has_changed = has_changed or is_changed
        return has_changed

    def update_target(self) -> None:
        member_id = self.member.member_id
        if self.group.assignment_epoch >= self.epoch or not self._may_assign_now():
            self.target = self.group.target_of(self.replaced_member_id or member_id)
            return
        targets = dict(self.group.targets)
        if self.replaced_member_id is not None:
            targets[member_id] = targets.pop(self.replaced_member_id, NO_TARGET)
        members = members_after_change(self.group, self.member, self.replaced_member_id)
        assignment = compute_assignment(
            self._preferred_assignor(), members, targets, self.subscriptions, self._state.current.image
        )
        group_id = self.group.group_id
        for each in members:
            if assignment.get(each, NO_TARGET) != targets.get(each):
                self.records.append(records.member_target(group_id, each, assignment.get(each, NO_TARGET)))
        self.records.append(records.target_epoch(group_id, self.epoch, self._state.clock.now_ms()))
        self.assignment_epoch = self.epoch
        self.target = assignment.get(member_id, NO_TARGET)

    def _may_assign_now(self) -> bool:
        times = self._state.configs.times_of(self.group.group_id)
        return may_assign(self.group.assignment_timestamp_ms, times, self._state.clock.now_ms())

    def _preferred_assignor(self) -> str:
        counts = dict(self.group.assignor_counts)
        if self.member.server_assignor is not None:
            add_to_count(counts, self.member.server_assignor, 1)
        if self.before.server_assignor is not None:
            add_to_count(counts, self.before.server_assignor, -1)
        return preferred_assignor(counts, self._state.settings.consumer_assignors)

    def reconcile(self, owned: Owned | None) -> bool:
        """Move the member one step towards its target. Return whether this changed it, which needs a record."""
        if self.member.is_reconciled_to(self.assignment_epoch) and not self.has_subscription_changed:
            return False
        nobody_or_self = (None, self.member.member_id)
        owners = self.group.owners
        after = reconciled(
            self.member,
            self.assignment_epoch,
            self.target,
            owned,
            self.subscriptions.topic_ids(self.member, self._state.current.image),
            lambda topic_id, partition: owners.get((topic_id, partition)) in nobody_or_self,
        )
        if after == self.member:
            return False
        self.member = after
        self.records.append(records.member_assignment(self.group.group_id, after))
        return True


def _describable(topics: frozenset[str], may_describe: MayUseTopic) -> frozenset[str]:
    return topics if all(map(may_describe, topics)) else frozenset(filter(may_describe, topics))
