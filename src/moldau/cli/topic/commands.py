"""`moldau topic`: create, list, describe, alter, trim, delete.

This module turns responses into tables and lines; connect.py connects to the broker, output.py prints.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any, Final

import click

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import TopicPartition
from moldau.cli import partition_offsets
from moldau.cli.cluster.connect import admin_failures, command_failure
from moldau.cli.completion import complete_topics
from moldau.cli.connect import (
    Broker,
    CommandFailed,
    broker_options,
    existing_topics,
    is_internal,
    key_values_callback,
)
from moldau.cli.output import Bytes, Table, confirm, format_option, show
from moldau.cli.partition_offsets import Bounds
from moldau.cli.topic.sizes import topic_sizes
from moldau.cli.view.views import views_of
from moldau.client.admin import topics as topic_admin
from moldau.client.admin.cluster_values import TopicReplicas
from moldau.client.requests.configs import TOPIC, alter_configs
from moldau.client.requests.topics import NewTopic
from moldau.operations import offsets

PARTITIONS_MAX: Final = 100_000
REPLICAS_MAX: Final = 10_000
"""More of either is taken for a typing error."""
CREATE_STEPS: Final = {
    ErrorCode.TOPIC_ALREADY_EXISTS: "--if-not-exists accepts a topic that is there already",
    ErrorCode.INVALID_REPLICATION_FACTOR: "`moldau cluster info` shows the brokers there are",
}


@click.group()
def topic() -> None:
    """Create, list, describe, alter, trim and delete topics."""


@topic.command()
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@click.option("-p", "--partitions", type=click.IntRange(1, PARTITIONS_MAX), help="How many. Default: the broker's.")
@click.option(
    "-r",
    "--replication-factor",
    type=click.IntRange(1, REPLICAS_MAX),
    help="Copies of each. Default: the broker's.",
)
@click.option(
    "-c", "--config", multiple=True, metavar="K=V", callback=key_values_callback, help="A topic config. Repeatable."
)
@click.option("--if-not-exists", is_flag=True, help="Do not fail if a topic exists already.")
@broker_options
def create(
    broker: Broker,
    names: tuple[str, ...],
    partitions: int | None,
    replication_factor: int | None,
    config: dict[str, str],
    if_not_exists: bool,
) -> None:
    """Create topics.

    \b
    moldau topic create orders -p 6 -c retention.ms=86400000 -c compression.type=zstd
    """
    broker.metadata()
    topics = [NewTopic(name, partitions or -1, replication_factor or -1, config) for name in names]
    failures: list[CommandFailed] = []
    with admin_failures():
        errors = topic_admin.create_topics(broker.admin, topics)
    for name, error in errors.items():
        if error is None:
            click.echo(f"created {name}")
        elif if_not_exists and error.code is ErrorCode.TOPIC_ALREADY_EXISTS:
            click.echo(f"{name} exists already")
        else:
            failures.append(command_failure(error, name, CREATE_STEPS))
    _raise_all(failures)


def _raise_all(failures: Sequence[CommandFailed]) -> None:
    if failures:
        raise CommandFailed(" | ".join(error.message for error in failures))


@topic.command(name="list", short_help="List the topics and how much they hold.")
@click.option("--internal", is_flag=True, help="Show the cluster's own topics too (__consumer_offsets and the like).")
@format_option
@broker_options
def list_topics(broker: Broker, internal: bool, output_format: str) -> None:
    """List the topics, with their partitions, replicas, offsets in use and bytes on disk.

    OFFSETS is the sum of log end minus log start of all partitions: records, but also transaction markers, records of
    aborted transactions, and offsets that compaction removed. Records are not counted one by one.

    \b
    moldau topic list
    moldau topic list --format json | jq -r '.[].name'
    """
    metadata = broker.metadata()
    topics = [t for name, t in sorted(metadata.topics.items()) if internal or not is_internal(name)]
    with_leader = partition_offsets.partitions_with_leader(topics)
    bounds = partition_offsets.bounds(broker.admin, with_leader, skipped=partition_offsets.DELETED_MEANWHILE)
    sizes = topic_sizes(broker, metadata)
    rows = [
        (
            topic_metadata.name,
            len(topic_metadata.partitions),
            _replication_factor(topic_metadata),
            offsets_in_use(topic_metadata, bounds),
            None if sizes is None else Bytes(sizes.get(topic_metadata.name, 0)),
        )
        for topic_metadata in topics
    ]
    columns = ("NAME", "PARTITIONS", "REPLICAS", "OFFSETS", "SIZE")
    show(output_format, Table(columns, rows, empty="no topics yet; `moldau topic create NAME` makes one"))


def _replication_factor(topic_metadata: TopicReplicas) -> int:
    return max((len(partition.replicas) for partition in topic_metadata.partitions.values()), default=0)


def offsets_in_use(topic_metadata: TopicReplicas, bounds: Bounds) -> int | None:
    """Return log end minus log start. Not all of these offsets are readable records; only reading could count those."""
    topic_bounds = [bounds.get((topic_metadata.name, number)) for number in topic_metadata.partitions]
    return None if None in topic_bounds else sum(pair[1] - pair[0] for pair in topic_bounds if pair is not None)


@topic.command(short_help="Show partitions of topics and their configs.")
@click.argument("names", metavar="NAME...", nargs=-1, required=True, shell_complete=complete_topics)
@format_option
@broker_options
def describe(broker: Broker, names: tuple[str, ...], output_format: str) -> None:
    """Show the partitions of topics, their replicas and offsets, and the configs set on the topics.

    OFFSETS is END minus START: records, and also transaction markers.

    \b
    moldau topic describe orders
    moldau topic describe orders --format yaml
    """
    metadata = broker.metadata()
    topics = existing_topics(metadata, names)
    admin = broker.admin
    bounds = partition_offsets.bounds(admin, partition_offsets.partitions_with_leader(topics))
    data, tables = [], []
    for topic_metadata in topics:
        partitions = _partition_table(topic_metadata, bounds)
        with admin_failures(topic_metadata.name):
            configs = _config_table(topic_admin.topic_configs(admin, topic_metadata.name))
        tables += [partitions, configs]
        set_configs = {key: value for key, value, _ in configs.rows}
        data.append({"name": topic_metadata.name, "partitions": partitions.records(), "configs": set_configs})
    show(output_format, *tables, data=data)


def _partition_table(topic_metadata: TopicReplicas, bounds: Bounds) -> Table:
    rows: list[tuple[Any, ...]] = []
    for number, partition in sorted(topic_metadata.partitions.items()):
        partition_bounds = bounds.get((topic_metadata.name, number))
        start, end, in_use = (
            (*partition_bounds, partition_bounds[1] - partition_bounds[0]) if partition_bounds else (None, None, None)
        )
        leader = partition.leader if partition.leader >= 0 else None
        rows.append((number, leader, list(partition.replicas), list(partition.isr), start, end, in_use))
    columns = ("PARTITION", "LEADER", "REPLICAS", "ISR", "START", "END", "OFFSETS")
    return Table(columns, rows, f"{topic_metadata.name}: {len(rows)} partition{'s' if len(rows) != 1 else ''}")


def _config_table(configs: Iterable[topic_admin.Config]) -> Table:
    """Return the configs set on the topic itself; `kafka-configs --all` prints the many defaults."""
    rows = [(each.name, each.value, each.default) for each in configs if each.source == "topic"]
    return Table(("CONFIG", "VALUE", "DEFAULT"), rows, empty="no configs set: the broker's defaults apply")


@topic.command()
@click.argument("name", metavar="NAME", shell_complete=complete_topics)
@click.option("-p", "--partitions", type=click.IntRange(1, PARTITIONS_MAX), help="Grow to this many partitions.")
@click.option("-s", "--set", "to_set", multiple=True, metavar="K=V", callback=key_values_callback, help="Set a config.")
@click.option("-u", "--unset", "to_unset", multiple=True, metavar="K", help="Return a config to its default.")
@broker_options
def alter(broker: Broker, name: str, partitions: int | None, to_set: dict[str, str], to_unset: tuple[str, ...]) -> None:
    """Add partitions to a topic, set or unset its configs.

    \b
    moldau topic alter orders --partitions 12
    moldau topic alter orders --set retention.ms=3600000 --unset compression.type
    """
    if not (partitions or to_set or to_unset):
        raise click.UsageError("nothing to alter; use --partitions, --set or --unset", click.get_current_context())
    broker.topic(name)
    admin = broker.admin
    if to_set or to_unset:
        with admin_failures(name):
            changes = [*to_set.items(), *((key, None) for key in to_unset)]
            alter_configs(admin.ask, {(TOPIC, name): changes})
        for key, value in to_set.items():
            click.echo(f"{name}: {key}={value}")
        for key in to_unset:
            click.echo(f"{name}: {key} is the default again")
    if partitions:
        with admin_failures(name):
            topic_admin.grow_topic(admin, name, partitions)
        click.echo(f"{name}: {partitions} partitions")


@topic.command()
@click.argument("names", metavar="NAME...", nargs=-1, required=True, shell_complete=complete_topics)
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@broker_options
def delete(broker: Broker, names: tuple[str, ...], yes: bool) -> None:
    """Delete topics and all their records. On a terminal it asks first. Views of a topic stay, and show nothing: they
    are named, and `moldau view delete` deletes them.

    \b
    moldau topic delete orders --yes
    """
    existing_topics(broker.metadata(), names)
    views = views_of(broker, names)
    orphans = "".join(f" Views of {name}: {', '.join(its)}: they will show nothing." for name, its in views.items())
    confirm(f"Delete {', '.join(names)} and all records in {'it' if len(names) == 1 else 'them'}?{orphans}", yes)
    failures: list[CommandFailed] = []
    with admin_failures():
        errors = topic_admin.delete_topics(broker.admin, names)
    for name, error in errors.items():
        if error is None:
            orphans = f"; views of it: {', '.join(views[name])}: they show nothing now" if name in views else ""
            click.echo(f"deleted {name}{orphans}")
        else:
            failures.append(command_failure(error, name))
    _raise_all(failures)


@topic.command(short_help="Delete the oldest records of a topic.")
@click.argument("name", metavar="NAME", shell_complete=complete_topics)
@click.option("--before", required=True, metavar="OFFSET|@TIME|end", help="The first record to keep.")
@click.option("-p", "--partition", "only", multiple=True, type=click.IntRange(min=0), help="Only this one. Repeatable.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@broker_options
def trim(broker: Broker, name: str, before: str, only: tuple[int, ...], yes: bool) -> None:
    """Delete the oldest records of a topic: all before an offset or a time. On a terminal it asks first.

    \b
    moldau topic trim orders --before @-7d
    moldau topic trim orders --before 1000 --partition 0
    moldau topic trim orders --before end
    """
    try:
        until = offsets.parse_position(before, time.time_ns() // 1_000_000)
    except offsets.BadOffset as error:
        raise click.BadParameter(str(error), param_hint="--before") from error
    partitions = partition_offsets.partitions_of(broker.topic(name), only)
    admin = broker.admin
    ranges = partition_offsets.resolve(admin, partitions, offsets.OffsetRange(until))
    confirm(f"Delete all records of {name} before {before}?", yes)
    before_offsets = {TopicPartition(name, number): each.begin for (_, number), each in sorted(ranges.items())}
    with admin_failures(name):
        results = admin.delete_records(before_offsets)
    failures = [
        command_failure(result, f"{name} partition {partition.partition}")
        for partition, result in results.items()
        if isinstance(result, KafkaError)
    ]
    rows = [(partition.partition, start) for partition, start in results.items() if isinstance(start, int)]
    if rows:
        show("table", Table(("PARTITION", "START"), sorted(rows), f"{name} now begins at"))
    _raise_all(failures)
