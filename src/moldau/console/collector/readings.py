"""The requests of the collector: metadata, offsets, sizes and groups, read in few large requests.

A broker that does not answer hides only what it alone knows; what was read from the others is kept.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Final

from moldau.base.client_metrics_configs import INTERVAL_MS, MATCH, METRICS
from moldau.base.errors import ErrorCode, MalformedData
from moldau.base.ids import TopicPartition
from moldau.client.admin.cluster_admin import ClusterAdmin
from moldau.client.admin.group_values import CommittedOffsets, ShareOffset, holds_micro_batch_ids
from moldau.client.cluster import Cluster
from moldau.client.requests.ask import raise_error
from moldau.client.requests.configs import CLIENT_METRICS, describe_configs, resources_with_configs
from moldau.client.requests.metadata import metadata
from moldau.client.requests.partitions import describe_log_dirs, list_offsets
from moldau.console.collector.state import UNKNOWN, LogDir, MetricsSubscription, Partitions, TopicState
from moldau.wire.messages.metadata import MetadataResponseTopic

PARTITIONS_PER_REQUEST: Final = 4_000
"""Bounds the memory of one response, and how long its decoding holds up the requests of pages."""
SUBSCRIPTIONS_MAX: Final = 100

Intern = Callable[[tuple[int, ...]], tuple[int, ...]]


def read_topics(cluster: Cluster, before: dict[str, TopicState]) -> dict[str, TopicState]:
    """Return all topics in the order of their names. What did not change is the same object as before."""
    response = metadata(cluster.ask_any)
    known: dict[tuple[int, ...], tuple[int, ...]] = {}

    def intern(ids: tuple[int, ...]) -> tuple[int, ...]:
        return known.setdefault(ids, ids)

    topics: dict[str, TopicState] = {}
    for topic in sorted(response.topics, key=lambda topic: topic.name or ""):
        name = topic.name or ""
        if not topic.error_code and name:
            topics[name] = _topic(topic, name, before.get(name), intern)
    is_same = topics.keys() == before.keys() and all(topic is before[name] for name, topic in topics.items())
    return before if is_same else topics


def _topic(topic: MetadataResponseTopic, name: str, before: TopicState | None, intern: Intern) -> TopicState:
    partitions = sorted(topic.partitions, key=lambda each: each.partition_index)
    leaders = array("i", [each.leader_id for each in partitions])
    replicas = [intern(tuple(each.replica_nodes)) for each in partitions]
    isr = [intern(tuple(each.isr_nodes)) for each in partitions]
    topic_id = bytes(topic.topic_id)
    if before is not None and before.topic_id == topic_id:
        if before.leaders == leaders and before.replicas == replicas and before.isr == isr:
            return before
        if len(before.leaders) == len(leaders):
            return replace(before, leaders=leaders, replicas=replicas, isr=isr)
    return TopicState(sys.intern(name), topic.is_internal, topic_id, leaders, replicas, isr)


def read_offsets(
    cluster: Cluster, topics: Iterable[TopicState], timestamp: int
) -> tuple[dict[str, array[int]], frozenset[int]]:
    """Return an offset for every partition, by topic: -1 where it cannot be read now; and the leaders that do not
    answer."""
    by_leader: dict[int, list[tuple[TopicState, list[int]]]] = {}
    offsets: dict[str, array[int]] = {}
    silent: set[int] = set()
    for topic in topics:
        offsets[topic.name] = array("q", [UNKNOWN]) * len(topic.leaders)
        indexes: dict[int, list[int]] = {}
        for index, leader in enumerate(topic.leaders):
            indexes.setdefault(leader, []).append(index)
        for leader, its_indexes in indexes.items():
            if leader >= 0:
                by_leader.setdefault(leader, []).append((topic, its_indexes))
    for leader, its_topics in by_leader.items():
        for chunk in _chunks(its_topics):
            try:
                _read_offsets_of(cluster, leader, chunk, timestamp, offsets)
            except (OSError, MalformedData):
                cluster.drop(leader)
                silent.add(leader)
                break
    return offsets, frozenset(silent)


def _chunks(topics: list[tuple[TopicState, list[int]]]) -> Iterable[list[tuple[TopicState, list[int]]]]:
    """Yield the partitions of each request; a large topic is in several."""
    chunk: list[tuple[TopicState, list[int]]] = []
    room = PARTITIONS_PER_REQUEST
    for topic, indexes in topics:
        rest = indexes
        while rest:
            chunk.append((topic, rest[:room]))
            rest, room = rest[room:], room - len(rest[:room])
            if not room:
                yield chunk
                chunk, room = [], PARTITIONS_PER_REQUEST
    if chunk:
        yield chunk


def _read_offsets_of(
    cluster: Cluster,
    leader: int,
    topics: list[tuple[TopicState, list[int]]],
    timestamp: int,
    offsets: dict[str, array[int]],
) -> None:
    at = {TopicPartition(topic.name, index): timestamp for topic, indexes in topics for index in indexes}
    for (name, index), offset in list_offsets(cluster.channel(leader).ask, at, timeout_ms=5_000).items():
        its_offsets = offsets.get(name)
        if its_offsets is not None and isinstance(offset, int) and index < len(its_offsets):
            its_offsets[index] = offset


def read_log_dirs(
    cluster: Cluster, brokers: Iterable[int], topics: Mapping[str, TopicState], moving: Collection[TopicPartition]
) -> tuple[dict[int, list[LogDir]], dict[str, array[int]], dict[TopicPartition, dict[int, int]]]:
    """Return the directories of all brokers, the bytes of each partition, by topic, and those of each replica of moving
    partitions. The bytes are -1 if one of the replicas is on one of these brokers, and that one does not answer. Raises
    KafkaError if the user may not see them."""
    log_dirs: dict[int, list[LogDir]] = {}
    moving_sizes: dict[TopicPartition, dict[int, int]] = {partition: {} for partition in moving}
    sizes = {name: array("q", [0]) * len(topic.leaders) for name, topic in topics.items()}
    silent: set[int] = set()
    for broker in brokers:
        try:
            response = describe_log_dirs(cluster.channel(broker).ask)
        except (OSError, MalformedData):
            cluster.drop(broker)
            silent.add(broker)
            continue
        raise_error(response.error_code)
        log_dirs[broker] = []
        for directory in response.results:
            size_bytes = 0
            for topic in directory.topics:
                its_sizes = sizes.get(topic.name)
                for each in topic.partitions:
                    size_bytes += each.partition_size
                    if its_sizes is not None and each.partition_index < len(its_sizes):
                        its_sizes[each.partition_index] += each.partition_size
                    if moving_sizes and not each.is_future_key:
                        partition = TopicPartition(topic.name, each.partition_index)
                        if partition in moving_sizes:
                            moving_sizes[partition][broker] = each.partition_size
            error = ErrorCode(directory.error_code).name if directory.error_code else None
            total, free = (value if value >= 0 else None for value in (directory.total_bytes, directory.usable_bytes))
            log_dirs[broker].append(LogDir(directory.log_dir, size_bytes, total, free, error))
    if silent:
        _mark_unknown(sizes, topics, silent)
    return log_dirs, sizes, moving_sizes


def _mark_unknown(sizes: dict[str, array[int]], topics: Mapping[str, TopicState], silent: set[int]) -> None:
    for name, its_sizes in sizes.items():
        for index, replicas in enumerate(topics[name].replicas):
            if not silent.isdisjoint(replicas):
                its_sizes[index] = UNKNOWN


def compact(committed: CommittedOffsets) -> tuple[dict[str, Partitions], bool]:
    """Return committed offsets by topic, and whether they are ids of micro-batches."""
    return _by_topic({at: each.offset for at, each in committed.items()}), holds_micro_batch_ids(committed)


def compact_starts(offsets: Mapping[TopicPartition, ShareOffset]) -> dict[str, Partitions]:
    """Return the start offsets of a share group by topic."""
    return _by_topic({at: each.start_offset for at, each in offsets.items()})


def _by_topic(offsets: Mapping[TopicPartition, int]) -> dict[str, Partitions]:
    by_topic: dict[str, Partitions] = {}
    for (topic, index), offset in offsets.items():
        indexes, its_offsets = by_topic.setdefault(sys.intern(topic), (array("i"), array("q")))
        indexes.append(index)
        its_offsets.append(offset)
    return by_topic


def read_subscriptions(admin: ClusterAdmin) -> tuple[MetricsSubscription, ...]:
    """Return the first client metrics resources by name. Raises KafkaError if the user may not see them."""
    names = sorted(resources_with_configs(admin.ask, CLIENT_METRICS))[:SUBSCRIPTIONS_MAX]
    if not names:
        return ()
    subscriptions = []
    for result in describe_configs(admin.ask, CLIENT_METRICS, names):
        if result.error_code:
            continue
        configs = {each.name: each.value or "" for each in result.configs}
        interval = configs.get(INTERVAL_MS, "")
        interval_ms = int(interval) if interval.isascii() and interval.isdigit() and len(interval) < 19 else None
        metrics, match = configs.get(METRICS, ""), configs.get(MATCH, "")
        subscriptions.append(MetricsSubscription(result.resource_name, metrics, interval_ms, match))
    return tuple(subscriptions)
