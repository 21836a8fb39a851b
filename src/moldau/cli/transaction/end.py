"""`moldau transaction hanging` and `abort`: find transactions that nobody will end; abort these and others."""

from __future__ import annotations

import time
from typing import Final

import click

from moldau.base.ids import TopicPartition
from moldau.cli.completion import complete_topics, complete_transactional_ids
from moldau.cli.connect import Broker, broker_options
from moldau.cli.output import Table, confirm, format_option, show
from moldau.cli.transaction.connect import transaction_connection
from moldau.client.admin import transaction_values
from moldau.operations.offset_targets import parse_topic
from moldau.operations.offsets import BadOffset, parse_duration
from moldau.operations.transactions import (
    TransactionConnection,
    abort_in_partition,
    active_producers,
    existing_partitions,
    producer_beginning_at,
    require_open,
    terminate,
    unknown_to_coordinators,
)

HOW_TO_ABORT: Final = "`moldau transaction abort --at TOPIC:PARTITION --start START` ends one"


def duration(ctx: click.Context, param: click.Parameter, text: str | None) -> int | None:
    """The callback of an option that takes a duration; returns milliseconds."""
    try:
        return None if text is None else parse_duration(text)
    except BadOffset as error:
        raise click.BadParameter(str(error), ctx, param) from error


@click.command(short_help="Find transactions that nobody will end.")
@click.argument("topics", metavar="[TOPIC...]", nargs=-1, shell_complete=complete_topics)
@click.option("--broker", "broker_id", type=int, metavar="ID", help="Look at the replicas on this broker.")
@click.option(
    "--longer-than", default="15m", show_default=True, metavar="TIME", callback=duration, help="Idle for longer."
)
@format_option
@broker_options
def hanging(
    broker: Broker, topics: tuple[str, ...], broker_id: int | None, longer_than: int, output_format: str
) -> None:
    """Find transactions that are open in a partition but unknown to every coordinator: nobody will ever end them, and
    consumers with read_committed wait for them forever. Searches all topics, unless some are named.

    \b
    moldau transaction hanging
    moldau transaction hanging orders --longer-than 1h
    """
    with transaction_connection(broker) as connection:
        partitions = existing_partitions(connection, topics, ())
        if broker_id is None:
            partitions = _searchable(connection, partitions)
        else:
            partitions = _replicas_on(connection, broker_id, partitions)
        now_ms = time.time_ns() // 1_000_000
        old = transaction_values.open_for_long(active_producers(connection, partitions, broker_id), now_ms, longer_than)
        hanging_transactions = unknown_to_coordinators(connection, old)
    rows = [
        (
            *transaction.where,
            transaction.producer.transaction_start,
            transaction.producer.producer_id,
            transaction.producer.producer_epoch,
            round((now_ms - transaction.producer.last_timestamp) / 1000, 1),
        )
        for transaction in sorted(hanging_transactions)
    ]
    columns = ("TOPIC", "PARTITION", "START", "PRODUCER", "EPOCH", "IDLE SECONDS")
    show(output_format, Table(columns, rows, HOW_TO_ABORT if rows else "", empty="no transaction hangs"))


def _searchable(connection: TransactionConnection, partitions: list[TopicPartition]) -> list[TopicPartition]:
    """Leave out partitions without a leader, and those whose topic was deleted or may not be read, with a note: one of
    them must not end the search of all others."""
    led, without = connection.cluster.led(partitions)
    if without:
        first = sorted(without)[0]
        others = f" and {len(without) - 1} more" if len(without) > 1 else ""
        click.echo(f"moldau: {first.topic} partition {first.partition}{others} cannot be searched now", err=True)
    return [partition for of_leader in led.values() for partition in of_leader]


def _replicas_on(
    connection: TransactionConnection, broker_id: int, partitions: list[TopicPartition]
) -> list[TopicPartition]:
    from moldau.cli.cluster.connect import COORDINATOR_TIMEOUT_MS
    from moldau.client.admin.cluster_admin import ClusterAdmin

    topics = ClusterAdmin(connection.cluster, COORDINATOR_TIMEOUT_MS).topics()
    return [
        partition
        for partition in partitions
        if broker_id in topics[partition.topic].partitions[partition.partition].replicas
    ]


@click.command(short_help="Abort a transaction.")
@click.argument("name", metavar="[ID]", required=False, shell_complete=complete_transactional_ids)
@click.option("--at", metavar="TOPIC:PARTITION", help="Where a transaction hangs that no coordinator knows.")
@click.option("--start", type=click.IntRange(min=0), metavar="OFFSET", help="With --at: where it begins.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@broker_options
def abort(broker: Broker, name: str | None, at: str | None, start: int | None, yes: bool) -> None:
    """Abort the open transaction of a transactional id, or one that hangs in a partition. On a terminal it asks first.

    The producer of the id is fenced: it has to initialize again. A hanging transaction is ended in its partition only,
    without a coordinator: `moldau transaction hanging` lists them.

    \b
    moldau transaction abort checkout-7 --yes
    moldau transaction abort --at orders:0 --start 4711
    """
    if (name is None) == (at is None) or (at is None) != (start is None):
        message = "name one: ID, or --at TOPIC:PARTITION and --start OFFSET"
        raise click.UsageError(message, click.get_current_context())
    with transaction_connection(broker) as connection:
        if name is not None:
            _terminate(connection, name, yes)
        else:
            assert at is not None
            assert start is not None
            _abort_at(connection, at, start, yes)


def _terminate(connection: TransactionConnection, name: str, yes: bool) -> None:
    require_open(connection, name)
    confirm(f"Abort the transaction of {name} and fence its producer?", yes)
    terminate(connection, name)
    click.echo(f"aborted the transaction of {name}")


def _abort_at(connection: TransactionConnection, at: str, start: int, yes: bool) -> None:
    partition = _partition(connection, at)
    producer = producer_beginning_at(connection, partition, start)
    confirm(f"Abort the transaction at offset {start} of {partition.topic} partition {partition.partition}?", yes)
    abort_in_partition(connection, partition, producer)
    click.echo(f"aborted the transaction at offset {start} of {partition.topic} partition {partition.partition}")


def _partition(connection: TransactionConnection, at: str) -> TopicPartition:
    try:
        topic, indexes = parse_topic(at)
    except BadOffset as error:
        raise click.BadParameter(str(error), click.get_current_context(), param_hint="--at") from error
    if len(indexes) != 1:
        raise click.BadParameter("write TOPIC:PARTITION", click.get_current_context(), param_hint="--at")
    return existing_partitions(connection, [topic], indexes)[0]
