"""All broker keys, and the effective value when a key is set in several places.

The tables are in `served_configs` and `accepted_configs`; `topic_configs` defines how a topic falls back to a broker
key. `settings` reads files and the environment.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import dropwhile
from typing import Final

from moldau.base.accepted_configs import ACCEPTED
from moldau.base.config_def import (
    BrokerLayers,
    ConfigDef,
    ConfigEntry,
    ConfigSource,
    ConfigSynonym,
    ConfigValue,
    UpdateMode,
)
from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.served_configs import SERVED

SERVED_NAMES: Final = frozenset(definition.name for definition in SERVED)
BROKER_CONFIGS: Final[Mapping[str, ConfigDef]] = {definition.name: definition for definition in (*SERVED, *ACCEPTED)}

_FAMILIES: Final = (
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
)
_FAMILY_OF: Final[Mapping[str, tuple[str, ...]]] = {
    **{name: family for family in _FAMILIES for name in family},
    # In one direction only: the scheduler's interval is the default of the flush interval, not the reverse.
    "log.flush.interval.ms": ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
}
_LISTENER_PREFIX: Final = re.compile(r"listener\.name\.[^.]+\.(?P<base>.+)")


def broker_config(name: str) -> ConfigDef | None:
    """Return the definition of a broker key, also of one for a single listener: `listener.name.NAME.KEY`."""
    match = _LISTENER_PREFIX.fullmatch(name)
    return BROKER_CONFIGS.get(match["base"] if match else name)


def broker_value(name: str, broker: BrokerLayers) -> ConfigValue:
    """Return the effective value of one broker key."""
    definition = BROKER_CONFIGS[name]
    for _, layer in broker.in_order():
        if name in layer:
            return definition.parse(layer[name])
    return definition.default


def broker_synonyms(name: str, broker: BrokerLayers) -> tuple[ConfigSynonym, ...]:
    """Return every place that sets this key, the effective one first.

    Members of a family (hours, minutes, ms) count as one key. As in Kafka, everything before the key's own name is
    dropped: a broker that sets only `log.retention.hours` has no synonym for `log.retention.ms`, and a topic's
    `retention.ms` then counts as a default. Tools that list what differs from the default rely on it.
    """
    is_hidden = BROKER_CONFIGS[name].sensitive
    names = _FAMILY_OF.get(name, (name,))
    set_values = [
        ConfigSynonym(each, None if is_hidden else layer[each], source)
        for source, layer in broker.in_order()
        for each in names
        if each in layer
    ]
    defaults = [
        ConfigSynonym(each, None if is_hidden else text, ConfigSource.DEFAULT_CONFIG)
        for each in names
        if (text := BROKER_CONFIGS[each].default_text) is not None
    ]
    return tuple(dropwhile(lambda synonym: synonym.name != name, set_values + defaults))


def effective_broker_configs(broker: BrokerLayers) -> tuple[ConfigEntry, ...]:
    """Return every key of a broker with its effective value, for DescribeConfigs; internal keys only if they were set
    while the broker ran."""
    shown = (each for each in BROKER_CONFIGS.values() if not each.internal or each.name in broker.dynamic)
    return tuple(_entry(definition, broker) for definition in shown)


def cluster_default_configs(broker: BrokerLayers) -> tuple[ConfigEntry, ...]:
    """Return the dynamic configs of all brokers, for DescribeConfigs of the broker with the empty name."""
    entries = (_entry(BROKER_CONFIGS[name], broker) for name in broker.dynamic_default if name in BROKER_CONFIGS)
    return tuple(
        ConfigEntry(
            definition=entry.definition,
            value=None if entry.definition.sensitive else broker.dynamic_default[entry.name],
            source=ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG,
            synonyms=tuple(s for s in entry.synonyms if s.source is ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
        )
        for entry in entries
    )


def check_dynamic_broker_configs(changes: Mapping[str, str], *, per_broker: bool) -> None:
    """Refuse a change of broker keys at run time as Kafka does. Unknown keys are accepted, as in Kafka."""
    definitions = {name: definition for name in changes if (definition := broker_config(name))}
    _refuse("Cannot update these configs dynamically", [name for name in definitions if definitions[name].read_only])
    for name, definition in definitions.items():
        try:
            definition.parse(changes[name])
        except KafkaError as refused:
            raise KafkaError(ErrorCode.INVALID_REQUEST, refused.message) from None
    if not per_broker:
        per_broker_only = [name for name in definitions if definitions[name].update_mode is UpdateMode.PER_BROKER]
        _refuse("Cannot update these configs at default cluster level, broker id must be specified", per_broker_only)


def _refuse(reason: str, names: list[str]) -> None:
    if names:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{reason}: [{', '.join(names)}]")


def _entry(definition: ConfigDef, broker: BrokerLayers) -> ConfigEntry:
    synonyms = broker_synonyms(definition.name, broker)
    return ConfigEntry(
        definition=definition,
        value=None if definition.sensitive else definition.text(broker_value(definition.name, broker)),
        source=synonyms[0].source if synonyms else ConfigSource.DEFAULT_CONFIG,
        synonyms=synonyms,
    )
