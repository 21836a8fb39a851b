"""The cluster: who leads and follows what, the quorum, elections and reassignments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from random import Random
from typing import Any, Final

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import TopicPartition
from moldau.client.admin.cluster_admin import ClusterAdmin, Outcomes
from moldau.client.admin.cluster_values import ElectionType, Reassignment, TopicReplicas
from moldau.client.admin.topics import broker_configs
from moldau.console.call import Call, Endpoint, now_ms
from moldau.console.collector.collector import Collector
from moldau.console.collector.events import ClusterEvents
from moldau.console.collector.state import ClusterState, TopicState, is_internal
from moldau.console.endpoints.overview import broker_data
from moldau.console.endpoints.topics import unknown_topic
from moldau.console.listing import whole_number
from moldau.console.live import Event, Feed
from moldau.console.next_steps import worded
from moldau.operations.cluster_overview import controller_rows, note_of
from moldau.operations.failures import NotFound, kafka_failure
from moldau.operations.next_steps import NextStep
from moldau.operations.replica_placement import place_replicas
from moldau.web.failures import ApiError, bad_request

PARTITIONS_DRAWN: Final = 40
TOPIC_PARTITIONS_DRAWN: Final = 1_000
"""Of one topic: the live feed sends them again after each round of the collector."""
LED_SHOWN: Final = 500
REASSIGNMENTS_SHOWN: Final = 500
EVENTS_SHOWN: Final = 60
PLAN_PARTITIONS_MAX: Final = 5_000
FACTOR_MAX: Final = 2**15 - 1
ENDED_MEANWHILE: Final = frozenset({ErrorCode.NO_REASSIGNMENT_IN_PROGRESS})
"""What a cancellation gets for a move that has just been completed."""


def cluster(call: Call) -> dict[str, Any]:
    return cluster_data(call.access.collector, call.access.events, call.query.get("topic"))


def cluster_data(collector: Collector, events: ClusterEvents, topic_name: str | None) -> dict[str, Any]:
    state = collector.look()
    if topic_name:
        topic = state.topics.get(topic_name)
        if topic is None:
            raise unknown_topic(topic_name)
        drawn = [topic]
    else:
        drawn = _topics_to_draw(state)
    partitions = (row for each in drawn for row in _partitions(each, state.reassignments))
    return {
        "cluster_id": state.cluster_id,
        "controller_id": state.controller_id,
        "brokers": broker_data(state),
        "quorum": quorum_data(state),
        "health": health(state),
        "partitions": list(islice(partitions, TOPIC_PARTITIONS_DRAWN)),
        "partitions_total": state.layout.partitions,
        "reassignments": [
            reassignment_data(state, *each) for each in sorted(state.reassignments.items())[:REASSIGNMENTS_SHOWN]
        ],
        "events": [
            {"time_ms": each.time_ms, "kind": each.kind, "text": each.text}
            for each in events.last(EVENTS_SHOWN, topic_name or None)
        ],
        **collector.freshness(),
    }


def _topics_to_draw(state: ClusterState) -> list[TopicState]:
    """Return topics that are not internal: largest first, skipping those that no longer fit into PARTITIONS_DRAWN."""
    topics = sorted(
        (topic for topic in state.topics.values() if not is_internal(topic)),
        key=lambda topic: (-len(topic.leaders), topic.name),
    )
    drawn: list[TopicState] = []
    room = PARTITIONS_DRAWN
    for topic in topics:
        if len(topic.leaders) <= room:
            drawn.append(topic)
            room -= len(topic.leaders)
    return sorted(drawn, key=lambda topic: topic.name)


def _partitions(topic: TopicState, reassignments: Mapping[TopicPartition, Reassignment]) -> Iterator[dict[str, Any]]:
    for index, leader in enumerate(topic.leaders):
        yield {
            "topic": topic.name,
            "partition": index,
            "leader": leader if leader >= 0 else None,
            "replicas": list(topic.replicas[index]),
            "isr": list(topic.isr[index]),
            "note": note_of(topic.partition(index), reassignments.get(TopicPartition(topic.name, index))),
        }


def quorum_data(state: ClusterState) -> dict[str, Any] | None:
    quorum = state.quorum
    if quorum is None:
        return None
    roles = {"leader": "leader", "voter": "follower", "observer": "observer"}
    return {
        "leader": quorum.leader_id,
        "epoch": quorum.leader_epoch,
        "high_watermark": quorum.high_watermark,
        "replicas": [
            {
                "id": row.id,
                "role": roles[row.role],
                "log_end_offset": row.log_end,
                "lag": row.lag,
                "last_caught_up_seconds": None if row.caught_up_ms_ago is None else row.caught_up_ms_ago / 1000,
                "address": row.address,
            }
            for row in controller_rows(quorum, now_ms())
        ],
    }


def health(state: ClusterState) -> dict[str, int]:
    layout = state.layout
    return {
        "without_leader": len(layout.leaderless),
        "under_replicated": len(layout.under_replicated) + len(layout.leaderless),
        "not_preferred": layout.not_preferred.total(),
    }


def reassignment_data(state: ClusterState, where: TopicPartition, running: Reassignment) -> dict[str, Any]:
    """A reassignment in progress, and how far it is: how much of a complete replica the added ones have."""
    topic = state.topics.get(where.topic)
    isr = topic.isr[where.partition] if topic is not None and where.partition < len(topic.isr) else ()
    in_sync = sum(each in isr for each in running.adding)
    share = in_sync / len(running.adding) if running.adding else 1.0
    done_bytes = total_bytes = None
    sizes = state.moving_sizes.get(where, {})
    complete = [size for broker_id, size in sizes.items() if broker_id not in running.adding or broker_id in isr]
    if complete:
        size = max(complete)
        total_bytes = size * len(running.adding)
        done_bytes = sum(size if each in isr else min(sizes.get(each, 0), size) for each in running.adding)
        share = done_bytes / total_bytes if total_bytes else share
    return {
        "topic": where.topic,
        "partition": where.partition,
        "from": [each for each in running.replicas if each not in running.adding],
        "to": [each for each in running.replicas if each not in running.removing],
        "adding": list(running.adding),
        "removing": list(running.removing),
        "done_bytes": done_bytes,
        "total_bytes": total_bytes,
        "share": share,
    }


def broker(call: Call) -> dict[str, Any]:
    broker_id = whole_number(call.path, "id", 0, 0, 2**31 - 1)
    state = call.access.collector.look()
    row = next((each for each in broker_data(state) if each["id"] == broker_id), None)
    if row is None:
        raise NotFound(f"there is no broker {broker_id}", NextStep.SEE_BROKERS)
    configs: list[dict[str, Any]] | None = None
    configs_error = None
    try:
        with call.access.admin() as admin:
            configs = [each._asdict() for each in broker_configs(admin, broker_id)]
    except KafkaError as error:
        configs_error = worded(kafka_failure(error, f"broker {broker_id}"))
    except OSError as error:
        configs_error = f"broker {broker_id} does not answer: {error}"
    led = [
        {"topic": topic.name, "partition": index}
        for topic in state.topics.values()
        for index, leader in enumerate(topic.leaders)
        if leader == broker_id
    ]
    return {
        **row,
        "configs": configs,
        "configs_error": configs_error,
        "log_dirs": [
            {
                "path": each.path,
                "size_bytes": each.size_bytes,
                "total_bytes": each.total_bytes,
                "free_bytes": each.free_bytes,
                "error": each.error,
            }
            for each in (state.log_dirs or {}).get(broker_id, ())
        ],
        "leads": led[:LED_SHOWN],
        **call.access.collector.freshness(),
    }


def live(call: Call) -> Feed:
    collector, events, topic = call.access.collector, call.access.events, call.query.get("topic")

    def poll() -> list[Event]:
        return [("cluster", cluster_data(collector, events, topic))]

    return Feed(poll, collector)


# --- changes ----------------------------------------------------------------------------------------------------


def elect(call: Call) -> dict[str, Any]:
    topic = call.optional("topic", str)
    with call.access.admin() as admin:
        partitions = None
        if topic is not None:
            partitions = [TopicPartition(topic, index) for index in _existing_topics(admin, [topic])[topic].partitions]
        outcomes = admin.elect_leaders(ElectionType.PREFERRED, partitions)
    call.changed()
    errors = {str(where): error for where, error in outcomes.items() if error is not None}
    refused = {where: error for where, error in errors.items() if error.code.name != "ELECTION_NOT_NEEDED"}
    if refused:
        where, error = next(iter(refused.items()))
        raise kafka_failure(error, where) from error
    return {"ok": True, "elected": len(outcomes) - len(errors)}


def _existing_topics(admin: ClusterAdmin, names: list[str]) -> dict[str, TopicReplicas]:
    known = admin.topics()
    missing = [name for name in names if name not in known]
    if missing:
        raise unknown_topic(", ".join(missing))
    return {name: known[name] for name in names}


def reassign(call: Call) -> dict[str, Any]:
    """Propose a plan as kafka-reassign-partitions does, or execute one that was shown."""
    given, execute = call.optional("plan", list), call.field("execute", bool, False)
    if (given is None) == execute:
        raise bad_request("ask for a plan with topics and brokers first, then send plan with execute: true")
    with call.access.admin() as admin:
        if given is None:
            return {"plan": _proposal(call, admin), "executed": False}
        targets = _targets(given)
        _existing_topics(admin, sorted({each.topic for each in targets}))
        outcomes = admin.alter_reassignments(targets)
    call.changed()
    _raise_first(outcomes)
    plan = [{"topic": name, "partition": index, "to": to} for (name, index), to in targets.items()]
    return {"plan": plan, "executed": True}


def _proposal(call: Call, admin: ClusterAdmin) -> list[dict[str, Any]]:
    names, brokers = call.field("topics", list), call.field("brokers", list)
    factor = call.number("replication_factor", 1, FACTOR_MAX)
    if not names or not all(isinstance(name, str) for name in names):
        raise bad_request("topics: expected a list of names")
    if not brokers or not all(map(_is_id, brokers)):
        raise bad_request("brokers: expected a list of ids")
    topics = _existing_topics(admin, names)
    nodes = admin.described().nodes
    unknown = [str(each) for each in brokers if each not in nodes]
    if unknown:
        raise bad_request(f"brokers: there is no broker {', '.join(unknown)}")
    racks = {each: nodes[each].rack for each in brokers}
    if not all(racks.values()):
        racks = dict.fromkeys(brokers)
    if sum(len(topic.partitions) for topic in topics.values()) > PLAN_PARTITIONS_MAX:
        raise bad_request(f"topics: more than {PLAN_PARTITIONS_MAX} partitions at once")
    plan = []
    for topic in topics.values():
        wanted = factor or max((len(each.replicas) for each in topic.partitions.values()), default=1)
        placed = place_replicas(racks, len(topic.partitions), wanted, Random(topic.name))
        for index, replicas in zip(topic.partitions, placed, strict=True):
            before = list(topic.partitions[index].replicas)
            if sorted(before) != sorted(replicas):
                plan.append({"topic": topic.name, "partition": index, "from": before, "to": replicas})
    return plan


def _targets(plan: list[Any]) -> dict[TopicPartition, list[int]]:
    targets: dict[TopicPartition, list[int]] = {}
    for row in plan[:PLAN_PARTITIONS_MAX]:
        if not isinstance(row, dict) or not isinstance(row.get("topic"), str) or not _is_id(row.get("partition")):
            raise bad_request("plan: expected rows with topic, partition and to")
        replicas = row.get("to")
        if not isinstance(replicas, list) or not replicas or not all(map(_is_id, replicas)):
            raise bad_request("plan: `to` is a list of broker ids")
        partition = TopicPartition(row["topic"], row["partition"])
        if partition in targets:
            raise bad_request(f"plan: {partition} is in two rows")
        targets[partition] = replicas
    if not targets or len(plan) > PLAN_PARTITIONS_MAX:
        raise bad_request(f"plan: expected 1 to {PLAN_PARTITIONS_MAX} rows")
    return targets


def _is_id(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31


def _raise_first(outcomes: Outcomes) -> None:
    for where, error in outcomes.items():
        if error is not None:
            raise kafka_failure(error, str(where)) from error


def cancel_reassignments(call: Call) -> dict[str, Any]:
    names = call.optional("topics", list)
    with call.access.admin() as admin:
        moving = [where for where in admin.reassignments() if names is None or where.topic in names]
        if not moving:
            of_topics = "" if names is None else " of these topics"
            raise ApiError(404, "NOT_FOUND", f"no partition{of_topics} is being moved")
        outcomes = admin.alter_reassignments(dict.fromkeys(moving))
    call.changed()
    ended = {where for where, error in outcomes.items() if error is not None and error.code in ENDED_MEANWHILE}
    _raise_first({where: error for where, error in outcomes.items() if where not in ended})
    return {"ok": True, "cancelled": len(outcomes) - len(ended)}


ENDPOINTS: Final = (
    Endpoint("GET", "/api/cluster", cluster, ("topic",), asks_cluster=False),
    Endpoint("GET", "/api/brokers/{id}", broker),
    Endpoint("POST", "/api/cluster/elect", elect, fields=("topic",)),
    Endpoint(
        "POST", "/api/cluster/reassign", reassign,
        fields=("topics", "brokers", "replication_factor", "plan", "execute"),
    ),
    Endpoint("POST", "/api/cluster/reassign/cancel", cancel_reassignments, fields=("topics",)),
)  # fmt: skip
STREAMS: Final = (Endpoint("GET", "/api/live/cluster", live, ("topic",)),)
