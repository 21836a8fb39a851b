"""Where settings are said: a properties file, `KAFKA_*` variables, `--override`; a complaint can name the place.

Texts are parsed by their broker key's definition. What the values mean together is decided in `moldau.settings`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from moldau.base import properties
from moldau.base.broker_configs import BROKER_CONFIGS, SERVED_NAMES, broker_config
from moldau.base.config_def import ConfigDef, ConfigValue
from moldau.base.errors import KafkaError, MalformedData


class SettingsError(Exception):
    """A setting that cannot be obeyed, in one line."""


class SettingText(NamedTuple):
    """The text given for a key, and where."""

    text: str
    origin: str


NOT_SETTINGS: Final = frozenset(
    (
        "KAFKA_VERSION",
        "KAFKA_HOME",
        "KAFKA_OPTS",
        "KAFKA_HEAP_OPTS",
        "KAFKA_LOG4J_OPTS",
        "KAFKA_LOG4J_ROOT_LOGLEVEL",
        "KAFKA_LOG4J_LOGGERS",
        "KAFKA_TOOLS_LOG4J_LOGLEVEL",
        "KAFKA_JVM_PERFORMANCE_OPTS",
        "KAFKA_GC_LOG_OPTS",
        "KAFKA_JMX_OPTS",
        "KAFKA_JMX_HOSTNAME",
        "KAFKA_JMX_PORT",
        "KAFKA_DEBUG",
        "KAFKA_MODE",
    )
)
"""Variables that steer Java and Kafka's scripts: they name no property and are passed over in silence."""


def read_file(path: str) -> dict[str, SettingText]:
    try:
        with open(path, "rb") as file:
            raw = file.read()
    except OSError as refused:
        raise SettingsError(f"{path}: cannot be read: {refused.strerror}") from None
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        text = raw.decode("latin-1")  # what Java takes every properties file for
    try:
        return {each.key: SettingText(each.value, f"{path}:{each.line}") for each in properties.parse(text)}
    except MalformedData as malformed:
        raise SettingsError(f"{path}: {malformed}") from None


def read_environment(environ: Mapping[str, str]) -> dict[str, SettingText]:
    """The rule of Kafka's container images: KAFKA_A_B is a.b, `__` an underscore, `___` a dash."""
    return {
        _property_name(variable): SettingText(text, variable)
        for variable, text in environ.items()
        if variable.startswith("KAFKA_") and variable not in NOT_SETTINGS
    }


def _property_name(variable: str) -> str:
    dotted = variable.removeprefix("KAFKA_").lower().replace("_", ".")
    return dotted.replace("...", "-").replace("..", "_")


def parse_override(text: str) -> tuple[str, str]:
    """`key=value`, as --override takes it."""
    key, equals, value = text.partition("=")
    if not key.strip() or not equals:
        raise SettingsError(f"--override {text}: expected property=value")
    return key.strip(), value


class Values:
    """The parsed values of what was said, or else the defaults; a complaint about one names its place."""

    def __init__(self, said: Mapping[str, SettingText]) -> None:
        self.said = said
        definitions = {key: definition for key in said if (definition := broker_config(key))}
        self.parsed = {key: _parsed(definition, said[key]) for key, definition in definitions.items()}

    def __contains__(self, key: str) -> bool:
        return key in self.parsed

    def value(self, key: str) -> ConfigValue:
        return self.parsed[key] if key in self.parsed else BROKER_CONFIGS[key].default

    def integer(self, key: str) -> int:
        value = self.value(key)
        assert isinstance(value, int), f"{key} is no number"
        return value

    def boolean(self, key: str) -> bool:
        value = self.value(key)
        assert isinstance(value, bool), f"{key} is no boolean"
        return value

    def text(self, key: str) -> str | None:
        value = self.value(key)
        assert value is None or isinstance(value, str), f"{key} is no string"
        return value or None

    def items(self, key: str) -> tuple[str, ...]:
        value = self.value(key)
        assert value is None or isinstance(value, tuple), f"{key} is no list"
        return value or ()

    def refusal(self, key: str, why: str) -> SettingsError:
        given = self.said.get(key)
        return SettingsError(f"{given.origin}: {key}={given.text}: {why}" if given else f"{key}: {why}")

    def warnings(self) -> Iterator[str]:
        """One line for each key that changes nothing: unknown, or known and not served."""
        for key, each in self.said.items():
            definition = broker_config(key)
            if definition is None:
                yield f"{each.origin}: unknown setting {key} is ignored{_suggestion(key)}"
            elif key not in SERVED_NAMES and self.parsed.get(key) != definition.default:
                yield f"{each.origin}: setting {key} is accepted but has no effect in Moldau yet"


def _parsed(definition: ConfigDef, each: SettingText) -> ConfigValue:
    try:
        return definition.parse(each.text)
    except KafkaError as refused:
        raise SettingsError(f"{each.origin}: {refused.message}") from None


def _suggestion(key: str) -> str:
    from difflib import get_close_matches  # only for the misspelt: a start does not pay for it

    close = get_close_matches(key, BROKER_CONFIGS, n=1, cutoff=0.8)
    return f"; did you mean {close[0]}?" if close else ""
