"""The definition of a configuration key: its name, type, default and valid values, and how a text is parsed.

The keys themselves are in the package `settings`, a row each. An invalid value gets Kafka's own error message, which
clients and scripts know. This module reads no files and no environment.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum, Flag, IntEnum, auto
from math import isfinite, isnan
from types import ModuleType
from typing import Final, Protocol

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.limits import INT32_MAX, INT64_MAX

ConfigValue = bool | int | float | str | tuple[str, ...] | None
"""A parsed value: LIST is a tuple of strings, CLASS and PASSWORD are strings; None means no value."""


class ConfigType(IntEnum):
    """The types, with the numbers of DescribeConfigs v3+."""

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


BOOLEAN: Final = ConfigType.BOOLEAN
STRING: Final = ConfigType.STRING
INT: Final = ConfigType.INT
SHORT: Final = ConfigType.SHORT
LONG: Final = ConfigType.LONG
DOUBLE: Final = ConfigType.DOUBLE
LIST: Final = ConfigType.LIST
CLASS: Final = ConfigType.CLASS
PASSWORD: Final = ConfigType.PASSWORD


class ConfigSource(IntEnum):
    """Where a value is set, with the numbers of DescribeConfigs."""

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
    """Whether a key can be changed while brokers run, for single brokers or also for all at once."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


PER_BROKER: Final = UpdateMode.PER_BROKER
CLUSTER_WIDE: Final = UpdateMode.CLUSTER_WIDE


class ListenerForms(Flag):
    """In which forms for a single listener a broker key has an effect, besides its plain form."""

    NONE = 0
    LISTENER = auto()
    """listener.name.NAME.KEY"""
    MECHANISM = auto()
    """listener.name.NAME.MECHANISM.KEY"""
    OAUTHBEARER = auto()
    """listener.name.NAME.oauthbearer.KEY"""
    DYNAMIC = auto()
    """A running broker uses a change of it. Kafka accepts all these, but there only those of stores have an effect."""


PER_LISTENER: Final = ListenerForms.LISTENER
DYNAMIC_PER_LISTENER: Final = ListenerForms.LISTENER | ListenerForms.DYNAMIC
DYNAMIC_PER_MECHANISM: Final = DYNAMIC_PER_LISTENER | ListenerForms.MECHANISM
OF_OAUTHBEARER: Final = ListenerForms.LISTENER | ListenerForms.OAUTHBEARER


class Validator(Protocol):
    """Returns what is wrong with a value, or None."""

    def complaint(self, value: ConfigValue) -> str | None: ...


@dataclass(frozen=True, slots=True)
class Range:
    """A number from `low` to `high`, or `besides`, a single value outside of this range."""

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
    """One of these strings; for a LIST, every item must be one."""

    names: tuple[str, ...]
    ignore_case: bool = False

    def complaint(self, value: ConfigValue) -> str | None:
        items = value if isinstance(value, tuple) else (value,)
        allowed = {name.upper() for name in self.names} if self.ignore_case else set(self.names)
        if all((str(item).upper() if self.ignore_case else item) in allowed for item in items):
            return None
        note = " (case insensitive)" if self.ignore_case else ""
        return f"String must be one of{note}: {', '.join(self.names)}"


@dataclass(frozen=True, slots=True)
class NonEmpty:
    """A string of at least one character."""

    def complaint(self, value: ConfigValue) -> str | None:
        return None if value else "String must be non-empty"


SHOWN_LENGTH_MAX: Final = 200
"""How much of an invalid value an error message shows: one on the wire has at most 32,767 bytes, one in a file
may have megabytes."""
_INTEGER_RANGES: Final = {
    ConfigType.SHORT: (-(2**15), 2**15 - 1),
    ConfigType.INT: (-(2**31), INT32_MAX),
    ConfigType.LONG: (-(2**63), INT64_MAX),
}
_INTEGER: Final = re.compile(r"[+-]?\d+")
# Java's decimal formats with the optional type letter; the words NaN and Infinity are refused. Each text matches in one
# way at most: a long one that does not match takes no longer.
_DECIMAL: Final = re.compile(r"([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?")


@dataclass(frozen=True, slots=True)
class ConfigDef:
    """One key. `synonyms` are the broker keys that a topic key falls back to, in order of precedence."""

    name: str
    type: ConfigType
    default: ConfigValue
    validator: Validator | None = None
    documentation: str = ""
    synonyms: tuple[Synonym, ...] = ()
    update_mode: UpdateMode = UpdateMode.READ_ONLY
    internal: bool = False
    """Kafka has such keys for its own tests: they may be set, and are shown only if they are."""
    listener_forms: ListenerForms = ListenerForms.NONE

    def __str__(self) -> str:
        return self.name

    @property
    def read_only(self) -> bool:
        return self.update_mode is UpdateMode.READ_ONLY

    @property
    def sensitive(self) -> bool:
        """Whether the value must not be shown: it is a password, or may be one."""
        return self.type in (ConfigType.PASSWORD, ConfigType.UNKNOWN)

    def parse(self, text: str) -> ConfigValue:
        """Return the value of a text. Raise KafkaError INVALID_CONFIG if the key does not accept it."""
        value = self.converted(text)
        complaint = self.validator.complaint(value) if self.validator else None
        if complaint:
            raise self._invalid(self._shown(value), complaint)
        return value

    def text(self, value: ConfigValue) -> str | None:
        """Return a value as Kafka writes it, for DescribeConfigs."""
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

    def converted(self, text: str) -> ConfigValue:
        """Return the value of a text of this type, valid or not."""
        trimmed = text.strip()
        match self.type:
            case ConfigType.BOOLEAN:
                if trimmed.lower() not in ("true", "false"):
                    raise self._invalid(text, "Expected value to be either true or false")
                return trimmed.lower() == "true"
            case ConfigType.INT | ConfigType.SHORT | ConfigType.LONG:
                return self._parse_integer(trimmed, text)
            case ConfigType.DOUBLE:
                decimal = _DECIMAL.fullmatch(trimmed)
                if decimal is None:
                    raise self._not_a_number(text)
                return float(decimal[1])
            case ConfigType.LIST:
                return self._parse_list(trimmed)
            case ConfigType.PASSWORD:
                return text
            case _:
                return trimmed

    def _parse_integer(self, trimmed: str, text: str) -> int:
        # A 64-bit number has at most 20 characters. Without this limit `int` could parse megabytes of digits.
        if len(trimmed) > 64 or not _INTEGER.fullmatch(trimmed):
            raise self._not_a_number(text)
        low, high = _INTEGER_RANGES[self.type]
        if not low <= (number := int(trimmed)) <= high:
            raise self._not_a_number(text)
        return number

    def _parse_list(self, trimmed: str) -> tuple[str, ...]:
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
        """Return the value as Kafka's error messages show it: of a list, only the first invalid item."""
        if isinstance(value, tuple) and isinstance(self.validator, OneOf):
            return next((item for item in value if self.validator.complaint(item)), None)
        return f"[{', '.join(value)}]" if isinstance(value, tuple) else self.text(value)


@dataclass(frozen=True, slots=True)
class Synonym:
    """A broker key that a topic key falls back to; `factor` converts its value to the topic key's unit."""

    name: str
    factor: int = 1

    def convert(self, value: ConfigValue) -> ConfigValue:
        if self.factor == 1:
            return value
        assert isinstance(value, int), "only numbers have units"
        # Any negative retention means "for ever", whatever its unit.
        return value * self.factor if value >= 0 else -1


@dataclass(frozen=True, slots=True)
class BrokerLayers:
    """The texts of broker keys: dynamic ones of this broker, dynamic ones of all brokers, and server.properties."""

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
    """One place that sets a key, as DescribeConfigs lists it; the first one is effective."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """A key with its effective value and its source: one entry of a DescribeConfigs response."""

    definition: ConfigDef
    value: str | None
    source: ConfigSource
    synonyms: tuple[ConfigSynonym, ...]

    @property
    def name(self) -> str:
        return self.definition.name


def rows_of(*tables: ModuleType) -> tuple[ConfigDef, ...]:
    """Return the rows of these modules, in the order in which they are written there."""
    return tuple(each for table in tables for each in vars(table).values() if isinstance(each, ConfigDef))


def java_double_text(number: float) -> str:
    """Return a double as Java writes it: plain from a thousandth to ten million, otherwise like `1.0E-4`."""
    if number == 0 or 1e-3 <= abs(number) < 1e7:
        return repr(float(number))
    if not isfinite(number):
        return "NaN" if isnan(number) else "Infinity" if number > 0 else "-Infinity"
    digits, _, exponent = f"{Decimal(repr(number)).normalize():E}".partition("E")
    return f"{digits if '.' in digits else digits + '.0'}E{int(exponent)}"
