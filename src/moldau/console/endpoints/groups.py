"""Groups: the list by lag, one group with members, assignment and history, reset and deletion."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import TopicPartition
from moldau.client.admin.group_values import SHARE, Committed, holds_micro_batch_ids
from moldau.console.access import ADMIN_TIMEOUT_MS
from moldau.console.call import Call, Endpoint, now_ms
from moldau.console.collector.ages import age_data
from moldau.console.collector.collector import Collector
from moldau.console.collector.state import GroupState
from moldau.console.endpoints import share_groups
from moldau.console.endpoints.group_answers import (
    EXACT_PARTITIONS_MAX,
    estimated_lags,
    estimated_share_lags,
    history_and_rebalances,
    members_and_lags,
)
from moldau.console.listing import LIST_PARAMETERS, list_query, page_of
from moldau.console.live import Event, Feed
from moldau.operations import offset_moves as moves
from moldau.operations.failures import NotFound, kafka_failure
from moldau.operations.groups import GroupConnection, connect_groups, existing_groups, require_no_members
from moldau.operations.lag import PartitionLag, ShareLag, partition_lags, without_lags
from moldau.operations.micro_batch_ids import MICRO_BATCH_IDS_STATE
from moldau.operations.next_steps import NextStep
from moldau.operations.offset_targets import parse_target, parse_topic
from moldau.web.failures import ApiError, bad_request, not_found

COLUMNS: Final = ("group", "state", "type", "members", "topics", "lag", "lag_seconds")
TREND_POINTS: Final = 30
STEADY_SHARE: Final = 0.05
TOOLS_OF_OTHER_TYPES: Final = {"Streams": "kafka-streams-groups.sh"}
"""Types of groups of which the console knows only what the list of groups tells."""


def list_groups(call: Call) -> dict[str, Any]:
    query = list_query(call.query, COLUMNS, "-lag")
    collector = call.access.collector
    state = collector.look()
    groups = state.groups
    rows = call.access.rows.get("groups", state.version, lambda: [group_row(group) for group in groups.values()])
    page = page_of(rows, query, "group")
    page["rows"] = [
        {**row, "trend": (trend := collector.history.last(("lag", row["group"]), TREND_POINTS)),
         "direction": direction(trend)}
        for row in page["rows"]
    ]  # fmt: skip
    return {**page, **collector.freshness()}


def group_row(group: GroupState) -> dict[str, Any]:
    assigned = {each.topic for member in group.members or () for each in member.assignment}
    return {
        "group": group.group_id,
        "type": group.type or None,
        "state": MICRO_BATCH_IDS_STATE if group.holds_micro_batch_ids else group.state or None,
        "members": None if group.members is None else len(group.members),
        "topics": len(assigned | set(group.offsets)) if group.offsets_known else None,
        "lag": group.lag,
        **age_data(group.age),
        "micro_batch_ids": group.holds_micro_batch_ids,
    }


def direction(trend: Sequence[float | None]) -> str | None:
    """Compare the end of the trend with its beginning."""
    known = [each for each in trend if each is not None]
    if len(known) < 4:
        return None
    quarter = max(1, len(known) // 4)
    before, after = sum(known[:quarter]) / quarter, sum(known[-quarter:]) / quarter
    if abs(after - before) <= STEADY_SHARE * max(before, after, 1.0):
        return "steady"
    return "growing" if after > before else "shrinking"


def describe_group(call: Call) -> dict[str, Any]:
    """Ask the coordinator now, so that the page shows what `moldau group describe` prints."""
    group_id = call.path["group"]
    collector = call.access.collector
    listed = collector.look().groups.get(group_id)
    if listed is not None and listed.type in TOOLS_OF_OTHER_TYPES:
        return known_group(collector, listed)
    with call.access.cluster() as cluster:
        connection = connect_groups(cluster, ADMIN_TIMEOUT_MS)
        (described,) = existing_groups(connection, [group_id])
        note = _note(described.type)
        if note is not None:
            raise not_found(note)
        if described.type == SHARE:
            return share_groups.described(call, connection, described)
        committed = connection.groups.committed([group_id])[group_id]
        partitions = {each for member in described.members for each in member.assignment}
        if holds_micro_batch_ids(committed):
            lags = without_lags(committed)
        elif len(partitions | set(committed)) <= EXACT_PARTITIONS_MAX:
            lags = partition_lags(cluster, partitions, committed, now_ms())
            collector.ages.note_looked_up(lags, collector.monotonic_ms())
        else:
            lags = estimated_lags(collector, partitions, committed)
    state = collector.look().groups.get(group_id)
    return {
        "group": group_id,
        "type": described.type,
        "protocol": described.protocol_type,
        "state": MICRO_BATCH_IDS_STATE if holds_micro_batch_ids(committed) else described.state,
        "assignor": described.assignor,
        "coordinator": f"{described.coordinator} ({described.coordinator.node_id})",
        "epoch": described.epoch,
        "micro_batch_ids": holds_micro_batch_ids(committed),
        "note": None,
        **members_and_lags(described.members, lags),
        **history_and_rebalances(collector, group_id, state),
    }


def known_group(collector: Collector, group: GroupState) -> dict[str, Any]:
    """Return a group as `describe_group` does, from the collector's memory. Of a share group the states of its records
    are not in it."""
    committed = {
        TopicPartition(topic, index): Committed(offset)
        for topic, (indexes, offsets) in group.offsets.items()
        for index, offset in zip(indexes, offsets, strict=True)
    }
    members = group.members or ()
    partitions = {each for member in members for each in member.assignment}
    lags: Sequence[PartitionLag | ShareLag]
    if group.holds_micro_batch_ids:
        lags = without_lags(committed)
    elif group.is_share_group:
        lags = estimated_share_lags(collector, partitions, group.share_offsets)
    else:
        lags = estimated_lags(collector, partitions, committed)
    return {
        "group": group.group_id,
        "type": group.type,
        "protocol": group.protocol_type,
        "state": group_row(group)["state"],
        "assignor": group.assignor,
        "coordinator": group.coordinator,
        "epoch": group.epoch,
        "micro_batch_ids": group.holds_micro_batch_ids,
        "note": _note(group.type),
        **members_and_lags(members, lags),
        **history_and_rebalances(collector, group.group_id, group),
    }


def _note(group_type: str) -> str | None:
    tool = TOOLS_OF_OTHER_TYPES.get(group_type)
    if tool is None:
        return None
    return f"The console knows only the state of {group_type.lower()} groups; `{tool}` shows members and offsets."


def live(call: Call) -> Feed:
    """The same from the collector's memory: an open page adds no requests to the collector's own."""
    collector, group_id = call.access.collector, call.path["group"]

    def poll() -> list[Event]:
        state = collector.look()
        if "groups" not in state.read:
            return []
        group = state.groups.get(group_id)
        if group is None:
            raise NotFound(f"no group {group_id}", NextStep.SEE_GROUPS)
        return [("group", known_group(collector, group))]

    return Feed(poll, collector)


# --- changes ----------------------------------------------------------------------------------------------------


def _refuse_other_types(call: Call) -> None:
    group = call.access.collector.look().groups.get(call.path["group"])
    tool = None if group is None else TOOLS_OF_OTHER_TYPES.get(group.type)
    if group is not None and tool is not None:
        raise bad_request(f"{group.group_id} is a {group.type.lower()} group: {tool} changes it, the console does not")


def reset(call: Call) -> dict[str, Any]:
    _refuse_other_types(call)
    group_id = call.path["group"]
    to, given = call.optional("to", str), call.optional("offsets", dict)
    if (to is None) == (given is None):
        raise bad_request("give either to or offsets")
    target = None if to is None else parse_target(to, now_ms())
    topics: list[Any] = call.field("topics", list, [])
    if given is not None and topics:
        raise bad_request("topics: offsets name their topics themselves")
    selections = [parse_topic(_text(each, "topics")) for each in topics]
    execute, new = call.field("execute", bool, False), call.field("new", bool, False)
    with call.access.cluster() as cluster:
        connection = connect_groups(cluster, ADMIN_TIMEOUT_MS)
        group = moves.group_to_reset(connection, group_id, new)
        if target is not None:
            partitions = moves.select_partitions(cluster, selections, group)
            plan = moves.moves_to_target(cluster, partitions, target, group.offsets)
        else:
            plan = moves.moves_to_offsets(cluster, group, wanted_offsets(given or {}))
        if execute:
            moves.commit_moves(connection, group, plan)
    if execute:
        call.changed()
    return {"group": group_id, "executed": execute, "partitions": [_move(move) for move in plan]}


def wanted_offsets(given: Mapping[str, Any]) -> dict[TopicPartition, int]:
    """Return what the field `offsets` says, {"orders:0": 17}."""
    wanted: dict[TopicPartition, int] = {}
    for text, offset in given.items():
        topic, indexes = parse_topic(text)
        if len(indexes) != 1 or not isinstance(offset, int) or isinstance(offset, bool) or offset < 0:
            raise bad_request('offsets: expected {"TOPIC:PARTITION": OFFSET}')
        wanted[TopicPartition(topic, indexes[0])] = offset
    if not wanted:
        raise bad_request("offsets: must not be empty")
    return wanted


def _move(move: moves.Move) -> dict[str, Any]:
    return {
        "topic": move.partition.topic,
        "partition": move.partition.partition,
        "before": move.old_offset,
        "after": move.new_offset,
        "move": None if move.old_offset is None else move.new_offset - move.old_offset,
        "lag": move.log_end_offset - move.new_offset,
    }


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise bad_request(f"{name}: expected a list of strings")
    return value


def delete_group(call: Call) -> dict[str, Any]:
    _refuse_other_types(call)
    group_id = call.path["group"]
    call.confirmed(group_id)
    with call.access.cluster() as cluster:
        connection = connect_groups(cluster, ADMIN_TIMEOUT_MS)
        (described,) = existing_groups(connection, [group_id])
        require_no_members(described)
        code = connection.groups.delete([group_id])[group_id]
    if code:
        raise kafka_failure(KafkaError(code), f"group {group_id}")
    call.changed()
    return {"ok": True, "message": f"deleted {group_id}"}


def delete_offsets(call: Call) -> dict[str, Any]:
    """Delete the offsets of a group in one topic."""
    _refuse_other_types(call)
    group_id, topic = call.path["group"], call.field("topic", str)
    call.confirmed(group_id)
    with call.access.cluster() as cluster:
        connection = connect_groups(cluster, ADMIN_TIMEOUT_MS)
        (described,) = existing_groups(connection, [group_id])
        delete_of_type = _delete_starts if described.type == SHARE else _delete_committed
        try:
            errors = delete_of_type(connection, group_id, topic)
        except KafkaError as error:
            raise kafka_failure(error, f"group {group_id}") from error
    if errors:
        raise kafka_failure(errors[0], f"group {group_id}, topic {topic}")
    call.changed()
    return {"ok": True, "message": f"deleted the offsets of {group_id} in {topic}"}


def _delete_committed(connection: GroupConnection, group_id: str, topic: str) -> list[KafkaError]:
    committed = connection.groups.committed([group_id])[group_id]
    partitions = [each for each in committed if each.topic == topic]
    if not partitions:
        raise _no_offsets(group_id, topic)
    codes = connection.groups.delete_offsets(group_id, partitions).values()
    return [KafkaError(code) for code in codes if code is not ErrorCode.NONE]


def _delete_starts(connection: GroupConnection, group_id: str, topic: str) -> list[KafkaError]:
    if all(each.topic != topic for each in connection.share.offsets(group_id)):
        raise _no_offsets(group_id, topic)
    return [error for error in connection.share.delete_offsets(group_id, [topic]).values() if error is not None]


def _no_offsets(group_id: str, topic: str) -> ApiError:
    return not_found(f"group {group_id} has no offsets in {topic}")


ENDPOINTS: Final = (
    Endpoint("GET", "/api/groups", list_groups, LIST_PARAMETERS, asks_cluster=False),
    Endpoint("GET", "/api/groups/{group}", describe_group),
    Endpoint("DELETE", "/api/groups/{group}", delete_group, fields=("confirm",)),
    Endpoint("POST", "/api/groups/{group}/reset", reset, fields=("to", "offsets", "topics", "new", "execute")),
    Endpoint("POST", "/api/groups/{group}/offsets/delete", delete_offsets, fields=("topic", "confirm")),
)
STREAMS: Final = (Endpoint("GET", "/api/live/groups/{group}", live),)
