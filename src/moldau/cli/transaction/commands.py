"""`moldau transaction`: list, describe, producers; `hanging` and `abort` are in end.py.

This module turns the responses of coordinators and leaders into tables; `client.transactions` sends the requests.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any

import click

from moldau.base.errors import ErrorCode, KafkaError
from moldau.cli.completion import complete_topics, complete_transactional_ids
from moldau.cli.connect import Broker, CommandFailed, broker_options
from moldau.cli.output import Table, format_option, show
from moldau.cli.transaction.connect import transaction_connection
from moldau.cli.transaction.end import abort, duration, hanging
from moldau.client.admin.transaction_values import OPEN_STATES, STATES, DescribedTransaction, ListedTransaction
from moldau.operations.transactions import (
    TransactionConnection,
    active_producers,
    existing_partitions,
    existing_transactions,
)


@click.group()
def transaction() -> None:
    """List, describe and abort transactions; find those that hang."""


transaction.add_command(hanging)
transaction.add_command(abort)


@transaction.command(name="list", short_help="List transactional ids, and for how long their transactions are open.")
@click.option("--open", "only_open", is_flag=True, help="Only those with a transaction that has not ended.")
@click.option(
    "--state", "states", multiple=True, type=click.Choice(STATES, case_sensitive=False), help="Only these. Repeatable."
)
@click.option("--longer-than", metavar="TIME", callback=duration, help="Only those open for longer: 15m, 1h30m.")
@click.option("--match", "pattern", metavar="REGEX", help="Only ids that match as a whole.")
@format_option
@broker_options
def list_transactions(
    broker: Broker,
    only_open: bool,
    states: tuple[str, ...],
    longer_than: int | None,
    pattern: str | None,
    output_format: str,
) -> None:
    """List the transactional ids, with the states of their transactions and their coordinators.

    OPEN SECONDS is how long a transaction has been open, PARTITIONS how many partitions it has written to: there,
    consumers with read_committed see nothing after its first record until it ends.

    \b
    moldau transaction list --open
    moldau transaction list --longer-than 15m --format json | jq -r '.[].transactional_id'
    """
    states_shown = OPEN_STATES if only_open and not states else states
    with transaction_connection(broker) as connection:
        listed = _listed(connection, states_shown, -1 if longer_than is None else longer_than, pattern)
        rows = list(_list_rows(connection, listed))
    columns = ("TRANSACTIONAL ID", "STATE", "OPEN SECONDS", "PARTITIONS", "PRODUCER", "COORDINATOR")
    none = "no such transactions" if states_shown or pattern or longer_than is not None else "no transactional ids yet"
    show(output_format, Table(columns, rows, empty=none))


def _listed(
    connection: TransactionConnection, states: Sequence[str], longer_than_ms: int, pattern: str | None
) -> list[ListedTransaction]:
    try:
        return sorted(connection.transactions.listed(states, longer_than_ms=longer_than_ms, pattern=pattern))
    except KafkaError as error:
        if error.code is ErrorCode.INVALID_REGULAR_EXPRESSION:
            raise CommandFailed(f"--match {pattern}: not a regular expression") from error
        raise


def _list_rows(connection: TransactionConnection, listed: Sequence[ListedTransaction]) -> Iterable[tuple[Any, ...]]:
    """Yield the rows. Only open transactions are described: ids that nobody uses any more stay listed for a week."""
    now_ms = _now_ms()
    described = connection.transactions.described(
        entry.transactional_id for entry in listed if entry.state in OPEN_STATES
    )
    for entry in listed:
        description = described.get(entry.transactional_id)
        seconds, partitions = None, None
        if isinstance(description, DescribedTransaction):
            seconds, partitions = open_seconds(description, now_ms), len(description.partitions)
        yield (
            entry.transactional_id,
            entry.state,
            seconds,
            partitions,
            entry.producer_id,
            entry.coordinator,
        )


@transaction.command(short_help="Show a transaction and the partitions that wait for its end.")
@click.argument("names", metavar="ID...", nargs=-1, required=True, shell_complete=complete_transactional_ids)
@format_option
@broker_options
def describe(broker: Broker, names: tuple[str, ...], output_format: str) -> None:
    """Show transactional ids, their producers, and the partitions that wait for the end of a transaction.

    START is the offset of the transaction's first record in a partition: consumers with read_committed wait there.

    \b
    moldau transaction describe checkout-7
    moldau transaction describe checkout-7 --format json | jq '.[].partitions'
    """
    data: list[dict[str, Any]] = []
    tables: list[Table] = []
    with transaction_connection(broker) as connection:
        for described in existing_transactions(connection, names):
            summary, partitions = _summary(described, _now_ms()), _partitions(connection, described)
            tables += [summary, partitions]
            data.append({**summary.records()[0], "partitions": partitions.records()})
    show(output_format, *tables, data=data)


def _summary(described: DescribedTransaction, now_ms: int) -> Table:
    row = (
        described.transactional_id,
        described.state,
        open_seconds(described, now_ms),
        described.timeout_ms / 1000,
        described.producer_id,
        described.producer_epoch,
        described.coordinator,
    )
    columns = ("TRANSACTIONAL ID", "STATE", "OPEN SECONDS", "TIMEOUT SECONDS", "PRODUCER", "EPOCH", "COORDINATOR")
    return Table(columns, [row])


def _partitions(connection: TransactionConnection, described: DescribedTransaction) -> Table:
    """Return a table of the offsets where the transaction begins; empty where the partition's leader knows none."""
    topics = connection.cluster.topics() if described.partitions else {}
    # A topic may have been deleted during the transaction, and a partition without a leader may be what it waits for.
    led = [
        partition
        for partition in described.partitions
        if partition.topic in topics and topics[partition.topic].leaders.get(partition.partition, -1) >= 0
    ]
    producers_of = connection.transactions.producers(led)
    rows = []
    for partition in sorted(described.partitions):
        producers = producers_of.get(partition, [])
        active = [] if isinstance(producers, KafkaError) else producers
        start = next(
            (producer.transaction_start for producer in active if producer.producer_id == described.producer_id), None
        )
        rows.append((*partition, start))
    return Table(("TOPIC", "PARTITION", "START"), rows, empty="no partition waits for it")


def open_seconds(described: DescribedTransaction, now_ms: int) -> float | None:
    if described.start_ms is None or described.state not in OPEN_STATES:
        return None
    return round((now_ms - described.start_ms) / 1000, 1)


@transaction.command(short_help="Show who writes to the partitions of a topic.")
@click.argument("topic", metavar="TOPIC", shell_complete=complete_topics)
@click.option("-p", "--partition", "only", multiple=True, type=click.IntRange(min=0), help="Only this one. Repeatable.")
@click.option("--broker", "broker_id", type=int, metavar="ID", help="Ask the replica on this broker, not the leader.")
@format_option
@broker_options
def producers(broker: Broker, topic: str, only: tuple[int, ...], broker_id: int | None, output_format: str) -> None:
    """Show the producers that partitions remember: all idempotent ones, with or without transactions.

    IDLE SECONDS is the age of a producer's last record by its timestamp, START where its open transaction begins.

    \b
    moldau transaction producers orders
    moldau transaction producers orders --partition 0 --broker 2
    """
    with transaction_connection(broker) as connection:
        producers_of = active_producers(connection, existing_partitions(connection, [topic], only), broker_id)
    now_ms = _now_ms()
    rows = [
        (
            partition.partition,
            producer.producer_id,
            producer.producer_epoch,
            producer.last_sequence if producer.last_sequence >= 0 else None,
            round((now_ms - producer.last_timestamp) / 1000, 1),
            producer.transaction_start,
            producer.coordinator_epoch if producer.coordinator_epoch >= 0 else None,
        )
        for partition, active in sorted(producers_of.items())
        for producer in active
    ]
    columns = ("PARTITION", "PRODUCER", "EPOCH", "LAST SEQUENCE", "IDLE SECONDS", "START", "COORDINATOR EPOCH")
    show(output_format, Table(columns, rows, empty=f"no idempotent producers in {topic}"))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
