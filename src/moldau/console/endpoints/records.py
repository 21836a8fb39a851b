"""Records: search, one record, produce, replay. The live view and exports are in tails.py."""

from __future__ import annotations

import base64
import binascii
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from moldau.base.errors import KafkaError
from moldau.base.ids import TopicPartition
from moldau.base.limits import OFFSET_MAX
from moldau.client.cluster import Cluster
from moldau.console.call import Call, Endpoint, now_ms
from moldau.console.endpoints.topics import require_topic, resolved
from moldau.console.listing import whole_number
from moldau.console.next_steps import API_ERRORS
from moldau.console.records import choosing, search
from moldau.console.records.choosing import Choice, choice_of
from moldau.console.records.condition import Condition
from moldau.console.records.fetching import fetch
from moldau.console.records.search import Work, cursor_text, oldest_first
from moldau.console.records.shown import ONE_BYTES_MAX, FoundRecord, record_data
from moldau.console.records.writing import ACKS, choose_partition, write
from moldau.operations import offsets
from moldau.operations.failures import kafka_failure
from moldau.web.failures import ApiError, bad_request, not_found
from moldau.wire.records import NEXT_OFFSET, Header, Record

LIMIT_DEFAULT: Final = 50
LIMIT_MAX: Final = 500
HEADERS_EXPECTED: Final = "headers: expected an object, or a list of [name, value] or [name, value, encoding]"
SEARCH: Final = ("from", "partition", "limit", "cursor", "committed", *choosing.PARAMETERS)
REPLAY_RECORDS_MAX: Final = 10_000
REPLAY_BYTES_MAX: Final = 64 << 20
REPLAY_FIELDS: Final = (
    "to", "from", "partition", "limit", "keep_partition", "dry_run", *choosing.PARAMETERS,
)  # fmt: skip


def find(call: Call) -> dict[str, Any]:
    topic = call.path["topic"]
    limit = whole_number(call.query, "limit", LIMIT_DEFAULT, 1, LIMIT_MAX)
    choice, committed = choice_of(call.query, call.match), call.flag("committed", True)
    begin = call.query.get("from") or "end"
    with call.access.cluster() as cluster:
        require_topic(cluster, topic)
        indexes = chosen_partitions(cluster, topic, call.query.get("partition"))
        starts, ends = search.bounds(cluster, topic, indexes, committed)
        cursor = call.query.get("cursor")
        at = None if cursor is None else search.parse_cursor(cursor, indexes)
        if begin == "end":
            uppers = ends if at is None else {index: min(ends[index], upper) for index, upper in at.items()}
            newest = search.NewestFirst(cluster, topic, starts, uppers, committed)
            found = newest.search(choice, limit, Work(), _record_bytes(call, topic))
        else:
            positions = positions_of(cluster, topic, indexes, begin) if at is None else at
            positions = {index: max(starts[index], position) for index, position in positions.items()}
            found = oldest_first(cluster, topic, positions, ends, choice, limit, Work(), committed)
    return {
        "records": [record_data(each) for each in found.records],
        "order": "newest" if begin == "end" else "oldest",
        "next": cursor_text(found.next),
        "at_end": found.next is None,
        "scanned": found.work.data(),
        "stopped": found.stopped,
        "hints": [] if choice.where is None else choice.where.hints,
    }


def _record_bytes(call: Call, topic: str) -> Mapping[int, float]:
    """Return about how many bytes a record has, from what the collector knows."""
    state = call.access.collector.state.topics.get(topic)
    if state is None or state.sizes is None or state.ends is None or state.starts is None:
        return {}
    return {
        index: size / max(1, len(state.replicas[index])) / max(1, state.ends[index] - state.starts[index])
        for index, size in enumerate(state.sizes)
        if index < len(state.ends) and index < len(state.starts) and size > 0
    }


def chosen_partitions(cluster: Cluster, topic: str, text: str | None) -> list[int]:
    """Return the partitions of `0,3`, all if there is no text. Those without a leader cannot be read."""
    leaders = cluster.topic(topic).leaders
    if not text:
        indexes = sorted(index for index, leader in leaders.items() if leader >= 0)
        if not indexes and leaders:
            raise bad_request(f"no partition of {topic} has a leader now: its records cannot be read")
        return indexes
    parts = text.split(",")
    if not all(part.isascii() and part.isdigit() and len(part) < 10 for part in parts):
        raise bad_request("partition: write a number, or several with commas")
    missing = [part for part in parts if int(part) not in leaders]
    if missing:
        raise bad_request(f"{topic} has no partition {', '.join(missing[:10])}; it has 0 to {len(leaders) - 1}")
    return sorted({int(part) for part in parts})


def positions_of(cluster: Cluster, topic: str, indexes: list[int], begin: str) -> dict[int, int]:
    position = offsets.parse_position(begin, now_ms())
    partitions = [TopicPartition(topic, index) for index in indexes]
    return {each.partition: offset for each, offset in resolved(cluster, partitions, position).items()}


def one_record(call: Call) -> dict[str, Any]:
    topic = call.path["topic"]
    index, offset = _number(call, "partition", 2**31 - 1), _number(call, "offset", OFFSET_MAX)
    with call.access.cluster() as cluster:
        require_topic(cluster, topic)
        if index not in cluster.topic(topic).leaders:
            raise not_found(f"{topic} has no partition {index}")
        starts, ends = search.bounds(cluster, topic, [index], committed=False)
        start, end = starts[index], ends[index]
        if not start <= offset < end:
            held = f"it has {start} to {end - 1} now" if end > start else "it is empty now"
            raise not_found(f"{topic} partition {index} has no offset {offset}; {held}")
        fetched = fetch(cluster, topic, {index: offset}, partition_bytes=ONE_BYTES_MAX, committed=False)[index]
    found = next((each for each in fetched.records if each.record.offset == offset), None)
    following = next((each.record.offset for each in fetched.records if each.record.offset > offset), None)
    if found is None:
        goes_on = "" if following is None else f"; the next record is at {following}"
        raise not_found(
            f"{topic} partition {index} has no record at offset {offset}:"
            f" it was compacted, or is the marker of a transaction{goes_on}"
        )
    return {
        "record": record_data(found, ONE_BYTES_MAX),
        "previous": offset - 1 if offset > start else None,
        "next": following if following is not None else offset + 1 if offset + 1 < end else None,
    }


def _number(call: Call, name: str, most: int) -> int:
    return whole_number(call.path, name, 0, 0, most)


def check_where(call: Call) -> dict[str, Any]:
    return {"ok": True, "hints": Condition(call.field("where", str), call.match).hints}


# --- writing ----------------------------------------------------------------------------------------------------


def produce(call: Call) -> dict[str, Any]:
    topic = call.path["topic"]
    acks = call.field("acks", str, "all")
    if acks not in ACKS:
        raise bad_request("acks: expected all, 1 or 0")
    timestamp_ms = call.number("timestamp_ms", 0, OFFSET_MAX)
    record = Record(
        NEXT_OFFSET,
        now_ms() if timestamp_ms is None else timestamp_ms,
        encoded(call.optional("key", str), call.field("key_encoding", str, "text"), "key"),
        encoded(call.optional("value", str), call.field("value_encoding", str, "text"), "value"),
        headers_of((call.body or {}).get("headers")),
    )
    with call.access.cluster() as cluster:
        require_topic(cluster, topic)
        leaders = cluster.topic(topic).leaders
        partition = call.optional("partition", int)
        if partition is None:
            partition = choose_partition(record.key, len(leaders), time.monotonic_ns())
        elif partition not in leaders:
            raise bad_request(f"{topic} has no partition {partition}; it has 0 to {len(leaders) - 1}")
        try:
            offset = write(cluster, topic, partition, [record], ACKS[acks])
        except KafkaError as error:
            raise kafka_failure(error, topic) from error
    call.access.collector.hurry("ends")
    return {"ok": True, "partition": partition, "offset": offset}


def encoded(text: str | None, encoding: str, name: str) -> bytes | None:
    if text is None:
        return None
    try:
        match encoding:
            case "text":
                return text.encode()
            case "hex":
                return bytes.fromhex(text)
            case "base64":
                return base64.b64decode(text, validate=True)
    except (ValueError, binascii.Error):
        raise bad_request(f"{name}: not {encoding}") from None
    raise bad_request(f"{name}_encoding: expected text, hex or base64")


def headers_of(headers: Any) -> tuple[Header, ...]:
    if headers is None:
        return ()
    rows = [list(each) for each in headers.items()] if isinstance(headers, dict) else headers
    if not isinstance(rows, list):
        raise bad_request(HEADERS_EXPECTED)
    result: list[Header] = []
    for row in rows:
        if not isinstance(row, list) or len(row) not in (2, 3) or not isinstance(row[0], str):
            raise bad_request(HEADERS_EXPECTED)
        name, value, encoding = row if len(row) == 3 else (*row, "text")
        if not isinstance(value, str | None):
            raise bad_request(f"headers: the value of {name[:100]} must be a text or null")
        encoded(name, "text", "headers")
        result.append((name, encoded(value, encoding, "headers")))
    return tuple(result)


def replay(call: Call) -> dict[str, Any]:
    """Copy the records that a search finds to another topic. A dry run only counts them."""
    topic, target = call.path["topic"], call.field("to", str)
    limit = call.field("limit", int, REPLAY_RECORDS_MAX)
    if not 1 <= limit <= REPLAY_RECORDS_MAX:
        raise bad_request(f"limit: expected a whole number from 1 to {REPLAY_RECORDS_MAX}")
    dry_run, keeps_partition = call.field("dry_run", bool, True), call.field("keep_partition", bool, False)
    choice = _choice_of_body(call)
    partition = (call.body or {}).get("partition")
    with call.access.cluster() as cluster:
        require_topic(cluster, topic)
        require_topic(cluster, target)
        indexes = chosen_partitions(cluster, topic, None if partition is None else str(partition))
        starts, ends = search.bounds(cluster, topic, indexes, True)
        positions = positions_of(cluster, topic, indexes, call.field("from", str, "start"))
        positions = {index: max(starts[index], position) for index, position in positions.items()}
        work = Work(records_max=1_000_000, bytes_max=REPLAY_BYTES_MAX, seconds_max=30.0)
        copied = _Copied()
        matching = 0
        stopped = "limit"
        try:
            while matching < limit:
                found = oldest_first(cluster, topic, positions, ends, choice, min(500, limit - matching), work)
                matching += len(found.records)
                if not dry_run:
                    _copy(cluster, target, found.records, keeps_partition, copied)
                if found.next is None or found.stopped == "work":
                    stopped = found.stopped
                    break
                positions = found.next
        except Exception as error:
            known = API_ERRORS.known(error)
            if known is None or not copied.count:
                raise
            message = f"{known.message}; {copied.count} records were copied before"
            raise ApiError(known.status, known.code, message, **known.extra, copied=copied.count) from error
    if copied.count:
        call.access.collector.hurry("ends")
    return {"ok": True, "matching": matching, "copied": copied.count, "scanned": work.data(), "stopped": stopped}


@dataclass(slots=True)
class _Copied:
    """Records that a replay has written. It is right also after a failure midway."""

    count: int = 0


def _choice_of_body(call: Call) -> Choice:
    parameters = {name: call.optional(name, str) for name in choosing.PARAMETERS}
    return choice_of(parameters, call.match)


def _copy(cluster: Cluster, target: str, found: list[FoundRecord], keeps_partition: bool, copied: _Copied) -> None:
    count = len(cluster.topic(target).leaders)
    grouped: dict[int, list[Record]] = {}
    for turn, each in enumerate(found):
        if keeps_partition and each.partition >= count:
            raise bad_request(f"keep_partition: {target} has no partition {each.partition}; it has 0 to {count - 1}")
        partition = each.partition if keeps_partition else choose_partition(each.record.key, count, turn)
        grouped.setdefault(partition, []).append(each.record._replace(offset=NEXT_OFFSET))
    for partition, records in grouped.items():
        try:
            for batch in _batches(records):
                write(cluster, target, partition, batch)
                copied.count += len(batch)
        except KafkaError as error:
            raise kafka_failure(error, target) from error


def _batches(records: list[Record]) -> list[list[Record]]:
    """Cut records into batches of at most half a megabyte, below the usual limit of a topic."""
    batches: list[list[Record]] = [[]]
    size = 0
    for record in records:
        headers = sum(len(name) + len(value or b"") + 10 for name, value in record.headers)
        its_size = len(record.key or b"") + len(record.value or b"") + headers + 100
        if batches[-1] and size + its_size > 512 << 10:
            batches.append([])
            size = 0
        batches[-1].append(record)
        size += its_size
    return batches


ENDPOINTS: Final = (
    Endpoint("GET", "/api/topics/{topic}/records", find, SEARCH),
    Endpoint("GET", "/api/topics/{topic}/records/{partition}/{offset}", one_record),
    Endpoint(
        "POST", "/api/topics/{topic}/records", produce, status=201,
        fields=(
            "key", "value", "headers", "partition", "acks", "key_encoding", "value_encoding", "timestamp_ms",
        ),
    ),
    Endpoint("POST", "/api/topics/{topic}/replay", replay, fields=REPLAY_FIELDS),
    Endpoint("POST", "/api/where", check_where, fields=("where",), asks_cluster=False, changes=False),
)  # fmt: skip
