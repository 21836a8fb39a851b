"""All broker keys, and what is in force when several places speak of one key.

The rows stand in `served_configs` and `accepted_configs`; how a topic falls back to a broker key stands in
`topic_configs`. Reading files and the environment is the business of `settings`.
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
    # One way only: the scheduler's interval is the default of the flush interval, not the reverse.
    "log.flush.interval.ms": ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
}
_LISTENER_PREFIX: Final = re.compile(r"listener\.name\.[^.]+\.(?P<base>.+)")


def broker_config(name: str) -> ConfigDef | None:
    """The definition of a broker key, also of one said for a single listener: `listener.name.NAME.KEY`."""
    of_listener = _LISTENER_PREFIX.fullmatch(name)
    return BROKER_CONFIGS.get(of_listener["base"] if of_listener else name)


def broker_value(name: str, broker: BrokerLayers) -> ConfigValue:
    """The value in force of one broker key."""
    definition = BROKER_CONFIGS[name]
    for _, layer in broker.in_order():
        if name in layer:
            return definition.parse(layer[name])
    return definition.default


def broker_synonyms(name: str, broker: BrokerLayers) -> tuple[ConfigSynonym, ...]:
    """Every place that names a value for this key, the one in force first.

    Members of a family (hours, minutes, ms) count as one key, yet, as in Kafka, what comes before the key's own name
    is dropped: a broker with only `log.retention.hours` set shows none for `log.retention.ms`, and a topic's
    `retention.ms` then counts as a default. Tools that list what differs from the default rely on it.
    """
    hidden = BROKER_CONFIGS[name].sensitive
    names = _FAMILY_OF.get(name, (name,))
    said = [
        ConfigSynonym(each, None if hidden else layer[each], source)
        for source, layer in broker.in_order()
        for each in names
        if each in layer
    ]
    defaults = [
        ConfigSynonym(each, None if hidden else text, ConfigSource.DEFAULT_CONFIG)
        for each in names
        if (text := BROKER_CONFIGS[each].default_text) is not None
    ]
    return tuple(dropwhile(lambda synonym: synonym.name != name, said + defaults))


def effective_broker_configs(broker: BrokerLayers) -> tuple[ConfigEntry, ...]:
    """Every key of a broker with the value in force, an internal one only if it was set while the broker ran: what
    DescribeConfigs of a broker answers."""
    shown = (each for each in BROKER_CONFIGS.values() if not each.internal or each.name in broker.dynamic)
    return tuple(_entry(definition, broker) for definition in shown)


def cluster_default_configs(broker: BrokerLayers) -> tuple[ConfigEntry, ...]:
    """What was said to all brokers at once: what DescribeConfigs of the broker with the empty name answers."""
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
    """Refuses a change of broker keys at run time as Kafka does; a key that nobody knows passes there, and here."""
    known = {name: definition for name in changes if (definition := broker_config(name))}
    _refuse("Cannot update these configs dynamically", [name for name in known if known[name].read_only])
    for name, definition in known.items():
        try:
            definition.parse(changes[name])
        except KafkaError as refused:
            raise KafkaError(ErrorCode.INVALID_REQUEST, refused.message) from None
    if not per_broker:
        single = [name for name in known if known[name].update_mode is UpdateMode.PER_BROKER]
        _refuse("Cannot update these configs at default cluster level, broker id must be specified", single)


def _refuse(why: str, names: list[str]) -> None:
    if names:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{why}: [{', '.join(names)}]")


def _entry(definition: ConfigDef, broker: BrokerLayers) -> ConfigEntry:
    synonyms = broker_synonyms(definition.name, broker)
    return ConfigEntry(
        definition=definition,
        value=None if definition.sensitive else definition.text(broker_value(definition.name, broker)),
        source=synonyms[0].source if synonyms else ConfigSource.DEFAULT_CONFIG,
        synonyms=synonyms,
    )
