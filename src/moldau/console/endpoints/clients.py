"""Clients: what is known of them. Groups tell their members; clients that push what they measure (KIP-714) are known to
the brokers, whose `/metrics` has it. Kafka's protocol tells no other connections."""

from __future__ import annotations

from typing import Any, Final

from moldau.console.call import Call, Endpoint
from moldau.console.collector.state import ClusterState
from moldau.console.listing import LIST_PARAMETERS, list_query, page_of
from moldau.console.telemetry import Measured, PushingClient, Telemetry
from moldau.operations.groups import host_of
from moldau.web.failures import not_found

COLUMNS: Final = ("client_id", "host", "group", "partitions", "protocol", "software")
PUSHING_COLUMNS: Final = ("client_id", "host", "kind", "software", "latency_ms", "values")
VALUE_COLUMNS: Final = ("name", "labels", "value")
NOTES: Final = (
    "Producers, and consumers without a group, are listed only if they push what they measure: Kafka's protocol does "
    "not tell them.",
)
READING: Final = "The cluster is being read."
NO_METRICS: Final = (
    "Clients push what they measure to the brokers. This console reads it from `/metrics` of the brokers: start it "
    "with `moldau console --metrics http://HOST:PORT/metrics`, once for each broker."
)
NOT_KNOWN: Final = (
    "The cluster does not tell which metrics it asks clients for: its version has no such resources, or your user "
    "lacks the right DescribeConfigs on the cluster."
)
NOT_ASKED: Final = (
    "No client is asked to push what it measures. "
    "`kafka-client-metrics.sh --bootstrap-server {bootstrap} --alter --name all --metrics '*' --interval 10000` asks "
    "all of them."
)
NOTHING_PUSHED: Final = (
    "Clients are asked to push, and none has so far. Those that were connected before they were asked begin at their "
    "next connection, and each waits for its first interval. The Java client and librdkafka push; kafka-python and "
    "aiokafka do not. Apache Kafka keeps what is pushed only with a plugin."
)
CUT: Final = "Clients pushed more than this console keeps; those that pushed the most are not shown."
NO_TELEMETRY: Final = Telemetry({}, False)


def list_clients(call: Call) -> dict[str, Any]:
    query = list_query(call.query, COLUMNS, "client_id")
    collector = call.access.collector
    state = collector.look()
    rows = call.access.rows.get("clients", state.version, lambda: client_rows(state))
    samples = state.metrics.get("samples", ())
    return {
        **page_of(rows, query, "client_id", filtered=("client_id", "host", "group")),
        "metrics": [{"name": each.name, "labels": each.labels, "value": each.value} for each in samples],
        "notes": [*NOTES, *state.metrics.get("errors", ())],
        **collector.freshness(),
    }


def client_rows(state: ClusterState) -> list[dict[str, Any]]:
    pushing: dict[tuple[str, str], list[PushingClient]] = {}
    for client in telemetry_of_user(state).clients.values():
        pushing.setdefault((client.client_id, client.host), []).append(client)
    return [
        {
            "client_id": member.client_id,
            "host": host_of(member),
            "group": group.group_id,
            "instance_id": member.instance_id,
            "partitions": len(member.assignment),
            "protocol": group.type or None,
            **_software(pushing.get((member.client_id, host_of(member) or ""), [])),
        }
        for group in state.groups.values()
        for member in group.members or ()
    ]


def _software(pushing: list[PushingClient]) -> dict[str, str | None]:
    """Return what clients with the id and host of a member are, as far as it is the same for all of them."""
    software = {each.software for each in pushing}
    return {
        "software": software.pop() or None if len(software) == 1 else None,
        "pushes_as": pushing[0].instance_id if len(pushing) == 1 else None,
    }


def telemetry_of_user(state: ClusterState) -> Telemetry:
    """Return what clients pushed. It names topics and clients: only those see it who may see what clients are asked
    for, with DescribeConfigs on the cluster."""
    telemetry: Telemetry = state.metrics.get("telemetry", NO_TELEMETRY)
    return telemetry if state.subscriptions is not None else NO_TELEMETRY


def list_pushing(call: Call) -> dict[str, Any]:
    query = list_query(call.query, PUSHING_COLUMNS, "client_id")
    collector = call.access.collector
    state = collector.look()
    telemetry = telemetry_of_user(state)
    rows = call.access.rows.get("pushing", state.version, lambda: [each.row() for each in telemetry.clients.values()])
    return {
        **page_of(rows, query, "client_id", filtered=("client_id", "host", "software", "kind")),
        "subscriptions": [
            {"name": each.name, "metrics": each.metrics, "interval_ms": each.interval_ms, "match": each.match}
            for each in state.subscriptions or ()
        ],
        "notes": _notes_about(telemetry),
        "empty": [] if rows else _why_empty(call, state),
        **collector.freshness(),
    }


def _notes_about(telemetry: Telemetry) -> list[str]:
    return [CUT] if telemetry.is_cut else []


def _why_empty(call: Call, state: ClusterState) -> list[str]:
    """Return why no client is there, and what to do about it."""
    if "subscriptions" not in state.read:
        return [READING]
    if state.subscriptions is None:
        return [NOT_KNOWN]
    missing = [] if call.options.metrics else [NO_METRICS]
    if not state.subscriptions:
        missing.append(NOT_ASKED.format(bootstrap=call.options.bootstrap))
    return missing or [NOTHING_PUSHED]


def describe_pushing(call: Call) -> dict[str, Any]:
    query = list_query(call.query, VALUE_COLUMNS, "name")
    collector = call.access.collector
    client = telemetry_of_user(collector.look()).clients.get(call.path["instance"])
    if client is None:
        raise not_found(
            "this client does not push any more, or you may not see it; the page Clients lists those that do"
        )
    return {
        "client": client.row(),
        **page_of([_value_row(each) for each in client.values], query, "name", filtered=("name", "labels")),
        **collector.freshness(),
    }


def _value_row(measured: Measured) -> dict[str, Any]:
    labels = ", ".join(f"{name}={text}" for name, text in measured.labels)
    return {"name": measured.name, "labels": labels, "value": measured.value}


ENDPOINTS: Final = (
    Endpoint("GET", "/api/clients", list_clients, LIST_PARAMETERS, asks_cluster=False),
    Endpoint("GET", "/api/telemetry", list_pushing, LIST_PARAMETERS, asks_cluster=False),
    Endpoint("GET", "/api/telemetry/{instance}", describe_pushing, LIST_PARAMETERS, asks_cluster=False),
)
