"""`moldau group`: list, describe, delete; `reset` is in reset.py.

This module turns the coordinators' responses into tables; `client.groups` sends the requests, `operations.lag` computes
lag.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import click

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import TopicPartition, by_topic
from moldau.cli.completion import complete_groups
from moldau.cli.connect import Broker, CommandFailed, broker_options
from moldau.cli.group.connect import group_connection
from moldau.cli.group.reset import reset
from moldau.cli.next_steps import worded
from moldau.cli.output import Table, confirm, format_option, show
from moldau.client.admin.group_coordinators import NotAnswered
from moldau.client.admin.group_values import CommittedOffsets, DescribedGroup, ListedGroup, holds_micro_batch_ids
from moldau.operations.failures import kafka_failure
from moldau.operations.groups import GroupConnection, existing_groups, host_of, require_no_members
from moldau.operations.lag import PartitionLag, log_ends, partition_lags, without_lags
from moldau.operations.micro_batch_ids import MICRO_BATCH_IDS_STATE, STORES_MICRO_BATCH_IDS


@click.group()
def group() -> None:
    """List, describe, reset and delete consumer groups."""


group.add_command(reset)


@group.command(name="list", short_help="List the groups and how far they lag behind.")
@format_option
@broker_options
def list_groups(broker: Broker, output_format: str) -> None:
    """List the groups, with their states, members, topics, and how many records each has still to consume.

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
    consumers = [entry.group_id for entry in listed if entry.is_consumer_group]
    described = connection.groups.each_described(consumers)
    committed = _answered(connection.groups.each_committed(consumers))
    consumed = [offsets for offsets in committed.values() if not holds_micro_batch_ids(offsets)]
    ends = log_ends(connection.cluster, (partition for offsets in consumed for partition in offsets))
    for entry in listed:
        description = described.get(entry.group_id)
        if not isinstance(description, DescribedGroup) or entry.group_id not in committed:
            yield entry.group_id, entry.state or None, entry.type or None, None, None, None
            continue
        offsets = committed[entry.group_id]
        topics = {partition.topic for partition in _partitions(description, offsets)}
        if holds_micro_batch_ids(offsets):
            yield entry.group_id, MICRO_BATCH_IDS_STATE, description.type, len(description.members), len(topics), None
            continue
        lag = _total(
            PartitionLag(partition, position.offset, ends[partition], None) for partition, position in offsets.items()
        )
        yield entry.group_id, description.state, description.type, len(description.members), len(topics), lag


def _answered(committed: Mapping[str, CommittedOffsets | KafkaError]) -> dict[str, CommittedOffsets]:
    """Return the offsets of the groups whose coordinator answers, with a note about the others; raise other errors."""
    silent = {group_id: each for group_id, each in committed.items() if isinstance(each, NotAnswered)}
    for group_id, error in list(silent.items())[:1]:
        more = f" and {len(silent) - 1} more" if len(silent) > 1 else ""
        click.echo(f"moldau: {worded(kafka_failure(error, f'group {group_id}{more}'))}", err=True)
    found: dict[str, CommittedOffsets] = {}
    for group_id, each in committed.items():
        if isinstance(each, KafkaError) and group_id not in silent:
            raise each
        if not isinstance(each, KafkaError):
            found[group_id] = each
    return found


def _partitions(described: DescribedGroup, committed: CommittedOffsets) -> set[TopicPartition]:
    return set(committed) | {partition for member in described.members for partition in member.assignment}


def _total(lags: Iterable[PartitionLag]) -> int | None:
    """Return the sum of the lags that are known. Return None if the lag of no partition is known."""
    record_lags = [lag.records for lag in lags if lag.records is not None]
    return sum(record_lags) if record_lags else None


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

    \b
    moldau group describe billing
    moldau group describe billing --format json | jq '.[].lag_seconds'
    """
    data: list[dict[str, Any]] = []
    tables: list[Table] = []
    with group_connection(broker) as connection:
        for described in existing_groups(connection, names):
            committed = connection.groups.committed([described.group_id])[described.group_id]
            stores_micro_batch_ids = holds_micro_batch_ids(committed)
            if stores_micro_batch_ids:
                described = replace(described, state=MICRO_BATCH_IDS_STATE)
                lags = without_lags(committed)
            else:
                now_ms = time.time_ns() // 1_000_000
                lags = partition_lags(connection.cluster, _partitions(described, committed), committed, now_ms)
            summary, offsets, members = _summary(described, lags), _offsets(described, lags), _members(described)
            tables += (
                [summary, _micro_batch_ids(described, lags)] if stores_micro_batch_ids else [summary, offsets, members]
            )
            data.append({**summary.records()[0], "partitions": offsets.records(), "members": members.records()})
    show(output_format, *tables, data=data)


def _seconds(lag: PartitionLag) -> float | None:
    return None if lag.seconds is None else round(lag.seconds, 1)


def _summary(described: DescribedGroup, lags: Sequence[PartitionLag]) -> Table:
    seconds = [value for lag in lags if (value := _seconds(lag)) is not None]
    row = (
        described.group_id,
        described.state,
        described.type,
        described.protocol_type or None,
        described.assignor or None,
        str(described.coordinator),
        _total(lags),
        max(seconds) if seconds else None,
    )
    columns = ("GROUP", "STATE", "TYPE", "PROTOCOL", "ASSIGNOR", "COORDINATOR", "LAG", "LAG SECONDS")
    return Table(columns, [row])


def _offsets(described: DescribedGroup, lags: Sequence[PartitionLag]) -> Table:
    readers = {partition: member for member in described.members for partition in member.assignment}
    rows = []
    for lag in lags:
        reader = readers.get(lag.partition)
        member_name = reader and (reader.instance_id or reader.member_id)
        rows.append((*lag.partition, lag.committed, lag.log_end, lag.records, _seconds(lag), member_name))
    columns = ("TOPIC", "PARTITION", "COMMITTED", "END", "LAG", "LAG SECONDS", "MEMBER")
    return Table(columns, rows, empty="no offsets committed, nothing assigned")


def _micro_batch_ids(described: DescribedGroup, lags: Sequence[PartitionLag]) -> Table:
    """Return, in place of the offsets, the id of the last micro-batch written to each topic."""
    title = f"{described.group_id} {STORES_MICRO_BATCH_IDS}, no offsets: leave it alone"
    return Table(("TOPIC", "MICRO-BATCH ID"), [(lag.partition.topic, lag.committed) for lag in lags], title)


class Assigned(dict[str, list[int]]):
    """Partitions by topic, printed as a mapping in JSON and YAML and as one line in a table."""

    def __str__(self) -> str:
        return "; ".join(f"{topic}: {','.join(map(str, indexes))}" for topic, indexes in self.items())


def _members(described: DescribedGroup) -> Table:
    rows = [
        (
            member.member_id,
            member.instance_id,
            member.client_id,
            host_of(member),
            Assigned(by_topic(sorted(member.assignment))),
        )
        for member in described.members
    ]
    return Table(("MEMBER", "INSTANCE", "CLIENT", "HOST", "PARTITIONS"), rows, empty="no active members")


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
        for described in existing_groups(connection, names):
            require_no_members(described)
        if not yes:
            _require_no_micro_batch_ids(connection, names)
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
