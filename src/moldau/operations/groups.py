"""The groups of a cluster: those that exist, of whatever type, and why one with members is not changed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from moldau.base.errors import ErrorCode, KafkaError
from moldau.client.admin.group_values import Described, DescribedGroup, Member
from moldau.client.admin.groups import Groups
from moldau.client.admin.share_groups import ShareGroups
from moldau.client.cluster import Cluster
from moldau.operations.failures import OperationFailed, describe_existing
from moldau.operations.next_steps import NextStep

MEMBERS_NAMED_MAX: Final = 5


class GroupConnection(NamedTuple):
    groups: Groups
    share: ShareGroups
    cluster: Cluster

    def described(self, group_ids: Iterable[str]) -> Described:
        """Return each group or its error. A group that is none of consumers may be a share group."""
        described = self.groups.described(group_ids)
        unknown = [group_id for group_id, description in described.items() if is_unknown(description)]
        if unknown:
            found = self.share.described(unknown)
            described |= {group_id: group for group_id, group in found.items() if isinstance(group, DescribedGroup)}
        return described


def connect_groups(cluster: Cluster, timeout_ms: int) -> GroupConnection:
    return GroupConnection(Groups(cluster, timeout_ms), ShareGroups(cluster, timeout_ms), cluster)


def existing_groups(connection: GroupConnection, names: Iterable[str]) -> list[DescribedGroup]:
    """Return the groups with these names, in their order; fail with the names that do not exist."""
    return describe_existing(names, connection.described, is_unknown, kind="group", step=NextStep.SEE_GROUPS)


def is_unknown(description: DescribedGroup | KafkaError) -> bool:
    if isinstance(description, KafkaError):
        return description.code is ErrorCode.GROUP_ID_NOT_FOUND
    return description.state == "Dead"


def require_no_members(group: DescribedGroup) -> None:
    """Fail if the group has members, and name them: while a group has members, only they can commit its offsets."""
    if not group.members:
        return
    count = len(group.members)
    named = ", ".join(map(member_label, group.members[:MEMBERS_NAMED_MAX]))
    more = f" and {count - MEMBERS_NAMED_MAX} more" if count > MEMBERS_NAMED_MAX else ""
    raise OperationFailed(
        f"group {group.group_id} has {count} active member{'s' if count != 1 else ''}: {named}{more};"
        f" stop {'them' if count != 1 else 'it'} first"
    )


def member_label(member: Member) -> str:
    return f"{member.instance_id or member.member_id} ({member.client_id} at {host_of(member)})"


def host_of(member: Member) -> str:
    """Return the host without the slash that Java puts before an address."""
    return member.host.removeprefix("/")
