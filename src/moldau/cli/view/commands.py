"""`moldau view`: create, list, describe, delete. A view is a topic whose configs say what it shows of another topic."""

from __future__ import annotations

from functools import partial
from typing import Any

import click

from moldau.base.errors import ErrorCode
from moldau.base.view_configs import (
    VIEW_FORMAT,
    VIEW_FROM,
    VIEW_HEADERS,
    VIEW_KEY,
    VIEW_MADE_BY,
    VIEW_ON_ERROR,
    VIEW_SELECT,
    VIEW_SOURCE_ID,
    VIEW_STATISTICS,
    VIEW_WHERE,
)
from moldau.cli.cluster.connect import admin_failures, command_failure
from moldau.cli.completion import complete_topics
from moldau.cli.connect import (
    Broker,
    CommandFailed,
    broker_options,
    existing_topics,
)
from moldau.cli.output import Table, confirm, format_option, show
from moldau.cli.view.views import create_view, readable_views, view_configs
from moldau.client.admin.topics import delete_topics
from moldau.client.requests.configs import TOPIC, describe_configs


@click.group()
def view() -> None:
    """Create, list, describe and delete views: topics that show some records and fields of another topic."""


@view.command(short_help="Create a view of a topic.")
@click.argument("name")
@click.option("--from", "source", required=True, metavar="TOPIC", shell_complete=complete_topics, help="Its source.")
@click.option("-w", "--where", metavar="CONDITION", help="Which records it shows. Default: all.")
@click.option(
    "-s", "--select", metavar="FIELDS", help="Which fields their values have. Default: the values as they are."
)
@click.option("--value-format", metavar="FORMAT", help="How values are read: json (default), or csv(name, name, …).")
@click.option("--key", type=click.Choice(["keep", "sha256", "null"]), help="What becomes of keys. Default: keep.")
@click.option("--headers", type=click.Choice(["keep", "drop"]), help="What becomes of headers. Default: keep.")
@click.option("--on-error", type=click.Choice(["skip", "pass"]), help="Records that cannot be read. Default: skip.")
@broker_options
def create(
    broker: Broker,
    name: str,
    source: str,
    where: str | None,
    select: str | None,
    value_format: str | None,
    key: str | None,
    headers: str | None,
    on_error: str | None,
) -> None:
    """Create a view. Every Kafka client reads it as a topic, with the partitions and offsets of its source.

    \b
    moldau view create big-orders --from orders --where "amount > 100" --select "id, amount"
    moldau view create for-sales --from orders --select "id, sha256(user) as user, left(iban, 4) as iban"

    \b
    CONDITION  fields: amount, user.name, items[0], "odd name"; of the record: key, timestamp (ms), partition, offset,
               header('name'), value; = <> < <= > >= + - * / % || and or not, in, between, like, is null, case
    FIELDS     field, expression as name, …; lower upper trim left right substr length sha256 starts_with ends_with
               contains abs floor ceil coalesce number text
    """
    broker.metadata()
    given = {
        VIEW_FROM: source,
        VIEW_WHERE: where,
        VIEW_SELECT: select,
        VIEW_FORMAT: value_format,
        VIEW_KEY: key,
        VIEW_HEADERS: headers,
        VIEW_ON_ERROR: on_error,
    }
    create_view(broker, name, {config: value for config, value in given.items() if value is not None})
    click.echo(f"created {name}, a view of {source}")


@view.command(name="list", short_help="List the views and what they show.")
@format_option
@broker_options
def list_views(broker: Broker, output_format: str) -> None:
    """List the views, with their sources, conditions and fields, and the programs that made some by themselves.

    \b
    moldau view list
    """
    metadata = broker.metadata()
    views = readable_views(broker, sorted(metadata.topics))
    rows = [
        (
            name,
            configs[VIEW_FROM],
            configs.get(VIEW_WHERE),
            configs.get(VIEW_SELECT),
            _state(metadata.topics[name]),
            configs.get(VIEW_MADE_BY),
        )
        for name, configs in views.items()
    ]
    columns = ("NAME", "FROM", "WHERE", "SELECT", "STATE", "MADE BY")
    show(output_format, Table(columns, rows, empty="no views yet; `moldau view create NAME --from TOPIC` makes one"))


def _state(topic: Any) -> str:
    return "ok" if topic.partitions else "source deleted"


@view.command(short_help="Show what a view says and what was read of it.")
@click.argument("names", metavar="NAME...", nargs=-1, required=True, shell_complete=complete_topics)
@format_option
@broker_options
def describe(broker: Broker, names: tuple[str, ...], output_format: str) -> None:
    """Show what views say, and what each broker has evaluated for their readers since it started: records of the
    source, records shown, values that could not be read, runs of some MiB that an index skipped, failures.

    \b
    moldau view describe big-orders
    """
    metadata = broker.metadata()
    existing_topics(metadata, names)
    views = view_configs(broker, names)
    for name in names:
        if name not in views:
            raise CommandFailed(f"{name} is no view; `moldau topic describe {name}` shows it")
    data, tables = [], []
    for name in names:
        said = {key: value for key, value in views[name].items() if key not in _COUNTS and key != VIEW_SOURCE_ID}
        title = f"{name}: {_state(metadata.topics[name])}"
        tables.append(Table(("CONFIG", "VALUE"), sorted(said.items()), title))
        counts = _counts(broker, name)
        rows = [(broker_id, *(each.get(key) for key in _COUNTS)) for broker_id, each in counts.items()]
        columns = ("BROKER", "SEEN", "SHOWN", "UNREADABLE", "SKIPPED", "FAILURES", "LAST FAILURE")
        counted = Table(columns, rows, empty="nobody has read it since the brokers started")
        tables.append(counted)
        data.append({"name": name, "configs": said, "brokers": counted.records()})
    show(output_format, *tables, data=data)


_COUNTS = tuple(definition.name for definition in VIEW_STATISTICS.values())


def _counts(broker: Broker, name: str) -> dict[int, dict[str, str | None]]:
    """What each broker has evaluated; those where nobody has read the view are left out."""
    found: dict[int, dict[str, str | None]] = {}
    with admin_failures():
        for broker_id in broker.admin.described().nodes:
            (result,) = describe_configs(partial(broker.admin.ask, node_id=broker_id), TOPIC, [name], _COUNTS)
            if result.error_code:
                why = result.error_message or ErrorCode(result.error_code).name
                raise CommandFailed(f"{name}: broker {broker_id} does not return its counts: {why.rstrip('.')}")
            counts = {entry.name: entry.value for entry in result.configs}
            if counts:
                found[broker_id] = counts
    return found


@view.command()
@click.argument("names", metavar="[NAME...]", nargs=-1, shell_complete=complete_topics)
@click.option("--made-by", metavar="PROGRAM", help="All that this program made by itself: spark, moldau-consume.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@broker_options
def delete(broker: Broker, names: tuple[str, ...], made_by: str | None, yes: bool) -> None:
    """Delete views. Their sources stay as they are. On a terminal it asks first.

    Spark makes a view again if a query still needs it: deleting all that it made is safe at any time. `moldau consume
    --where` deletes its views itself, unless it is killed; a running one shows no more records without its view.

    \b
    moldau view delete big-orders --yes
    moldau view delete --made-by spark
    moldau view delete --made-by moldau-consume
    """
    if bool(names) == (made_by is not None):
        raise click.UsageError("say which: NAME..., or --made-by PROGRAM")
    metadata = broker.metadata()
    existing_topics(metadata, names)
    views = view_configs(broker, names) if names else readable_views(broker, sorted(metadata.topics))
    if made_by is not None:
        names = tuple(
            name for name, configs in views.items() if configs.get(VIEW_MADE_BY, "").partition(" ")[0] == made_by
        )
        if not names:
            click.echo(f"there are no views that {made_by} made")
            return
    for name in names:
        if name not in views:
            raise CommandFailed(f"{name} is no view but a topic with records; `moldau topic delete {name}` deletes it")
    confirm(f"Delete {', '.join(names)}? Nothing is deleted of the source.", yes)
    with admin_failures():
        errors = delete_topics(broker.admin, names)
    for name, error in errors.items():
        if error is not None:
            raise command_failure(error, name)
        click.echo(f"deleted {name}")
