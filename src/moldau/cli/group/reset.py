"""`moldau group reset`: show the plan of new offsets as a table and, with --execute, commit them. The new position is
written in the grammar of `operations.offset_targets`, or in a CSV file as kafka-consumer-groups writes it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import IO

import click

from moldau.cli.completion import complete_groups, complete_topics
from moldau.cli.connect import Broker, CommandFailed, broker_options
from moldau.cli.group.connect import group_connection
from moldau.cli.kafka.group_offsets import reset_plan
from moldau.cli.kafka.tool import ToolFailed
from moldau.cli.output import Table, format_option, show
from moldau.client.cluster import Cluster
from moldau.operations import offsets
from moldau.operations.offset_moves import (
    Move,
    ResetGroup,
    commit_moves,
    group_to_reset,
    moves_to_offsets,
    moves_to_target,
    select_partitions,
)
from moldau.operations.offset_targets import Target, parse_target, parse_topic


@click.command(short_help="Move a group to other offsets.")
@click.argument("group_id", metavar="GROUP", shell_complete=complete_groups)
@click.option("--to", "target_text", metavar="WHERE", help="The new position; see above.")
@click.option("--from-file", type=click.File(encoding="utf-8"), help="A CSV file of TOPIC,PARTITION,OFFSET lines.")
@click.option(
    "-t",
    "--topic",
    "topics",
    multiple=True,
    metavar="TOPIC[:P,P]",
    shell_complete=complete_topics,
    help="With --to: only this topic, or only these partitions. Repeatable. Default: all with offsets of the group.",
)
@click.option("--execute", is_flag=True, help="Commit the offsets. Without this the plan is only shown.")
@click.option("--new", is_flag=True, help="The group need not exist yet: it will begin at these offsets.")
@format_option
@broker_options
def reset(
    broker: Broker,
    group_id: str,
    target_text: str | None,
    from_file: IO[str] | None,
    topics: tuple[str, ...],
    execute: bool,
    new: bool,
    output_format: str,
) -> None:
    """Move a group without members to other offsets: show the plan, and with --execute commit it.

    For a share group they are start offsets: the group gets all records from there on, also those it has acknowledged.

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
    if from_file is not None and topics:
        raise click.UsageError(
            "--topic cannot be used with --from-file: the file names the partitions; leave out --topic",
            click.get_current_context(),
        )
    target = None if target_text is None else _parse_target_option(target_text)
    selections = [_parse_topic_option(topic) for topic in topics]
    with group_connection(broker) as connection:
        group = group_to_reset(connection, group_id, new)
        if target is None:
            assert from_file is not None  # Checked above: either --to or --from-file is present.
            moves = _moves_from_file(connection.cluster, group, from_file.read())
        else:
            partitions = select_partitions(connection.cluster, selections, group)
            moves = moves_to_target(connection.cluster, partitions, target, group.offsets)
        if execute:
            commit_moves(connection, group, moves)
    _show(output_format, group_id, moves, execute)


def _parse_target_option(text: str) -> Target:
    try:
        return parse_target(text, time.time_ns() // 1_000_000)
    except offsets.BadOffset as error:
        raise click.BadParameter(str(error), click.get_current_context(), param_hint="--to") from error


def _parse_topic_option(text: str) -> tuple[str, list[int]]:
    try:
        return parse_topic(text)
    except offsets.BadOffset as error:
        raise click.BadParameter(str(error), click.get_current_context(), param_hint="--topic") from error


def _moves_from_file(cluster: Cluster, group: ResetGroup, text: str) -> list[Move]:
    """Return the moves that the `text` of a CSV file lists. An offset outside the log becomes its start or end."""
    try:
        plan = reset_plan.parse_plan(text, [group.group_id])
    except ToolFailed as error:
        # The error is worded for kafka-consumer-groups: a Java exception, then further lines.
        message = str(error).partition("\n")[0].rpartition("Exception: ")[2]
        raise CommandFailed(f"--from-file: {message}; lines are TOPIC,PARTITION,OFFSET") from error
    if group.group_id not in plan:
        raise CommandFailed(f"--from-file: there is no line for group {group.group_id}")
    return moves_to_offsets(cluster, group, plan[group.group_id])


def _show(output_format: str, group_id: str, moves: Sequence[Move], executed: bool) -> None:
    rows = [
        (
            *move.partition,
            move.old_offset,
            move.new_offset,
            None if move.old_offset is None else f"{move.new_offset - move.old_offset:+d}",
            move.log_end_offset - move.new_offset,
        )
        for move in moves
    ]
    title = f"{group_id}: offsets are set" if executed else f"{group_id}: nothing is changed yet; use --execute"
    table = Table(("TOPIC", "PARTITION", "BEFORE", "AFTER", "MOVE", "LAG"), rows, title)
    # The table shows a move with its sign, as text; JSON and YAML have a number.
    partitions = [
        {**record, "move": None if record["move"] is None else int(record["move"])} for record in table.records()
    ]
    show(output_format, table, data={"group": group_id, "executed": executed, "partitions": partitions})
