"""The configs of a group: what is refused, in Kafka's words, and what holds."""

from __future__ import annotations

import pytest

from moldau.base.config_def import BrokerLayers, ConfigSource
from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.group_configs import GROUP_CONFIGS, check_group_configs, effective_group_configs

SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
NONE = BrokerLayers()
LOW = BrokerLayers(
    {"group.consumer.min.session.timeout.ms": "1000", "group.consumer.session.timeout.ms": "9000"}, {}, {}
)


def test_kafkas_configs_of_consumer_groups_are_known() -> None:
    assert set(GROUP_CONFIGS) == {SESSION, HEARTBEAT}


@pytest.mark.parametrize("configs", [{}, {SESSION: "45000"}, {SESSION: "60000", HEARTBEAT: "15000"}])
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
        ({SESSION: "soon"}, f"Invalid value soon for configuration {SESSION}"),
        ({SESSION: "0"}, f"Invalid value 0 for configuration {SESSION}"),
    ],
)
def test_others_are_refused_as_kafka_does(configs: dict[str, str], message: str) -> None:
    with pytest.raises(KafkaError) as refused:
        check_group_configs("g", configs, NONE)
    assert refused.value.code is ErrorCode.INVALID_CONFIG
    assert message in refused.value.message


def test_a_session_must_be_longer_than_the_time_between_heartbeats() -> None:
    with pytest.raises(KafkaError, match=f"^{SESSION} must be greater than {HEARTBEAT}$"):
        check_group_configs("g", {SESSION: "5000"}, LOW)
    check_group_configs("g", {SESSION: "5001"}, LOW)


def test_there_are_no_configs_of_all_groups() -> None:
    with pytest.raises(KafkaError) as refused:
        check_group_configs("", {}, NONE)
    assert (refused.value.code, refused.value.message) == (
        ErrorCode.INVALID_REQUEST,
        "Default group resources are not allowed.",
    )


def test_what_holds_and_where_it_is_from() -> None:
    entries = {each.name: each for each in effective_group_configs({HEARTBEAT: "6000"}, LOW)}
    assert (entries[SESSION].value, entries[SESSION].source) == ("9000", ConfigSource.DEFAULT_CONFIG)
    assert (entries[HEARTBEAT].value, entries[HEARTBEAT].source) == ("6000", ConfigSource.GROUP_CONFIG)
    assert [(each.name, each.value) for each in entries[HEARTBEAT].synonyms] == [(HEARTBEAT, "6000")]
