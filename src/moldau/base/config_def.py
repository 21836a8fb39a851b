"""What a configuration key is: its name, type, default and the values it takes, and how a text becomes a value.

The keys themselves stand in `topic_configs` and `broker_configs`. A refused value is told in the words Kafka's own
clients and scripts know. No files, no environment, no key's meaning enters here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Final, Protocol

from moldau.base.errors import ErrorCode, KafkaError

ConfigValue = bool | int | float | str | tuple[str, ...] | None
"""A parsed value: LIST is a tuple of strings, CLASS and PASSWORD are strings; None is a key without a value."""


class ConfigType(IntEnum):
    """Numbered as DescribeConfigs v3+ sends them."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class ConfigSource(IntEnum):
    """Where a value came from, numbered as DescribeConfigs sends it."""

    UNKNOWN = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    CLIENT_METRICS_CONFIG = 7
    GROUP_CONFIG = 8


class UpdateMode(Enum):
    """Who may change a broker key while the broker runs."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


class Validator(Protocol):
    """Says what is wrong with a value, or None."""

    def complaint(self, value: ConfigValue) -> str | None: ...


@dataclass(frozen=True, slots=True)
class Range:
    """A number at least `low`, no more than `high`; or `besides`, a single value that stands outside."""

    low: float
    high: float | None = None
    besides: int | None = None

    def complaint(self, value: ConfigValue) -> str | None:
        assert isinstance(value, int | float), "a range is for numbers"
        if self.besides is not None:
            inside = value == self.besides or (value >= self.low and (self.high is None or value <= self.high))
            return None if inside else f"Value must be between {self.low} and {self.high} or equal to {self.besides}"
        if value < self.low:
            return f"Value must be at least {self.low}"
        if self.high is not None and value > self.high:
            return f"Value must be no more than {self.high}"
        return None


@dataclass(frozen=True, slots=True)
class OneOf:
    """One of these strings; for a LIST, every item is."""

    names: tuple[str, ...]
    ignore_case: bool = False

    def complaint(self, value: ConfigValue) -> str | None:
        given = value if isinstance(value, tuple) else (value,)
        allowed = {name.upper() for name in self.names} if self.ignore_case else set(self.names)
        if all((str(item).upper() if self.ignore_case else item) in allowed for item in given):
            return None
        note = " (case insensitive)" if self.ignore_case else ""
        return f"String must be one of{note}: {', '.join(self.names)}"


@dataclass(frozen=True, slots=True)
class NonEmpty:
    """A string of at least one character."""

    def complaint(self, value: ConfigValue) -> str | None:
        return None if value else "String must be non-empty"


SHOWN_LENGTH_MAX: Final = 200
"""Of a wrong value, in a message that says so: it may be megabytes."""
INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1
_WHOLE: Final = {
    ConfigType.SHORT: (-(2**15), 2**15 - 1),
    ConfigType.INT: (-(2**31), INT_MAX),
    ConfigType.LONG: (-(2**63), LONG_MAX),
}
_INTEGER: Final = re.compile(r"[+-]?\d+")
# Java's decimal forms, its optional type letter included; NaN and the infinities are no setting for anything.
_DECIMAL: Final = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?")


@dataclass(frozen=True, slots=True)
class ConfigDef:
    """One key. `synonyms` are the broker keys a topic key falls back to, most telling first."""

    name: str
    type: ConfigType
    default: ConfigValue
    validator: Validator | None = None
    documentation: str = ""
    synonyms: tuple[Synonym, ...] = ()
    update_mode: UpdateMode = UpdateMode.READ_ONLY
    internal: bool = False
    """Kafka has such keys for its own tests: they may be set, and are shown only where they are."""

    @property
    def read_only(self) -> bool:
        return self.update_mode is UpdateMode.READ_ONLY

    @property
    def sensitive(self) -> bool:
        return self.type is ConfigType.PASSWORD

    def parse(self, text: str) -> ConfigValue:
        """The value a text stands for; KafkaError INVALID_CONFIG when it stands for none this key takes."""
        value = self._convert(text.strip(), text)
        complaint = self.validator.complaint(value) if self.validator else None
        if complaint:
            raise self._invalid(self._shown(value), complaint)
        return value

    def text(self, value: ConfigValue) -> str | None:
        """How Kafka writes a value: what DescribeConfigs answers."""
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, float):
            return java_double_text(value)
        if isinstance(value, tuple):
            return ",".join(value)
        return None if value is None else str(value)

    @property
    def default_text(self) -> str | None:
        return self.text(self.default)

    def _convert(self, trimmed: str, text: str) -> ConfigValue:
        match self.type:
            case ConfigType.BOOLEAN:
                if trimmed.lower() not in ("true", "false"):
                    raise self._invalid(text, "Expected value to be either true or false")
                return trimmed.lower() == "true"
            case ConfigType.INT | ConfigType.SHORT | ConfigType.LONG:
                return self._whole(trimmed, text)
            case ConfigType.DOUBLE:
                decimal = _DECIMAL.fullmatch(trimmed)
                if decimal is None:
                    raise self._not_a_number(text)
                return float(decimal[1])
            case ConfigType.LIST:
                return self._items(trimmed)
            case ConfigType.PASSWORD:
                return text
            case _:
                return trimmed

    def _whole(self, trimmed: str, text: str) -> int:
        # Twenty characters hold every 64-bit number; without the cap `int` would chew on megabytes of digits.
        if len(trimmed) > 64 or not _INTEGER.fullmatch(trimmed):
            raise self._not_a_number(text)
        low, high = _WHOLE[self.type]
        if not low <= (number := int(trimmed)) <= high:
            raise self._not_a_number(text)
        return number

    def _items(self, trimmed: str) -> tuple[str, ...]:
        if not trimmed:
            return ()
        items = [item.strip() for item in trimmed.split(",")]
        if not all(items):
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"Configuration '{self.name}' values must not be empty.")
        return tuple(dict.fromkeys(items))

    def _not_a_number(self, text: str) -> KafkaError:
        return self._invalid(text, f"Not a number of type {self.type.name}")

    def _invalid(self, shown: str | None, complaint: str) -> KafkaError:
        if shown is not None and len(shown) > SHOWN_LENGTH_MAX:
            shown = shown[:SHOWN_LENGTH_MAX] + "…"
        return KafkaError(ErrorCode.INVALID_CONFIG, f"Invalid value {shown} for configuration {self.name}: {complaint}")

    def _shown(self, value: ConfigValue) -> str | None:
        """In a complaint Kafka shows the first item of a list that no name matches, and any other value whole."""
        if isinstance(value, tuple) and isinstance(self.validator, OneOf):
            return next((item for item in value if self.validator.complaint(item)), None)
        return f"[{', '.join(value)}]" if isinstance(value, tuple) else self.text(value)


@dataclass(frozen=True, slots=True)
class Synonym:
    """A broker key that gives a topic key its value, once multiplied into the topic key's unit."""

    name: str
    factor: int = 1

    def convert(self, value: ConfigValue) -> ConfigValue:
        if self.factor == 1:
            return value
        assert isinstance(value, int), "only numbers have units"
        # Any negative age means "keep for ever", whatever its unit.
        return value * self.factor if value >= 0 else -1


@dataclass(frozen=True, slots=True)
class BrokerLayers:
    """What is said about broker keys, in texts: to this broker, to all brokers, and in server.properties."""

    dynamic: Mapping[str, str] = field(default_factory=dict)
    dynamic_default: Mapping[str, str] = field(default_factory=dict)
    static: Mapping[str, str] = field(default_factory=dict)

    def in_order(self) -> tuple[tuple[ConfigSource, Mapping[str, str]], ...]:
        return (
            (ConfigSource.DYNAMIC_BROKER_CONFIG, self.dynamic),
            (ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG, self.dynamic_default),
            (ConfigSource.STATIC_BROKER_CONFIG, self.static),
        )


@dataclass(frozen=True, slots=True)
class ConfigSynonym:
    """One place that names a value for a key, as DescribeConfigs lists it; the first of them is in force."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """A key with the value in force and where it came from: one row of a DescribeConfigs answer."""

    definition: ConfigDef
    value: str | None
    source: ConfigSource
    synonyms: tuple[ConfigSynonym, ...]

    @property
    def name(self) -> str:
        return self.definition.name


def java_double_text(number: float) -> str:
    """As Java writes a double: plain from a thousandth to ten million, else `1.0E-4`."""
    if number == 0 or 1e-3 <= abs(number) < 1e7:
        return repr(float(number))
    digits, _, exponent = f"{Decimal(repr(number)).normalize():E}".partition("E")
    return f"{digits if '.' in digits else digits + '.0'}E{int(exponent)}"
