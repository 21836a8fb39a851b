"""`moldau cluster describe`: the brokers, the active controller, and who leads and follows which partition."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import TopicPartition
from moldau.cli.cluster import drawing
from moldau.cli.completion import complete_groups, complete_topics
from moldau.cli.connect import NEXT_STEPS, Broker, CommandFailed, broker_options
from moldau.cli.output import format_option, has_colours, show
from moldau.client.admin.cluster_values import Quorum, Reassignment, TopicReplicas
from moldau.client.admin.group_values import DescribedGroup
from moldau.operations import cluster_overview as overview
from moldau.operations.cluster_overview import ClusterOverview

if TYPE_CHECKING:
    from moldau.client.admin.cluster_admin import ClusterAdmin

ANSWER_MS = 10_000
QUORUM_NOT_SHOWN = (ErrorCode.UNSUPPORTED_VERSION, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
"""Errors of a broker that has no quorum, or does not show it to this user. The rest of the cluster is shown."""


@click.command(short_help="Draw brokers, the controller, and who leads and follows which partition.")
@click.option("-t", "--topic", "names", multiple=True, shell_complete=complete_topics, help="Only this. Repeatable.")
@click.option("-g", "--group", "group_id", shell_complete=complete_groups, help="Show which member reads what.")
@click.option("--internal", is_flag=True, help="Show the cluster's own topics too (__consumer_offsets and the like).")
@format_option
@broker_options
def describe(broker: Broker, names: tuple[str, ...], group_id: str | None, internal: bool, output_format: str) -> None:
    """Draw the cluster: its brokers, its controller, and who leads and follows which partition.

    \b
    moldau cluster describe
    moldau cluster describe --topic orders --group readers
    moldau cluster describe --format json | jq '.partitions[] | select(.leader == null)'
    """
    shown = _load_overview(broker, names, group_id, internal)
    signs = drawing.SYMBOLS if has_colours() else drawing.LETTERS
    show(output_format, *drawing.tables(shown, signs), data=overview.as_data(shown))


def _load_overview(broker: Broker, names: Sequence[str], group_id: str | None, internal: bool) -> ClusterOverview:
    from moldau.cli.group.connect import group_connection
    from moldau.client.admin.cluster_admin import ClusterAdmin
    from moldau.operations.groups import existing_groups

    with group_connection(broker) as connection:
        admin = ClusterAdmin(connection.cluster, ANSWER_MS)
        cluster = admin.described(fenced_too=True)
        topics = admin.topics()
        quorum, moves = find_quorum(admin), _moves(admin)
        group = existing_groups(connection, [group_id])[0] if group_id else None
    readers = overview.readers_of(group)
    now_ms = time.time_ns() // 1_000_000
    return ClusterOverview(
        cluster.cluster_id,
        overview.broker_rows(cluster, topics.values()),
        quorum,
        overview.controller_rows(quorum, now_ms) if quorum is not None else [],
        overview.partition_rows(chosen_topics(topics, names, group, internal), moves, readers),
        group,
        overview.idle_members(group),
        overview.health_of(topics.values()),
    )


def find_quorum(admin: ClusterAdmin) -> Quorum | None:
    try:
        return admin.quorum()
    except KafkaError as error:
        if error.code in QUORUM_NOT_SHOWN:
            return None
        raise


def _moves(admin: ClusterAdmin) -> Mapping[TopicPartition, Reassignment]:
    try:
        return admin.reassignments()
    except KafkaError as error:
        if error.code in QUORUM_NOT_SHOWN:
            return {}
        raise


def chosen_topics(
    topics: Mapping[str, TopicReplicas], names: Sequence[str], group: DescribedGroup | None, internal: bool
) -> list[TopicReplicas]:
    """Return the topics in `names`; if it is empty, those that the group reads. Without a group, or if its members read
    nothing now, return all topics.

    Internal topics are among all topics only if `internal` is true.
    """
    missing = [name for name in names if name not in topics]
    if missing:
        raise CommandFailed(f"no topic {', '.join(missing)}; {NEXT_STEPS['_UNKNOWN_TOPIC']}")
    selected = set(names)
    if not selected and group is not None:
        selected = {partition.topic for partition in overview.readers_of(group)}
    if selected:
        return [topics[name] for name in sorted(selected) if name in topics]
    return [topic for name, topic in sorted(topics.items()) if internal or not topic.is_internal]
