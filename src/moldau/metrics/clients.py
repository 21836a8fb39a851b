"""Metrics that clients measured and pushed (KIP-714), beside those of the node.

All names begin with `moldau_client_`, so that no client can write a series of the node's own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from moldau.prometheus.text import COUNTER, GAUGE, PIECE_SERIES, Family, Row, escape, pieces
from moldau.telemetry.otlp import Point
from moldau.telemetry.received import ReceivedMetrics

PREFIX: Final = "moldau_client_"
KAFKAS_PREFIX: Final = "org.apache.kafka."
_NOT_IN_NAMES: Final = re.compile(r"[^a-zA-Z0-9_]+")


def collect(clients: Iterable[ReceivedMetrics]) -> Iterator[str]:
    """Yield the series of all clients, one metric after the other."""
    rows: dict[str, dict[str, float]] = {}
    kinds: dict[str, str] = {}
    read = 0
    for client in clients:
        for point in client.points:
            name = series_name(point.name)
            kinds.setdefault(name, COUNTER if point.is_counter else GAUGE)
            rows.setdefault(name, {})[_labels(client, point)] = point.value
            read += 1
            if not read % PIECE_SERIES:
                yield ""
    for name, values in sorted(rows.items()):
        family = Family(name, kinds[name], "Measured by clients.")
        yield from pieces(family, _rows(values))


def series_name(name: str) -> str:
    return PREFIX + _NOT_IN_NAMES.sub("_", name.removeprefix(KAFKAS_PREFIX))


def _label_name(key: str) -> str:
    name = _NOT_IN_NAMES.sub("_", key).lstrip("_")
    return name if name[:1].isalpha() else f"label_{name}"


def _rows(values: dict[str, float]) -> Iterator[Row]:
    for labels, value in values.items():
        yield labels, int(value) if value.is_integer() else value


def _labels(client: ReceivedMetrics, point: Point) -> str:
    identity = client.identity
    labels = {_label_name(key): value for key, value in point.labels}
    labels |= {
        "client_instance_id": identity.client_instance_id,
        "client_id": identity.client_id,
        "client_software_name": identity.client_software_name,
        "client_software_version": identity.client_software_version,
        "client_source_address": identity.client_source_address,
    }
    return "{" + ",".join(f'{name}="{escape(value)}"' for name, value in sorted(labels.items())) + "}"
