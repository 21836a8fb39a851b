"""The effective configs of a topic: values, sources and synonyms as Apache Kafka 4.3.1 describes them."""

from __future__ import annotations

import pytest

from moldau.base.broker_configs import BROKER_CONFIGS
from moldau.base.config_def import BrokerLayers, ConfigEntry, ConfigSource
from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.topic_configs import (
    TOPIC_CONFIGS,
    check_topic_configs,
    effective_topic_configs,
    topic_config_texts,
    topic_config_values,
)

NOTHING = BrokerLayers()


def entry(name: str, overrides: dict[str, str], broker: BrokerLayers = NOTHING) -> ConfigEntry:
    return next(each for each in effective_topic_configs(overrides, broker) if each.name == name)


def summary(entry: ConfigEntry) -> tuple[str | None, int, list[tuple[str, str | None, int]]]:
    return entry.value, int(entry.source), [(s.name, s.value, int(s.source)) for s in entry.synonyms]


def test_every_key_is_documented_and_accepts_its_own_default() -> None:
    for definition in TOPIC_CONFIGS.values():
        assert definition.documentation
        assert definition.read_only == definition.name.startswith("moldau.view.")
        if definition.default is not None:
            assert definition.parse(str(definition.default_text)) == definition.default


def test_every_fallback_is_a_broker_key_that_yields_the_same_default() -> None:
    for definition in TOPIC_CONFIGS.values():
        assert all(synonym.name in BROKER_CONFIGS for synonym in definition.synonyms)
    assert topic_config_values({}, NOTHING) == {name: each.default for name, each in TOPIC_CONFIGS.items()}


def test_a_topic_without_overrides() -> None:
    assert len(effective_topic_configs({}, NOTHING)) == 33 + 1  # and that of dead letters, which is of Kafka 4.4
    assert summary(entry("segment.bytes", {})) == ("1073741824", 5, [("log.segment.bytes", "1073741824", 5)])
    assert summary(entry("remote.storage.enable", {})) == ("false", 5, [])


def test_an_override_comes_first_and_is_shown_normalized() -> None:
    overrides = {"cleanup.policy": "compact, delete", "segment.bytes": "+2000000", "preallocate": " TRUE "}
    assert summary(entry("cleanup.policy", overrides)) == (
        "compact,delete",
        1,
        [("cleanup.policy", "compact,delete", 1), ("log.cleanup.policy", "delete", 5)],
    )
    assert entry("segment.bytes", overrides).value == "2000000"
    assert entry("preallocate", overrides).value == "true"


def test_each_layer_overrides_the_one_below() -> None:
    key = "log.segment.bytes"
    broker = BrokerLayers(dynamic={key: "2000001"}, dynamic_default={key: "2000002"}, static={key: "2000003"})
    assert summary(entry("segment.bytes", {"segment.bytes": "2000000"}, broker)) == (
        "2000000",
        1,
        [
            ("segment.bytes", "2000000", 1),
            (key, "2000001", 2),
            (key, "2000002", 3),
            (key, "2000003", 4),
            (key, "1073741824", 5),
        ],
    )
    for layers, value, source in [
        (broker, "2000001", ConfigSource.DYNAMIC_BROKER_CONFIG),
        (
            BrokerLayers({}, broker.dynamic_default, broker.static),
            "2000002",
            ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG,
        ),
        (BrokerLayers(static=broker.static), "2000003", ConfigSource.STATIC_BROKER_CONFIG),
    ]:
        assert (entry("segment.bytes", {}, layers).value, entry("segment.bytes", {}, layers).source) == (value, source)


@pytest.mark.parametrize(
    ("static", "retention_ms"),
    [
        ({}, 604_800_000),
        ({"log.retention.hours": "2"}, 7_200_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3"}, 180_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3", "log.retention.ms": "4"}, 4),
        ({"log.retention.hours": "-1"}, -1),
    ],
)
def test_the_smallest_unit_wins(static: dict[str, str], retention_ms: int) -> None:
    assert topic_config_values({}, BrokerLayers(static=static))["retention.ms"] == retention_ms


def test_a_value_in_hours_counts_as_a_default_as_in_kafka() -> None:
    hours = BrokerLayers(static={"log.retention.hours": "2"})
    assert summary(entry("retention.ms", {}, hours)) == ("7200000", 5, [])
    assert summary(entry("retention.ms", {"retention.ms": "12345"}, NOTHING)) == (
        "12345",
        1,
        [("retention.ms", "12345", 1)],
    )
    milliseconds = BrokerLayers(static={"log.retention.ms": "9"})
    assert summary(entry("retention.ms", {}, milliseconds)) == (
        "9",
        4,
        [("log.retention.ms", "9", 4), ("log.retention.hours", "168", 5)],
    )


def test_flush_ms_falls_back_to_the_scheduler_interval() -> None:
    broker = BrokerLayers(static={"log.flush.scheduler.interval.ms": "70"})
    assert topic_config_values({}, broker)["flush.ms"] == 70
    both = BrokerLayers(static={"log.flush.scheduler.interval.ms": "70", "log.flush.interval.ms": "80"})
    assert topic_config_values({}, both)["flush.ms"] == 80


def test_the_internal_segment_size_wins_and_is_shown_only_when_set() -> None:
    assert "internal.segment.bytes" not in [each.name for each in effective_topic_configs({}, NOTHING)]
    overrides = {"internal.segment.bytes": "1024"}
    assert entry("internal.segment.bytes", overrides).value == "1024"
    assert topic_config_texts(overrides, NOTHING)["segment.bytes"] == "1024"
    assert "internal.segment.bytes" not in topic_config_texts({}, NOTHING)


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ({"no.such": "1"}, "Unknown topic config name: no.such"),
        ({"retention.ms": "abc"}, "Invalid value abc for configuration retention.ms: Not a number of type LONG"),
        ({"retention.ms": "-2"}, "Invalid value -2 for configuration retention.ms: Value must be at least -1"),
        ({"segment.bytes": "1"}, "Invalid value 1 for configuration segment.bytes: Value must be at least 1048576"),
        (
            {"compression.type": "none"},
            "Invalid value none for configuration compression.type: "
            "String must be one of: uncompressed, zstd, lz4, snappy, gzip, producer",
        ),
        (
            {"leader.replication.throttled.replicas": "x"},
            "Invalid value [x] for configuration leader.replication.throttled.replicas: "
            "leader.replication.throttled.replicas must be the literal '*' or a list of replicas in the following "
            "format: [partitionId]:[brokerId],[partitionId]:[brokerId],...",
        ),
        (
            {"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"},
            "conflict topic config setting min.compaction.lag.ms (10) > max.compaction.lag.ms (5)",
        ),
        (
            {"remote.storage.enable": "true"},
            "Tiered Storage functionality is disabled in the broker. "
            "Topic cannot be configured with remote log storage.",
        ),
    ],
)
def test_invalid_overrides_are_refused_as_in_kafka(overrides: dict[str, str], expected: str) -> None:
    with pytest.raises(KafkaError) as refused:
        check_topic_configs(overrides, NOTHING)
    assert (refused.value.code, refused.value.message) == (ErrorCode.INVALID_CONFIG, expected)


@pytest.mark.parametrize("replicas", ["0:" + "1" * 5_000, "1" * 5_000 + ":0", "99999999999:1"])
def test_throttled_replicas_that_cannot_exist_are_refused(replicas: str) -> None:
    """Kafka accepts them. Python refuses to read a number of 5,000 digits, on every broker."""
    with pytest.raises(KafkaError, match="must be the literal"):
        check_topic_configs({"leader.replication.throttled.replicas": replicas}, NOTHING)


@pytest.mark.parametrize(
    "overrides",
    [
        {},
        {"cleanup.policy": ""},
        {"retention.bytes": "-5"},
        {"compression.gzip.level": "-1"},
        {"leader.replication.throttled.replicas": "*"},
        {"follower.replication.throttled.replicas": "0:1, 1:2"},
    ],
)
def test_valid_overrides_are_accepted_as_in_kafka(overrides: dict[str, str]) -> None:
    check_topic_configs(overrides, NOTHING)


def test_only_the_requested_keys_are_computed() -> None:
    chosen = effective_topic_configs({"retention.ms": "5", "moldau.view.from": "orders"}, NOTHING, {"moldau.view.from"})
    assert [(each.name, each.value) for each in chosen] == [("moldau.view.from", "orders")]
    assert effective_topic_configs({}, NOTHING, {"moldau.view.from", "unknown"}) == ()
