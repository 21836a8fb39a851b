"""Applies records to share groups, live and on replay alike. It refuses nothing: compaction may have removed older
records, so that a record or tombstone may come for a group or member that was never created.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from moldau.coordinator.group.share.group import NO_EPOCH, ShareGroup
from moldau.coordinator.group.share.member import LEAVE_EPOCH, NO_PARTITIONS, PartitionsByTopicId, ShareMember
from moldau.coordinator.group.share.states import NO_STATES, StatePartitions, StatesByTopicId, TopicStates
from moldau.coordinator.group.state import GroupState
from moldau.coordinator.group.subscriptions import SubscribedGroups
from moldau.wire.log_records import share_groups as logged
from moldau.wire.schema import Message


class ShareGroupRecordApplier:
    def __init__(self, state: GroupState, subscribed_groups: SubscribedGroups) -> None:
        self._state = state
        self._subscribed_groups = subscribed_groups
        self.appliers: dict[type[Message], Callable[[Any, Any], None]] = {
            logged.ShareGroupMetadataKey: self._apply_group,
            logged.ShareGroupMemberMetadataKey: self._apply_member,
            logged.ShareGroupTargetAssignmentMetadataKey: self._apply_target_epoch,
            logged.ShareGroupTargetAssignmentMemberKey: self._apply_target,
            logged.ShareGroupCurrentMemberAssignmentKey: self._apply_current_assignment,
            logged.ShareGroupStatePartitionMetadataKey: self._apply_states,
        }

    def _find(self, group_id: str) -> ShareGroup | None:
        group = self._state.groups.get(group_id)
        if not isinstance(group, ShareGroup):
            return None
        group.is_settled = False
        return group

    def _find_or_create(self, group_id: str) -> ShareGroup:
        """Return the group. Replace one of another type: its tombstone came earlier."""
        group = self._find(group_id)
        if group is None:
            group = self._state.groups[group_id] = ShareGroup(group_id, self._subscribed_groups)
        return group

    def _apply_group(self, key: logged.ShareGroupMetadataKey, value: logged.ShareGroupMetadataValue | None) -> None:
        if value is not None:
            group = self._find_or_create(key.group_id)
            group.epoch = value.epoch
            group.metadata_hash = value.metadata_hash
        elif (existing := self._find(key.group_id)) is not None:
            existing.subscriptions.clear()
            del self._state.groups[key.group_id]

    def _apply_member(
        self, key: logged.ShareGroupMemberMetadataKey, value: logged.ShareGroupMemberMetadataValue | None
    ) -> None:
        if value is not None:
            group = self._find_or_create(key.group_id)
            member = group.members.get(key.member_id) or ShareMember(member_id=key.member_id)
            group.put(
                replace(
                    member,
                    rack_id=value.rack_id,
                    client_id=value.client_id,
                    client_host=value.client_host,
                    topic_names=frozenset(value.subscribed_topic_names),
                )
            )
        elif (existing := self._find(key.group_id)) is not None:
            existing.remove(key.member_id)

    def _apply_target_epoch(
        self,
        key: logged.ShareGroupTargetAssignmentMetadataKey,
        value: logged.ShareGroupTargetAssignmentMetadataValue | None,
    ) -> None:
        group = self._find(key.group_id) if value is None else self._find_or_create(key.group_id)
        if group is not None:
            group.assignment_epoch = NO_EPOCH if value is None else value.assignment_epoch
            group.assignment_timestamp_ms = 0 if value is None else value.assignment_timestamp

    def _apply_target(
        self,
        key: logged.ShareGroupTargetAssignmentMemberKey,
        value: logged.ShareGroupTargetAssignmentMemberValue | None,
    ) -> None:
        if value is not None:
            self._find_or_create(key.group_id).targets[key.member_id] = _partitions(value.topic_partitions)
        elif (existing := self._find(key.group_id)) is not None:
            existing.targets.pop(key.member_id, None)

    def _apply_current_assignment(
        self,
        key: logged.ShareGroupCurrentMemberAssignmentKey,
        value: logged.ShareGroupCurrentMemberAssignmentValue | None,
    ) -> None:
        if value is not None:
            group = self._find_or_create(key.group_id)
            member = group.members.get(key.member_id) or ShareMember(member_id=key.member_id)
            group.put(
                replace(
                    member,
                    member_epoch=value.member_epoch,
                    previous_member_epoch=value.previous_member_epoch,
                    assigned=_partitions(value.assigned_partitions),
                )
            )
        elif (existing := self._find(key.group_id)) is not None and key.member_id in existing.members:
            member = existing.members[key.member_id]
            left = replace(member, member_epoch=LEAVE_EPOCH, previous_member_epoch=LEAVE_EPOCH, assigned=NO_PARTITIONS)
            existing.put(left)

    def _apply_states(
        self,
        key: logged.ShareGroupStatePartitionMetadataKey,
        value: logged.ShareGroupStatePartitionMetadataValue | None,
    ) -> None:
        if value is not None:
            self._find_or_create(key.group_id).states = self._states(value)
        elif (existing := self._find(key.group_id)) is not None:
            existing.states = NO_STATES

    def _states(self, value: logged.ShareGroupStatePartitionMetadataValue) -> StatePartitions:
        now_ms = self._state.clock.monotonic_ms()
        return StatePartitions(
            _topics(value.initializing_topics, now_ms),
            _topics(value.initialized_topics, now_ms),
            {each.topic_id: each.topic_name for each in value.deleting_topics},
        )


def _topics(topics: Iterable[logged.TopicPartitionsInfo], now_ms: int) -> StatesByTopicId:
    return {each.topic_id: TopicStates(each.topic_name, frozenset(each.partitions), now_ms) for each in topics}


def _partitions(
    topics: Sequence[logged.TopicPartition] | Sequence[logged.TopicPartitions],
) -> PartitionsByTopicId:
    found: Iterable[logged.TopicPartition | logged.TopicPartitions] = topics
    return {each.topic_id: frozenset(each.partitions) for each in found}
