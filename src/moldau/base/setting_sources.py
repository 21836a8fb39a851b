"""The sources of settings: a properties file, `KAFKA_*` variables, `--override`. Errors name the source of a setting.

Each key's ConfigDef parses its value; `moldau.settings` checks the values together.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from moldau.base import properties
from moldau.base.broker_configs import BROKER_CONFIGS, broker_config, has_effect
from moldau.base.config_def import ConfigDef, ConfigValue
from moldau.base.errors import KafkaError, MalformedData


class SettingsError(Exception):
    """A setting that is invalid or not supported, in one line: control characters of a quoted value are escaped."""

    warnings: tuple[str, ...] = ()
    """Lines about other settings, which may be the reason: a misspelt key, for example."""

    def __init__(self, text: str) -> None:
        super().__init__(text if text.isprintable() else "".join(map(_printable, text)))


def _printable(char: str) -> str:
    return char if char.isprintable() else char.encode("unicode_escape").decode()


class SettingText(NamedTuple):
    """The text of a setting, and the file and line, variable or option that sets it."""

    text: str
    origin: str


NOT_SETTINGS: Final = frozenset(
    (
        "KAFKA_VERSION",
        "KAFKA_HOME",
        "KAFKA_ROOT",
        "KAFKA_BROKER",
        "KAFKA_OPTS",
        "KAFKA_HEAP_OPTS",
        "KAFKA_JDK_COMPATIBILITY_OPTS",
        "KAFKA_LOG4J_OPTS",
        "KAFKA_LOG4J_CMD_OPTS",
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
"""Variables for Java, Kafka's scripts and other programs: they are no properties, however similar to one.
`moldau.settings` reads the JAAS file from KAFKA_OPTS."""


OURS: Final = ("listener.name.", "sasl.", "ssl.", "authorizer", "super.", "moldau.")
"""A variable of such a name is meant for a broker, however it goes on: misspelt, it would protect nothing."""
LISTENER_PREFIX: Final = re.compile(r"listener\.name\.[^.]+\.")


def read_file(path: str) -> dict[str, SettingText]:
    try:
        with open(path, "rb") as file:
            raw = file.read()
    except OSError as refused:
        raise SettingsError(f"{path}: cannot be read: {refused.strerror}") from None
    try:
        entries = properties.parse(properties.decode(raw))
    except MalformedData as malformed:
        raise SettingsError(f"{path}: {malformed}") from None
    return {each.key: SettingText(each.value, f"{path}:{each.line}") for each in entries}


def read_environment(environ: Mapping[str, str]) -> dict[str, SettingText]:
    """Read variables by the rule of Kafka's container images: KAFKA_A_B is a.b, `__` an underscore, `___` a dash.

    The environment belongs to other programs too, and orchestrators set KAFKA_PORT and KAFKA_SERVICE_HOST: a variable
    whose name is not even similar to a setting's is not meant for this one, and left out. One about security is not."""
    names = {each: _property_name(each) for each in environ if each.startswith("KAFKA_") and each not in NOT_SETTINGS}
    return {
        name: SettingText(environ[variable], variable)
        for variable, name in names.items()
        if broker_config(name) is not None or name.startswith(OURS) or _suggestion(name)
    }


def _property_name(variable: str) -> str:
    dotted = variable.removeprefix("KAFKA_").lower().replace("_", ".")
    return dotted.replace("...", "-").replace("..", "_")


def parse_override(text: str) -> tuple[str, str]:
    """Parse `key=value`, the argument of --override."""
    key, equals, value = text.partition("=")
    if not key.strip() or not equals:
        raise SettingsError(f"--override {text}: expected property=value")
    return key.strip(), value


Key = ConfigDef | str
"""The row of a key, or its name: that of a single listener has no row of its own."""


class Values:
    """The parsed values of the settings that are set; `value` returns the default of any other key."""

    def __init__(self, texts: Mapping[str, SettingText]) -> None:
        self.texts = texts
        definitions = {key: definition for key in texts if (definition := broker_config(key))}
        self.parsed = {key: _parse_setting(definition, texts[key]) for key, definition in definitions.items()}

    def __contains__(self, key: Key) -> bool:
        return str(key) in self.parsed

    def value(self, key: Key) -> ConfigValue:
        return self.parsed[str(key)] if key in self else BROKER_CONFIGS[str(key)].default

    def integer(self, key: Key) -> int:
        value = self.value(key)
        assert isinstance(value, int), f"{key} is no number"
        return value

    def boolean(self, key: Key) -> bool:
        value = self.value(key)
        assert isinstance(value, bool), f"{key} is no boolean"
        return value

    def text(self, key: Key) -> str | None:
        value = self.value(key)
        assert value is None or isinstance(value, str), f"{key} is no string"
        return value or None

    def strings(self, key: Key) -> tuple[str, ...]:
        value = self.value(key)
        assert value is None or isinstance(value, tuple), f"{key} is no list"
        return value or ()

    def origin(self, key: Key) -> str:
        """Return the file and line, variable or option that sets a key."""
        return self.texts[str(key)].origin

    def error(self, key: Key, reason: str) -> SettingsError:
        """Return the error for the caller to raise. It names the place that sets `key`, and quotes its value unless
        that may contain a password."""
        setting, definition = self.texts.get(str(key)), broker_config(str(key))
        if setting is None:
            return SettingsError(f"{key}: {reason}")
        is_hidden = definition is not None and definition.sensitive
        return SettingsError(f"{setting.origin}: {key}={'[hidden]' if is_hidden else setting.text}: {reason}")

    def warnings(self) -> Iterator[str]:
        """Yield one line for each key without effect: unknown, or accepted only; none for one that has its default."""
        yield from warn_of_unknown_keys(self.texts)
        for key, each in self.texts.items():
            definition = broker_config(key)
            if definition is not None and not has_effect(key) and self.parsed.get(key) != definition.default:
                yield f"{each.origin}: setting {key} is accepted but has no effect in Moldau yet"


def warn_of_unknown_keys(texts: Mapping[str, SettingText]) -> Iterator[str]:
    for key, each in texts.items():
        if broker_config(key) is None:
            yield f"{each.origin}: unknown setting {key} is ignored{_suggestion(key)}"


def _parse_setting(definition: ConfigDef, setting: SettingText) -> ConfigValue:
    try:
        return definition.parse(setting.text)
    except KafkaError as refused:
        raise SettingsError(f"{setting.origin}: {refused.message}") from None


def _suggestion(key: str) -> str:
    from difflib import get_close_matches  # imported only for misspelt keys: a normal start does not need it

    prefix = LISTENER_PREFIX.match(key)
    listener = prefix[0] if prefix else ""
    close = get_close_matches(key.removeprefix(listener), BROKER_CONFIGS, n=1, cutoff=0.8)
    return f"; did you mean {listener}{close[0]}?" if close else ""
