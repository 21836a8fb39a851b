"""Texts are parsed as by Kafka, with its error messages (compared with Apache Kafka 4.3.1)."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.base.config_def import ConfigDef, ConfigType, ConfigValue, NonEmpty, OneOf, Range, Synonym, java_double_text
from moldau.base.errors import ErrorCode, KafkaError

ANY_INT = ConfigDef("an.int", ConfigType.INT, 0)
RATIO = ConfigDef("a.ratio", ConfigType.DOUBLE, 0.5, Range(0, 1))
LEVEL = ConfigDef("a.level", ConfigType.INT, -1, Range(1, 9, besides=-1))
FLAG = ConfigDef("a.flag", ConfigType.BOOLEAN, False)
POLICY = ConfigDef("a.policy", ConfigType.LIST, (), OneOf(("compact", "delete")))
NAME = ConfigDef("a.name", ConfigType.STRING, None, NonEmpty())
ANY_CASE = ConfigDef("a.mode", ConfigType.STRING, None, OneOf(("UP", "DOWN"), ignore_case=True))
SECRET = ConfigDef("a.secret", ConfigType.PASSWORD, None)


def error_message(definition: ConfigDef, text: str) -> str | None:
    with pytest.raises(KafkaError) as refused:
        definition.parse(text)
    assert refused.value.code is ErrorCode.INVALID_CONFIG
    return refused.value.message


@pytest.mark.parametrize(
    ("definition", "text", "value"),
    [
        (ANY_INT, " 5 ", 5),
        (ANY_INT, "+5", 5),
        (ANY_INT, "-2147483648", -(2**31)),
        (ANY_INT, "٣", 3),  # Java takes the digits of every script
        (RATIO, "0.25f", 0.25),
        (RATIO, "1e-1", 0.1),
        (RATIO, ".5", 0.5),
        (RATIO, "1.", 1.0),
        (LEVEL, "-1", -1),
        (FLAG, " TRUE ", True),
        (FLAG, "false", False),
        (POLICY, "", ()),
        (POLICY, "delete, compact", ("delete", "compact")),
        (POLICY, "delete,delete", ("delete",)),
        (ANY_CASE, "Down", "Down"),
        (SECRET, " with spaces ", " with spaces "),
    ],
)
def test_valid_texts_are_parsed(definition: ConfigDef, text: str, value: ConfigValue) -> None:
    assert definition.parse(text) == value


@pytest.mark.parametrize(
    ("definition", "text", "expected"),
    [
        (ANY_INT, "abc", "Invalid value abc for configuration an.int: Not a number of type INT"),
        (ANY_INT, "", "Invalid value  for configuration an.int: Not a number of type INT"),
        (ANY_INT, "3000000000", "Invalid value 3000000000 for configuration an.int: Not a number of type INT"),
        (ANY_INT, "1e9", "Invalid value 1e9 for configuration an.int: Not a number of type INT"),
        (ANY_INT, "1_000", "Invalid value 1_000 for configuration an.int: Not a number of type INT"),
        (ANY_INT, "0x10", "Invalid value 0x10 for configuration an.int: Not a number of type INT"),
        (RATIO, "x", "Invalid value x for configuration a.ratio: Not a number of type DOUBLE"),
        (RATIO, "1.5", "Invalid value 1.5 for configuration a.ratio: Value must be no more than 1"),
        (RATIO, "-1", "Invalid value -1.0 for configuration a.ratio: Value must be at least 0"),
        (LEVEL, "10", "Invalid value 10 for configuration a.level: Value must be between 1 and 9 or equal to -1"),
        (FLAG, "yes", "Invalid value yes for configuration a.flag: Expected value to be either true or false"),
        (POLICY, "delete,foo", "Invalid value foo for configuration a.policy: String must be one of: compact, delete"),
        (POLICY, "delete,", "Configuration 'a.policy' values must not be empty."),
        (NAME, " ", "Invalid value  for configuration a.name: String must be non-empty"),
        (ANY_CASE, "x", "Invalid value x for configuration a.mode: String must be one of (case insensitive): UP, DOWN"),
    ],
)
def test_error_messages_are_kafkas(definition: ConfigDef, text: str, expected: str) -> None:
    assert error_message(definition, text) == expected


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-inf", "nan", "0x1p3", "1__0"])
def test_special_doubles_are_refused(text: str) -> None:
    assert "Not a number of type DOUBLE" in str(error_message(ConfigDef("d", ConfigType.DOUBLE, 0.0), text))


def test_very_long_numbers_are_refused_without_parsing() -> None:
    assert "Not a number" in str(error_message(ANY_INT, "9" * 1_000_000))


@given(st.integers(-(2**63), 2**63 - 1))
def test_longs_survive_text_and_parse(number: int) -> None:
    definition = ConfigDef("a.long", ConfigType.LONG, 0)
    assert definition.parse(str(definition.text(number))) == number


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_doubles_survive_text_and_parse(number: float) -> None:
    definition = ConfigDef("a.double", ConfigType.DOUBLE, 0.0)
    assert definition.parse(str(definition.text(number))) == number


@given(st.text(max_size=40), st.sampled_from(list(ConfigType)))
def test_any_text_gives_a_value_or_a_kafka_error(text: str, type: ConfigType) -> None:
    with suppress(KafkaError):
        ConfigDef("k", type, None).parse(text)


def test_a_long_text_that_is_no_double_is_refused_at_once() -> None:
    """With a pattern that tries every place of the missing dot, this would take days."""
    with pytest.raises(KafkaError, match="Not a number of type DOUBLE"):
        ConfigDef("k", ConfigType.DOUBLE, None).parse("1" * 2_000_000 + "x")


@pytest.mark.parametrize("text", ["1e400", "-1e400", "1" * 5_000])
def test_a_number_beyond_a_double_is_refused_by_a_range(text: str) -> None:
    with pytest.raises(KafkaError, match="Infinity for configuration k"):
        ConfigDef("k", ConfigType.DOUBLE, None, Range(0, 1)).parse(text)


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0.5, "0.5"),
        (0.0, "0.0"),
        (1.0, "1.0"),
        (0.001, "0.001"),
        (0.0001, "1.0E-4"),
        (9999999.0, "9999999.0"),
        (1e7, "1.0E7"),
        (12345678.9, "1.23456789E7"),
        (-1e7, "-1.0E7"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (float("inf"), "Infinity"),
        (float("-inf"), "-Infinity"),
        (float("nan"), "NaN"),
    ],
)
def test_doubles_are_written_as_java_writes_them(number: float, text: str) -> None:
    assert java_double_text(number) == text


def test_a_synonym_converts_the_value_to_the_topics_unit() -> None:
    assert Synonym("log.retention.hours", 3_600_000).convert(2) == 7_200_000
    assert Synonym("log.retention.hours", 3_600_000).convert(-7) == -1
    assert Synonym("log.retention.ms").convert(-7) == -7
