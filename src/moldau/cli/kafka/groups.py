"""kafka-groups: lists groups of every type, with their types and protocols."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Final

from moldau.base.errors import KafkaError
from moldau.cli.flags import Arguments, Flag, ToolFlags, UsageError
from moldau.cli.kafka.connection import clients, properties
from moldau.cli.kafka.java.exceptions import message_of
from moldau.cli.kafka.tool import FAILURES, ToolFailed, run, trace
from moldau.client.admin.group_values import CONSUMER, UNKNOWN, ListedGroup, type_name
from moldau.client.admin.groups import Groups

COLUMN_MIN: Final = 20
TIMEOUT_MS: Final = 30_000

FLAGS = ToolFlags(
    "This tool helps to list groups of all types.",
    (
        Flag("bootstrap-server", "REQUIRED: A broker of the cluster, HOST:PORT.", "server to connect to"),
        Flag("command-config", "A properties file with settings of the client.", "command config property file"),
        Flag("list", "List the groups."),
        Flag("group-type", "Only groups of this type: classic, consumer, share or streams.", "type"),
        Flag("protocol", "Only groups of this protocol.", "protocol"),
        Flag("consumer", "Only consumer groups, of type consumer or classic, and groups that only have offsets."),
        Flag("share", "Only share groups."),
        Flag("streams", "Only streams groups."),
    ),
)


def main(argv: Sequence[str] | None = None) -> int:
    return run("kafka-groups", FLAGS, _main, argv)


def _main(arguments: Arguments) -> int:
    _check(arguments)
    try:
        _list(arguments)
    except (*FAILURES, UsageError, OSError) as error:
        trace()
        print(f"Error while executing groups command : {error}")
        return 1
    return 0


def _check(arguments: Arguments) -> None:
    if not arguments.has("bootstrap-server"):
        raise UsageError("Missing required option(s) [bootstrap-server]")
    if not arguments.has("list"):
        raise UsageError("Command must include exactly one action: --list.")
    if arguments.has("group-type") and type_name(arguments.single_value("group-type") or "") == UNKNOWN:
        raise UsageError("--group-type must be a valid group type.")
    arguments.forbid_together("consumer", "group-type", "protocol", "share", "streams")
    arguments.forbid_together("share", "consumer", "group-type", "protocol", "streams")
    arguments.forbid_together("streams", "consumer", "group-type", "protocol", "share")


def _list(arguments: Arguments) -> None:
    servers = arguments.single_value("bootstrap-server") or ""
    java_config = properties.load(arguments.single_value("command-config"))
    cluster = clients.cluster(servers, java_config)
    try:
        listed = {group.group_id: group for group in Groups(cluster, TIMEOUT_MS).listed()}
    except KafkaError as error:
        raise ToolFailed(message_of(error)) from error
    finally:
        cluster.close()
    for line in lines([listed[name] for name in sorted(listed) if is_selected(arguments, listed[name])]):
        print(line)


def is_selected(arguments: Arguments, group: ListedGroup) -> bool:
    protocol = arguments.single_value("protocol")
    if arguments.has("group-type"):
        group_type = type_name(arguments.single_value("group-type") or "")
        return group.type == group_type and protocol in (None, group.protocol_type)
    if protocol is not None:
        return group.protocol_type == protocol
    if arguments.has("consumer"):
        return group.protocol_type in ("consumer", "") or group.type == CONSUMER
    if arguments.has("share") or arguments.has("streams"):
        return group.type == ("Share" if arguments.has("share") else "Streams")
    return True


def lines(groups: Sequence[ListedGroup]) -> Iterator[str]:
    """Yield the rows; all three columns are as wide as the longest cell of any."""
    rows = [(group.group_id, group.type, group.protocol_type) for group in groups]
    width = max([COLUMN_MIN, *(len(cell) for row in rows for cell in row)])
    yield " ".join(f"{name:<{width}}" for name in ("GROUP", "TYPE", "PROTOCOL"))
    for row in rows:
        yield "".join(f"{cell:<{width}} " for cell in row)


if __name__ == "__main__":
    sys.exit(main())
