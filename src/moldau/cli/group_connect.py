"""How `moldau group` reaches the groups of a cluster, and how a refusal of theirs is told in one line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from moldau.base.errors import ErrorCode, KafkaError, MalformedData, UnusableProperty
from moldau.cli.connect import (
    Broker,
    CommandFailed,
    first_answering,
    split_address,
)
from moldau.client.cluster import Cluster
from moldau.client.group_values import DescribedGroup, Member
from moldau.client.groups import Groups

ANSWER_SECONDS: Final = 5.0
COORDINATOR_MS: Final = 10_000
"""A coordinator that moves or loads is waited for so long."""
MEMBERS_NAMED_MAX: Final = 5
SHOW_GROUPS: Final = "`moldau group list` shows the groups there are"
NEXT_STEPS: Final = {
    ErrorCode.GROUP_ID_NOT_FOUND: SHOW_GROUPS,
    ErrorCode.NON_EMPTY_GROUP: "`moldau group describe` shows its members; stop them first",
    ErrorCode.UNKNOWN_MEMBER_ID: "it has active members again: stop them first",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "its coordinator is not there; try again in a moment",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "ask for an ACL on the group",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "ask for an ACL on the topic",
    ErrorCode.UNSUPPORTED_VERSION: "this broker does not offer it",
}


class GroupClient(NamedTuple):
    groups: Groups
    cluster: Cluster


@contextmanager
def group_client(broker: Broker, answer_seconds: float = ANSWER_SECONDS) -> Iterator[GroupClient]:
    """The groups of a cluster that answers; whatever goes wrong inside is told in one line."""
    answering = first_answering(broker.bootstrap_servers)
    host, port = split_address(answering)
    try:
        cluster = Cluster(f"{host}:{port}", broker.client_config, answer_seconds)
    except UnusableProperty as error:
        raise CommandFailed(str(error)) from error
    try:
        try:
            cluster.nodes()
        except (OSError, MalformedData) as error:
            raise CommandFailed(
                f"{answering} accepts connections but does not answer as a Kafka broker ({error});"
                " check that the port is a broker's and that -X says what it asks of clients (TLS, SASL)"
            ) from error
        yield GroupClient(Groups(cluster, COORDINATOR_MS), cluster)
    except KafkaError as error:
        raise told(error) from error
    except (OSError, MalformedData) as error:
        raise CommandFailed(f"the cluster at {broker.bootstrap_servers} stopped answering: {error}") from error
    finally:
        cluster.close()


def told(error: KafkaError, subject: str = "") -> CommandFailed:
    said = error.message or error.code.name.lower().replace("_", " ")
    step = NEXT_STEPS.get(error.code)
    return CommandFailed((f"{subject}: " if subject else "") + said.rstrip(".") + (f"; {step}" if step else ""))


def existing_groups(client: GroupClient, names: Iterable[str]) -> list[DescribedGroup]:
    """The groups of these names, in their order; says which of them do not exist."""
    names = list(dict.fromkeys(names))
    described = client.groups.described(names)
    unknown = [name for name in names if is_unknown(described[name])]
    if unknown:
        raise CommandFailed(f"no group {', '.join(unknown)}; {SHOW_GROUPS}")
    found = []
    for name in names:
        said = described[name]
        if isinstance(said, KafkaError):
            raise told(said, f"group {name}")
        found.append(said)
    return found


def is_unknown(said: DescribedGroup | KafkaError) -> bool:
    if isinstance(said, KafkaError):
        return said.code is ErrorCode.GROUP_ID_NOT_FOUND
    return said.state == "Dead"


def refuse_active(group: DescribedGroup) -> None:
    """A group with members does not let anybody else change it: says who they are."""
    if not group.members:
        return
    count = len(group.members)
    named = ", ".join(map(member_name, group.members[:MEMBERS_NAMED_MAX]))
    more = f" and {count - MEMBERS_NAMED_MAX} more" if count > MEMBERS_NAMED_MAX else ""
    raise CommandFailed(
        f"group {group.group_id} has {count} active member{'s' if count != 1 else ''}: {named}{more};"
        f" stop {'them' if count != 1 else 'it'} first"
    )


def member_name(member: Member) -> str:
    return f"{member.instance_id or member.member_id} ({member.client_id} at {host_of(member)})"


def host_of(member: Member) -> str:
    """Kafka writes an address as Java does, with a slash before it."""
    return member.host.removeprefix("/")
