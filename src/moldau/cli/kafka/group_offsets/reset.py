"""kafka-consumer-groups --reset-offsets and --delete-offsets: selects partitions, computes new offsets, commits them.

reset_plan.py parses dates, durations and files.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import TopicPartition
from moldau.cli.flags import Arguments
from moldau.cli.kafka.group_offsets import lines, reset_plan
from moldau.cli.kafka.group_offsets.choice import WrongArgument, chosen_groups, error_line, split_topics
from moldau.cli.kafka.group_offsets.partition_offsets import (
    Offsets,
    check_partitions,
    list_offsets,
    named_partitions,
    offsets_at_time,
    partitions_of,
)
from moldau.cli.kafka.java.exceptions import WRAPPED, exception_text, message_of, without_message
from moldau.cli.kafka.tool import ToolFailed, print_to_stderr
from moldau.client.admin.group_values import CommittedOffsets
from moldau.client.admin.groups import Groups
from moldau.client.cluster import EARLIEST, LATEST, Cluster

GROUP_ERRORS: Final = frozenset(
    {
        ErrorCode.INVALID_GROUP_ID,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.NON_EMPTY_GROUP,
    }
)
PARTITION_ERRORS: Final = frozenset(
    {
        ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)


# --- resetting ------------------------------------------------------------------------------------------------------


def reset(arguments: Arguments, groups: Groups, cluster: Cluster) -> None:
    plan: reset_plan.Plan = {}
    try:
        _reset_groups(arguments, groups, cluster, plan)
    except Exception:
        if arguments.has("execute") and plan:
            _print_plan(arguments, plan)  # the offsets of these groups are committed
        raise
    _print_plan(arguments, plan)


def _reset_groups(arguments: Arguments, groups: Groups, cluster: Cluster, plan: reset_plan.Plan) -> None:
    """Reset one group after the other, and add each to `plan`."""
    group_ids = chosen_groups(arguments, groups)
    described = groups.described(group_ids)
    for group_id in sorted(set(group_ids)):
        description = described[group_id]
        if isinstance(description, KafkaError) and description.code is not ErrorCode.GROUP_ID_NOT_FOUND:
            raise ToolFailed(WRAPPED + exception_text(description))
        if not isinstance(description, KafkaError) and description.is_active:
            print(
                error_line(
                    f"Assignments can only be reset if the group '{group_id}' is inactive, but the current state is"
                    f" {description.state}."
                )
            )
            plan[group_id] = {}
            continue
        plan[group_id] = _reset_group(arguments, groups, cluster, group_id)


def _print_plan(arguments: Arguments, plan: reset_plan.Plan) -> None:
    if not arguments.has("export"):
        for line in lines.reset_table(plan):
            print(line)
        return
    has_one_group = len(arguments.values_of("group")) == 1
    for group_id, offsets in plan.items():
        for partition, offset in offsets.items():
            print(reset_plan.csv_line([*([] if has_one_group else [group_id]), *partition, offset]))
    print()


def _reset_group(arguments: Arguments, groups: Groups, cluster: Cluster, group_id: str) -> Offsets:
    partitions = _partitions_to_reset(arguments, groups, cluster, group_id)
    check_partitions(cluster, partitions)
    offsets = _new_offsets(arguments, groups, cluster, group_id, partitions)
    offsets = dict(sorted(offsets.items()))
    if arguments.has("execute"):
        try:
            groups.commit(group_id, offsets)
        except KafkaError as error:
            raise ToolFailed(message_of(error)) from error
    return offsets


def _committed(groups: Groups, group_id: str) -> CommittedOffsets:
    try:
        return groups.committed([group_id])[group_id]
    except KafkaError as error:
        raise ToolFailed(WRAPPED + exception_text(error)) from error


def _partitions_to_reset(arguments: Arguments, groups: Groups, cluster: Cluster, group_id: str) -> list[TopicPartition]:
    """Return the partitions that --all-topics or --topic selects; none with --from-file, which names them itself."""
    if arguments.has("all-topics"):
        return sorted(_committed(groups, group_id))
    if arguments.has("topic"):
        return named_partitions(cluster, arguments.values_of("topic"))
    if not arguments.has("from-file"):
        raise WrongArgument("One of the reset scopes should be defined: --all-topics, --topic.")
    return []


def _new_offsets(
    arguments: Arguments, groups: Groups, cluster: Cluster, group_id: str, partitions: Sequence[TopicPartition]
) -> Offsets:
    """Return the new offsets by the flag that is present, such as --to-earliest (Kafka calls these flags scenarios)."""
    now_ms = time.time_ns() // 1_000_000
    scenarios: dict[str, Callable[[], Offsets]] = {
        "to-offset": lambda: _clamped(cluster, dict.fromkeys(partitions, int(arguments.values_of("to-offset")[0]))),
        "to-earliest": lambda: list_offsets(cluster, partitions, EARLIEST),
        "to-latest": lambda: list_offsets(cluster, partitions, LATEST),
        "shift-by": lambda: _shifted(
            cluster, partitions, _committed(groups, group_id), arguments.integer("shift-by") or 0
        ),
        "to-datetime": lambda: offsets_at_time(
            cluster, partitions, reset_plan.parse_date_time(arguments.values_of("to-datetime")[0])
        ),
        "by-duration": lambda: offsets_at_time(
            cluster, partitions, reset_plan.parse_duration(arguments.single_value("by-duration") or "", now_ms)
        ),
        "from-file": lambda: _from_file(arguments, cluster, group_id),
        "to-current": lambda: _current(cluster, partitions, _committed(groups, group_id)),
    }
    for name, compute_offsets in scenarios.items():
        if arguments.has(name):
            try:
                return compute_offsets()
            except KafkaError as error:
                text = exception_text(without_message(error))
                raise ToolFailed(WRAPPED + text) from error
    listed = ", ".join(f"[{name}]" for name in scenarios)
    raise WrongArgument(f"Option '[reset-offsets]' requires one of the following scenarios: [{listed}]")


def _clamped(cluster: Cluster, offsets: Mapping[TopicPartition, int]) -> Offsets:
    starts, ends = list_offsets(cluster, offsets, EARLIEST), list_offsets(cluster, offsets, LATEST)
    bounds = {partition: (starts[partition], ends[partition]) for partition in offsets}
    return reset_plan.clamp(dict(sorted(offsets.items())), bounds, lambda line: print_to_stderr(f"WARN {line}"))


def _shifted(
    cluster: Cluster, partitions: Sequence[TopicPartition], committed: CommittedOffsets, distance: int
) -> Offsets:
    for partition in partitions:
        if partition not in committed:
            raise WrongArgument(
                f"Cannot shift offset for partition {partition} since there is no current committed offset"
            )
    return _clamped(cluster, {partition: committed[partition].offset + distance for partition in partitions})


def _current(cluster: Cluster, partitions: Sequence[TopicPartition], committed: CommittedOffsets) -> Offsets:
    offsets = {partition: committed[partition].offset for partition in partitions if partition in committed}
    without_offset = [partition for partition in partitions if partition not in committed]
    return offsets | list_offsets(cluster, without_offset, LATEST)


def _from_file(arguments: Arguments, cluster: Cluster, group_id: str) -> Offsets:
    path = arguments.values_of("from-file")[0]
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise ToolFailed(f"java.io.IOException: Unable to read file {path}") from error
    plan = reset_plan.parse_plan(text, arguments.values_of("group"))
    if group_id not in plan:
        print(error_line(f"No reset plan for group {group_id} found"))
        return {}
    _check_planned(cluster, plan[group_id])
    return _clamped(cluster, plan[group_id])


def _check_planned(cluster: Cluster, offsets: Offsets) -> None:
    """Fail at once if a partition of the plan does not exist. Kafka's tool retries until its timeout."""
    for partition in offsets:
        try:
            cluster.topic(partition.topic)
        except KafkaError as error:
            unknown = KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"Failed to fetch metadata for partition {partition} because metadata for topic `{partition.topic}`"
                " could not be found",
            )
            raise ToolFailed(WRAPPED + exception_text(unknown)) from error
    check_partitions(cluster, list(offsets))


# --- deleting offsets -----------------------------------------------------------------------------------------------


def delete_offsets(arguments: Arguments, groups: Groups, cluster: Cluster) -> None:
    group_id = arguments.single_value("group") or ""
    partitions_to_delete, topics = split_topics(arguments.values_of("topic"))
    statuses: dict[TopicPartition, str] = {}
    for topic in topics:
        try:
            partitions_to_delete += partitions_of(cluster, topic)
        except KafkaError as error:
            text = exception_text(without_message(error))
            statuses[TopicPartition(topic, -1)] = f"Error: {text}"
    partitions = sorted(set(partitions_to_delete))
    try:
        results = groups.delete_offsets(group_id, partitions)
        codes = [results[partition] for partition in partitions if results[partition]]
        code = codes[0] if codes else ErrorCode.NONE
    except KafkaError as error:
        results, code = dict.fromkeys(partitions, error.code), error.code
    print(_result_line(group_id, code))
    for partition, code in results.items():
        statuses[partition] = f"Error: {exception_text(KafkaError(code))}" if code else "Successful"
    for line in lines.deletion_table(statuses):
        print(line)


def _result_line(group_id: str, code: ErrorCode) -> str:
    if not code:
        return f"Request succeeded for deleting offsets from group {group_id}."
    if code in GROUP_ERRORS:
        return error_line(message_of(KafkaError(code)))
    if code in PARTITION_ERRORS:
        return error_line("Encountered some partition-level error, see the follow-up details.")
    return error_line(f"Encountered some unknown error: {code.name}")
