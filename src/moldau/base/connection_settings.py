"""The settings of connections: how many there may be, how fast they may come, and what each may use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from moldau.base import limits, own_configs
from moldau.base.address_counts import parse_address_counts
from moldau.base.broker_configs import BROKER_CONFIGS, broker_value
from moldau.base.config_def import INT_MAX, BrokerLayers
from moldau.base.setting_sources import Values

MAX_CONNECTIONS: Final = "max.connections"
CREATION_RATE: Final = "max.connection.creation.rate"


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Limits of each connection and of all together; fixed at the start."""

    requests_max: int = limits.REQUESTS_IN_FLIGHT_MAX
    unsent_bytes_max: int = limits.UNSENT_BYTES_MAX
    receive_budget_bytes: int = limits.RECEIVE_BUDGET_BYTES
    unauthenticated_budget_bytes: int = limits.UNAUTHENTICATED_BUDGET_BYTES
    unsent_budget_bytes: int = limits.UNSENT_BUDGET_BYTES
    request_bytes_per_s_min: int = limits.REQUEST_BYTES_PER_SECOND_MIN
    response_bytes_per_s_min: int = limits.RESPONSE_BYTES_PER_SECOND_MIN
    authentication_ms_max: int = limits.AUTHENTICATION_MS_MAX


@dataclass(frozen=True, slots=True)
class ListenerMaxima:
    """How many connections a listener may have, and how many new ones per second."""

    connections_max: int = INT_MAX
    new_per_s_max: int = INT_MAX


@dataclass(frozen=True, slots=True)
class ConnectionMaxima:
    """How many connections there may be, and how many new ones per second. They may change at run time."""

    connections_max: int = INT_MAX
    new_per_s_max: int = INT_MAX
    per_ip_max: int = INT_MAX
    per_ip_overrides: Mapping[str, int] = field(default_factory=dict)
    listeners: Mapping[str, ListenerMaxima] = field(default_factory=dict)


def read_connection_limits(values: Values) -> ConnectionLimits:
    key = "queued.max.request.bytes"
    budget, largest = values.integer(key), values.integer("socket.request.max.bytes")
    if 0 < budget < largest:
        raise values.error(key, f"expected at least socket.request.max.bytes={largest}")
    return ConnectionLimits(
        requests_max=values.integer(own_configs.CONNECTION_REQUESTS_MAX),
        unsent_bytes_max=values.integer(own_configs.CONNECTION_UNSENT_BYTES_MAX),
        receive_budget_bytes=budget if budget > 0 else max(limits.RECEIVE_BUDGET_BYTES, 2 * largest),
        unauthenticated_budget_bytes=values.integer(own_configs.UNAUTHENTICATED_BYTES_MAX),
        unsent_budget_bytes=values.integer(own_configs.UNSENT_BUDGET_BYTES),
        request_bytes_per_s_min=values.integer(own_configs.REQUEST_RATE_MIN),
        response_bytes_per_s_min=values.integer(own_configs.RESPONSE_RATE_MIN),
        authentication_ms_max=values.integer(own_configs.AUTHENTICATION_TIMEOUT_MS),
    )


def connection_maxima(
    layers: BrokerLayers, descriptors_by_listener: Mapping[str, int], descriptors_max: int
) -> ConnectionMaxima:
    """Return the maxima of a node. It has at most `descriptors_max` connections, and each of its listeners as many as
    `descriptors_by_listener` says."""
    return ConnectionMaxima(
        connections_max=min(_integer(MAX_CONNECTIONS, layers), descriptors_max),
        new_per_s_max=_integer(CREATION_RATE, layers),
        per_ip_max=_integer("max.connections.per.ip", layers),
        per_ip_overrides=parse_address_counts(str(broker_value("max.connections.per.ip.overrides", layers) or "")),
        listeners={
            name: ListenerMaxima(
                min(_of_listener(name, MAX_CONNECTIONS, layers), descriptors),
                _of_listener(name, CREATION_RATE, layers),
            )
            for name, descriptors in descriptors_by_listener.items()
        },
    )


def _integer(key: str, layers: BrokerLayers) -> int:
    value = broker_value(key, layers)
    assert isinstance(value, int), f"{key} is no number"
    return value


def _of_listener(listener: str, key: str, layers: BrokerLayers) -> int:
    """Return the value for one listener; without one, that of the broker holds for each listener too, as in Kafka."""
    name = f"listener.name.{listener.lower()}.{key}"
    for _, layer in layers.in_order():
        if name in layer:
            value = BROKER_CONFIGS[key].parse(layer[name])
            assert isinstance(value, int), f"{key} is no number"
            return value
    return _integer(key, layers)
