"""Groups as those who look after them see them: ListGroups, DescribeGroups, DeleteGroups."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from moldau.base.errors import ErrorCode, KafkaError
from moldau.coordinator.group import offset_removal
from moldau.coordinator.group.classic.group import ClassicGroup, ClassicMember, State
from moldau.coordinator.group.consumer import describe as consumer
from moldau.coordinator.group.consumer.group import ConsumerGroup
from moldau.coordinator.group.group import Group
from moldau.coordinator.group.state import GroupState
from moldau.coordinator.machine import Outcome
from moldau.wire.messages.consumer_group_describe import DescribedGroup as DescribedConsumerGroup
from moldau.wire.messages.delete_groups import DeletableGroupResult
from moldau.wire.messages.describe_groups import DescribedGroup, DescribedGroupMember
from moldau.wire.messages.list_groups import ListedGroup

GROUP_NOT_FOUND_FROM: Final = 6
"""Before, DescribeGroups told of a group that is not there that it was Dead."""
GROUP_OPERATIONS: Final = 0b1_0000_0000_0101_0100_1000
"""READ DELETE DESCRIBE DESCRIBE_CONFIGS ALTER_CONFIGS, as nobody is forbidden anything."""
NOT_ASKED: Final = -(2**31)


def listed(state: GroupState, states: Collection[str], types: Collection[str]) -> list[ListedGroup]:
    """All groups, or those in one of these states and of one of these types, however they are spelled."""
    wanted_states = {each.lower() for each in states}
    wanted_types = {each.lower() for each in types}
    return [
        ListedGroup(group.group_id, group.protocol_type, group.state_name, group.type_name)
        for group in state.groups.values()
        if (not wanted_states or group.state_name.lower() in wanted_states)
        and (not wanted_types or group.type_name in wanted_types)
    ]


def describe(state: GroupState, group_id: str, version: int, with_operations: bool) -> DescribedGroup:
    group = state.groups.get(group_id)
    operations = GROUP_OPERATIONS if with_operations else NOT_ASKED
    if not isinstance(group, ClassicGroup):
        return not_found(group_id, group, version)
    is_stable = group.state is State.STABLE
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state_name,
        protocol_type=group.protocol_type,
        protocol_data=group.protocol_name or "" if is_stable else "",
        members=[_member(member, group.protocol_name if is_stable else None) for member in group.members.values()],
        authorized_operations=operations,
    )


def not_found(group_id: str, group: Group | None, version: int) -> DescribedGroup:
    if version < GROUP_NOT_FOUND_FROM:
        return DescribedGroup(group_id=group_id, group_state="Dead", authorized_operations=NOT_ASKED)
    why = f"Group {group_id} not found." if group is None else f"Group {group_id} is not a classic group."
    code = ErrorCode.GROUP_ID_NOT_FOUND
    return DescribedGroup(code, why, group_id, "Dead", authorized_operations=NOT_ASKED)


def consumer_described(state: GroupState, group_id: str, with_operations: bool) -> DescribedConsumerGroup:
    group = state.groups.get(group_id)
    if not isinstance(group, ConsumerGroup):
        why = f"Group {group_id} not found." if group is None else f"Group {group_id} is not a consumer group."
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, why)
    found = consumer.describe(group, state.current.image, state.settings.consumer_assignors)
    found.authorized_operations = GROUP_OPERATIONS if with_operations else NOT_ASKED
    return found


def _member(member: ClassicMember, protocol: str | None) -> DescribedGroupMember:
    """What it wants and what it has are told only while they belong together."""
    described = DescribedGroupMember(member.member_id, member.instance_id, member.client_id, member.client_host)
    if protocol is not None:
        described.member_metadata = member.metadata_of(protocol)
        described.member_assignment = member.assignment
    return described


def delete(state: GroupState, group_id: str) -> Outcome[DeletableGroupResult]:
    """The group and all that it committed."""
    group = state.groups.get(group_id)
    if group is None:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
    if not group.is_empty:
        raise KafkaError(ErrorCode.NON_EMPTY_GROUP)
    records = [*offset_removal.of_deleted_group(state, group_id), *group.tombstones()]
    return Outcome(DeletableGroupResult(group_id), records, is_divisible=True)
