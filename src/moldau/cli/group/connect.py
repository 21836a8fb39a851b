"""How `moldau group` connects to the groups of a cluster, and what it prints if they do not exist or have members."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from moldau.base.errors import ErrorCode, KafkaError
from moldau.cli.cluster.connect import (
    COORDINATOR_TIMEOUT_MS,
    HINT_GROUPS,
    answering_cluster,
    describe_existing,
)
from moldau.cli.connect import ANSWER_SECONDS, Broker, CommandFailed
from moldau.client.admin.group_values import DescribedGroup, Member
from moldau.client.admin.groups import Groups
from moldau.client.cluster import Cluster

MEMBERS_NAMED_MAX: Final = 5


class GroupConnection(NamedTuple):
    groups: Groups
    cluster: Cluster


@contextmanager
def group_connection(broker: Broker, answer_seconds: float = ANSWER_SECONDS) -> Iterator[GroupConnection]:
    """Yield the groups of a cluster that answers.

    Inside the block, turn error codes, lost connections and malformed responses into CommandFailed, which is printed as
    one line.
    """
    with answering_cluster(broker, answer_seconds) as cluster:
        yield GroupConnection(Groups(cluster, COORDINATOR_TIMEOUT_MS), cluster)


def existing_groups(connection: GroupConnection, names: Iterable[str]) -> list[DescribedGroup]:
    """Return the groups with these names, in their order; fail with the names that do not exist."""
    return describe_existing(names, connection.groups.described, is_unknown, kind="group", next_step=HINT_GROUPS)


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
    raise CommandFailed(
        f"group {group.group_id} has {count} active member{'s' if count != 1 else ''}: {named}{more};"
        f" stop {'them' if count != 1 else 'it'} first"
    )


def member_label(member: Member) -> str:
    return f"{member.instance_id or member.member_id} ({member.client_id} at {host_of(member)})"


def host_of(member: Member) -> str:
    """Return the host without the slash that Java puts before an address."""
    return member.host.removeprefix("/")
