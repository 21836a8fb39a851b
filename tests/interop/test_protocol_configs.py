"""DescribeConfigs, AlterConfigs and IncrementalAlterConfigs: sources, synonyms, documentation, lists and refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from batches import batch
from harness.patience import wait_until
from kio.schema.errors import ErrorCode
from protocol_requests import metadata, produce
from wire_client import Wire, message

CreateTopic = Callable[..., str]
TOPIC, BROKER = 2, 4
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
DYNAMIC_TOPIC, STATIC_BROKER, DEFAULT = 1, 4, 5


@pytest.fixture
def name(create_topic: CreateTopic) -> str:
    return create_topic()


@pytest.fixture
def node(wire: Wire) -> str:
    return str(metadata(wire, []).brokers[0].node_id)


def describe(wire: Wire, kind: int, resource: str, keys: list[str] | None = None, **fields: Any) -> Any:
    requested = [{"resource_type": kind, "resource_name": resource, "configuration_keys": keys}]
    flags = {"include_synonyms": False, "include_documentation": False} | fields
    (result,) = wire.ask(message("describe_configs", 4, resources=requested, **flags)).results
    return result


def entry(wire: Wire, name: str, key: str, **fields: Any) -> Any:
    (config,) = describe(wire, TOPIC, name, [key], **fields).configs
    return config


def incremental(wire: Wire, name: str, *changes: tuple[str, int, str | None], **fields: Any) -> int:
    configs = [{"name": key, "config_operation": operation, "value": value} for key, operation, value in changes]
    resources = [{"resource_type": fields.pop("kind", TOPIC), "resource_name": name, "configs": configs}]
    answer = wire.ask(
        message("incremental_alter_configs", 1, resources=resources, validate_only=fields.pop("validate_only", False))
    )
    (result,) = answer.responses
    return int(result.error_code)


# ---- describing


def test_all_configs_of_a_topic(wire: Wire, name: str) -> None:
    result = describe(wire, TOPIC, name)
    assert (result.error_code, result.resource_name, result.resource_type) == (0, name, TOPIC)
    shown = {config.name: config for config in result.configs}
    assert shown.keys() >= {
        "cleanup.policy",
        "compression.type",
        "delete.retention.ms",
        "file.delete.delay.ms",
        "flush.messages",
        "flush.ms",
        "index.interval.bytes",
        "max.compaction.lag.ms",
        "max.message.bytes",
        "message.timestamp.after.max.ms",
        "message.timestamp.before.max.ms",
        "message.timestamp.type",
        "min.cleanable.dirty.ratio",
        "min.compaction.lag.ms",
        "min.insync.replicas",
        "preallocate",
        "retention.bytes",
        "retention.ms",
        "segment.bytes",
        "segment.index.bytes",
        "segment.jitter.ms",
        "segment.ms",
        "unclean.leader.election.enable",
    }
    assert not any(config.is_sensitive or config.read_only for config in result.configs)


@pytest.mark.parametrize(
    ("key", "value", "kind"),
    [
        ("cleanup.policy", "delete", 7),
        ("retention.ms", "604800000", 5),
        ("segment.bytes", "1073741824", 3),
        ("max.message.bytes", "1048588", 3),
        ("compression.type", "producer", 2),
        ("preallocate", "false", 1),
        ("min.cleanable.dirty.ratio", "0.5", 6),
        ("message.timestamp.after.max.ms", "3600000", 5),
        ("message.timestamp.before.max.ms", "9223372036854775807", 5),
    ],
)
def test_defaults_and_types(wire: Wire, name: str, key: str, value: str, kind: int) -> None:
    config = entry(wire, name, key)
    assert (config.value, config.config_type, config.config_source) == (value, kind, DEFAULT)
    assert config.synonyms == ()
    assert config.documentation is None


def test_describe_returns_only_the_requested_keys(wire: Wire, name: str) -> None:
    result = describe(wire, TOPIC, name, ["retention.ms", "no.such.config", "segment.ms"])
    assert sorted(config.name for config in result.configs) == ["retention.ms", "segment.ms"]


@pytest.mark.moldau_only
def test_configs_come_in_the_order_in_which_their_keys_were_asked_for(wire: Wire, name: str, node: str) -> None:
    for kind, resource, keys in (
        (TOPIC, name, ["segment.ms", "cleanup.policy", "retention.ms", "cleanup.policy"]),
        (BROKER, node, ["num.partitions", "log.retention.hours", "background.threads"]),
    ):
        found = [config.name for config in describe(wire, kind, resource, keys).configs]
        assert found == list(dict.fromkeys(keys))


def test_success_has_an_empty_error_message(wire: Wire, name: str) -> None:
    assert describe(wire, TOPIC, name, ["retention.ms"]).error_message == ""


def test_an_empty_key_list_returns_all_configs(wire: Wire, name: str) -> None:
    """An empty list and null both request everything."""
    assert len(describe(wire, TOPIC, name, []).configs) == len(describe(wire, TOPIC, name).configs) >= 33


def test_synonyms_show_where_a_value_came_from(wire: Wire, create_topic: CreateTopic) -> None:
    name = create_topic(config={"max.message.bytes": "5000"})

    def synonyms(key: str) -> list[tuple[str, str, int]]:
        return [(s.name, s.value, s.source) for s in entry(wire, name, key, include_synonyms=True).synonyms]

    assert synonyms("max.message.bytes") == [
        ("max.message.bytes", "5000", DYNAMIC_TOPIC),
        ("message.max.bytes", "1048588", DEFAULT),
    ]
    assert synonyms("segment.bytes") == [("log.segment.bytes", "1073741824", DEFAULT)]


def test_documentation_is_returned_on_request(wire: Wire, name: str) -> None:
    assert entry(wire, name, "retention.ms", include_documentation=True).documentation


def test_broker_configs(wire: Wire, node: str) -> None:
    result = describe(wire, BROKER, node)
    shown = {config.name: config for config in result.configs}
    assert result.error_code == 0
    assert shown["message.max.bytes"].value == "1048588"
    assert shown["node.id"].value == node
    assert shown["node.id"].read_only
    assert {"log.dirs", "num.partitions", "log.retention.ms", "advertised.listeners", "listeners"} <= shown.keys()


def test_describing_unknown_resources_is_refused(wire: Wire, topic: Callable[[], str]) -> None:
    assert describe(wire, TOPIC, topic()).error_code == ErrorCode.unknown_topic_or_partition
    assert describe(wire, TOPIC, "not/valid").error_code == ErrorCode.invalid_topic_exception
    assert describe(wire, BROKER, "4711").error_code == ErrorCode.invalid_request
    assert describe(wire, BROKER, "x").error_code == ErrorCode.invalid_request
    assert describe(wire, 99, "x").error_code == ErrorCode.invalid_request


# ---- changing


def test_set_and_delete(wire: Wire, name: str) -> None:
    assert incremental(wire, name, ("retention.ms", SET, "1000")) == 0
    config = entry(wire, name, "retention.ms")
    assert (config.value, config.config_source) == ("1000", DYNAMIC_TOPIC)
    assert incremental(wire, name, ("retention.ms", DELETE, None)) == 0
    assert entry(wire, name, "retention.ms").config_source == DEFAULT


def test_append_and_subtract(wire: Wire, name: str) -> None:
    """Appending starts from the effective value, even if that is a default."""
    assert incremental(wire, name, ("cleanup.policy", APPEND, "compact")) == 0
    assert entry(wire, name, "cleanup.policy").value == "delete,compact"
    assert incremental(wire, name, ("cleanup.policy", APPEND, "compact")) == 0
    assert entry(wire, name, "cleanup.policy").value == "delete,compact"
    assert incremental(wire, name, ("cleanup.policy", SUBTRACT, "delete")) == 0
    assert entry(wire, name, "cleanup.policy").value == "compact"
    assert incremental(wire, name, ("cleanup.policy", SUBTRACT, "delete")) == 0
    assert entry(wire, name, "cleanup.policy").value == "compact"


def test_append_to_a_config_that_is_not_a_list(wire: Wire, name: str) -> None:
    assert incremental(wire, name, ("retention.ms", APPEND, "1")) == ErrorCode.invalid_config
    assert incremental(wire, name, ("retention.ms", SUBTRACT, "1")) == ErrorCode.invalid_config


@pytest.mark.parametrize(
    ("key", "value"),
    [("no.such.config", "1"), ("retention.ms", "soon"), ("cleanup.policy", "keep"), ("segment.bytes", "13")],
)
def test_unknown_configs_and_invalid_values_are_refused(wire: Wire, name: str, key: str, value: str) -> None:
    assert incremental(wire, name, (key, SET, value)) == ErrorCode.invalid_config


def test_one_unknown_key_rejects_all_changes_of_the_resource(wire: Wire, name: str) -> None:
    assert incremental(wire, name, ("retention.ms", SET, "1"), ("no.such.config", SET, "1")) == ErrorCode.invalid_config
    assert entry(wire, name, "retention.ms").config_source == DEFAULT


def test_a_duplicate_key_is_refused(wire: Wire, name: str) -> None:
    assert incremental(wire, name, ("retention.ms", SET, "1"), ("retention.ms", SET, "2")) == ErrorCode.invalid_request
    assert entry(wire, name, "retention.ms").config_source == DEFAULT


def test_null_values_and_unknown_operations_are_refused(wire: Wire, name: str) -> None:
    assert incremental(wire, name, ("retention.ms", SET, None)) == ErrorCode.invalid_request
    # Apache fails internally on the second one (-1); a clear error is better.
    assert incremental(wire, name, ("retention.ms", 9, "1")) in (-1, ErrorCode.invalid_request)
    assert entry(wire, name, "retention.ms").config_source == DEFAULT


def test_validate_only_changes_nothing(wire: Wire, name: str) -> None:
    assert incremental(wire, name, ("retention.ms", SET, "1"), validate_only=True) == 0
    assert incremental(wire, name, ("retention.ms", SET, "x"), validate_only=True) == ErrorCode.invalid_config
    assert entry(wire, name, "retention.ms").config_source == DEFAULT


def test_altering_an_unknown_topic_is_refused(wire: Wire, topic: Callable[[], str]) -> None:
    assert incremental(wire, topic(), ("retention.ms", SET, "1")) == ErrorCode.unknown_topic_or_partition


def test_a_duplicate_resource_is_refused(wire: Wire, name: str) -> None:
    one = {"resource_type": TOPIC, "resource_name": name}
    one["configs"] = [{"name": "retention.ms", "config_operation": SET, "value": "1"}]
    answer = wire.ask(message("incremental_alter_configs", 1, resources=[one, one], validate_only=False))
    assert {int(result.error_code) for result in answer.responses} == {42}


def test_alter_configs_replaces_everything(wire: Wire, create_topic: CreateTopic) -> None:
    name = create_topic(config={"retention.ms": "1000", "segment.ms": "2000"})
    resources = [
        {"resource_type": TOPIC, "resource_name": name, "configs": [{"name": "retention.ms", "value": "3000"}]}
    ]
    (result,) = wire.ask(message("alter_configs", 2, resources=resources, validate_only=False)).responses
    assert result.error_code == 0
    assert entry(wire, name, "retention.ms").value == "3000"
    assert entry(wire, name, "segment.ms").config_source == DEFAULT


def test_a_changed_max_message_bytes_takes_effect(wire: Wire, name: str) -> None:
    assert produce(wire, name, batch([b"x" * 1000])).error_code == 0
    assert incremental(wire, name, ("max.message.bytes", SET, "500")) == 0
    wait_until(
        lambda: produce(wire, name, batch([b"x" * 1000])).error_code == ErrorCode.message_too_large,
        "the new limit is applied",
    )
