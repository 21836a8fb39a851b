"""The settings of connections: how many there may be, how fast they may come, and what each may use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from moldau.base import limits
from moldau.base.address_counts import parse_address_counts
from moldau.base.broker_configs import broker_integer, broker_value
from moldau.base.config_def import BrokerLayers, ConfigDef
from moldau.base.setting_sources import Values
from moldau.base.settings import node, own
from moldau.base.settings.fields import setting, setting_values


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Limits of each connection and of all together; fixed at the start."""

    requests_max: int = setting(own.MOLDAU_MAX_CONNECTION_REQUESTS)
    unsent_bytes_max: int = setting(own.MOLDAU_MAX_CONNECTION_UNSENT_BYTES)
    receive_budget_bytes: int = limits.RECEIVE_BUDGET_BYTES
    unauthenticated_budget_bytes: int = setting(own.MOLDAU_MAX_UNAUTHENTICATED_REQUEST_BYTES)
    unsent_budget_bytes: int = setting(own.MOLDAU_MAX_UNSENT_BYTES)
    request_bytes_per_s_min: int = setting(own.MOLDAU_MIN_REQUEST_BYTES_PER_SECOND)
    response_bytes_per_s_min: int = setting(own.MOLDAU_MIN_RESPONSE_BYTES_PER_SECOND)
    authentication_ms_max: int = setting(own.MOLDAU_AUTHENTICATION_TIMEOUT_MS)


@dataclass(frozen=True, slots=True)
class ListenerMaxima:
    """How many connections a listener may have, and how many new ones per second."""

    connections_max: int = setting(node.MAX_CONNECTIONS)
    new_per_s_max: int = setting(node.MAX_CONNECTION_CREATION_RATE)


@dataclass(frozen=True, slots=True)
class ConnectionMaxima:
    """How many connections there may be, and how many new ones per second. They may change at run time."""

    connections_max: int = setting(node.MAX_CONNECTIONS)
    new_per_s_max: int = setting(node.MAX_CONNECTION_CREATION_RATE)
    per_ip_max: int = setting(node.MAX_CONNECTIONS_PER_IP)
    per_ip_overrides: Mapping[str, int] = field(default_factory=dict)
    listeners: Mapping[str, ListenerMaxima] = field(default_factory=dict)


def read_connection_limits(values: Values) -> ConnectionLimits:
    key = node.QUEUED_MAX_REQUEST_BYTES
    budget, largest = values.integer(key), values.integer(node.SOCKET_REQUEST_MAX_BYTES)
    if 0 < budget < largest:
        raise values.error(key, f"expected at least {node.SOCKET_REQUEST_MAX_BYTES}={largest}")
    return ConnectionLimits(
        **setting_values(ConnectionLimits, values.value),
        receive_budget_bytes=budget if budget > 0 else max(limits.RECEIVE_BUDGET_BYTES, 2 * largest),
    )


def connection_maxima(
    layers: BrokerLayers, descriptors_by_listener: Mapping[str, int], descriptors_max: int
) -> ConnectionMaxima:
    """Return the maxima of a node. It has at most `descriptors_max` connections, and each of its listeners as many as
    `descriptors_by_listener` says."""
    return ConnectionMaxima(
        connections_max=min(broker_integer(node.MAX_CONNECTIONS, layers), descriptors_max),
        new_per_s_max=broker_integer(node.MAX_CONNECTION_CREATION_RATE, layers),
        per_ip_max=broker_integer(node.MAX_CONNECTIONS_PER_IP, layers),
        per_ip_overrides=parse_address_counts(str(broker_value(node.MAX_CONNECTIONS_PER_IP_OVERRIDES, layers) or "")),
        listeners={
            name: ListenerMaxima(
                min(_of_listener(name, node.MAX_CONNECTIONS, layers), descriptors),
                _of_listener(name, node.MAX_CONNECTION_CREATION_RATE, layers),
            )
            for name, descriptors in descriptors_by_listener.items()
        },
    )


def _of_listener(listener: str, row: ConfigDef, layers: BrokerLayers) -> int:
    """Return the value for one listener; without one, that of the broker holds for each listener too, as in Kafka."""
    name = f"listener.name.{listener.lower()}.{row}"
    for _, layer in layers.in_order():
        if name in layer:
            value = row.parse(layer[name])
            assert isinstance(value, int), f"{row} is no number"
            return value
    return broker_integer(row, layers)
