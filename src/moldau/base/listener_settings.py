"""The listeners of a node, from properties with Kafka's names: which it opens, which addresses it advertises, and where
it serves metrics."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from moldau.base.config_def import ConfigDef
from moldau.base.host_names import is_host_name
from moldau.base.listeners import (
    SECURED_PROTOCOLS,
    WILDCARD_HOSTS,
    Listener,
    parse_listener,
    parse_protocol_map,
)
from moldau.base.setting_sources import Values
from moldau.base.settings import node, own

_METRICS: Final = "METRICS"


@dataclass(frozen=True, slots=True)
class ListenerSettings:
    broker_listeners: tuple[Listener, ...]
    """The listeners that are not the controllers', for clients and other brokers, in the configured order."""
    controllers: tuple[Listener, ...]
    advertised: tuple[Listener, ...]
    """The addresses that clients connect to. A port of zero means the port that was bound."""
    advertised_controllers: tuple[Listener, ...]
    """The addresses at which other controllers reach this one."""
    inter_broker_name: str
    """Empty for a node that is only a controller."""
    controller_name: str
    """The listener on which this node connects to controllers; empty if none is named."""
    protocols: Mapping[str, str]
    """The security protocol of each name, also of listeners that only other nodes have."""

    @property
    def all(self) -> tuple[Listener, ...]:
        return (*self.broker_listeners, *self.controllers)


def read_listeners(values: Values, own_host: Callable[[], str]) -> ListenerSettings:
    """`own_host` returns the name under which this machine is advertised if it listens on all interfaces."""
    controller_names = [name.upper() for name in values.strings(node.CONTROLLER_LISTENER_NAMES)]
    protocols = _read_protocols(values, set(controller_names))
    listeners = _parse_own_listeners(values, protocols)
    broker_listeners = tuple(each for each in listeners if each.name not in controller_names)
    controllers = tuple(each for each in listeners if each.name in controller_names)
    advertised_by_name = _advertised_listeners(values, protocols, listeners)
    # A listener for clients that is left out of `advertised.listeners` is advertised to nobody. Controllers must reach
    # each other, so controllers' listeners are advertised even if left out.
    if not advertised_by_name:
        advertised = tuple(_with_own_host(each, own_host) for each in broker_listeners)
    else:
        named = (advertised_by_name.get(each.name) for each in broker_listeners)
        advertised = tuple(each for each in named if each is not None)
        if broker_listeners and not advertised:
            raise values.error(node.ADVERTISED_LISTENERS, "names only controllers' listeners; add one for clients")
    return ListenerSettings(
        broker_listeners,
        controllers,
        advertised,
        tuple(advertised_by_name.get(each.name) or _with_own_host(each, own_host) for each in controllers),
        _inter_broker_listener_name(values, advertised),
        next(iter(controller_names), ""),
        protocols,
    )


def _parse_own_listeners(values: Values, protocols: Mapping[str, str]) -> tuple[Listener, ...]:
    listeners = _parse_listeners(values, node.LISTENERS, protocols)
    names = [each.name for each in listeners]
    addresses = [each.address for each in listeners if each.port]
    if len(set(names)) < len(names) or len(set(addresses)) < len(addresses):
        raise values.error(node.LISTENERS, "expected a different name and a different address for each listener")
    return listeners


def _read_protocols(values: Values, controller_names: set[str]) -> dict[str, str]:
    key = node.LISTENER_SECURITY_PROTOCOL_MAP
    try:
        protocols = parse_protocol_map(values.text(key) or "")
    except ValueError as wrong:
        raise values.error(key, str(wrong)) from None
    # As in Kafka, controllers' listeners without an entry are PLAINTEXT if the map is not set and no listener is named
    # SSL or SASL_*; otherwise they need an entry.
    names = {item.partition("://")[0].strip().upper() for item in values.strings(node.LISTENERS)} | controller_names
    if key in values or not names.isdisjoint(SECURED_PROTOCOLS):
        return protocols
    return {**dict.fromkeys(controller_names, "PLAINTEXT"), **protocols}


def _parse_listeners(values: Values, key: ConfigDef, protocols: Mapping[str, str]) -> tuple[Listener, ...]:
    try:
        return tuple(parse_listener(text, protocols) for text in values.strings(key))
    except ValueError as wrong:
        raise values.error(key, str(wrong)) from None


def _advertised_listeners(
    values: Values, protocols: Mapping[str, str], listeners: tuple[Listener, ...]
) -> dict[str, Listener]:
    """Return the listeners of `advertised.listeners` by name."""
    key = node.ADVERTISED_LISTENERS
    advertised = _parse_listeners(values, key, protocols)
    for each in advertised:
        if each.name not in {listener.name for listener in listeners}:
            raise values.error(key, f"{each.name} is not one of the listeners")
        if each.host in WILDCARD_HOSTS or not is_host_name(each.host):
            raise values.error(
                key, f"{each.host!r} is not a host to connect to; expected a name or address of this machine"
            )
    by_name = {each.name: each for each in advertised}
    if len(by_name) < len(advertised):
        raise values.error(key, "expected a different name for each listener")
    return by_name


def _with_own_host(listener: Listener, own_host: Callable[[], str]) -> Listener:
    return listener._replace(host=own_host()) if listener.host in WILDCARD_HOSTS else listener


def _inter_broker_listener_name(values: Values, advertised: tuple[Listener, ...]) -> str:
    key, protocol_key = node.INTER_BROKER_LISTENER_NAME, node.SECURITY_INTER_BROKER_PROTOCOL
    if key in values and protocol_key in values:
        raise values.error(key, f"only one of {key} and {protocol_key} should be set")
    if not advertised:
        return ""
    if protocol_key in values:
        protocol = values.text(protocol_key)
        names = [each.name for each in advertised if each.security_protocol == protocol]
        if not names:
            raise values.error(
                protocol_key, "expected the protocol of an advertised listener that is not the controllers'"
            )
        return protocol if protocol in names else names[0]
    protocols_by_name = {each.name: each.security_protocol for each in advertised}
    # Kafka's default is the listener PLAINTEXT, and without one it does not start; we take the first one then.
    default = "PLAINTEXT" if protocols_by_name.get("PLAINTEXT") == "PLAINTEXT" else advertised[0].name
    name = (values.text(key) or default).upper()
    if name not in protocols_by_name:
        raise values.error(key, "expected the name of an advertised listener that is not the controllers'")
    return name


def read_metrics_listener(values: Values) -> Listener | None:
    """Return the address of `metrics.listener`; None if it is not set. Raise SettingsError if it is no address."""
    text = values.text(own.METRICS_LISTENER)
    if text is None:
        return None
    try:
        return parse_listener(f"{_METRICS}://{text}", {_METRICS: "PLAINTEXT"})
    except ValueError:
        raise values.error(own.METRICS_LISTENER, "expected HOST:PORT, such as localhost:9404") from None
