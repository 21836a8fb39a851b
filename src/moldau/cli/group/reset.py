"""`moldau group reset`: show the plan of new offsets as a table and, with --execute, commit them. The new position is
written in the grammar of targets.py, or in a CSV file as kafka-consumer-groups writes it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import IO, NamedTuple

import click

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import TopicPartition
from moldau.cli import offsets
from moldau.cli.cluster.connect import SHOW_GROUPS, kafka_failure
from moldau.cli.completion import complete_groups
from moldau.cli.connect import Broker, CommandFailed, broker_options, complete_topics
from moldau.cli.group.connect import (
    KEEPS_BATCH_NUMBERS,
    GroupClient,
    group_client,
    is_unknown,
    refuse_active,
)
from moldau.cli.group.targets import Kind, Target, parse_target, parse_topic, resolve
from moldau.cli.kafka.group_offsets import reset_plan
from moldau.cli.kafka.tool import ToolFailed
from moldau.cli.output import Table, format_option, show
from moldau.client.cluster import EARLIEST, Cluster
from moldau.client.group_values import CommittedOffsets, holds_batch_numbers


class Move(NamedTuple):
    """A partition, the group's offset in it (None: not committed), its new offset, and the log end offset."""

    where: TopicPartition
    before: int | None
    after: int
    log_end: int


@click.command(short_help="Move a group to other offsets.")
@click.argument("name", metavar="GROUP", shell_complete=complete_groups)
@click.option("--to", "target_text", metavar="WHERE", help="The new position; see above.")
@click.option("--from-file", type=click.File(encoding="utf-8"), help="A CSV of TOPIC,PARTITION,OFFSET lines instead.")
@click.option(
    "-t",
    "--topic",
    "topics",
    multiple=True,
    metavar="TOPIC[:P,P]",
    shell_complete=complete_topics,
    help="Only this topic, or these partitions of it. Repeatable. Default: all that the group has offsets in.",
)
@click.option("--execute", is_flag=True, help="Commit the offsets. Without this the plan is only shown.")
@click.option("--new", is_flag=True, help="The group need not exist yet: it will begin at these offsets.")
@format_option
@broker_options
def reset(
    broker: Broker,
    name: str,
    target_text: str | None,
    from_file: IO[str] | None,
    topics: tuple[str, ...],
    execute: bool,
    new: bool,
    output_format: str,
) -> None:
    """Move a group without members to other offsets: show the plan, and with --execute commit it.

    \b
    moldau group reset billing --to earliest
    moldau group reset billing --to @-1h --topic orders --execute
    moldau group reset billing --to -100 --topic orders:0,1

    \b
    WHERE  earliest  latest  N (an offset)  +N  -N (this many records forward or back)
           @TIME; TIME is milliseconds, 2026-11-15, 2026-11-15T08:30:00Z, or -1h (ago)
           current (the committed offset, or the end where there is none)
    """
    if (target_text is None) == (from_file is None):
        raise click.UsageError("choose one: --to WHERE, or --from-file CSV", click.get_current_context())
    target = None if target_text is None else _target(target_text)
    selections = [_topic(topic) for topic in topics]
    with group_client(broker) as client:
        _check_group(client, name, new)
        committed = client.groups.committed([name])[name]
        if holds_batch_numbers(committed):
            raise CommandFailed(
                f"group {name} {KEEPS_BATCH_NUMBERS}; other numbers would make it write batches twice or skip them"
            )
        if target is None:
            assert from_file is not None
            moves = _moves_from_file(client.cluster, name, from_file.read(), committed)
        else:
            moves = _moves(client.cluster, _partitions(client.cluster, selections, committed, name), target, committed)
        if execute:
            _commit(client, name, moves)
    _show(output_format, name, moves, execute)


def _target(text: str) -> Target:
    try:
        return parse_target(text, time.time_ns() // 1_000_000)
    except offsets.BadOffset as error:
        raise click.BadParameter(str(error), click.get_current_context(), param_hint="--to") from error


def _topic(text: str) -> tuple[str, list[int]]:
    try:
        return parse_topic(text)
    except offsets.BadOffset as error:
        raise click.BadParameter(str(error), click.get_current_context(), param_hint="--topic") from error


def _check_group(client: GroupClient, name: str, new: bool) -> None:
    description = client.groups.described([name])[name]
    if is_unknown(description):
        if not new:
            raise CommandFailed(
                f"no group {name}; {SHOW_GROUPS}, --new sets the offsets of one that does not exist yet"
            )
    elif isinstance(description, KafkaError):
        raise kafka_failure(description, f"group {name}")
    else:
        refuse_active(description)


def _partitions(
    cluster: Cluster, selections: Sequence[tuple[str, list[int]]], committed: CommittedOffsets, name: str
) -> list[TopicPartition]:
    """Return the selected partitions, or without a selection all in which the group has an offset."""
    if not selections:
        if not committed:
            raise CommandFailed(f"group {name} has no offsets yet; name a topic with --topic")
        return sorted(committed)
    partitions: set[TopicPartition] = set()
    for topic, indexes in selections:
        indexes_of_topic = _leaders(cluster, topic)
        missing = [index for index in indexes if index not in indexes_of_topic]
        if missing:
            listed = ", ".join(map(str, missing))
            raise CommandFailed(f"{topic} has no partition {listed}; it has 0 to {len(indexes_of_topic) - 1}")
        partitions.update(TopicPartition(topic, index) for index in indexes or indexes_of_topic)
    return sorted(partitions)


def _leaders(cluster: Cluster, topic: str) -> set[int]:
    try:
        return set(cluster.topic(topic).leaders)
    except KafkaError as error:
        if error.code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION):
            raise CommandFailed(f"no topic {topic}; `moldau topic list` shows the topics there are") from error
        raise


def _moves(
    cluster: Cluster, partitions: Sequence[TopicPartition], target: Target, committed: CommittedOffsets
) -> list[Move]:
    bounds = _bounds(cluster, partitions, target)
    moves = []
    for where in partitions:
        before = committed[where].offset if where in committed else None
        after = resolve(target, before, bounds[where])
        if after is None:
            raise CommandFailed(
                f"{where.topic} partition {where.partition} has no offset to count from; name others with --topic,"
                " or use --to N"
            )
        moves.append(Move(where, before, after, bounds[where].end))
    return moves


def _bounds(
    cluster: Cluster, partitions: Iterable[TopicPartition], target: Target | None
) -> dict[TopicPartition, offsets.PartitionBounds]:
    partitions = list(partitions)
    starts = cluster.list_offsets(dict.fromkeys(partitions, EARLIEST))
    ends = cluster.latest(partitions)
    at_time: dict[TopicPartition, int] = {}
    moment = target.value if target is not None and target.kind is Kind.TIME else None
    if moment is not None:
        at_time = cluster.list_offsets(dict.fromkeys(partitions, moment))
    return {
        where: offsets.PartitionBounds(
            starts[where], ends[where], {moment: at} if moment is not None and (at := at_time[where]) >= 0 else {}
        )
        for where in partitions
    }


def _moves_from_file(cluster: Cluster, name: str, text: str, committed: CommittedOffsets) -> list[Move]:
    """Return the moves that a CSV file lists."""
    try:
        plan = reset_plan.parse_plan(text, [name])
    except ToolFailed as error:
        message = str(error).partition("\n")[0].rpartition("Exception: ")[2]
        raise CommandFailed(f"--from-file: {message}; lines are TOPIC,PARTITION,OFFSET") from error
    if name not in plan:
        raise CommandFailed(f"--from-file: there is no line for group {name}")
    offset_of = plan[name]
    selections = [(where.topic, [where.partition]) for where in offset_of]
    bounds = _bounds(cluster, _partitions(cluster, selections, committed, name), None)
    return [
        Move(
            where,
            committed[where].offset if where in committed else None,
            min(max(offset_of[where], bounds[where].start), bounds[where].end),
            bounds[where].end,
        )
        for where in sorted(offset_of)
    ]


def _commit(client: GroupClient, name: str, moves: Sequence[Move]) -> None:
    try:
        client.groups.commit(name, {move.where: move.after for move in moves})
    except KafkaError as error:
        raise kafka_failure(error, f"group {name}") from error


def _show(output_format: str, name: str, moves: Sequence[Move], executed: bool) -> None:
    rows = [
        (
            *move.where,
            move.before,
            move.after,
            None if move.before is None else f"{move.after - move.before:+d}",
            move.log_end - move.after,
        )
        for move in moves
    ]
    title = f"{name}: offsets are set" if executed else f"{name}: nothing is changed yet; use --execute"
    table = Table(("TOPIC", "PARTITION", "BEFORE", "AFTER", "MOVE", "LAG"), rows, title)
    partitions = [
        {**record, "move": None if record["move"] is None else int(record["move"])} for record in table.records()
    ]
    show(output_format, table, data={"group": name, "executed": executed, "partitions": partitions})
