"""Learn: buttons for a lecture hall. Each does on a practice topic of the real cluster what it shows."""

from __future__ import annotations

import importlib
import threading
import time
from functools import partial
from typing import Any, Final

from moldau.base.errors import ErrorCode, KafkaError, MalformedData
from moldau.base.group_configs import SHARE_AUTO_OFFSET_RESET
from moldau.base.settings import topics
from moldau.client.admin import topics as topic_admin
from moldau.client.admin.cluster_admin import ClusterAdmin
from moldau.client.cluster import Cluster
from moldau.client.requests.configs import GROUP, alter_configs
from moldau.console.access import ADMIN_TIMEOUT_MS
from moldau.console.call import Call, Endpoint, now_ms
from moldau.console.endpoints.topics import partition_count, partition_rows, unknown_topic
from moldau.console.learning import CONSUMERS_MAX, FAILURES, PRACTICE, QUEUE, Practice
from moldau.console.live import Event, Feed
from moldau.console.next_steps import worded
from moldau.console.records.choosing import Choice
from moldau.console.records.search import Work, bounds, oldest_first
from moldau.console.records.writing import ACKS, choose_partition, write
from moldau.operations.failures import kafka_failure
from moldau.web.failures import ApiError, bad_request
from moldau.wire.apis import ApiKey
from moldau.wire.records import NEXT_OFFSET, Record

COUNT_MAX: Final = 100
PARTITIONS_MAX: Final = 12
KEY_LENGTH_MAX: Final = 100
COMPACTION_KEYS: Final = ("anna", "ben", "clara")
COMPACTION_SECONDS: Final = 60.0
COMPACTED_CONFIGS: Final = {
    topics.CLEANUP_POLICY.name: "compact",
    topics.MIN_CLEANABLE_DIRTY_RATIO.name: "0.0",
    topics.SEGMENT_MS.name: "100",
    topics.SEGMENT_BYTES.name: "1048576",
    topics.DELETE_RETENTION_MS.name: "100",
    topics.MAX_COMPACTION_LAG_MS.name: "1000",
}

_turn_lock = threading.Lock()
_turn = 0


def practice_of(call: Call) -> Practice:
    access = call.access
    with _turn_lock:
        if access.practice is None:
            access.practice = Practice(access.bootstrap, access.properties)
            access.closers.append(access.practice.close)
        return access.practice


def look(call: Call) -> dict[str, Any]:
    return _data(call, practice_of(call))


def _data(call: Call, practice: Practice) -> dict[str, Any]:
    state = call.access.collector.look()
    topic = state.topics.get(PRACTICE)
    return {
        "topic": PRACTICE,
        "exists": topic is not None,
        "partitions": [] if topic is None else partition_rows(state, topic, range(len(topic.leaders))),
        "consumers": [consumer.data() for consumer in practice.consumers],
        "group": PRACTICE,
        "queue": practice.queue_data(),
        "compacted": practice.compaction,
        "brokers": sorted(state.alive),
    }


def create(call: Call) -> dict[str, Any]:
    partitions = call.field("partitions", int, 4)
    brokers = len(call.access.collector.look().alive) or 1
    factor = call.number("replication_factor", 1, PARTITIONS_MAX) or min(3, brokers)
    if not 1 <= partitions <= PARTITIONS_MAX:
        raise bad_request(f"partitions: expected a whole number from 1 to {PARTITIONS_MAX}")
    configs = dict(COMPACTED_CONFIGS) if call.field("compacted", bool, False) else {}
    practice = practice_of(call)
    practice.compaction = None
    with call.access.admin() as admin:
        _delete(admin)
        _create(admin, partitions, factor, configs)
    call.changed(lambda state: partition_count(state, PRACTICE) == partitions)
    return _data(call, practice)


def _create(admin: ClusterAdmin, partitions: int, factor: int, configs: dict[str, str]) -> None:
    """Create the practice topic; one that was just deleted may exist for a moment longer."""

    def attempt() -> None:
        topic_admin.create_topic(admin, PRACTICE, partitions, factor, configs)

    try:
        admin.cluster.retry(attempt, ADMIN_TIMEOUT_MS, frozenset({ErrorCode.TOPIC_ALREADY_EXISTS}))
    except KafkaError as error:
        raise kafka_failure(error, PRACTICE) from error


def _delete(admin: ClusterAdmin) -> None:
    try:
        topic_admin.delete_topic(admin, PRACTICE)
    except KafkaError as error:
        if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise kafka_failure(error, PRACTICE) from error


def remove(call: Call) -> dict[str, Any]:
    practice = practice_of(call)
    practice.set_consumers(0)
    practice.set_workers(0)
    practice.delivered.clear()
    practice.compaction = None
    with call.access.admin() as admin:
        _delete(admin)
    with call.access.groups() as groups:
        groups.delete([PRACTICE, QUEUE])
    call.changed(lambda state: PRACTICE not in state.topics)
    return _data(call, practice)


def produce(call: Call) -> dict[str, Any]:
    global _turn
    count, keys, acks = call.field("count", int, 1), call.optional("keys", list), call.field("acks", str, "all")
    if not 1 <= count <= COUNT_MAX:
        raise bad_request(f"count: expected a whole number from 1 to {COUNT_MAX}")
    if acks not in ACKS:
        raise bad_request("acks: expected all, 1 or 0")
    if keys is not None and not (keys and all(isinstance(key, str) and len(key) <= KEY_LENGTH_MAX for key in keys)):
        raise bad_request(f"keys: expected a list of texts of at most {KEY_LENGTH_MAX} characters, or null")
    results = []
    with call.access.cluster() as cluster:
        partitions = len(_practice_topic(cluster))
        for number in range(count):
            with _turn_lock:
                turn = _turn
                _turn += 1
            key = keys[number % len(keys)] if keys else None
            partition = choose_partition(None if key is None else key.encode(), partitions, turn)
            results.append(_send(cluster, partition, key, f"message {turn + 1}", ACKS[acks]))
    call.access.collector.hurry("ends")
    return {"results": results, "acks": acks}


def _practice_topic(cluster: Cluster) -> list[int]:
    try:
        return sorted(cluster.topic(PRACTICE).leaders)
    except KafkaError as error:
        raise unknown_topic(PRACTICE) from error


def _send(cluster: Cluster, partition: int, key: str | None, value: str, acks: int) -> dict[str, Any]:
    """Send one record and say how it went: a killed broker is an answer, not an error of the page."""
    begin = time.monotonic()
    error_text, offset = None, None
    record = Record(NEXT_OFFSET, now_ms(), None if key is None else key.encode(), value.encode())
    try:
        offset = write(cluster, PRACTICE, partition, [record], acks)
    except KafkaError as error:
        cluster.forget()
        error_text = worded(kafka_failure(error))
    except (OSError, MalformedData) as error:
        cluster.close()
        cluster.nodes()
        error_text = f"the leader does not answer: {error}"
    seconds = round(time.monotonic() - begin, 4)
    return {"key": key, "partition": partition, "offset": offset, "seconds": seconds, "error": error_text}


def set_consumers(call: Call) -> dict[str, Any]:
    count = call.field("count", int)
    if not 0 <= count <= CONSUMERS_MAX:
        raise bad_request(f"count: expected a whole number from 0 to {CONSUMERS_MAX}")
    practice = practice_of(call)
    practice.set_consumers(count)
    return _data(call, practice)


def set_workers(call: Call) -> dict[str, Any]:
    """Let this many members of a share group take records, from the beginning of the topic on."""
    count = call.field("count", int)
    if not 0 <= count <= CONSUMERS_MAX:
        raise bad_request(f"count: expected a whole number from 0 to {CONSUMERS_MAX}")
    practice = practice_of(call)
    if count and not practice.workers:
        with call.access.admin() as admin:
            _require_share_groups(admin.cluster)
            try:
                alter_configs(admin.ask, {(GROUP, QUEUE): [(SHARE_AUTO_OFFSET_RESET.name, "earliest")]})
            except KafkaError as error:
                raise kafka_failure(error, f"group {QUEUE}") from error
    practice.set_workers(count)
    return _data(call, practice)


def _require_share_groups(cluster: Cluster) -> None:
    try:
        importlib.import_module("moldau.client.confluent_share")
    except ImportError as error:
        raise bad_request("workers need confluent-kafka 2.15 or newer beside the console") from error
    node = next(iter(cluster.nodes()))
    if not cluster.channel(node).offers(ApiKey.SHARE_FETCH):
        raise bad_request("this cluster has no share groups: Apache Kafka has them since 4.2, with share.version=1")


def fail(call: Call) -> dict[str, Any]:
    """Let a worker release or reject the next record instead of accepting it."""
    says = call.field("says", str)
    if says not in FAILURES:
        raise bad_request(f"says: expected {' or '.join(FAILURES)}")
    practice = practice_of(call)
    practice.failures.append(says)
    return _data(call, practice)


def compact(call: Call) -> dict[str, Any]:
    """Write each key several times, show the partition, and watch in the background how compaction removes them."""
    practice = practice_of(call)
    with call.access.admin() as admin:
        cluster = admin.cluster
        _practice_topic(cluster)
        policy = {each.name: each.value for each in topic_admin.topic_configs(admin, PRACTICE)}.get(
            topics.CLEANUP_POLICY.name
        )
        if policy is None or "compact" not in policy:
            raise bad_request('make the topic anew with "compacted": true first')
        for version in range(1, 4):
            records = [
                Record(NEXT_OFFSET, now_ms(), key.encode(), f"version {version}".encode()) for key in COMPACTION_KEYS
            ]
            cluster.retry(partial(write, cluster, PRACTICE, 0, records), ADMIN_TIMEOUT_MS)  # its leader may be new
        before = _shown(cluster)
    compaction = practice.compaction = {"before": before, "after": None, "waiting": True}
    threading.Thread(target=_watch, args=(call, practice, compaction), name="compaction", daemon=True).start()
    return {"before": before, "waiting": True}


def _watch(call: Call, practice: Practice, compaction: dict[str, Any]) -> None:
    """Write a record now and then, which closes the segment before it, until there are fewer records than before. Ends
    if the topic is removed or another compaction is begun meanwhile."""
    deadline = time.monotonic() + COMPACTION_SECONDS
    count, after = len(compaction["before"]), None
    while time.monotonic() < deadline and practice.compaction is compaction:
        time.sleep(0.5)
        try:
            with call.access.cluster() as cluster:
                write(
                    cluster,
                    PRACTICE,
                    0,
                    [Record(NEXT_OFFSET, now_ms(), b"clock", b"a later record closes the segment")],
                )
                shown = [each for each in _shown(cluster) if each["key"] != "clock"]
        except (KafkaError, OSError, MalformedData, ApiError):
            continue
        if len(shown) < count:
            after = shown
            if len(shown) == len(COMPACTION_KEYS):
                break
    if practice.compaction is compaction:
        practice.compaction = {**compaction, "after": after, "waiting": False}


def _shown(cluster: Cluster) -> list[dict[str, Any]]:
    starts, ends = bounds(cluster, PRACTICE, [0], committed=True)
    found = oldest_first(cluster, PRACTICE, starts, ends, Choice(()), 500, Work())
    return [
        {
            "partition": each.partition,
            "offset": each.record.offset,
            "key": (each.record.key or b"").decode(errors="replace"),
            "value": (each.record.value or b"").decode(errors="replace")[:KEY_LENGTH_MAX],
        }
        for each in found.records
    ]


def live(call: Call) -> Feed:
    """The state of the topic, and each record that a practice consumer received. It waits itself, for a short time."""
    practice = practice_of(call)
    seen = practice.received[-1].number if practice.received else 0
    last: dict[str, Any] = {}

    def poll() -> list[Event]:
        nonlocal seen, last
        for _ in range(5):
            received = practice.received_after(seen)
            data = _data(call, practice)
            if received or data != last:
                break
            time.sleep(0.2)
        events: list[Event] = [("record", each.data()) for each in received]
        seen = received[-1].number if received else seen
        if data != last:
            last = data
            events.insert(0, ("learn", data))
        return events

    return Feed(poll)


ENDPOINTS: Final = (
    Endpoint("GET", "/api/learn", look, asks_cluster=False),
    Endpoint("POST", "/api/learn/topic", create, fields=("partitions", "replication_factor", "compacted")),
    Endpoint("DELETE", "/api/learn/topic", remove),
    Endpoint("POST", "/api/learn/produce", produce, fields=("count", "keys", "acks")),
    Endpoint("POST", "/api/learn/consumers", set_consumers, fields=("count",)),
    Endpoint("POST", "/api/learn/workers", set_workers, fields=("count",)),
    Endpoint("POST", "/api/learn/fail", fail, fields=("says",)),
    Endpoint("POST", "/api/learn/compact", compact),
)
STREAMS: Final = (Endpoint("GET", "/api/live/learn", live),)
