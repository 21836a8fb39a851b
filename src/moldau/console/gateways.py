"""What gateways for devices measure, from their `/metrics`. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from moldau.console.metrics_text import Sample

PREFIX: Final = "moldau_gateway_"
MQTT_REFUSED: Final = "moldau_gateway_mqtt_refused_total"
COUNTERS: Final = (
    "moldau_gateway_http_requests_total",
    "moldau_gateway_http_refused_total",
    "moldau_gateway_http_records_total",
    "moldau_gateway_http_bytes_total",
    "moldau_gateway_mqtt_messages_in_total",
    "moldau_gateway_mqtt_messages_out_total",
    "moldau_gateway_mqtt_bytes_in_total",
    "moldau_gateway_mqtt_bytes_out_total",
)
"""Shown as what they grow by in a second."""
REFUSED_MAX: Final = 50


def gateway_row(address: str, samples: Iterable[Sample], rates: Mapping[str, float | None]) -> dict[str, Any] | None:
    """Return what is known of the gateway at this address; None if there is none. `rates` are by counter."""
    values: dict[str, float] = {}
    refused: list[dict[str, Any]] = []
    for sample in samples:
        if sample.name == MQTT_REFUSED:
            refused.append({"what": sample.labels.get("what", ""), "count": int(sample.value)})
        elif not sample.labels:
            values[sample.name.removeprefix(PREFIX)] = sample.value
    if not values:
        return None
    refused.sort(key=lambda each: (-each["count"], each["what"]))
    return {
        "address": address,
        "http": "http_connections" in values,
        "mqtt": "mqtt_connections" in values,
        "now": {name: int(value) for name, value in values.items() if not name.endswith("_total")},
        "since_start": {name: int(value) for name, value in values.items() if name.endswith("_total")},
        "per_second": {name.removeprefix(PREFIX): rate for name, rate in rates.items() if rate is not None},
        "refused": refused[:REFUSED_MAX],
    }
