"""Topics: the list with sizes, rates and readers, one topic, and its changes."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping
from typing import Any, Final

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import TopicPartition, uuid_text
from moldau.base.view_configs import VIEW_PREFIX
from moldau.client.admin import topics as topic_admin
from moldau.client.admin.replicas import alter_topic_configs
from moldau.client.cluster import EARLIEST, Cluster
from moldau.console.call import Call, Endpoint, now_ms
from moldau.console.collector.ages import Age, age_data, oldest
from moldau.console.collector.collector import Collector
from moldau.console.collector.measured import TOPICS_WITH_SIZES
from moldau.console.collector.state import ClusterState, Reader, TopicState, is_internal, known_sum
from moldau.console.collector.views import view_data, view_of
from moldau.console.listing import LIST_PARAMETERS, list_query, page_of
from moldau.console.live import Event, Feed
from moldau.console.next_steps import worded
from moldau.operations import offsets
from moldau.operations.cluster_overview import note_of
from moldau.operations.failures import kafka_failure
from moldau.operations.next_steps import NextStep, Note
from moldau.operations.offset_moves import bounds_of
from moldau.web.failures import ApiError, bad_request

PARTITION_COLUMNS: Final = ("partition", "leader", "records", "size_bytes", "records_per_second")
READERS_IN_LIST: Final = 5
TREND_POINTS: Final = 30
PARTITIONS_SHOWN: Final = 100
PARTITIONS_MAX: Final = 10_000


def list_topics(call: Call) -> dict[str, Any]:
    query = list_query(call.query, tuple(CELLS), "name")
    collector = call.access.collector
    state = collector.look()
    internal = call.flag("internal")
    shown = [topic for topic in state.topics.values() if internal or not is_internal(topic)]
    page = page_of(shown, query, "name", lambda topic, column: CELLS[column](topic, state), is_sorted_by_name=True)
    rows = [topic_row(topic, state) for topic in page["rows"]]
    page["rows"] = [
        {**row, "readers": readers_data(state.readers.get(row["name"], [])[:READERS_IN_LIST]),
         "trend": collector.history.last(("rate", row["name"]), TREND_POINTS)}
        for row in rows
    ]  # fmt: skip
    return {**page, **collector.freshness()}


def topic_row(topic: TopicState, state: ClusterState) -> dict[str, Any]:
    return {
        **{column: cell(topic, state) for column, cell in CELLS.items()},
        **age_data(_age(topic, state)),
        "internal": is_internal(topic),
        "under_replicated": sum(len(isr) < len(all_) for isr, all_ in zip(topic.isr, topic.replicas, strict=True)),
        "without_leader": topic.leaders.count(-1),
        "view": view_data(state.views.by_name.get(topic.name), topic),
    }


def _size(topic: TopicState, state: ClusterState) -> int | None:
    """A view stores nothing."""
    return None if topic.name in state.views.by_name else topic.size_bytes


def _rate(topic: TopicState, state: ClusterState) -> float | None:
    return None if topic.rate is None else round(topic.rate, 2)


def _groups(topic: TopicState, state: ClusterState) -> int | None:
    return len(state.readers.get(topic.name, ())) if "offsets" in state.read else None


def _lag(topic: TopicState, state: ClusterState) -> float | None:
    readers = state.readers.get(topic.name)
    return known_sum(reader.lag for reader in readers) if readers else None


def _age(topic: TopicState, state: ClusterState) -> Age | None:
    return oldest(reader.age for reader in state.readers.get(topic.name, ()))


CELLS: Final[Mapping[str, Callable[[TopicState, ClusterState], Any]]] = {
    "name": lambda topic, state: topic.name,
    "partitions": lambda topic, state: len(topic.leaders),
    "replicas": lambda topic, state: max(map(len, topic.replicas), default=0),
    "records": lambda topic, state: topic.records,
    "size_bytes": _size,
    "records_per_second": _rate,
    "groups": _groups,
    "lag": _lag,
    "lag_seconds": lambda topic, state: age_data(_age(topic, state))["lag_seconds"],
}
"""The columns by which the list can be sorted."""


def readers_data(readers: list[Reader]) -> list[dict[str, Any]]:
    return [{"group": each.group_id, "lag": each.lag, **age_data(each.age)} for each in readers]


def known_topic(collector: Collector, name: str) -> TopicState:
    """Return a topic. One that the collector does not know may be new: it looks once more, and this waits for it."""
    collector.await_first_version(2.0)
    if name not in collector.look().topics:
        collector.await_topics_read(1.0)
    topic = collector.state.topics.get(name)
    if topic is None:
        raise unknown_topic(name)
    return topic


def unknown_topic(name: str) -> ApiError:
    return ApiError(404, "UNKNOWN_TOPIC_OR_PARTITION", worded(Note(f"no topic {name}", NextStep.SEE_TOPICS)))


def describe_topic(call: Call) -> dict[str, Any]:
    collector = call.access.collector
    topic = known_topic(collector, call.path["topic"])
    configs: list[dict[str, Any]] | None = None
    configs_error = None
    try:
        with call.access.admin() as admin:
            configs = [each._asdict() for each in topic_admin.topic_configs(admin, topic.name)]
    except KafkaError as error:
        configs_error = worded(kafka_failure(error, topic.name))
    except OSError as error:
        configs_error = str(error)
    history = collector.history
    data = topic_data(collector, topic)
    if data["view"] is None:  # one that was created just now
        data["view"] = view_data(view_of({each["name"]: each["value"] for each in configs or ()}), topic)
    is_view = data["view"] is not None
    if is_view and configs is not None:
        configs = [each for each in configs if each["name"].startswith(VIEW_PREFIX)]
    is_size_known = topic.sizes is not None and len(collector.state.topics) <= TOPICS_WITH_SIZES and not is_view
    return {
        **data,
        "views": collector.state.views.of_source(topic.name),
        "topic_id": uuid_text(topic.topic_id),
        "readers": readers_data(collector.state.readers.get(topic.name, [])),
        "configs": configs,
        "configs_error": configs_error,
        "history": {
            "times_ms": history.times_ms(),
            "records_per_second": history.values(("rate", topic.name)),
            "size_bytes": history.values(("size", topic.name)) if is_size_known else None,
            "lag": history.values(("topic_lag", topic.name)),
        },
        **collector.freshness(),
    }


def topic_data(collector: Collector, topic: TopicState) -> dict[str, Any]:
    """What the page and its live stream have in common."""
    state = collector.look()
    topic = state.topics.get(topic.name, topic)
    row = topic_row(topic, state)
    shown = range(min(PARTITIONS_SHOWN, len(topic.leaders)))
    rows = partition_rows(state, topic, shown)
    return {**row, "partition_rows": rows, "read_ms": state.read_ms, "read_error": state.read_error}


def list_partitions(call: Call) -> dict[str, Any]:
    query = list_query(call.query, PARTITION_COLUMNS, "partition")
    collector = call.access.collector
    topic = known_topic(collector, call.path["topic"])
    rows = partition_rows(collector.state, topic, range(len(topic.leaders)))
    page = page_of(rows, query, "partition")
    return {**page, **collector.freshness()}


def partition_rows(state: ClusterState, topic: TopicState, indexes: range) -> list[dict[str, Any]]:
    is_view = topic.name in state.views.by_name
    rows = []
    for index in indexes:
        start, end = _at(topic.starts, index), _at(topic.ends, index)
        rate = topic.partition_rate(index)
        rows.append(
            {
                "partition": index,
                "leader": topic.leaders[index] if topic.leaders[index] >= 0 else None,
                "replicas": list(topic.replicas[index]),
                "isr": list(topic.isr[index]),
                "start": start,
                "end": end,
                "records": None if start is None or end is None else end - start,
                "size_bytes": None if is_view else _at(topic.sizes, index),
                "records_per_second": None if rate is None else round(rate, 2),
                "note": note_of(topic.partition(index), state.reassignments.get(TopicPartition(topic.name, index))),
            }
        )
    return rows


def _at(values: array[int] | None, index: int) -> int | None:
    return None if values is None or index >= len(values) or values[index] < 0 else values[index]


def view_of_topic(call: Call) -> dict[str, Any]:
    """Say whether a topic is a view: its pages offer no changes that a view refuses."""
    state, name = call.access.collector.look(), call.path["topic"]
    return {"view": view_data(state.views.by_name.get(name), state.topics.get(name))}


# --- changes ----------------------------------------------------------------------------------------------------


def create_topic(call: Call) -> dict[str, Any]:
    name = call.field("name", str)
    partitions = call.number("partitions", 1, PARTITIONS_MAX)
    replication_factor = call.number("replication_factor", 1, PARTITIONS_MAX)
    configs = config_values(call.field("configs", dict, {}))
    validate_only = call.field("validate_only", bool, False)
    with call.access.admin() as admin:
        try:
            topic_admin.create_topic(admin, name, partitions or -1, replication_factor or -1, configs, validate_only)
        except KafkaError as error:
            raise kafka_failure(error, name) from error
    if not validate_only:
        call.changed(lambda state: name in state.topics)
    return {"ok": True, "message": f"created {name}"}


def config_values(configs: Mapping[Any, Any]) -> dict[str, str]:
    for name, value in configs.items():
        if not isinstance(value, str | int | float):
            raise bad_request(f"configs: the value of {name[:100]} must be a text")
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in configs.items()}


def alter_topic(call: Call) -> dict[str, Any]:
    name = call.path["topic"]
    partitions = call.number("partitions", 1, PARTITIONS_MAX)
    to_set = config_values(call.field("set", dict, {}))
    to_unset = call.field("unset", list, [])
    if not all(isinstance(each, str) for each in to_unset):
        raise bad_request("unset: expected a list of names of configs")
    if not (partitions or to_set or to_unset):
        raise bad_request("nothing to alter; give partitions, set or unset")
    messages = []
    with call.access.admin() as admin:
        require_topic(admin.cluster, name)
        try:
            if to_set or to_unset:
                alter_topic_configs(admin, {name: {**to_set, **dict.fromkeys(to_unset)}})
                messages += [f"{name}: {key}={value}" for key, value in to_set.items()]
                messages += [f"{name}: {key} is the default again" for key in to_unset]
            if partitions:
                topic_admin.grow_topic(admin, name, partitions)
                messages.append(f"{name}: {partitions} partitions")
        except KafkaError as error:
            raise kafka_failure(error, name) from error
    call.changed(lambda state: partition_count(state, name) >= (partitions or 0))
    return {"ok": True, "messages": messages}


def partition_count(state: ClusterState, name: str) -> int:
    return len(state.topics[name].leaders) if name in state.topics else 0


def require_topic(cluster: Cluster, name: str) -> None:
    try:
        cluster.topic(name)
    except KafkaError as error:
        raise _failure(error, name) from error


def _failure(error: KafkaError, name: str) -> Exception:
    is_unknown = error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return unknown_topic(name) if is_unknown else kafka_failure(error, name)


def delete_topic(call: Call) -> dict[str, Any]:
    name = call.path["topic"]
    call.confirmed(name)
    with call.access.admin() as admin:
        try:
            topic_admin.delete_topic(admin, name)
        except KafkaError as error:
            raise _failure(error, name) from error
    call.changed(lambda state: name not in state.topics)
    return {"ok": True, "message": f"deleted {name}"}


def trim_topic(call: Call) -> dict[str, Any]:
    name = call.path["topic"]
    before = call.field("before", str)
    only = call.optional("partitions", list)
    call.confirmed(name)
    position = offsets.parse_position(before, now_ms())
    with call.access.cluster() as cluster:
        require_topic(cluster, name)
        indexes = sorted(cluster.topic(name).leaders)
        if only is not None and not all(isinstance(each, int) and each in indexes for each in only):
            raise bad_request(f"partitions: {name} has 0 to {len(indexes) - 1}")
        partitions = [TopicPartition(name, index) for index in (indexes if only is None else only)]
        cluster.delete_records(resolved(cluster, partitions, position))
        starts = cluster.list_offsets(dict.fromkeys(partitions, EARLIEST))
    call.changed()
    return {"ok": True, "starts": {str(partition.partition): start for partition, start in starts.items()}}


def resolved(
    cluster: Cluster, partitions: list[TopicPartition], position: offsets.Position
) -> dict[TopicPartition, int]:
    """Return the offset of a position in each partition."""
    bounds = bounds_of(cluster, partitions, [position.value] if position.anchor is offsets.Anchor.TIME else [])
    return {each: offsets.resolve(position, bounds[each]) for each in partitions}


def live(call: Call) -> Feed:
    collector = call.access.collector
    name = call.path["topic"]

    def poll() -> list[Event]:
        state = collector.look()
        if "topics" not in state.read:
            return []
        topic = state.topics.get(name)
        if topic is None:
            raise unknown_topic(name)
        return [("topic", topic_data(collector, topic))]

    return Feed(poll, collector)


ENDPOINTS: Final = (
    Endpoint("GET", "/api/topics", list_topics, (*LIST_PARAMETERS, "internal"), asks_cluster=False),
    Endpoint(
        "POST", "/api/topics", create_topic, status=201,
        fields=("name", "partitions", "replication_factor", "configs", "validate_only"),
    ),
    Endpoint("GET", "/api/topics/{topic}", describe_topic),
    Endpoint("PATCH", "/api/topics/{topic}", alter_topic, fields=("partitions", "set", "unset")),
    Endpoint("DELETE", "/api/topics/{topic}", delete_topic, fields=("confirm",)),
    Endpoint("GET", "/api/topics/{topic}/view", view_of_topic, asks_cluster=False),
    Endpoint("GET", "/api/topics/{topic}/partitions", list_partitions, LIST_PARAMETERS),
    Endpoint("POST", "/api/topics/{topic}/trim", trim_topic, fields=("before", "partitions", "confirm")),
)  # fmt: skip
STREAMS: Final = (Endpoint("GET", "/api/live/topics/{topic}", live),)
