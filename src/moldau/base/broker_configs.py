"""All broker keys, and the effective value when a key is set in several places.

`implemented_configs` has the keys that Moldau implements, `own_configs` those that only Moldau has. `accepted_configs`
has Kafka's other keys: they are known and their values are checked, but they have no effect. `topic_configs` defines
how a topic falls back to a broker key. `settings` reads files and the environment.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from itertools import dropwhile
from typing import Final

from moldau.base.accepted_configs import ACCEPTED
from moldau.base.config_def import (
    BrokerLayers,
    ConfigDef,
    ConfigEntry,
    ConfigSource,
    ConfigSynonym,
    ConfigType,
    ConfigValue,
    UpdateMode,
)
from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.implemented_configs import IMPLEMENTED
from moldau.base.oauth_configs import OAUTH_NAMES
from moldau.base.own_configs import OWN

IMPLEMENTED_NAMES: Final = frozenset(definition.name for definition in (*IMPLEMENTED, *OWN))
BROKER_CONFIGS: Final[Mapping[str, ConfigDef]] = {
    definition.name: definition for definition in (*IMPLEMENTED, *OWN, *ACCEPTED)
}

_UNIT_SYNONYMS: Final = (
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
)
"""Keys that set the same thing in different units; within one layer, an earlier key overrides the later ones."""
_SYNONYMS_BY_NAME: Final[Mapping[str, tuple[str, ...]]] = {
    **{name: synonyms for synonyms in _UNIT_SYNONYMS for name in synonyms},
    # In one direction only: the scheduler's interval is the default of the flush interval, not the reverse.
    "log.flush.interval.ms": ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
}
_LISTENER_PREFIX: Final = re.compile(
    r"listener\.name\.(?P<listener>[^.]+)\."
    r"(?:(?P<mechanism>plain|scram-sha-256|scram-sha-512|oauthbearer|gssapi)\.)?(?P<base>.+)"
)
_PER_MECHANISM: Final = frozenset(("sasl.jaas.config", "connections.max.reauth.ms"))
"""Keys that Moldau implements for single mechanisms of a listener too, besides those of OAUTHBEARER."""
_PER_LISTENER: Final = _PER_MECHANISM | {
    "sasl.enabled.mechanisms",
    "sasl.server.max.receive.size",
    "max.connections",
    "max.connection.creation.rate",
}
"""Keys that Moldau implements for single listeners too, besides those of TLS and OAUTHBEARER."""
_OF_OAUTHBEARER_ONLY: Final = frozenset(("sasl.server.callback.handler.class", "sasl.login.callback.handler.class"))
"""Keys that have an effect only for this mechanism of a listener."""

LISTENER_STORE_KEYS: Final = frozenset(
    (
        "ssl.keystore.type",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.key.password",
        "ssl.keystore.key",
        "ssl.keystore.certificate.chain",
        "ssl.truststore.type",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.truststore.certificates",
    )
)
"""Keys that Kafka changes in a running broker, for single listeners: SslConfigs.RECONFIGURABLE_CONFIGS."""
_DYNAMIC_OF_LISTENERS: Final = LISTENER_STORE_KEYS | {
    "ssl.client.auth",
    "ssl.protocol",
    "ssl.enabled.protocols",
    "ssl.cipher.suites",
    "sasl.enabled.mechanisms",
    "sasl.jaas.config",
    "connections.max.reauth.ms",
}
"""Keys that Moldau changes in a running broker, for single listeners. Kafka accepts all of them, but there only those
of stores have an effect."""
_FIXED_PREFIXES: Final = ("ssl.", "sasl.")
"""Other keys that Kafka accepts for a running broker, and Moldau does not."""
_FIXED_NAMES: Final = frozenset(("listeners", "listener.security.protocol.map"))
"""More such keys."""


def broker_config(name: str) -> ConfigDef | None:
    """Return the definition of a broker key, also of one for a single listener, `listener.name.NAME.KEY`, or for one
    SASL mechanism of it, `listener.name.NAME.MECHANISM.KEY`."""
    match = _LISTENER_PREFIX.fullmatch(name)
    return BROKER_CONFIGS.get(match["base"] if match else name)


def has_effect(name: str) -> bool:
    """Return whether Moldau implements a broker key, in this form."""
    match = _LISTENER_PREFIX.fullmatch(name)
    if match is None:
        return name in IMPLEMENTED_NAMES
    mechanism, base = match["mechanism"], match["base"]
    if mechanism == "oauthbearer" and (base in _OF_OAUTHBEARER_ONLY or base in OAUTH_NAMES):
        return True
    if mechanism is not None:
        return base in _PER_MECHANISM
    return base in _PER_LISTENER or base in OAUTH_NAMES or (base.startswith("ssl.") and base in IMPLEMENTED_NAMES)


def is_dynamic_of_listener(name: str) -> bool:
    """Return whether this is a key of TLS or SASL for one listener, or one mechanism of it, that a running broker uses
    when it is changed. The JAAS line is such a key only for PLAIN, whose users it names."""
    match = _LISTENER_PREFIX.fullmatch(name)
    if match is None or match["base"] not in _DYNAMIC_OF_LISTENERS or match["listener"] != match["listener"].lower():
        return False
    return match["mechanism"] == "plain" if match["base"] == "sasl.jaas.config" else has_effect(name)


def listener_of(name: str) -> str | None:
    """Return the listener, in upper case, that a key `listener.name.NAME.KEY` is for."""
    match = _LISTENER_PREFIX.fullmatch(name)
    return match["listener"].upper() if match else None


def broker_value(name: str, layers: BrokerLayers) -> ConfigValue:
    """Return the effective value of exactly this key. Synonyms are ignored, because they may have another unit: a
    caller that wants `log.retention.hours` after `log.retention.ms` asks for each key and converts the value."""
    return _value(BROKER_CONFIGS[name], layers)


def broker_synonyms(name: str, layers: BrokerLayers) -> tuple[ConfigSynonym, ...]:
    """Return the places that set this key or one of its synonyms, the place with the highest precedence first.

    The rule, which is Kafka's: list the keys that are set, layer by layer (dynamic of this broker, dynamic of all
    brokers, static) and in each layer in the order ms, minutes, hours. Append the defaults that are not null. Then drop
    all entries before the first one with the name `name`. For example, if only `log.retention.hours` is set, the list
    for `log.retention.ms` is empty, and a topic's `retention.ms` has the source DEFAULT_CONFIG. Tools that show only
    values that differ from the default depend on this.
    """
    definition = broker_config(name)
    is_hidden = definition is None or definition.sensitive
    base = name if definition is None else definition.name
    synonyms = _SYNONYMS_BY_NAME.get(name) or tuple(dict.fromkeys((name, base)))
    set_values = [
        ConfigSynonym(synonym, None if is_hidden else layer[synonym], source)
        for source, layer in layers.in_order()
        for synonym in synonyms
        if synonym in layer
    ]
    defaults = [
        ConfigSynonym(synonym, None if is_hidden else default, ConfigSource.DEFAULT_CONFIG)
        for synonym in synonyms
        if synonym in BROKER_CONFIGS and (default := BROKER_CONFIGS[synonym].default_text) is not None
    ]
    return tuple(dropwhile(lambda synonym: synonym.name != name, set_values + defaults))


def effective_broker_configs(layers: BrokerLayers) -> tuple[ConfigEntry, ...]:
    """Return every key of a broker with its effective value, for DescribeConfigs. Internal keys are included only if
    they were set for this broker, statically or dynamically; keys of single listeners and unknown keys if they were set
    anywhere. As in Kafka, the value of an unknown key is hidden: it may be a password."""
    shown = [
        definition.name
        for definition in BROKER_CONFIGS.values()
        if not definition.internal or definition.name in layers.dynamic or definition.name in layers.static
    ]
    more = (name for _, layer in layers.in_order() for name in layer if name not in BROKER_CONFIGS)
    return tuple(_entry(name, layers) for name in dict.fromkeys((*shown, *more)))


def cluster_default_configs(layers: BrokerLayers) -> tuple[ConfigEntry, ...]:
    """Return the dynamic configs of all brokers, for DescribeConfigs of the broker with the empty name."""
    entries = (_entry(name, layers) for name in layers.dynamic_default)
    return tuple(
        ConfigEntry(
            definition=entry.definition,
            value=None if entry.definition.sensitive else layers.dynamic_default[entry.name],
            source=ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG,
            synonyms=tuple(s for s in entry.synonyms if s.source is ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
        )
        for entry in entries
    )


def check_dynamic_broker_configs(changes: Mapping[str, str], *, per_broker: bool) -> None:
    """Raise KafkaError if these broker keys cannot be changed at run time: a key is read-only, a value is invalid, or
    a key of single brokers is set for all of them. Unknown keys are accepted, because plug-ins may define them."""
    definitions = {name: definition for name in changes if (definition := broker_config(name))}
    of_listeners = set(filter(is_dynamic_of_listener, definitions))
    others = {name: definition for name, definition in definitions.items() if name not in of_listeners}
    _raise_if_any("Cannot update these configs dynamically", [name for name in others if others[name].read_only])
    _raise_if_any(
        "These security configs can be dynamically updated only per-listener using the listener prefix",
        [name for name in others if name in _DYNAMIC_OF_LISTENERS],
    )
    _raise_if_any(
        "Moldau cannot change these configs of a running broker",
        [name for name, each in others.items() if each.name.startswith(_FIXED_PREFIXES) or each.name in _FIXED_NAMES],
        "; set them in its properties file and restart it",
    )
    for name, definition in definitions.items():
        try:
            definition.parse(changes[name])
        except KafkaError as invalid:
            # Kafka responds to an invalid dynamic value with this code, not with INVALID_CONFIG.
            raise KafkaError(ErrorCode.INVALID_REQUEST, invalid.message) from None
    if not per_broker:
        per_broker_only = [name for name in others if others[name].update_mode is UpdateMode.PER_BROKER]
        reason = "Cannot update these configs at default cluster level, broker id must be specified"
        _raise_if_any(reason, [*per_broker_only, *sorted(of_listeners)])


def _raise_if_any(reason: str, names: list[str], advice: str = "") -> None:
    if names:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{reason}: [{', '.join(names)}]{advice}")


def _value(definition: ConfigDef, layers: BrokerLayers) -> ConfigValue:
    for _, layer in layers.in_order():
        if definition.name in layer:
            return definition.parse(layer[definition.name])
    return definition.default


def _entry(name: str, layers: BrokerLayers) -> ConfigEntry:
    definition = broker_config(name) or ConfigDef(name, ConfigType.UNKNOWN, None)
    if definition.name != name:
        definition = replace(definition, name=name)
    synonyms = broker_synonyms(name, layers)
    return ConfigEntry(
        definition=definition,
        value=None if definition.sensitive else definition.text(_value(definition, layers)),
        source=synonyms[0].source if synonyms else ConfigSource.DEFAULT_CONFIG,
        synonyms=synonyms,
    )
