"""The configs of a group: what is refused, in Kafka's words, and what holds."""

from __future__ import annotations

import pytest

from moldau.base.config_def import BrokerLayers, ConfigSource
from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.group_configs import GROUP_CONFIGS, check_group_configs, effective_group_configs

SESSION, HEARTBEAT, INTERVAL = (
    "consumer.session.timeout.ms",
    "consumer.heartbeat.interval.ms",
    "consumer.assignment.interval.ms",
)
SHARE_SESSION, SHARE_HEARTBEAT = "share.session.timeout.ms", "share.heartbeat.interval.ms"
SHARE_INTERVAL = "share.assignment.interval.ms"
LOCK, DELIVERIES, LOCKS = (
    "share.record.lock.duration.ms",
    "share.delivery.count.limit",
    "share.partition.max.record.locks",
)
RESET, ISOLATION, RENEWAL = "share.auto.offset.reset", "share.isolation.level", "share.renew.acknowledge.enable"
NONE = BrokerLayers()
LOW = BrokerLayers(
    {"group.consumer.min.session.timeout.ms": "1000", "group.consumer.session.timeout.ms": "9000"}, {}, {}
)
LOW_SHARE = BrokerLayers({}, {}, {"group.share.min.session.timeout.ms": "1000"})


OF_DEAD_LETTERS = ("errors.deadletterqueue.topic.name", "errors.deadletterqueue.copy.record.enable")


def test_kafkas_configs_of_consumer_groups_and_share_groups_are_known() -> None:
    of_share_groups = {SHARE_SESSION, SHARE_HEARTBEAT, SHARE_INTERVAL, LOCK, DELIVERIES, LOCKS}
    assert set(GROUP_CONFIGS) == {
        SESSION,
        HEARTBEAT,
        INTERVAL,
        *of_share_groups,
        RESET,
        ISOLATION,
        RENEWAL,
        *OF_DEAD_LETTERS,
    }


@pytest.mark.parametrize(
    "configs",
    [
        {},
        {SESSION: "45000"},
        {SESSION: "60000", HEARTBEAT: "15000", INTERVAL: "0"},
        {SHARE_SESSION: "60000", SHARE_HEARTBEAT: "15000", SHARE_INTERVAL: "15000"},
        {LOCK: "15000", DELIVERIES: "2", LOCKS: "100"},
        {LOCK: "60000", DELIVERIES: "10", LOCKS: "4000"},
        {RESET: "earliest", ISOLATION: "read_committed", RENEWAL: "false"},
        {RESET: "latest", ISOLATION: "read_uncommitted"},
        {RESET: "by_duration:P1DT2H30M"},
        {RESET: "by_duration:PT0S"},
        dict(zip(OF_DEAD_LETTERS, ("dlq.jobs", "true"), strict=True)),
    ],
)
def test_values_within_the_bounds_of_the_broker_are_allowed(configs: dict[str, str]) -> None:
    check_group_configs("g", configs, NONE)


@pytest.mark.parametrize(
    ("configs", "message"),
    [
        ({"consumer.session": "1"}, "Unknown group config name: consumer.session"),
        ({SESSION: "44999"}, f"{SESSION} must be greater than or equal to group.consumer.min.session.timeout.ms"),
        ({SESSION: "60001"}, f"{SESSION} must be less than or equal to group.consumer.max.session.timeout.ms"),
        ({HEARTBEAT: "4999"}, f"{HEARTBEAT} must be greater than or equal to group.consumer.min.heartbeat.interval.ms"),
        ({HEARTBEAT: "15001"}, f"{HEARTBEAT} must be less than or equal to group.consumer.max.heartbeat.interval.ms"),
        ({INTERVAL: "15001"}, f"{INTERVAL} must be less than or equal to group.consumer.max.assignment.interval.ms"),
        ({INTERVAL: "-1"}, f"Invalid value -1 for configuration {INTERVAL}"),
        ({SESSION: "soon"}, f"Invalid value soon for configuration {SESSION}"),
        ({SESSION: "0"}, f"Invalid value 0 for configuration {SESSION}"),
        ({SHARE_SESSION: "44999"}, f"{SHARE_SESSION} must be greater than or equal to group.share.min.session.time"),
        ({SHARE_HEARTBEAT: "15001"}, f"{SHARE_HEARTBEAT} must be less than or equal to group.share.max.heartbeat.in"),
        ({LOCK: "14999"}, f"{LOCK} must be greater than or equal to group.share.min.record.lock.duration.ms"),
        ({LOCK: "999"}, f"Invalid value 999 for configuration {LOCK}: Value must be at least 1000"),
        ({DELIVERIES: "11"}, f"{DELIVERIES} must be less than or equal to group.share.max.delivery.count.limit"),
        ({DELIVERIES: "1"}, f"Invalid value 1 for configuration {DELIVERIES}: Value must be at least 2"),
        ({LOCKS: "4001"}, f"{LOCKS} must be less than or equal to group.share.max.partition.max.record.locks"),
        ({SHARE_INTERVAL: "15001"}, f"{SHARE_INTERVAL} must be less than or equal to group.share.max.assignment.in"),
        ({ISOLATION: "serializable"}, "String must be one of: read_committed, read_uncommitted"),
        ({RENEWAL: "maybe"}, "Expected value to be either true or false"),
    ],
)
def test_others_are_refused_as_kafka_does(configs: dict[str, str], message: str) -> None:
    with pytest.raises(KafkaError) as refused:
        check_group_configs("g", configs, NONE)
    assert refused.value.code is ErrorCode.INVALID_CONFIG
    assert message in refused.value.message


@pytest.mark.parametrize("value", ["none", "Earliest", "by_duration", "by_duration:", "by_duration:-PT1S", "P1D"])
def test_an_offset_reset_that_is_none(value: str) -> None:
    with pytest.raises(KafkaError) as refused:
        check_group_configs("g", {RESET: value}, NONE)
    assert refused.value.message == (
        f"Invalid value {value} for configuration {RESET}: Invalid value `{value}` for configuration {RESET}. The value"
        " must be either 'earliest', 'latest' or of the format 'by_duration:<PnDTnHnMn.nS>'."
    )


def test_a_huge_offset_reset_is_refused_with_a_short_message() -> None:
    with pytest.raises(KafkaError) as refused:
        check_group_configs("g", {RESET: f"by_duration:P{'9' * 30_000}D"}, NONE)
    assert len(refused.value.message) < 1_000


def test_a_session_must_be_longer_than_the_time_between_heartbeats() -> None:
    with pytest.raises(KafkaError, match=f"^{SESSION} must be greater than {HEARTBEAT}$"):
        check_group_configs("g", {SESSION: "5000"}, LOW)
    check_group_configs("g", {SESSION: "5001"}, LOW)
    with pytest.raises(KafkaError, match=f"^{SHARE_SESSION} must be greater than {SHARE_HEARTBEAT}$"):
        check_group_configs("g", {SHARE_SESSION: "5000"}, LOW_SHARE)
    check_group_configs("g", {SHARE_SESSION: "5001"}, LOW_SHARE)


def test_there_are_no_configs_of_all_groups() -> None:
    with pytest.raises(KafkaError) as refused:
        check_group_configs("", {}, NONE)
    assert (refused.value.code, refused.value.message) == (
        ErrorCode.INVALID_REQUEST,
        "Default group resources are not allowed.",
    )


def test_what_holds_and_where_it_is_from() -> None:
    entries = {each.name: each for each in effective_group_configs({HEARTBEAT: "6000", RENEWAL: "false"}, LOW)}
    assert (entries[SESSION].value, entries[SESSION].source) == ("9000", ConfigSource.DYNAMIC_BROKER_CONFIG)
    assert (entries[HEARTBEAT].value, entries[HEARTBEAT].source) == ("6000", ConfigSource.GROUP_CONFIG)
    assert [(each.name, each.value) for each in entries[HEARTBEAT].synonyms] == [
        (HEARTBEAT, "6000"),
        ("group.consumer.heartbeat.interval.ms", "5000"),
    ]
    assert (entries[LOCK].value, entries[LOCK].source) == ("30000", ConfigSource.DEFAULT_CONFIG)
    assert (entries[RENEWAL].value, entries[RENEWAL].source) == ("false", ConfigSource.GROUP_CONFIG)
    assert [(each.name, each.value) for each in entries[RENEWAL].synonyms] == [(RENEWAL, "false"), (RENEWAL, "true")]
    assert (entries[RESET].value, entries[RESET].source) == ("latest", ConfigSource.DEFAULT_CONFIG)
