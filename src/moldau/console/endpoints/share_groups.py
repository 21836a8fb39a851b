"""Share groups: what became of the records after the start offsets, and dead letters, which can be sent again."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from typing import Any, Final

from moldau.base.errors import KafkaError, MalformedData
from moldau.base.group_configs import DEAD_LETTER_COPY_RECORD_ENABLE, DEAD_LETTER_TOPIC
from moldau.base.ids import TopicPartition
from moldau.base.limits import OFFSET_MAX
from moldau.client.admin.cluster_admin import ClusterAdmin
from moldau.client.admin.group_values import DescribedGroup, ShareOffset
from moldau.client.admin.share_states import ACKNOWLEDGED, ARCHIVED, StateRanges, read_states
from moldau.client.cluster import Cluster
from moldau.client.requests.ask import raise_error
from moldau.client.requests.configs import GROUP, describe_configs
from moldau.console.access import ADMIN_TIMEOUT_MS
from moldau.console.call import Call, Endpoint, now_ms
from moldau.console.endpoints.group_answers import (
    EXACT_PARTITIONS_MAX,
    estimated_share_lags,
    history_and_rebalances,
    members_and_lags,
)
from moldau.console.endpoints.topics import require_topic
from moldau.console.next_steps import worded
from moldau.console.records.fetching import fetch
from moldau.console.records.shown import ONE_BYTES_MAX, dead_letter
from moldau.console.records.writing import write
from moldau.operations.failures import kafka_failure
from moldau.operations.groups import GroupConnection, connect_groups
from moldau.operations.lag import share_lags
from moldau.web.failures import ApiError, bad_request, not_found
from moldau.wire.records import NEXT_OFFSET, Record

RANGES_SHOWN: Final = 200
"""Of each partition."""
LETTERS_MAX: Final = 100
"""Dead letters that one request sends again."""


def described(call: Call, connection: GroupConnection, group: DescribedGroup) -> dict[str, Any]:
    """Ask the coordinators now, so that the page shows what `moldau group describe` prints, and what it does not."""
    collector, cluster, group_id = call.access.collector, connection.cluster, group.group_id
    found = connection.share.offsets(group_id)
    offsets = {partition: each for partition, each in found.items() if isinstance(each, ShareOffset)}
    partitions = set(found) | {each for member in group.members for each in member.assignment}
    if len(partitions) <= EXACT_PARTITIONS_MAX:
        lags = share_lags(cluster, partitions, found, now_ms())
        states, states_error = _states(cluster, group_id, offsets)
    else:
        lags = estimated_share_lags(collector, partitions, offsets)
        states, states_error = {}, f"Of more than {EXACT_PARTITIONS_MAX} partitions they are not read."
    answer = members_and_lags(group.members, lags)
    for row in answer["partitions"]:
        row |= _state_data(states.get(TopicPartition(row["topic"], row["partition"])))
    return {
        "group": group_id,
        "type": group.type,
        "protocol": group.protocol_type,
        "state": group.state,
        "assignor": group.assignor,
        "coordinator": f"{group.coordinator} ({group.coordinator.node_id})",
        "epoch": group.epoch,
        "micro_batch_ids": False,
        "note": None,
        **answer,
        "states_error": states_error,
        "acquired": _acquired(call, group_id),
        "dead_letters": _dead_letters(ClusterAdmin(cluster, ADMIN_TIMEOUT_MS), group_id),
        **history_and_rebalances(collector, group_id, collector.look().groups.get(group_id)),
    }


def _states(
    cluster: Cluster, group_id: str, partitions: Iterable[TopicPartition]
) -> tuple[dict[TopicPartition, StateRanges], str | None]:
    """Return the states of records, or why this user does not see them."""
    try:
        return read_states(cluster, group_id, partitions), None
    except KafkaError as error:
        return {}, worded(kafka_failure(error, "the share coordinator"))


def _state_data(ranges: StateRanges | None) -> dict[str, Any]:
    if ranges is None:
        return {"acknowledged": None, "archived": None, "ranges": None, "ranges_total": None}
    return {
        "acknowledged": sum(each.records for each in ranges if each.state == ACKNOWLEDGED),
        "archived": sum(each.records for each in ranges if each.state == ARCHIVED),
        "ranges": [each._asdict() for each in ranges[:RANGES_SHOWN]],
        "ranges_total": len(ranges),
    }


def _acquired(call: Call, group_id: str) -> int | None:
    """Return how many records members hold now, as the metrics of the partitions' leaders say."""
    records = call.access.collector.state.metrics.get("share_records", {})
    counts = [count for (group, _, state), count in records.items() if (group, state) == (group_id, "acquired")]
    return sum(counts) if counts else None


def _dead_letters(admin: ClusterAdmin, group_id: str) -> dict[str, Any]:
    """Return which topic gets the records that the group gives up; None if it is lost."""
    names = (DEAD_LETTER_TOPIC.name, DEAD_LETTER_COPY_RECORD_ENABLE.name)
    try:
        (result,) = describe_configs(admin.ask, GROUP, [group_id], names)
        raise_error(result.error_code, result.error_message)
    except KafkaError as error:
        return {"topic": None, "copies": None, "error": worded(kafka_failure(error, f"group {group_id}"))}
    configs = {each.name: each.value for each in result.configs}
    copies = configs.get(DEAD_LETTER_COPY_RECORD_ENABLE.name) == "true"
    return {"topic": configs.get(DEAD_LETTER_TOPIC.name) or None, "copies": copies, "error": None}


# --- sending dead letters again ----------------------------------------------------------------------------------


def send_again(call: Call) -> dict[str, Any]:
    """Write the records of dead letters to the partitions they came from. The dead letters stay."""
    group_id, topic = call.path["group"], call.field("topic", str)
    places = _places(topic, call.field("records", list))
    results: list[dict[str, Any]] = []
    with call.access.cluster() as cluster:
        require_topic(cluster, topic)
        readable = _partitions_of(connect_groups(cluster, ADMIN_TIMEOUT_MS), group_id)
        for place, offset in places:
            result: dict[str, Any] = {"partition": place.partition, "offset": offset, "to": None, "error": None}
            results.append(result)
            try:
                result["to"] = _send(cluster, group_id, readable, _record_at(cluster, place, offset))
            except (ApiError, KafkaError) as error:
                result["error"] = _words(error, str(place))
            except (OSError, MalformedData) as error:  # the others would wait for it too
                cluster.close()
                result["error"] = f"the cluster does not answer: {error}; the record may have been written"
                break
    call.access.collector.hurry("ends")
    sent = sum(each["error"] is None for each in results)
    return {"ok": sent == len(places), "sent": sent, "results": results}


def _places(topic: str, records: Sequence[Any]) -> list[tuple[TopicPartition, int]]:
    """Return what the field `records` says, [[partition, offset], ...]."""
    if not 1 <= len(records) <= LETTERS_MAX:
        raise bad_request(f"records: expected 1 to {LETTERS_MAX} of them")
    for each in records:
        if not (isinstance(each, list) and len(each) == 2 and all(_is_number(part) for part in each)):
            raise bad_request("records: expected a list of [partition, offset]")
    return [(TopicPartition(topic, partition), offset) for partition, offset in records]


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= OFFSET_MAX


def _partitions_of(connection: GroupConnection, group_id: str) -> set[TopicPartition]:
    """Return the partitions that the group has read."""
    try:
        return set(connection.share.offsets(group_id))
    except KafkaError as error:
        raise kafka_failure(error, f"group {group_id}") from error


def _send(cluster: Cluster, group_id: str, readable: Container[TopicPartition], letter: Record) -> dict[str, Any]:
    """Send one record again. Whoever may write dead letters does not decide which topics get records: only those do
    that the group reads."""
    said = dead_letter(letter.headers)
    if said is None or said["written_by"] != group_id:
        raise bad_request(f"it is no dead letter of group {group_id}")
    if said["topic"] is None or said["partition"] is None or said["offset"] is None:
        raise bad_request("its headers do not say which record it was")
    place = TopicPartition(said["topic"], said["partition"])
    if place not in readable:
        raise bad_request(f"it came from {place}, which group {group_id} does not read")
    has_copy = letter.key is not None or letter.value is not None
    record = letter._replace(headers=()) if has_copy else _record_at(cluster, place, said["offset"])
    offset = write(cluster, *place, [record._replace(offset=NEXT_OFFSET, timestamp=now_ms())])
    return {"topic": place.topic, "partition": place.partition, "offset": offset}


def _record_at(cluster: Cluster, place: TopicPartition, offset: int) -> Record:
    positions = {place.partition: offset}
    fetched = fetch(cluster, place.topic, positions, partition_bytes=ONE_BYTES_MAX, committed=False)
    found = next((each.record for each in fetched[place.partition].records if each.record.offset == offset), None)
    if found is None:
        raise not_found(f"{place} has no record at offset {offset} any more")
    return found


def _words(error: ApiError | KafkaError, subject: str) -> str:
    return error.message if isinstance(error, ApiError) else worded(kafka_failure(error, subject))


ENDPOINTS: Final = (Endpoint("POST", "/api/groups/{group}/dead-letters/send", send_again, fields=("topic", "records")),)
