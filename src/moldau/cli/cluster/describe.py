"""`moldau cluster describe`: who is in the cluster, who leads it, and who leads and follows which partition.

`describe` is a command for the group `moldau cluster`: `cluster.add_command(describe)`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import TopicPartition
from moldau.cli.cluster import drawing as cluster_drawing
from moldau.cli.cluster import view as cluster_view
from moldau.cli.cluster.view import ClusterView
from moldau.cli.connect import NEXT_STEPS, Broker, CommandFailed, broker_options, complete_topics
from moldau.cli.group.completion import complete_groups
from moldau.cli.output import format_option, has_colours, show
from moldau.client.cluster_values import Quorum, Reassignment, TopicReplicas
from moldau.client.group_values import DescribedGroup

if TYPE_CHECKING:
    from moldau.client.cluster_admin import ClusterAdmin

ANSWER_MS = 10_000
NOT_FOR_US = (ErrorCode.UNSUPPORTED_VERSION, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
"""A broker that has no quorum to tell of, or tells not everybody: the rest is shown all the same."""


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
    view = _view(broker, names, group_id, internal)
    signs = cluster_drawing.DRAWN if has_colours() else cluster_drawing.LETTERS
    show(output_format, *cluster_drawing.tables(view, signs), data=cluster_view.as_data(view))


def _view(broker: Broker, names: Sequence[str], group_id: str | None, internal: bool) -> ClusterView:
    from moldau.cli.group.connect import existing_groups, group_client
    from moldau.client.cluster_admin import ClusterAdmin

    with group_client(broker) as client:
        admin = ClusterAdmin(client.cluster, ANSWER_MS)
        cluster = admin.described(fenced_too=True)
        topics = admin.topics()
        quorum, moves = _quorum(admin), _moves(admin)
        group = existing_groups(client, [group_id])[0] if group_id else None
    readers = cluster_view.readers_of(group)
    now_ms = time.time_ns() // 1_000_000
    return ClusterView(
        cluster.cluster_id,
        cluster_view.broker_rows(cluster, topics.values()),
        quorum,
        cluster_view.controller_rows(quorum, now_ms) if quorum is not None else [],
        cluster_view.partition_rows(chosen_topics(topics, names, group, internal), moves, readers),
        group,
        cluster_view.idle_members(group),
    )


def _quorum(admin: ClusterAdmin) -> Quorum | None:
    try:
        return admin.quorum()
    except KafkaError as error:
        if error.code in NOT_FOR_US:
            return None
        raise


def _moves(admin: ClusterAdmin) -> Mapping[TopicPartition, Reassignment]:
    try:
        return admin.reassignments()
    except KafkaError as error:
        if error.code in NOT_FOR_US:
            return {}
        raise


def chosen_topics(
    topics: Mapping[str, TopicReplicas], names: Sequence[str], group: DescribedGroup | None, internal: bool
) -> list[TopicReplicas]:
    """Those named; else those the group reads; else all, the cluster's own only if asked for."""
    missing = [name for name in names if name not in topics]
    if missing:
        raise CommandFailed(f"no topic {', '.join(missing)}; {NEXT_STEPS['_UNKNOWN_TOPIC']}")
    wanted = set(names)
    if not wanted and group is not None:
        wanted = {where.topic for where in cluster_view.readers_of(group)}
    if wanted:
        return [topics[name] for name in sorted(wanted) if name in topics]
    return [topic for name, topic in sorted(topics.items()) if internal or not topic.is_internal]
