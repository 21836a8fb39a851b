"""Applies records to consumer groups, live and on replay alike. It refuses nothing: compaction may have removed older
records, so that a record or tombstone may come for a group or member that was never created.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from moldau.coordinator.group.consumer.group import NO_EPOCH, ConsumerGroup
from moldau.coordinator.group.consumer.member import (
    LEAVE_EPOCH,
    NO_PARTITIONS,
    ConsumerMember,
    MemberState,
    Partitions,
)
from moldau.coordinator.group.state import GroupState
from moldau.coordinator.group.subscriptions import ResolvedPattern, SubscribedGroups
from moldau.wire.log_records import offsets as logged
from moldau.wire.schema import Message


class ConsumerGroupRecordApplier:
    def __init__(self, state: GroupState, subscribed_groups: SubscribedGroups) -> None:
        self._state = state
        self._subscribed_groups = subscribed_groups
        self._appliers: dict[type[Message], Callable[[Any, Any], None]] = {
            logged.ConsumerGroupMetadataKey: self._apply_group,
            logged.ConsumerGroupMemberMetadataKey: self._apply_member,
            logged.ConsumerGroupTargetAssignmentMetadataKey: self._apply_target_epoch,
            logged.ConsumerGroupTargetAssignmentMemberKey: self._apply_target,
            logged.ConsumerGroupCurrentMemberAssignmentKey: self._apply_current_assignment,
            logged.ConsumerGroupRegularExpressionKey: self._apply_pattern,
        }

    def apply(self, key: Message, value: Message | None) -> None:
        self._appliers[key.__class__](key, value)

    def _find(self, group_id: str) -> ConsumerGroup | None:
        group = self._state.groups.get(group_id)
        return group if isinstance(group, ConsumerGroup) else None

    def _find_or_create(self, group_id: str) -> ConsumerGroup:
        """Return the group. Replace one of another type: it had only offsets, or its tombstone came earlier."""
        group = self._find(group_id)
        if group is None:
            group = self._state.groups[group_id] = ConsumerGroup(group_id, self._subscribed_groups)
        return group

    def _apply_group(
        self, key: logged.ConsumerGroupMetadataKey, value: logged.ConsumerGroupMetadataValue | None
    ) -> None:
        if value is not None:
            group = self._find_or_create(key.group_id)
            group.epoch = value.epoch
            group.metadata_hash = value.metadata_hash
        elif (existing := self._find(key.group_id)) is not None:
            existing.subscriptions.clear()
            del self._state.groups[key.group_id]

    def _apply_member(
        self, key: logged.ConsumerGroupMemberMetadataKey, value: logged.ConsumerGroupMemberMetadataValue | None
    ) -> None:
        if value is not None:
            group = self._find_or_create(key.group_id)
            group.put(
                _with_metadata(group.members.get(key.member_id) or ConsumerMember(member_id=key.member_id), value)
            )
        elif (existing := self._find(key.group_id)) is not None:
            existing.remove(key.member_id)

    def _apply_target_epoch(
        self,
        key: logged.ConsumerGroupTargetAssignmentMetadataKey,
        value: logged.ConsumerGroupTargetAssignmentMetadataValue | None,
    ) -> None:
        group = self._find(key.group_id) if value is None else self._find_or_create(key.group_id)
        if group is not None:
            group.assignment_epoch = NO_EPOCH if value is None else value.assignment_epoch
            group.assignment_timestamp_ms = 0 if value is None else value.assignment_timestamp

    def _apply_target(
        self,
        key: logged.ConsumerGroupTargetAssignmentMemberKey,
        value: logged.ConsumerGroupTargetAssignmentMemberValue | None,
    ) -> None:
        if value is not None:
            target = {each.topic_id: frozenset(each.partitions) for each in value.topic_partitions}
            self._find_or_create(key.group_id).targets[key.member_id] = target
        elif (existing := self._find(key.group_id)) is not None:
            existing.targets.pop(key.member_id, None)

    def _apply_current_assignment(
        self,
        key: logged.ConsumerGroupCurrentMemberAssignmentKey,
        value: logged.ConsumerGroupCurrentMemberAssignmentValue | None,
    ) -> None:
        if value is not None:
            group = self._find_or_create(key.group_id)
            member = group.members.get(key.member_id) or ConsumerMember(member_id=key.member_id)
            group.put(_with_assignment(member, value))
        elif (existing := self._find(key.group_id)) is not None and key.member_id in existing.members:
            existing.put(_with_assignment(existing.members[key.member_id], _LEFT_ASSIGNMENT))

    def _apply_pattern(
        self, key: logged.ConsumerGroupRegularExpressionKey, value: logged.ConsumerGroupRegularExpressionValue | None
    ) -> None:
        if value is not None:
            resolved = ResolvedPattern(frozenset(value.topics), value.version, value.timestamp)
            self._find_or_create(key.group_id).subscriptions.set_resolved(key.regular_expression, resolved)
        elif (existing := self._find(key.group_id)) is not None:
            existing.subscriptions.set_resolved(key.regular_expression, None)


_LEFT_ASSIGNMENT = logged.ConsumerGroupCurrentMemberAssignmentValue(LEAVE_EPOCH, LEAVE_EPOCH, MemberState.STABLE)


def _with_metadata(member: ConsumerMember, value: logged.ConsumerGroupMemberMetadataValue) -> ConsumerMember:
    return replace(
        member,
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        topic_names=frozenset(value.subscribed_topic_names),
        pattern=value.subscribed_topic_regex or "",
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        server_assignor=value.server_assignor,
        classic_member_metadata=value.classic_member_metadata,
    )


def _with_assignment(member: ConsumerMember, value: logged.ConsumerGroupCurrentMemberAssignmentValue) -> ConsumerMember:
    return replace(
        member,
        member_epoch=value.member_epoch,
        previous_member_epoch=value.previous_member_epoch,
        state=MemberState(value.state),
        assigned=_partitions(value.assigned_partitions, value.member_epoch),
        pending_revocation=_partitions(value.partitions_pending_revocation, value.member_epoch),
    )


def _partitions(topics: Sequence[logged.TopicPartitions], member_epoch: int) -> Partitions:
    """Return the partitions with their epochs. Older writers leave the epochs out; then the member epoch, which is the
    latest possible one, is used."""
    if not topics:
        return NO_PARTITIONS
    by_topic = {}
    for topic in topics:
        epochs = topic.assignment_epochs
        if epochs is None or len(epochs) != len(topic.partitions):
            epochs = [max(member_epoch, 0)] * len(topic.partitions)
        by_topic[topic.topic_id] = dict(zip(topic.partitions, epochs, strict=True))
    return by_topic
