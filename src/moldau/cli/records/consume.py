"""`moldau consume`: print the records of topics in a format.

Partitions are assigned by hand and read from resolved offsets, so no group is needed and nothing is committed. Only
`-g` joins a group (consume_group.py). offsets.py parses where to read, format_language.py how to print.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any, Final

import click

from moldau.base.errors import KafkaError, MalformedData
from moldau.cli import partition_offsets
from moldau.cli.completion import complete_groups, complete_topics
from moldau.cli.connect import (
    Broker,
    CommandFailed,
    broker_options,
    existing_topics,
    is_internal,
    plain_failures,
)
from moldau.cli.partition_offsets import Partition, ResolvedRange
from moldau.cli.records import format_language
from moldau.cli.records.consume_group import consume_group
from moldau.cli.records.consumed import ENDLESS, Printer, eof_offset, poll_messages
from moldau.cli.records.format_language import BadFormat, Formatter
from moldau.cli.stop_signals import exiting_at_signals
from moldau.cli.view.views import refuse_orphans, temporary_view
from moldau.client.admin.cluster_values import ClusterMetadata
from moldau.client.admin.groups import Groups
from moldau.operations import offsets

GROUP_MS: Final = 3_000
VIEW_SECONDS: Final = 10.0
VIEW_PAUSE_SECONDS: Final = 0.05
CLIENT_CONFIG: Final = {
    "enable.partition.eof": True,
    # If its local queue is full, librdkafka waits before the next fetch, by default a whole second: most of the time
    # of a long read would be spent there.
    "fetch.queue.backoff.ms": 5,
}


def read_assigned(consumer: Any, ranges: dict[Partition, ResolvedRange], printer: Printer) -> None:
    """Read every partition from its begin to its end; return when all ends or the printer's limit of records are
    reached."""
    from moldau.client.confluent import TopicPartition

    ends = {partition: ENDLESS if span.end is None else span.end for partition, span in ranges.items()}
    unfinished = {partition for partition, span in ranges.items() if span.begin < ends[partition]}
    consumer.assign([TopicPartition(*partition, ranges[partition].begin) for partition in unfinished])
    while unfinished and not printer.reached_limit():
        for message in poll_messages(consumer):
            if _is_about_group(message):
                continue
            partition = (message.topic() or "", message.partition() or 0)
            if message.error() is not None:
                offset = eof_offset(message)
            else:
                offset = message.offset() or 0
                if offset < ends[partition] and partition in unfinished:
                    printer.print(message)
                    offset += 1
                    if printer.reached_limit():
                        break
            # The last record before the end may be compacted away or a marker: then the end-of-log event, or the
            # first record after the end, completes the partition.
            if offset >= ends[partition] and partition in unfinished:
                unfinished.discard(partition)
                consumer.pause([TopicPartition(*partition)])
        printer.flush()


def _is_about_group(message: Any) -> bool:
    """Whether it is librdkafka's error that the user may not use the group: it needs a name of a group, and looks for
    its coordinator, although partitions are assigned and nothing is committed."""
    error = message.error()
    return error is not None and error.name() == "GROUP_AUTHORIZATION_FAILED"


@click.command()
@click.argument("topics", metavar="TOPIC...", nargs=-1, required=True, shell_complete=complete_topics)
@click.option("-r", "--regex", is_flag=True, help="Each TOPIC is a regular expression for whole names.")
@click.option("-o", "--offset", default=None, metavar="RANGE", help="Where to begin and end: see above.")
@click.option("-f", "--record-format", metavar="FORMAT", help="How to print a record: see above. Default: '%v\\n'.")
@click.option("--json", "as_json", is_flag=True, help="Print each record as a JSON envelope, one a line.")
@click.option("-n", "--num", type=click.IntRange(min=1), help="Stop after this many records.")
@click.option("-p", "--partition", "only", multiple=True, type=click.IntRange(min=0), help="Only this one. Repeatable.")
@click.option("-e", "--exit-at-end", is_flag=True, help="Stop at the current end of the partitions.")
@click.option(
    "-g",
    "--group",
    shell_complete=complete_groups,
    help="Join this consumer group: it assigns the partitions, and offsets of printed records are committed.",
)
@click.option("--where", metavar="CONDITION", help="Only these records: see `moldau view create --help`.")
@click.option("--fields", metavar="FIELDS", help="Only these fields of their values: see `moldau view create --help`.")
@click.option(
    "--isolation-level",
    type=click.Choice(["read_uncommitted", "read_committed"]),
    default="read_committed",
    show_default=True,
    help="Whether records of open and aborted transactions are printed.",
)
@broker_options
def consume(
    broker: Broker,
    topics: tuple[str, ...],
    regex: bool,
    offset: str | None,
    record_format: str | None,
    as_json: bool,
    num: int | None,
    only: tuple[int, ...],
    exit_at_end: bool,
    group: str | None,
    where: str | None,
    fields: str | None,
    isolation_level: str,
) -> None:
    """Print the records of topics: first the existing ones, then new ones as they come, until Ctrl-C.

    \b
    moldau consume orders
    moldau consume orders -o -10 -f '%p:%o %d{iso} %k %v\\n'
    moldau consume orders -o @-1h:end --json | jq .value
    moldau consume -r 'orders-.*' -n 100
    moldau consume orders --where "amount > 100" --fields "id, amount"

    \b
    RANGE  start  end  N  +N (after the start)  -N (the last N)  N1:N2  :N  :end
           @TIME  @T1:T2  @T1:end; TIME is milliseconds, 2026-11-15, 2026-11-15T08:30:00Z, or -1h (ago)
    FORMAT %t topic  %p partition  %o offset  %k key  %v value  %h headers  %K %V lengths  %i count
           %T milliseconds  %d{iso}  %d{strftime[%F %T]}  %v{hex}  %v{base64}  %h{%k=%v;}  \\n \\t \\xHH
    """
    _check_option_conflicts(as_json, record_format, group, offset, only)
    if group is not None and (where is not None or fields is not None):
        raise click.UsageError("a group reads a topic or view that stays: `moldau view create` makes one")
    printer = Printer(_formatter(record_format, as_json), sys.stdout.buffer, num)
    config = CLIENT_CONFIG | {"isolation.level": isolation_level}
    metadata = broker.metadata()
    names = _matching(metadata, topics) if regex else list(topics)
    if not regex:
        refuse_orphans(broker, existing_topics(metadata, topics))
    if group is not None:
        subscription = _matcher(topics) if regex else names
        _consume_group(broker, group, subscription, offset or "start", exit_at_end, config, printer)
        return
    offset_range = _range(offset or "start", exit_at_end)
    with ExitStack() as views:
        if where is not None or fields is not None:
            views.enter_context(exiting_at_signals())
            names = [views.enter_context(temporary_view(broker, name, where, fields)) for name in names]
            metadata = _with_views(broker, names)
        _consume_assigned(broker, metadata, names, only, offset_range, config, printer)


def _with_views(broker: Broker, names: list[str]) -> ClusterMetadata:
    """The metadata once it has these new views."""
    deadline = time.monotonic() + VIEW_SECONDS
    while True:
        metadata = broker.metadata()
        if all(name in metadata.topics and metadata.topics[name].partitions for name in names):
            return metadata
        if time.monotonic() > deadline:
            raise CommandFailed(f"the broker does not show the view after {VIEW_SECONDS:g} s")
        time.sleep(VIEW_PAUSE_SECONDS)


def _consume_assigned(
    broker: Broker,
    metadata: ClusterMetadata,
    names: list[str],
    only: tuple[int, ...],
    offset_range: offsets.OffsetRange,
    config: dict[str, Any],
    printer: Printer,
) -> None:
    is_committed = config["isolation.level"] == "read_committed"
    partitions = [
        partition for name in names for partition in partition_offsets.partitions_of(metadata.topics[name], only)
    ]
    ranges = partition_offsets.resolve(broker.admin, partitions, offset_range, is_committed)
    # librdkafka requires a group id even for a consumer that joins no group.
    consumer = broker.consumer(config | {"group.id": "moldau-consume", "enable.auto.commit": False})
    with plain_failures():
        try:
            read_assigned(consumer, ranges, printer)
        finally:
            consumer.close()


def _check_option_conflicts(
    as_json: bool, record_format: str | None, group: str | None, offset: str | None, only: tuple[int, ...]
) -> None:
    context = click.get_current_context()
    if as_json and record_format is not None:
        raise click.UsageError("--json and -f are two ways to print: choose one", context)
    if group is not None and only:
        raise click.UsageError("a group assigns the partitions itself: leave -p out, or -g", context)
    if group is not None and offset not in (None, "start", "end"):
        raise click.UsageError("a group keeps its own offsets: with -g there is only -o start and -o end", context)


def _formatter(record_format: str | None, as_json: bool) -> Formatter:
    if as_json:
        return format_language.json_envelope
    try:
        return format_language.compile_format("%v\\n" if record_format is None else record_format)
    except BadFormat as error:
        raise click.BadParameter(str(error), click.get_current_context(), param_hint="-f") from error


def _range(offset: str, exit_at_end: bool) -> offsets.OffsetRange:
    try:
        parsed = offsets.parse_range(offset, time.time_ns() // 1_000_000)
    except offsets.BadOffset as error:
        raise click.BadParameter(str(error), click.get_current_context(), param_hint="-o") from error
    return offsets.OffsetRange(parsed.begin, offsets.END) if exit_at_end and parsed.end is None else parsed


def _matcher(patterns: tuple[str, ...]) -> Callable[[str], bool]:
    """Match whole names; internal topics are matched only if a pattern begins with an underscore."""
    try:
        compiled = [re.compile(pattern) for pattern in patterns]
    except re.error as error:
        raise click.BadParameter(f"not a regular expression: {error}", param_hint="TOPIC") from error
    with_internal = any(pattern.startswith("_") for pattern in patterns)
    return lambda name: (
        any(pattern.fullmatch(name) for pattern in compiled) and (with_internal or not is_internal(name))
    )


def _matching(metadata: ClusterMetadata, patterns: tuple[str, ...]) -> list[str]:
    names = sorted(filter(_matcher(patterns), metadata.topics))
    if not names:
        raise CommandFailed(f"no topic matches {' or '.join(patterns)}; `moldau topic list` shows the topics there are")
    return names


def _consume_group(
    broker: Broker,
    group: str,
    topics: Sequence[str] | Callable[[str], bool],
    offset: str,
    exit_at_end: bool,
    config: dict[str, Any],
    printer: Printer,
) -> None:
    """Read as a member of a group. First check that the broker has groups, instead of waiting for a coordinator,
    and that this one is no share group, which librdkafka's error does not say."""
    try:
        groups = Groups(broker.admin.cluster, GROUP_MS).listed()
    except (KafkaError, OSError, MalformedData) as error:
        raise CommandFailed(
            f"this broker has no consumer groups ({str(error).rstrip('.').lower()}); leave -g out to read without one"
        ) from error
    if any(each.group_id == group and each.is_share_group for each in groups):
        raise CommandFailed(
            f"{group} is a share group, not a consumer group; name another group, or be a member of this one with"
            " kafka-console-share-consumer.sh"
        )
    reset = "earliest" if offset == "start" else "latest"
    member_config = config | {"group.id": group, "auto.offset.reset": reset}
    status = consume_group(broker, member_config, topics, printer, exit_at_end)
    if status:
        raise click.exceptions.Exit(status)
