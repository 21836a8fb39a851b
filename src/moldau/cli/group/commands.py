"""`moldau group`: list, describe, delete; `reset` is in reset.py.

tables.py turns the coordinators' responses into tables; `client.admin` sends the requests, `operations.lag` computes
lag.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import click

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import TopicPartition
from moldau.cli.completion import complete_groups
from moldau.cli.connect import Broker, CommandFailed, broker_options
from moldau.cli.group import tables
from moldau.cli.group.connect import group_connection
from moldau.cli.group.reset import reset
from moldau.cli.group.tables import GroupTables
from moldau.cli.next_steps import worded
from moldau.cli.output import Table, confirm, format_option, show
from moldau.client.admin.group_coordinators import NotAnswered
from moldau.client.admin.group_values import (
    SHARE,
    DescribedGroup,
    ListedGroup,
    ShareOffset,
    holds_micro_batch_ids,
)
from moldau.operations.failures import kafka_failure
from moldau.operations.groups import GroupConnection, existing_groups, require_no_members
from moldau.operations.lag import PartitionLag, log_ends, partition_lags, share_lags, without_lags
from moldau.operations.micro_batch_ids import MICRO_BATCH_IDS_STATE, STORES_MICRO_BATCH_IDS

T = TypeVar("T")


@click.group()
def group() -> None:
    """List, describe, reset and delete groups: those of consumers, and share groups."""


group.add_command(reset)


@group.command(name="list", short_help="List the groups and how far they lag behind.")
@format_option
@broker_options
def list_groups(broker: Broker, output_format: str) -> None:
    """List the groups, with their states, members, topics, and how many records each has still to consume. Those of
    the type Share are share groups.

    A group in the state "micro-batch ids" consumes nothing and has no lag: in it a Spark query stores the id of the
    last micro-batch written to each topic.

    \b
    moldau group list
    moldau group list --format json | jq -r '.[] | select(.lag > 0) | .group'
    """
    with group_connection(broker) as connection:
        listed = sorted(connection.groups.listed())
        rows = list(_list_rows(connection, listed))
    columns = ("GROUP", "STATE", "TYPE", "MEMBERS", "TOPICS", "LAG")
    show(output_format, Table(columns, rows, empty="no groups yet; `moldau consume TOPIC -g NAME` makes one"))


def _list_rows(connection: GroupConnection, listed: Sequence[ListedGroup]) -> Iterable[tuple[Any, ...]]:
    """Yield the rows. Each kind of request is sent once to each coordinator, for all its groups, not once for each
    group. Of groups whose coordinator is not known, or answers with an error code that it cannot answer yet, only what
    the listing says is known. A coordinator that cannot be reached ends the listing."""
    share_rows = _share_rows(connection, [entry.group_id for entry in listed if entry.is_share_group])
    consumers = [entry.group_id for entry in listed if entry.is_consumer_group]
    described = connection.groups.each_described(consumers)
    committed = _answered(connection.groups.each_committed(consumers))
    consumed = [offsets for offsets in committed.values() if not holds_micro_batch_ids(offsets)]
    ends = log_ends(connection.cluster, (partition for offsets in consumed for partition in offsets))
    for entry in listed:
        if entry.group_id in share_rows:
            yield share_rows[entry.group_id]
            continue
        description = described.get(entry.group_id)
        if not isinstance(description, DescribedGroup) or entry.group_id not in committed:
            yield entry.group_id, entry.state or None, entry.type or None, None, None, None
            continue
        offsets = committed[entry.group_id]
        topics = {partition.topic for partition in _partitions(description, offsets)}
        if holds_micro_batch_ids(offsets):
            yield entry.group_id, MICRO_BATCH_IDS_STATE, description.type, len(description.members), len(topics), None
            continue
        lag = tables.total(
            PartitionLag(partition, position.offset, ends[partition], None).records
            for partition, position in offsets.items()
        )
        yield entry.group_id, description.state, description.type, len(description.members), len(topics), lag


def _share_rows(connection: GroupConnection, group_ids: Sequence[str]) -> dict[str, tuple[Any, ...]]:
    """Return the rows of the share groups whose coordinator answers."""
    described = connection.share.each_described(group_ids)
    offsets = _answered(connection.share.each_offsets(group_ids))
    rows: dict[str, tuple[Any, ...]] = {}
    for group_id, found in offsets.items():
        description = described[group_id]
        if isinstance(description, DescribedGroup):
            topics = {partition.topic for partition in _partitions(description, found)}
            lag = tables.total(each.lag for each in found.values() if isinstance(each, ShareOffset))
            rows[group_id] = group_id, description.state, SHARE, len(description.members), len(topics), lag
    return rows


def _answered(offsets: Mapping[str, T | KafkaError]) -> dict[str, T]:
    """Return the offsets of the groups whose coordinator answers, with a note about the others; raise other errors."""
    silent = {group_id: each for group_id, each in offsets.items() if isinstance(each, NotAnswered)}
    for group_id, error in list(silent.items())[:1]:
        more = f" and {len(silent) - 1} more" if len(silent) > 1 else ""
        click.echo(f"moldau: {worded(kafka_failure(error, f'group {group_id}{more}'))}", err=True)
    found: dict[str, T] = {}
    for group_id, each in offsets.items():
        if isinstance(each, KafkaError) and group_id not in silent:
            raise each
        if not isinstance(each, KafkaError):
            found[group_id] = each
    return found


def _partitions(described: DescribedGroup, offsets: Iterable[TopicPartition]) -> set[TopicPartition]:
    return set(offsets) | {partition for member in described.members for partition in member.assignment}


@group.command(short_help="Show members, offsets and lag of groups.")
@click.argument("names", metavar="GROUP...", nargs=-1, required=True, shell_complete=complete_groups)
@format_option
@broker_options
def describe(broker: Broker, names: tuple[str, ...], output_format: str) -> None:
    """Show the state of groups, their members, and where they are in each partition.

    LAG is how many records of a partition the group has still to consume: the log end offset minus the committed
    offset, which counts transaction markers too. LAG SECONDS is how long the first of those records has been waiting:
    now minus its timestamp. Both are 0 in a partition that the group has read to the end, and unknown (-) if the group
    has not committed there yet. For a whole group, LAG is the sum and LAG SECONDS the longest.

    A share group has START in the place of COMMITTED: all records before it are acknowledged. Some after it may be too;
    LAG counts those that are not.

    \b
    moldau group describe billing
    moldau group describe billing --format json | jq '.[].lag_seconds'
    """
    with group_connection(broker) as connection:
        groups = [
            (_share_group if described.type == SHARE else _consumer_group)(connection, described)
            for described in existing_groups(connection, names)
        ]
    show(output_format, *(table for each in groups for table in each.shown), data=[each.data for each in groups])


def _consumer_group(connection: GroupConnection, described: DescribedGroup) -> GroupTables:
    committed = connection.groups.committed([described.group_id])[described.group_id]
    if holds_micro_batch_ids(committed):
        described, lags = replace(described, state=MICRO_BATCH_IDS_STATE), without_lags(committed)
        ids = tables.micro_batch_ids(described, lags)
        return GroupTables(
            tables.summary(described, lags), tables.offsets(described, lags), tables.members(described), ids
        )
    lags = partition_lags(connection.cluster, _partitions(described, committed), committed, _now_ms())
    return GroupTables(tables.summary(described, lags), tables.offsets(described, lags), tables.members(described))


def _share_group(connection: GroupConnection, described: DescribedGroup) -> GroupTables:
    offsets = connection.share.offsets(described.group_id)
    for partition, offset in offsets.items():
        if isinstance(offset, KafkaError):
            failure = kafka_failure(offset, f"group {described.group_id}: {partition}")
            click.echo(f"moldau: {worded(failure)}", err=True)
    lags = share_lags(connection.cluster, _partitions(described, offsets), offsets, _now_ms())
    return GroupTables(
        tables.summary(described, lags), tables.share_offsets(described, lags), tables.members(described)
    )


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


@group.command()
@click.argument("names", metavar="GROUP...", nargs=-1, required=True, shell_complete=complete_groups)
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@broker_options
def delete(broker: Broker, names: tuple[str, ...], yes: bool) -> None:
    """Delete groups without members, and the offsets they keep. On a terminal it asks first.

    A group in the state "micro-batch ids" is deleted only with --yes: the Spark query that stores them may then write
    its last micro-batch again.

    \b
    moldau group delete billing --yes
    """
    with group_connection(broker) as connection:
        groups = existing_groups(connection, names)
        for described in groups:
            require_no_members(described)
        if not yes:
            _require_no_micro_batch_ids(connection, [each.group_id for each in groups if each.type != SHARE])
        confirm(f"Delete {', '.join(names)} and all offsets of {'it' if len(names) == 1 else 'them'}?", yes)
        failures: list[str] = []
        for name, code in connection.groups.delete(names).items():
            if code is ErrorCode.NONE:
                click.echo(f"deleted {name}")
            else:
                failures.append(worded(kafka_failure(KafkaError(code), f"group {name}")))
        if failures:
            raise CommandFailed(" | ".join(failures))


def _require_no_micro_batch_ids(connection: GroupConnection, names: Sequence[str]) -> None:
    for name, committed in connection.groups.committed(names).items():
        if holds_micro_batch_ids(committed):
            raise CommandFailed(
                f"group {name} is not deleted: it {STORES_MICRO_BATCH_IDS}, and without the ids the query may write a"
                " micro-batch twice; delete it with --yes if the query does not run again"
            )
