"""Flags as jopt-simple parses them: every rule here was checked with Kafka's own tools."""

from __future__ import annotations

import re

import pytest

from moldau.cli.flags import Arguments, Flag, HelpRequested, ToolFlags, UsageError, VersionRequested, key_values

FLAGS = ToolFlags(
    "A tool.",
    (
        Flag("topic", "The topic.", "topic", former_names=("subject",)),
        Flag("config", "A setting.", "name=value"),
        Flag("partitions", "How many.", "n", "Integer", default="3"),
        Flag("list", "A switch."),
        Flag("create", "Another."),
        Flag("codec", "May stand alone.", "codec", argument_optional=True),
        Flag("server", "Short too.", "server", short="b"),
        Flag("props", "Many words.", "k=v", takes_several_words=True),
        Flag("old-props", "Formerly.", "k=v", replaced_by="props", takes_several_words=True),
    ),
)


@pytest.mark.parametrize("words", [["--topic", "t"], ["--topic=t"], ["-topic", "t"], ["-topic=t"]])
def test_a_value_is_written_in_four_ways(words: list[str]) -> None:
    assert FLAGS.parse(words).single_value("topic") == "t"


def test_an_attached_value_may_hold_equals_signs_and_be_empty() -> None:
    assert FLAGS.parse(["--config=a=b=c"]).single_value("config") == "a=b=c"
    assert FLAGS.parse(["--config="]).single_value("config") == ""


def test_a_required_argument_may_look_like_a_flag() -> None:
    assert FLAGS.parse(["--topic", "--list"]).single_value("topic") == "--list"
    assert FLAGS.parse(["--partitions", "-5"]).integer("partitions") == -5


def test_the_next_flag_is_not_an_optional_argument() -> None:
    arguments = FLAGS.parse(["--codec", "--list"])
    assert arguments.has("codec")
    assert arguments.has("list")
    assert arguments.single_value("codec") is None
    assert FLAGS.parse(["--codec", "zstd"]).single_value("codec") == "zstd"


def test_a_repeated_flag_is_refused_where_one_value_is_expected() -> None:
    arguments = FLAGS.parse(["--config", "a=1", "--config", "b=2"])
    assert arguments.values_of("config") == ["a=1", "b=2"]
    with pytest.raises(UsageError, match="Found multiple arguments for option config, but you asked for only one"):
        arguments.single_value("config")


def test_stray_words_are_ignored_and_two_dashes_end_the_flags() -> None:
    arguments = FLAGS.parse(["stray", "--list", "-", "--topic", "t", "stray", "--", "--create"])
    assert arguments.has("list")
    assert arguments.single_value("topic") == "t"
    assert not arguments.has("create")


@pytest.mark.parametrize("word", ["--top", "--lis", "--nosuch"])
def test_names_are_never_abbreviated(word: str) -> None:
    with pytest.raises(UsageError, match=f"{word[2:]} is not a recognized option"):
        FLAGS.parse([word, "x"])


@pytest.mark.parametrize("word", ["---", "---=x"])
def test_dashes_without_a_name_are_refused(word: str) -> None:
    with pytest.raises(UsageError, match=r"^ is not a recognized option$"):
        FLAGS.parse([word, "x"])


def test_an_unknown_flag_is_reported_even_beside_help() -> None:
    with pytest.raises(UsageError, match="nosuch is not a recognized option"):
        FLAGS.parse(["--help", "--nosuch"])


def test_a_missing_argument_is_reported() -> None:
    with pytest.raises(UsageError, match="Option topic requires an argument"):
        FLAGS.parse(["--list", "--topic"])


def test_numbers_are_parsed_on_access_and_have_defaults() -> None:
    assert FLAGS.parse(["--list"]).integer("partitions") == 3
    assert FLAGS.parse(["--partitions", "+5"]).integer("partitions") == 5


@pytest.mark.parametrize("text", ["abc", "1_000", " 5", "5 ", "1.0", "+", ""])
def test_numbers_that_java_does_not_parse_are_refused(text: str) -> None:
    arguments = FLAGS.parse(["--partitions", text])
    with pytest.raises(UsageError, match=re.escape(f"Cannot parse argument '{text}' of option partitions")):
        arguments.integer("partitions")


@pytest.mark.parametrize(("java_type", "largest"), [("Integer", 2**31 - 1), ("Long", 2**63 - 1)])
def test_numbers_beyond_their_java_type_are_refused(java_type: str, largest: int) -> None:
    flag = Flag("limit", "A number.", "number", java_type)
    for number in (largest, -largest - 1):
        assert Arguments({"limit": flag}, {"limit": [str(number)]}).integer("limit") == number
    for number in (largest + 1, -largest - 2):
        with pytest.raises(UsageError, match=f"Cannot parse argument '{number}' of option limit"):
            Arguments({"limit": flag}, {"limit": [str(number)]}).integer("limit")


def test_no_words_request_help_and_version_precedes_usage_errors() -> None:
    for words in ([], ["--help"], ["--list", "--help"]):
        with pytest.raises(HelpRequested):
            FLAGS.parse(words)
    with pytest.raises(VersionRequested):
        FLAGS.parse(["--version", "--props", "a=b", "--old-props", "c=d"])


def test_the_error_for_zookeeper_has_the_flag_to_use() -> None:
    with pytest.raises(UsageError, match="--bootstrap-server localhost:9092"):
        FLAGS.parse(["--zookeeper", "localhost:2181", "--list"])


def test_a_former_name_works_with_a_note_and_a_short_one_without() -> None:
    arguments = FLAGS.parse(["--subject", "t", "-b", "h:1"])
    assert arguments.single_value("topic") == "t"
    assert arguments.single_value("server") == "h:1"
    assert arguments.notes == ["Option --subject is deprecated. Use --topic instead."]


def test_a_deprecated_flag_counts_as_the_new_one_and_conflicts_with_it() -> None:
    arguments = FLAGS.parse(["--old-props", "a=1", "b=2", "--list"])
    assert arguments.values_of("props") == ["a=1", "b=2"]
    assert arguments.warnings == [
        "Option --old-props is deprecated and will be removed in a future version. Use --props instead."
    ]
    with pytest.raises(UsageError, match=r"Options --old-props and --props cannot be specified together\."):
        FLAGS.parse(["--old-props", "a=1", "--props", "b=2"])


def test_rules_between_flags() -> None:
    arguments = FLAGS.parse(["--list", "--partitions", "2"])
    with pytest.raises(UsageError, match=r'Missing required argument "\[topic\]"'):
        arguments.require("list", "topic")
    with pytest.raises(UsageError, match=r'Option "\[partitions\]" can\'t be used with option "\[list\]"'):
        arguments.forbid_together("partitions", "create", "list")
    arguments.forbid_together("create", "list")
    with pytest.raises(UsageError, match=r"Exactly one of the following arguments is required: \[topic\], \[create\]"):
        arguments.require_exactly_one("topic", "create")


def test_the_order_of_flags_is_kept() -> None:
    arguments = FLAGS.parse(["--config", "a", "--list", "--config", "b"])
    assert arguments.in_order == [("config", "a"), ("list", ""), ("config", "b")]


def test_help_is_sorted_two_columns_within_80_characters() -> None:
    lines = FLAGS.help().split("\n")
    assert lines[0] == "A tool."
    assert lines[1].split() == ["Option", "Description"]
    names = [line.split()[0] for line in lines[3:] if line.startswith("--")]
    assert names == sorted(names)
    assert "--help" in names
    assert max(map(len, lines)) <= 80
    assert any("(default: 3)" in line for line in lines)


def test_key_values() -> None:
    assert key_values(["a=1", "b=x=y", "c=", "d"]) == {"a": "1", "b": "x=y", "c": "", "d": ""}
