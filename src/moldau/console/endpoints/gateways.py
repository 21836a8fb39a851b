"""Gateways: what those for devices measure, whose `/metrics` the console was told."""

from __future__ import annotations

from typing import Any, Final

from moldau.console.call import Call, Endpoint

NONE_KNOWN: Final = (
    "A gateway lets devices, browsers and scripts send and follow records over HTTP and MQTT. Start one with `moldau "
    "gateway --mqtt localhost:1883 --metrics localhost:9405`, and this console with `moldau console --metrics "
    "http://localhost:9405/metrics`."
)


def list_gateways(call: Call) -> dict[str, Any]:
    collector = call.access.collector
    metrics = collector.look().metrics
    gateways = metrics.get("gateways", ())
    return {
        "gateways": list(gateways),
        "empty": [] if gateways else [NONE_KNOWN],
        "notes": list(metrics.get("errors", ())),
        **collector.freshness(),
    }


ENDPOINTS: Final = (Endpoint("GET", "/api/gateways", list_gateways, asks_cluster=False),)
