"""All broker keys, and the effective value when a key is set in several places.

The package `settings` has the tables of the keys. `topic_configs` defines how a topic falls back to a broker key.
`setting_sources` reads files and the environment.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from itertools import dropwhile
from typing import Final

from moldau.base.config_def import (
    BrokerLayers,
    ConfigDef,
    ConfigEntry,
    ConfigSource,
    ConfigSynonym,
    ConfigType,
    ConfigValue,
    ListenerForms,
    UpdateMode,
    rows_of,
)
from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.settings import (
    accepted,
    cluster,
    groups,
    log,
    node,
    oauth,
    own,
    security,
    share_coordinator,
    topics,
    transactions,
)

IMPLEMENTED: Final = rows_of(node, security, log, cluster, transactions, groups, share_coordinator, oauth, own)
IMPLEMENTED_NAMES: Final = frozenset(row.name for row in IMPLEMENTED)
BROKER_CONFIGS: Final[Mapping[str, ConfigDef]] = {row.name: row for row in (*IMPLEMENTED, *accepted.ACCEPTED)}


def _synonyms_by_name() -> dict[str, tuple[str, ...]]:
    """Return the keys that set the same thing, for keys that have such synonyms; within one layer, an earlier key
    overrides the later ones. In different units each is a synonym of the others. Otherwise only in one direction: the
    flush scheduler's interval is the default of the flush interval, not the reverse."""
    found = {}
    for row in rows_of(topics):
        names = tuple(synonym.name for synonym in row.synonyms)
        if len(names) > 1:
            have_units = any(synonym.factor != 1 for synonym in row.synonyms)
            found.update(dict.fromkeys(names if have_units else names[:1], names))
    return found


_SYNONYMS_BY_NAME: Final = _synonyms_by_name()
_LISTENER_PREFIX: Final = re.compile(
    r"listener\.name\.(?P<listener>[^.]+)\."
    r"(?:(?P<mechanism>plain|scram-sha-256|scram-sha-512|oauthbearer|gssapi)\.)?(?P<base>.+)"
)
_FIXED_PREFIXES: Final = ("ssl.", "sasl.")
"""Other keys that Kafka accepts for a running broker, and Moldau does not."""
_FIXED_NAMES: Final = frozenset((node.LISTENERS.name, node.LISTENER_SECURITY_PROTOCOL_MAP.name))
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
    row = BROKER_CONFIGS.get(match["base"])
    if row is None:
        return False
    match match["mechanism"]:
        case None:
            return ListenerForms.LISTENER in row.listener_forms
        case "oauthbearer":
            return bool(row.listener_forms & (ListenerForms.MECHANISM | ListenerForms.OAUTHBEARER))
        case _:
            return ListenerForms.MECHANISM in row.listener_forms


def is_dynamic_of_listener(name: str) -> bool:
    """Return whether this is a key of TLS or SASL for one listener, or one mechanism of it, that a running broker uses
    when it is changed. The JAAS line is such a key only for PLAIN, whose users it names."""
    match = _LISTENER_PREFIX.fullmatch(name)
    row = BROKER_CONFIGS.get(match["base"]) if match else None
    if match is None or row is None or not _is_dynamic(row) or match["listener"] != match["listener"].lower():
        return False
    return match["mechanism"] == "plain" if row is security.SASL_JAAS_CONFIG else has_effect(name)


def is_fixed(row: ConfigDef) -> bool:
    """Return whether Moldau cannot change a key of a running broker although Kafka can, except for single listeners."""
    return row.name.startswith(_FIXED_PREFIXES) or row.name in _FIXED_NAMES


def _is_dynamic(row: ConfigDef) -> bool:
    return ListenerForms.DYNAMIC in row.listener_forms


def listener_of(name: str) -> str | None:
    """Return the listener, in upper case, that a key `listener.name.NAME.KEY` is for."""
    match = _LISTENER_PREFIX.fullmatch(name)
    return match["listener"].upper() if match else None


def broker_value(row: ConfigDef, layers: BrokerLayers) -> ConfigValue:
    """Return the effective value of exactly this key. Synonyms are ignored, because they may have another unit: a
    caller that wants `log.retention.hours` after `log.retention.ms` asks for each key and converts the value."""
    for _, layer in layers.in_order():
        if row.name in layer:
            return row.parse(layer[row.name])
    return row.default


def broker_integer(row: ConfigDef, layers: BrokerLayers) -> int:
    value = broker_value(row, layers)
    assert isinstance(value, int), f"{row} is no number"
    return value


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
        [name for name, each in others.items() if name == each.name and _is_dynamic(each)],
    )
    _raise_if_any(
        "Moldau cannot change these configs of a running broker",
        [name for name, each in others.items() if is_fixed(each)],
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


def _entry(name: str, layers: BrokerLayers) -> ConfigEntry:
    definition = broker_config(name) or ConfigDef(name, ConfigType.UNKNOWN, None)
    if definition.name != name:
        definition = replace(definition, name=name)
    synonyms = broker_synonyms(name, layers)
    return ConfigEntry(
        definition=definition,
        value=None if definition.sensitive else definition.text(broker_value(definition, layers)),
        source=synonyms[0].source if synonyms else ConfigSource.DEFAULT_CONFIG,
        synonyms=synonyms,
    )
