"""kafka-share-groups: lists, describes and deletes share groups, and resets or deletes their start offsets.

Output and exit statuses are exactly those of Kafka's tool: a wrong command line, and a reset of a group that has
members, end with 1; other errors of the cluster or of a group are printed on stdout and end with 0. This module has the
flags and the actions; group_offsets/share_lines.py makes the lines.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import TopicPartition
from moldau.cli.flags import Arguments, Flag, ToolFlags, UsageError
from moldau.cli.kafka.connection import clients, properties
from moldau.cli.kafka.group_offsets import reset_plan, share_lines
from moldau.cli.kafka.group_offsets.choice import WrongArgument, error_line, parse_states
from moldau.cli.kafka.group_offsets.lines import reset_table
from moldau.cli.kafka.group_offsets.partition_offsets import (
    Offsets,
    check_partitions,
    list_offsets,
    named_partitions,
    offsets_at_time,
)
from moldau.cli.kafka.java.exceptions import WRAPPED, exception_text, message_of, without_message
from moldau.cli.kafka.tool import FAILURES, ToolFailed, print_to_stderr, run, trace
from moldau.client.admin.group_values import (
    DEAD,
    EMPTY,
    SHARE,
    SHARE_STATES,
    DescribedGroup,
    ListedGroup,
    ShareOffset,
)
from moldau.client.admin.groups import Groups
from moldau.client.admin.share_groups import ShareGroups
from moldau.client.cluster import EARLIEST, LATEST, Cluster

TIMEOUT_MS_MIN: Final = 1
TIMEOUT_MS_MAX: Final = 2**31 - 1
ACTIONS: Final = ("list", "describe", "delete", "reset-offsets", "delete-offsets")
SCENARIOS: Final = ("to-datetime", "to-earliest", "to-latest")
GROUP_ERRORS: Final = frozenset(
    {
        ErrorCode.INVALID_GROUP_ID,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.NON_EMPTY_GROUP,
    }
)
TOPIC_ERRORS: Final = frozenset({ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})

FLAGS = ToolFlags(
    "This tool helps to list, describe, reset and delete share groups.",
    (
        Flag("bootstrap-server", "REQUIRED: A broker, HOST:PORT.", "server to connect to"),
        Flag("command-config", "A properties file with settings of the client.", "command config property file"),
        Flag("timeout", "How long to wait for a response of the cluster.", "timeout (ms)", "Long", "30000"),
        Flag("list", "List all share groups."),
        Flag("describe", "Show a group's partitions, its start offsets in them, and how far it lags behind."),
        Flag("delete", "Delete whole groups without members."),
        Flag("reset-offsets", "Set the start offsets of a group without members, or with --dry-run only show them."),
        Flag("delete-offsets", "Delete the start offsets of one group in whole topics."),
        Flag("group", "A share group. Repeatable.", "share group"),
        Flag("all-groups", "All share groups."),
        Flag(
            "topic",
            "A topic to reset or delete the offsets of. To reset, all its partitions, or those named as in"
            " topic1:0,1,2. Repeatable.",
            "topic",
        ),
        Flag("all-topics", "Reset all partitions the group has offsets in."),
        Flag("offsets", "With --describe: partitions and offsets. The default."),
        Flag("members", "With --describe: the members."),
        Flag(
            "state",
            "With --describe: the group's state. With --list: the state of each, or only groups in states such as"
            " stable,empty.",
            "String",
            argument_optional=True,
        ),
        Flag("verbose", "With --describe: epochs too."),
        Flag("dry-run", "With --reset-offsets: only show the new offsets."),
        Flag("execute", "With --reset-offsets: set the new offsets."),
        Flag("to-earliest", "Reset to the oldest record."),
        Flag("to-latest", "Reset to the end."),
        Flag("to-datetime", "Reset to a time, 'YYYY-MM-DDThh:mm:ss.sss', UTC unless it names a zone.", "datetime"),
    ),
)


class Connection(NamedTuple):
    groups: Groups
    share: ShareGroups
    cluster: Cluster


class RefusedReset(ToolFailed):
    """The group cannot be reset. As in Kafka's tool, this alone of the errors of a group ends with status 1."""


def main(argv: Sequence[str] | None = None) -> int:
    return run("kafka-share-groups", FLAGS, _main, argv)


def _main(arguments: Arguments) -> int:
    _check_available(arguments)
    _check(arguments)
    try:
        _act(arguments)
    except WrongArgument as error:
        raise UsageError(str(error)) from error
    except RefusedReset:
        raise
    except (*FAILURES, UsageError, OSError) as error:
        trace()
        print(error_line(f"Executing share group command failed due to {error}"))
    return 0


def _act(arguments: Arguments) -> None:
    timeout_ms = min(max(arguments.integer("timeout") or 0, TIMEOUT_MS_MIN), TIMEOUT_MS_MAX)
    java_config = properties.load(arguments.single_value("command-config"))
    cluster = clients.cluster(arguments.single_value("bootstrap-server") or "", java_config, timeout_ms / 1000)
    connection = Connection(Groups(cluster, timeout_ms), ShareGroups(cluster, timeout_ms), cluster)
    try:
        _action(arguments)(arguments, connection)
    finally:
        cluster.close()


def _action(arguments: Arguments) -> Callable[[Arguments, Connection], None]:
    actions = {
        "list": _list,
        "describe": _describe,
        "delete": _delete,
        "reset-offsets": _reset,
        "delete-offsets": _delete_offsets,
    }
    return next(action for name, action in actions.items() if arguments.has(name))


# --- the command line -----------------------------------------------------------------------------------------------


def _check_available(arguments: Arguments) -> None:
    """Check flags that are allowed only together with certain others."""
    describing = arguments.has("describe")
    allowed = dict.fromkeys(("members", "offsets", "verbose"), describing)
    allowed["state"] = describing or arguments.has("list")
    unavailable = [name for name, is_allowed in allowed.items() if arguments.has(name) and not is_allowed]
    if unavailable:
        listed = ", ".join(unavailable)
        raise UsageError(f"Option(s) [{listed}] are unavailable given other options on the command line")


def _check(arguments: Arguments) -> None:
    """Check the rules between flags in Kafka's order, so that of two mistakes the same one is reported."""
    arguments.require("bootstrap-server")
    if arguments.has("describe"):
        _check_describe(arguments)
    if arguments.has("delete"):
        _check_delete(arguments)
    if arguments.has("delete-offsets") and not (arguments.has("group") and arguments.has("topic")):
        raise UsageError("Option [delete-offsets] takes the following options: [group], [topic]")
    if arguments.has("reset-offsets"):
        _check_reset(arguments)
    arguments.forbid_together("group", "all-groups", "list")
    arguments.forbid_together("topic", "list", "describe")
    if sum(map(arguments.has, ACTIONS)) != 1:
        raise UsageError(f"Command must include exactly one action: {', '.join(f'--{name}' for name in ACTIONS)}.")


def _check_describe(arguments: Arguments) -> None:
    if not arguments.has("group") and not arguments.has("all-groups"):
        raise UsageError("Option [describe] takes one of these options: [all-groups], [group]")
    if sum(map(arguments.has, ("members", "offsets", "state"))) > 1:
        raise UsageError("Option [describe] takes at most one of these options: [members], [offsets], [state]")
    if arguments.values_of("state"):
        raise UsageError("Option [describe] does not take a value for [state]")


def _check_delete(arguments: Arguments) -> None:
    has_group, has_all = arguments.has("group"), arguments.has("all-groups")
    if not has_group and not has_all:
        raise UsageError("Option [delete] takes the options [group] or [all-groups]")
    if has_group and has_all:
        raise UsageError("Option [delete] takes either [group] or [all-groups], not both.")
    if arguments.has("topic"):
        raise UsageError("Option [delete] does not take the option: [topic]")


def _check_reset(arguments: Arguments) -> None:
    if arguments.has("dry-run") and arguments.has("execute"):
        raise UsageError("Option [reset-offsets] only accepts one of [execute] and [dry-run]")
    if not arguments.has("dry-run") and not arguments.has("execute"):
        raise UsageError("Option [reset-offsets] takes the option: [execute] or [dry-run]")
    if not arguments.has("group"):
        raise UsageError("Option [reset-offsets] takes the option: [group]")
    if not arguments.has("topic") and not arguments.has("all-topics"):
        raise UsageError("Option [reset-offsets] takes one of these options: [all-topics], [topic]")
    if not any(map(arguments.has, SCENARIOS)):
        listed = ", ".join(f"[{name}]" for name in SCENARIOS)
        raise UsageError(f"Option [reset-offsets] takes one of these options: {listed}")
    for scenario in SCENARIOS:
        arguments.forbid_together(scenario, *(other for other in SCENARIOS if other != scenario))


# --- listing and deleting -------------------------------------------------------------------------------------------


def _list(arguments: Arguments, connection: Connection) -> None:
    if not arguments.has("state"):
        for group in _listed(connection):
            print(group.group_id)
        return
    states = parse_states(arguments.single_value("state"), SHARE_STATES)
    try:
        listed = _share_groups(connection, states)
    except KafkaError as error:
        raise ToolFailed(exception_text(error)) from error
    _print(share_lines.listing(listed))


def _listed(connection: Connection) -> list[ListedGroup]:
    try:
        return _share_groups(connection)
    except KafkaError as error:
        raise ToolFailed(WRAPPED + exception_text(error)) from error


def _share_groups(connection: Connection, states: Sequence[str] = ()) -> list[ListedGroup]:
    """Return the share groups in these states, or all, sorted by name. Old brokers list groups of other types too."""
    groups = {group.group_id: group for group in connection.groups.listed(states, (SHARE,)) if group.is_share_group}
    return [groups[group_id] for group_id in sorted(groups)]


def _chosen_groups(arguments: Arguments, connection: Connection) -> list[str]:
    if arguments.has("all-groups"):
        return [group.group_id for group in _listed(connection)]
    return arguments.values_of("group")


def _delete(arguments: Arguments, connection: Connection) -> None:
    listed = {group.group_id: group for group in _listed(connection)}
    group_ids = list(listed) if arguments.has("all-groups") else arguments.values_of("group")
    failed = {group_id: obstacle for group_id in group_ids if (obstacle := _obstacle(group_id, listed.get(group_id)))}
    results = connection.groups.delete(group_id for group_id in group_ids if group_id not in failed)
    failed |= {group_id: exception_text(KafkaError(code)) for group_id, code in results.items() if code}
    deleted = ", ".join(f"'{group_id}'" for group_id in sorted(results) if group_id not in failed)
    if not failed:
        print(f"Deletion of requested share groups ({deleted}) was successful.")
        return
    print(error_line("Deletion of some share groups failed:"))
    for group_id in sorted(failed):
        print(f"* Group '{group_id}' could not be deleted due to: {failed[group_id]}")
    if deleted:
        print(f"\nThese share groups were deleted successfully: {deleted}")


def _obstacle(group_id: str, listed: ListedGroup | None) -> str | None:
    """Return why a group cannot be deleted, None if nothing is known against it."""
    if listed is None:
        return f"java.lang.IllegalArgumentException: Group '{group_id}' is not a share group."
    if listed.state == DEAD:
        return f"java.lang.IllegalStateException: Share group '{group_id}' group state is DEAD."
    if listed.state not in (EMPTY, ""):
        return exception_text(KafkaError(ErrorCode.NON_EMPTY_GROUP, f"Share group '{group_id}' is not EMPTY."))
    return None


# --- describing -----------------------------------------------------------------------------------------------------


def _describe(arguments: Arguments, connection: Connection) -> None:
    described = _described_groups(connection, _chosen_groups(arguments, connection))
    verbose = arguments.has("verbose")
    if arguments.has("members"):
        for group in described:
            _print_state(group)
            if group.state != DEAD and group.members:
                _print(share_lines.members(group, verbose))
    elif arguments.has("state"):
        for group in described:
            _print_state(group)
            _print(share_lines.state(group, verbose))
    else:
        found = [(group.group_id, _offsets(connection, group.group_id)) for group in described]
        for group_id, offsets in found:
            _print(share_lines.offsets(group_id, offsets, verbose))


def _described_groups(connection: Connection, group_ids: Iterable[str]) -> list[DescribedGroup]:
    """Return the descriptions, sorted by name; fail at the first group that cannot be described."""
    described = []
    descriptions = connection.share.described(group_ids)
    for group_id in sorted(descriptions):
        description = descriptions[group_id]
        if isinstance(description, KafkaError):
            raise ToolFailed(exception_text(description))
        described.append(description)
    return described


def _print_state(group: DescribedGroup) -> None:
    """Print a line about a group without members."""
    if group.state == DEAD:
        print(error_line(f"Share group '{group.group_id}' does not exist."))
    elif group.state == EMPTY:
        print_to_stderr(f"\nShare group '{group.group_id}' has no active members.")


def _offsets(connection: Connection, group_id: str) -> dict[TopicPartition, ShareOffset | None]:
    """Return the start offsets of a group, with a line on stderr about each that its coordinator does not know now."""
    try:
        offsets = connection.share.offsets(group_id)
    except KafkaError as error:
        raise ToolFailed(WRAPPED + exception_text(error)) from error
    known: dict[TopicPartition, ShareOffset | None] = {}
    for partition, offset in offsets.items():
        if isinstance(offset, KafkaError):
            print_to_stderr(f"WARN the start offset in {partition} is left out: {exception_text(offset)}")
        else:
            known[partition] = offset
    return known


# --- resetting and deleting offsets ---------------------------------------------------------------------------------


def _reset(arguments: Arguments, connection: Connection) -> None:
    group_id = arguments.single_value("group") or ""
    description = connection.share.described([group_id])[group_id]
    if isinstance(description, KafkaError):
        if description.code is not ErrorCode.GROUP_ID_NOT_FOUND:
            raise RefusedReset(message_of(description))
    elif description.is_active:
        raise RefusedReset(f"Share group '{group_id}' is not empty.")
    if arguments.has("topic"):
        partitions = named_partitions(connection.cluster, arguments.values_of("topic"))
    else:
        partitions = _partitions_with_offsets(connection, group_id)
    check_partitions(connection.cluster, partitions)
    offsets = dict(sorted(_new_offsets(arguments, connection.cluster, partitions).items()))
    if arguments.has("execute"):
        _alter(connection, group_id, offsets)
    _print(reset_table({group_id: offsets}))


def _partitions_with_offsets(connection: Connection, group_id: str) -> list[TopicPartition]:
    try:
        return sorted(connection.share.offsets(group_id))
    except KafkaError as error:
        raise ToolFailed(message_of(error)) from error


def _new_offsets(arguments: Arguments, cluster: Cluster, partitions: Sequence[TopicPartition]) -> Offsets:
    try:
        if arguments.has("to-earliest"):
            return list_offsets(cluster, partitions, EARLIEST)
        if arguments.has("to-latest"):
            return list_offsets(cluster, partitions, LATEST)
        moment_ms = reset_plan.parse_date_time(arguments.values_of("to-datetime")[0])
        return offsets_at_time(cluster, partitions, moment_ms)
    except KafkaError as error:
        raise ToolFailed(WRAPPED + exception_text(without_message(error))) from error


def _alter(connection: Connection, group_id: str, offsets: Offsets) -> None:
    try:
        errors = connection.share.alter_offsets(group_id, offsets)
    except KafkaError as error:
        errors = dict.fromkeys(
            offsets, error
        )  # Kafka's client too reports the group's error as that of each partition.
    failed = [str(partition) for partition in sorted(errors) if errors[partition] is not None]
    if failed:
        raise ToolFailed(f"Failed altering group offsets for the following partitions: [{', '.join(failed)}]")


def _delete_offsets(arguments: Arguments, connection: Connection) -> None:
    group_id = arguments.single_value("group") or ""
    topics = sorted(set(arguments.values_of("topic")))
    try:
        errors = connection.share.delete_offsets(group_id, topics)
        error = next((found for topic in topics if (found := errors[topic]) is not None), None)
    except KafkaError as group_error:
        errors, error = dict.fromkeys(topics, group_error), group_error
    if error is not None and error.code in GROUP_ERRORS:
        print(error_line(message_of(error)))
    elif error is not None and error.code not in TOPIC_ERRORS:
        print(error_line(f"Encounter some unknown error: {exception_text(error)}"))
    statuses = {
        topic: "Successful" if found is None else f"Error: {message_of(found)}" for topic, found in errors.items()
    }
    _print(share_lines.deletion_table(statuses))


def _print(table_lines: Iterable[str]) -> None:
    for line in table_lines:
        print(line)


if __name__ == "__main__":
    sys.exit(main())
