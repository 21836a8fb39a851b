"""kafka-consumer-groups: lists, describes and deletes consumer groups, and resets or deletes their offsets.

Output and exit statuses are exactly those of Kafka's tool: a wrong command line ends with 1; an error of the cluster
or of a group is printed on stdout and ends with 0. This module has the flags and most actions; group_offsets/lines.py
makes the lines, group_offsets/reset.py resets offsets.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from moldau.base.errors import KafkaError
from moldau.cli.flags import Arguments, Flag, ToolFlags, UsageError
from moldau.cli.kafka.connection import clients, properties
from moldau.cli.kafka.group_offsets import lines, reset
from moldau.cli.kafka.group_offsets.choice import WrongArgument, chosen_groups, error_line, listed_ids, parse_states
from moldau.cli.kafka.java.exceptions import WRAPPED, exception_text, without_message
from moldau.cli.kafka.tool import FAILURES, ToolFailed, print_to_stderr, run, trace
from moldau.client.admin.group_values import (
    CLASSIC,
    CONSUMER,
    CONSUMER_PROTOCOL_TYPE,
    STATES,
    DescribedGroup,
    type_name,
)
from moldau.client.admin.groups import Groups
from moldau.client.cluster import Cluster
from moldau.operations.lag import log_ends

TIMEOUT_MS_MIN: Final = 1
TIMEOUT_MS_MAX: Final = 2**31 - 1
ACTIONS: Final = ("list", "describe", "delete", "reset-offsets", "delete-offsets", "validate-regex")
SCENARIOS: Final = (
    "to-offset", "to-datetime", "by-duration", "to-earliest", "to-latest", "to-current", "shift-by", "from-file",
)  # fmt: skip
CONSUMER_GROUP_PROTOCOL_TYPES: Final = ("", CONSUMER_PROTOCOL_TYPE)
"""Other groups, such as those of Kafka Connect, are left out. A group that only has offsets has the empty type."""
REBALANCING_STATES: Final = ("PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling")
RE2_IS_MISSING: Final = (
    "--validate-regex needs google-re2, which is not installed (it has no wheel for Python 3.15 yet);"
    " run this tool on Python 3.14 or older"
)
NO_ACTION_WARNING: Final = (
    "WARN: No action will be performed as the --execute option is missing. In version 5.0, this command will require"
    " either --dry-run or --execute to be specified. You should add the --dry-run option explicitly if you are"
    " scripting this command and want to keep the current default behavior without prompting."
)
RE2J_MESSAGES: Final = {
    "missing )": "missing closing )",
    "missing ]": "missing closing ]",
    "bad repetition operator": "invalid nested repetition operator",
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "invalid repetition size": "invalid repeat count",
    "no argument for repetition operator": "missing argument to repetition operator",
    "trailing \\": "trailing backslash at end of expression",
    "unexpected )": "regexp/syntax: internal error",
    "invalid named capture group": "invalid named capture",
}
"""RE2's message about a bad expression, and the message of RE2/J, which Kafka uses."""

FLAGS = ToolFlags(
    "This tool helps to list all consumer groups, describe a consumer group, delete consumer group info, or reset"
    " consumer group offsets.",
    (
        Flag("bootstrap-server", "REQUIRED, but for --validate-regex: A broker, HOST:PORT.", "server to connect to"),
        Flag("command-config", "A properties file with settings of the client.", "command config property file"),
        Flag("timeout", "How long to wait for a response of the cluster.", "timeout (ms)", "Long", "30000"),
        Flag("list", "List all consumer groups."),
        Flag("describe", "Show a group's partitions, its offsets in them, and how far it lags behind."),
        Flag("delete", "Delete whole groups with all their offsets."),
        Flag("reset-offsets", "Set the offsets of a group without members. Without --execute, only show them."),
        Flag("delete-offsets", "Delete the offsets of one group in topics."),
        Flag("validate-regex", "Check whether brokers accept a regular expression (RE2).", "regex"),
        Flag("group", "A group. Repeatable.", "consumer group"),
        Flag("all-groups", "All consumer groups."),
        Flag(
            "topic",
            "A topic to reset or delete the offsets of: all its partitions, or those named as in topic1:0,1,2."
            " Repeatable.",
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
        Flag(
            "type",
            "With --list: the type of each, or only groups of types such as classic,consumer.",
            "String",
            argument_optional=True,
        ),
        Flag("verbose", "With --describe: epochs and assignments too."),
        Flag("dry-run", "With --reset-offsets: only show the new offsets. The default."),
        Flag("execute", "With --reset-offsets: commit the new offsets."),
        Flag("export", "With --reset-offsets: print as CSV, for --from-file."),
        Flag("to-offset", "Reset to this offset.", "offset", "Long"),
        Flag("to-earliest", "Reset to the oldest record."),
        Flag("to-latest", "Reset to the end."),
        Flag("to-current", "Reset to the committed offset, or to the end where there is none."),
        Flag("to-datetime", "Reset to a time, 'YYYY-MM-DDThh:mm:ss.sss', UTC unless it names a zone.", "datetime"),
        Flag("by-duration", "Reset to this long ago, 'PnDTnHnMnS'.", "duration"),
        Flag("shift-by", "Reset by this many records forward, or back if negative.", "number-of-offsets", "Long"),
        Flag("from-file", "Reset to the offsets in a CSV file.", "path to CSV file"),
    ),
)


def main(argv: Sequence[str] | None = None) -> int:
    return run("kafka-consumer-groups", FLAGS, _main, argv)


def _main(arguments: Arguments) -> int:
    _check_available(arguments)
    _check(arguments)
    if arguments.has("validate-regex"):
        print(regex_verdict(arguments.single_value("validate-regex") or ""))
        return 0
    try:
        _act(arguments)
    except WrongArgument as error:
        raise UsageError(str(error)) from error
    except (*FAILURES, UsageError, OSError) as error:
        trace()
        print(error_line(f"Executing consumer group command failed due to {error}"))
    return 0


def _act(arguments: Arguments) -> None:
    servers = arguments.single_value("bootstrap-server") or ""
    # Check every number before connecting, also those of a repeated flag.
    for flag in ("to-offset", "shift-by", "timeout"):
        for value in arguments.values_of(flag):
            Arguments(arguments.flags, {flag: [value]}).integer(flag)
    timeout_ms = min(max(arguments.integer("timeout") or 0, TIMEOUT_MS_MIN), TIMEOUT_MS_MAX)
    java_config = properties.load(arguments.single_value("command-config"))
    cluster = clients.cluster(servers, java_config, timeout_ms / 1000)
    groups = Groups(cluster, timeout_ms)
    try:
        _action(arguments)(arguments, groups, cluster)
    finally:
        cluster.close()


def _action(arguments: Arguments) -> Callable[[Arguments, Groups, Cluster], None]:
    actions = {
        "list": _list,
        "describe": _describe,
        "delete": _delete,
        "reset-offsets": reset.reset,
        "delete-offsets": reset.delete_offsets,
    }
    return next(action for name, action in actions.items() if arguments.has(name))


# --- the command line -----------------------------------------------------------------------------------------------


def _check_available(arguments: Arguments) -> None:
    """Check flags that are allowed only together with certain others."""
    describing, listing = arguments.has("describe"), arguments.has("list")
    allowed = {"members": describing, "verbose": describing, "offsets": describing, "state": describing or listing}
    allowed["type"] = listing
    unavailable = [name for name, is_allowed in allowed.items() if arguments.has(name) and not is_allowed]
    if unavailable:
        listed = ", ".join(unavailable)
        raise UsageError(f"Option(s) [{listed}] are unavailable given other options on the command line")


def _check(arguments: Arguments) -> None:
    """Check the rules between flags in Kafka's order, so that of two mistakes the same one is reported."""
    if not arguments.has("validate-regex"):
        arguments.require("bootstrap-server")
    if arguments.has("describe"):
        _check_describe(arguments)
    if arguments.has("delete"):
        _require_groups(arguments, "delete")
        if arguments.has("topic"):
            raise UsageError("The consumer does not support topic-specific offset deletion from a consumer group.")
    if arguments.has("delete-offsets") and not (arguments.has("group") and arguments.has("topic")):
        raise UsageError("Option [delete-offsets] takes the following options: [group], [topic]")
    if arguments.has("reset-offsets"):
        _check_reset(arguments)
    arguments.forbid_together("group", "all-groups", "list")
    arguments.forbid_together("topic", "list", "describe")
    if sum(map(arguments.has, ACTIONS)) != 1:
        raise UsageError(f"Command must include exactly one action: {', '.join(f'--{name}' for name in ACTIONS)}")


def _require_groups(arguments: Arguments, action: str) -> None:
    if not arguments.has("group") and not arguments.has("all-groups"):
        raise UsageError(f"Option [{action}] takes one of these options: [group], [all-groups]")


def _check_describe(arguments: Arguments) -> None:
    _require_groups(arguments, "describe")
    if sum(map(arguments.has, ("members", "offsets", "state"))) > 1:
        raise UsageError("Option [describe] takes at most one of these options: [members], [offsets], [state]")
    if arguments.values_of("state"):
        raise UsageError("Option [describe] does not take a value for [state]")


def _check_reset(arguments: Arguments) -> None:
    if arguments.has("dry-run") and arguments.has("execute"):
        raise UsageError("Option [reset-offsets] only accepts one of [execute] and [dry-run]")
    if not arguments.has("dry-run") and not arguments.has("execute"):
        print_to_stderr(NO_ACTION_WARNING)
    _require_groups(arguments, "reset-offsets")
    for scenario in SCENARIOS:
        arguments.forbid_together(scenario, *(other for other in SCENARIOS if other != scenario))


def regex_verdict(regex: str) -> str:
    try:
        import re2
    except ModuleNotFoundError as error:
        raise ToolFailed(RE2_IS_MISSING) from error
    options = re2.Options()
    options.log_errors = False
    try:
        re2.compile(regex, options)
    except re2.error as error:
        message = error.args[0].decode() if isinstance(error.args[0], bytes) else str(error)
        reason = message.partition(": ")[0]
        return f"The regular expression `{regex}` is invalid: {RE2J_MESSAGES.get(reason, reason)}."
    return f"The regular expression `{regex}` is valid."


# --- listing and deleting -------------------------------------------------------------------------------------------


def _list(arguments: Arguments, groups: Groups, _: Cluster) -> None:
    if not arguments.has("type") and not arguments.has("state"):
        for group_id in listed_ids(groups):
            print(group_id)
        return
    types, states = parse_types(arguments.single_value("type")), parse_states(arguments.single_value("state"), STATES)
    try:
        all_groups = groups.listed(states, types)
    except KafkaError as error:
        raise ToolFailed(exception_text(error)) from error
    listed = {group.group_id: group for group in all_groups if group.protocol_type in CONSUMER_GROUP_PROTOCOL_TYPES}
    _print(
        lines.listing([listed[group_id] for group_id in sorted(listed)], arguments.has("type"), arguments.has("state"))
    )


def parse_types(text: str | None) -> list[str]:
    types = [type_name(name.strip()) for name in (text or "").rstrip(",").split(",")] if text else []
    if not set(types) <= {CLASSIC, CONSUMER}:
        raise WrongArgument(f"Invalid types list '{text}'. Valid types are: {CONSUMER}, {CLASSIC}")
    return types


def _delete(arguments: Arguments, groups: Groups, _: Cluster) -> None:
    group_ids = chosen_groups(arguments, groups)
    results = groups.delete(group_ids)
    deleted_ids = sorted(group_id for group_id, code in results.items() if not code)
    deleted = ", ".join(f"'{group_id}'" for group_id in deleted_ids)
    failed = sorted(group_id for group_id, code in results.items() if code)
    if not failed:
        print(f"Deletion of requested consumer groups ({deleted}) was successful.")
        return
    print(error_line("Deletion of some consumer groups failed:"))
    for group in failed:
        print(f"* Group '{group}' could not be deleted due to: {exception_text(KafkaError(results[group]))}")
    if deleted:
        print(f"\nThese consumer groups were deleted successfully: {deleted}")


# --- describing -----------------------------------------------------------------------------------------------------


def _describe(arguments: Arguments, groups: Groups, cluster: Cluster) -> None:
    group_ids = chosen_groups(arguments, groups)
    described = _describe_groups(groups, group_ids)
    verbose = arguments.has("verbose")
    if arguments.has("members"):
        for group in described:
            _print_state(group)
            _print(lines.members(group, verbose))
    elif arguments.has("state"):
        for group in described:
            if _print_state(group):
                _print(lines.state(group, verbose))
    else:
        _describe_offsets(groups, cluster, described, verbose)


def _describe_groups(groups: Groups, group_ids: Sequence[str]) -> list[DescribedGroup]:
    """Return the descriptions, sorted by name; fail at the first group that cannot be described."""
    descriptions = groups.described(group_ids)
    for group_id in sorted(descriptions):
        description = descriptions[group_id]
        if isinstance(description, KafkaError):
            raise ToolFailed(exception_text(description))
        if description.protocol_type not in CONSUMER_GROUP_PROTOCOL_TYPES:
            raise ToolFailed(
                f"java.lang.IllegalArgumentException: GroupId {group_id} is not a consumer group"
                f" ({description.protocol_type})."
            )
    return [described for _, described in sorted(descriptions.items()) if isinstance(described, DescribedGroup)]


def _print_state(group: DescribedGroup) -> bool:
    """Print a line about a group that is not stable; return False if it does not exist."""
    if group.state == "Dead":
        print(error_line(f"Consumer group '{group.group_id}' does not exist."))
        return False
    if group.state == "Empty":
        print_to_stderr(f"\nConsumer group '{group.group_id}' has no active members.")
    elif group.state in REBALANCING_STATES:
        print_to_stderr(f"\nWarning: Consumer group '{group.group_id}' is rebalancing.")
    elif group.state != "Stable":
        raise ToolFailed(f"Expected a valid consumer group state, but found '{group.state}'.")
    return True


def _describe_offsets(groups: Groups, cluster: Cluster, described: Sequence[DescribedGroup], verbose: bool) -> None:
    try:
        committed = groups.committed(group.group_id for group in described)
    except KafkaError as error:
        raise ToolFailed(WRAPPED + exception_text(error)) from error
    partitions = {partition for offsets in committed.values() for partition in offsets}
    partitions |= {partition for group in described for member in group.members for partition in member.assignment}
    try:
        ends = log_ends(cluster, partitions)
    except KafkaError as error:
        raise ToolFailed(WRAPPED + exception_text(without_message(error))) from error
    for group in described:
        rows = lines.offset_rows(group, committed[group.group_id], ends)
        if _print_state(group) and rows:
            _print(lines.offsets(rows, verbose))


def _print(table_lines: Iterable[str]) -> None:
    for line in table_lines:
        print(line)


if __name__ == "__main__":
    sys.exit(main())
