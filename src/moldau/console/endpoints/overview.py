"""The overview: brokers, rates, disks, and what is wrong."""

from __future__ import annotations

from typing import Any, Final

from moldau.console.call import Call, Endpoint
from moldau.console.collector.ages import age_data, oldest
from moldau.console.collector.collector import Collector
from moldau.console.collector.state import ClusterState, known_sum, total_size
from moldau.console.live import Event, Feed
from moldau.console.problems import problems_of


def overview(call: Call) -> dict[str, Any]:
    return overview_data(call.access.collector)


def overview_data(collector: Collector) -> dict[str, Any]:
    state = collector.look()
    topics, groups = state.topics.values(), state.groups.values()
    internal = state.layout.internal_topics
    rates = [rate for topic in topics if (rate := topic.rate) is not None]
    history = collector.history
    return {
        "cluster_id": state.cluster_id,
        "controller_id": state.controller_id,
        "quorum_leader": None if state.quorum is None else state.quorum.leader_id,
        "brokers": broker_data(state),
        "topics": len(topics) - internal,
        "internal_topics": internal,
        "partitions": state.layout.partitions,
        "groups": len(groups),
        "records_per_second": round(sum(rates), 2) if rates else None,
        "bytes_in_per_second": state.metrics.get("bytes_in_per_second"),
        "bytes_out_per_second": state.metrics.get("bytes_out_per_second"),
        "size_bytes": total_size(topics),
        "lag": known_sum(group.lag for group in groups) if "offsets" in state.read else None,
        **age_data(oldest(group.age for group in groups)),
        "history": {
            "times_ms": history.times_ms(),
            "records_per_second": history.values(("all", "rate")),
            "lag": history.values(("all", "lag")),
            "size_bytes": history.values(("all", "size")),
        },
        "problems": [problem.data() for problem in problems_of(state)],
        **collector.freshness(),
    }


def broker_data(state: ClusterState) -> list[dict[str, Any]]:
    """Return all brokers that were ever seen or have replicas; counts as in `moldau cluster describe`."""
    layout = state.layout
    rows = []
    for broker in sorted({*state.nodes, *layout.holds}):
        node = state.nodes.get(broker)
        dirs = None if state.log_dirs is None else state.log_dirs.get(broker)
        rows.append(
            {
                "id": broker,
                "host": None if node is None else node.host,
                "port": None if node is None else node.port,
                "rack": None if node is None else node.rack,
                "alive": broker in state.alive,
                "answers": broker not in state.silent,
                "leaders": layout.leads[broker],
                "replicas": layout.holds[broker],
                "in_sync": layout.in_sync[broker],
                "size_bytes": None if dirs is None else sum(each.size_bytes for each in dirs),
                "disk_total_bytes": _sum(None if dirs is None else [each.total_bytes for each in dirs]),
                "disk_free_bytes": _sum(None if dirs is None else [each.free_bytes for each in dirs]),
                "bytes_in_per_second": None,
                "bytes_out_per_second": None,
            }
        )
    return rows


def _sum(values: list[int | None] | None) -> int | None:
    known = [value for value in values or () if value is not None]
    return sum(known) if known else None


def live(call: Call) -> Feed:
    collector = call.access.collector

    def poll() -> list[Event]:
        return [("overview", overview_data(collector))]

    return Feed(poll, collector)


ENDPOINTS: Final = (Endpoint("GET", "/api/overview", overview, asks_cluster=False),)
STREAMS: Final = (Endpoint("GET", "/api/live/overview", live),)
