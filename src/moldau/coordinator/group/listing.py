"""Groups as administrators see them: ListGroups, DescribeGroups, DeleteGroups."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from typing import Final, NamedTuple

from moldau.base.acl_operations import OPERATIONS_OMITTED
from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.steps import Steps, TurnItems
from moldau.coordinator.group import offset_removal
from moldau.coordinator.group.classic.group import ClassicGroup, ClassicMember, State
from moldau.coordinator.group.consumer.describe import describe_group
from moldau.coordinator.group.consumer.group import ConsumerGroup
from moldau.coordinator.group.group import Group
from moldau.coordinator.group.share import describe as share_group
from moldau.coordinator.group.share import offsets as share_offsets
from moldau.coordinator.group.share.group import ShareGroup
from moldau.coordinator.group.share.heartbeat import find_share_group
from moldau.coordinator.group.state import GroupState
from moldau.coordinator.machine import Outcome
from moldau.wire.messages.consumer_group_describe import DescribedGroup as DescribedConsumerGroup
from moldau.wire.messages.delete_groups import DeletableGroupResult
from moldau.wire.messages.describe_groups import DescribedGroup, DescribedGroupMember
from moldau.wire.messages.list_groups import ListedGroup
from moldau.wire.messages.share_group_describe import DescribedGroup as DescribedShareGroup

GROUP_NOT_FOUND_MIN_VERSION: Final = 6
"""Earlier versions of DescribeGroups report a missing group as Dead."""


class GroupFilter(NamedTuple):
    """The groups that a client wants to see, and those that it may. Empty sets mean all."""

    states: AbstractSet[str]
    """In lower case, as are the types."""
    types: AbstractSet[str]
    may_see: Callable[[str], bool]
    """Takes the group id."""

    def includes(self, group: Group) -> bool:
        return (
            (not self.states or group.state_name.lower() in self.states)
            and (not self.types or group.type_name in self.types)
            and self.may_see(group.group_id)
        )


def list_groups(state: GroupState, wanted: GroupFilter, turn: TurnItems) -> Steps[list[ListedGroup]]:
    """Return the groups that the filter includes. The step ends whenever the turn is over."""
    listed: list[ListedGroup] = []
    for group in list(state.groups.values()):
        if wanted.includes(group):
            listed.append(ListedGroup(group.group_id, group.protocol_type, group.state_name, group.type_name))
        if turn.ends_after(1):
            yield
    return listed


def describe(state: GroupState, group_id: str, version: int, operations: int) -> DescribedGroup:
    """`operations` are those that the client may do with the group, as bits."""
    group = state.groups.get(group_id)
    if not isinstance(group, ClassicGroup):
        return not_found(group_id, group, version, operations)
    is_stable = group.state is State.STABLE
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state_name,
        protocol_type=group.protocol_type,
        protocol_data=group.protocol_name or "" if is_stable else "",
        members=[_member(member, group.protocol_name if is_stable else None) for member in group.members.values()],
        authorized_operations=operations,
    )


def not_found(group_id: str, group: Group | None, version: int, operations: int) -> DescribedGroup:
    if version < GROUP_NOT_FOUND_MIN_VERSION:
        return DescribedGroup(group_id=group_id, group_state="Dead", authorized_operations=operations)
    message = f"Group {group_id} not found." if group is None else f"Group {group_id} is not a classic group."
    code = ErrorCode.GROUP_ID_NOT_FOUND
    return DescribedGroup(code, message, group_id, "Dead", authorized_operations=OPERATIONS_OMITTED)


def describe_consumer_group(state: GroupState, group_id: str, operations: int) -> DescribedConsumerGroup:
    group = state.groups.get(group_id)
    if not isinstance(group, ConsumerGroup):
        message = f"Group {group_id} not found." if group is None else f"Group {group_id} is not a consumer group."
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, message)
    description = describe_group(group, state.current.image, state.settings.consumer_assignors)
    description.authorized_operations = operations
    return description


def describe_share_group(state: GroupState, group_id: str, operations: int) -> DescribedShareGroup:
    description = share_group.describe_group(find_share_group(state, group_id), state.current.image)
    description.authorized_operations = operations
    return description


def _member(member: ClassicMember, protocol: str | None) -> DescribedGroupMember:
    """Describe a member. Its metadata and assignment are shown only while the group is stable (`protocol` is set)."""
    described = DescribedGroupMember(member.member_id, member.instance_id, member.client_id, member.client_host)
    if protocol is not None:
        described.member_metadata = member.metadata_of(protocol)
        described.member_assignment = member.assignment
    return described


def begin_deletion(state: GroupState, group_id: str) -> Outcome[DeletableGroupResult] | Outcome[share_offsets.Deletion]:
    """Delete the group; if it is a share group with states, write down first that they are deleted. `delete` comes when
    they are."""
    group = state.groups.get(group_id)
    if isinstance(group, ShareGroup) and group.states:
        return share_offsets.begin_group_deletion(state, group)
    return delete(state, group_id)


def delete(state: GroupState, group_id: str) -> Outcome[DeletableGroupResult]:
    """Delete the group and all its committed offsets."""
    group = state.groups.get(group_id)
    if group is None:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
    if not group.is_empty:
        raise KafkaError(ErrorCode.NON_EMPTY_GROUP)
    records = [*offset_removal.of_deleted_group(state, group_id), *group.tombstones()]
    return Outcome(DeletableGroupResult(group_id), records, is_divisible=True)
