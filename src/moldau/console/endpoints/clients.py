"""Clients: what is known of them. Groups tell their members; Kafka's protocol tells no other connections."""

from __future__ import annotations

from typing import Any, Final

from moldau.cli.group.connect import host_of
from moldau.console.call import Call, Endpoint
from moldau.console.collector.state import ClusterState
from moldau.console.listing import LIST_PARAMETERS, list_query, page_of

COLUMNS: Final = ("client_id", "host", "group", "partitions", "protocol")
NOTES: Final = (
    "Producers, and consumers without a group, are not listed: Kafka's protocol does not tell them.",
    "Versions of clients are known to brokers only; `--metrics` shows what they count.",
)


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
    return [
        {
            "client_id": member.client_id,
            "host": host_of(member),
            "group": group.group_id,
            "instance_id": member.instance_id,
            "partitions": len(member.assignment),
            "protocol": group.type or None,
        }
        for group in state.groups.values()
        for member in group.members or ()
    ]


ENDPOINTS: Final = (Endpoint("GET", "/api/clients", list_clients, LIST_PARAMETERS, asks_cluster=False),)
