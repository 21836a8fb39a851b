"""The loggers of a node: described, and changed on that node only (KIP-412). The answers are Kafka's."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest
from harness.guarded_node import SUPER_USER, GuardedNode

from moldau.base.acl_operations import AclOperation
from moldau.base.errors import ErrorCode
from moldau.runtime.log_levels import LogLevels
from moldau.wire.apis import ApiKey
from moldau.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from moldau.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

BROKER_LOGGER, TOPIC = 8, 2
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
LOGGER = "moldau.only_here"
E = ErrorCode


@pytest.fixture(params=[False, True], ids=["broker", "controller"])
def of_controller(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def guarded() -> GuardedNode:
    return GuardedNode()


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    logger = logging.getLogger(LOGGER)
    logger.setLevel(logging.ERROR)
    yield logger
    logger.setLevel(logging.NOTSET)


def alter(guarded: GuardedNode, *changes: tuple[str, int, str | None], name: str = "1", **fields: Any) -> list[Any]:
    resource = AlterConfigsResource(BROKER_LOGGER, name, [AlterableConfig(*change) for change in changes])
    request = IncrementalAlterConfigsRequest([resource], fields.pop("validate_only", False))
    fields.setdefault("who", SUPER_USER)
    responses = guarded.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, request, 1, **fields).responses
    return [(each.error_code, each.error_message) for each in responses]


def describe(guarded: GuardedNode, name: str = "1", keys: list[str] | None = None, **fields: Any) -> Any:
    request = DescribeConfigsRequest([DescribeConfigsResource(BROKER_LOGGER, name, keys)], True, True)
    (result,) = guarded.ask(ApiKey.DESCRIBE_CONFIGS, request, 4, **{"who": SUPER_USER, **fields}).results
    return result


def test_loggers_are_described_set_and_unset(
    guarded: GuardedNode, logger: logging.Logger, of_controller: bool, caplog: pytest.LogCaptureFixture
) -> None:
    before = guarded.end_offset
    result = describe(guarded, of_controller=of_controller)
    levels = {each.name: each.value for each in result.configs}
    assert (result.error_code, levels[LOGGER]) == (0, "ERROR")
    assert levels.keys() >= {"root", "moldau", "moldau.node", "moldau.server"}
    assert {(each.config_source, each.config_type, each.read_only) for each in result.configs} == {(6, 0, False)}
    done = (0, None)
    assert alter(guarded, (LOGGER, SET, "TRACE"), of_controller=of_controller) == [done]
    assert logger.level < logging.DEBUG
    assert f"the log level of {LOGGER} is now TRACE" in caplog.text
    (asked,) = describe(guarded, "1", [LOGGER]).configs
    assert asked.value == "TRACE"
    assert alter(guarded, (LOGGER, DELETE, None), of_controller=of_controller) == [done]
    assert logger.level == logging.NOTSET
    assert alter(guarded, (LOGGER, SET, "FATAL"), validate_only=True, of_controller=of_controller) == [done]
    assert logger.level == logging.NOTSET
    assert guarded.end_offset == before, "nothing is written to the metadata log"


@pytest.mark.parametrize(
    ("changes", "name", "code", "message"),
    [
        (
            [(LOGGER, APPEND, "INFO")],
            "1",
            E.INVALID_REQUEST,
            "APPEND operation is not allowed for the BROKER_LOGGER resource",
        ),
        (
            [(LOGGER, SUBTRACT, "INFO")],
            "1",
            E.INVALID_REQUEST,
            "SUBTRACT operation is not allowed for the BROKER_LOGGER resource",
        ),
        ([(LOGGER, 9, "INFO")], "1", E.INVALID_REQUEST, "Unknown operation type 9 is not allowed for the"),
        ([("moldau.nobody", SET, "INFO")], "1", E.INVALID_CONFIG, "Logger moldau.nobody does not exist!"),
        ([("asyncio", SET, "INFO")], "1", E.INVALID_CONFIG, "Logger asyncio does not exist!"),
        ([("moldau.nobody", DELETE, None)], "1", E.INVALID_CONFIG, "Logger moldau.nobody does not exist!"),
        (
            [(LOGGER, SET, "debug")],
            "1",
            E.INVALID_CONFIG,
            f"Cannot set the log level of {LOGGER} to debug as it is not a supported log level. Valid log levels are"
            " DEBUG, ERROR, FATAL, INFO, TRACE, WARN",
        ),
        ([("root", DELETE, None)], "1", E.INVALID_REQUEST, "Removing the log level of the root logger is not allowed"),
        ([(LOGGER, SET, None)], "1", E.INVALID_REQUEST, f"Null value not supported for : {LOGGER}"),
        ([(LOGGER, SET, "INFO"), (LOGGER, DELETE, None)], "1", E.INVALID_REQUEST, "Error due to duplicate config keys"),
        ([(LOGGER, SET, "INFO")], "2", E.INVALID_REQUEST, "Unexpected node id. Expected 1, but received 2"),
        ([(LOGGER, SET, "INFO")], "x", E.INVALID_REQUEST, "Node id must be an integer, but it is: x"),
        ([(LOGGER, SET, "INFO"), ("x", SET, "INFO")], "1", E.INVALID_CONFIG, "Logger x does not exist!"),
    ],
)
def test_changes_that_kafka_refuses(
    guarded: GuardedNode,
    logger: logging.Logger,
    changes: list[tuple[str, int, str | None]],
    name: str,
    code: ErrorCode,
    message: str,
) -> None:
    ((refused, text),) = alter(guarded, *changes, name=name)
    assert (refused, text[: len(message)]) == (code, message)
    assert logger.level == logging.ERROR


def test_only_this_node_is_described(guarded: GuardedNode) -> None:
    texts = [describe(guarded, name).error_message for name in ("", "2")]
    assert texts == ["Broker id must not be empty", "Unexpected broker id, expected 1 but received 2"]


def test_it_needs_rights_on_the_cluster(guarded: GuardedNode, logger: logging.Logger, of_controller: bool) -> None:
    as_alice = {"who": "User:alice", "of_controller": of_controller}
    assert describe(guarded, **as_alice).error_code == E.CLUSTER_AUTHORIZATION_FAILED
    ((denied, _),) = alter(guarded, (LOGGER, SET, "INFO"), **as_alice)
    assert (denied, logger.level) == (E.CLUSTER_AUTHORIZATION_FAILED, logging.ERROR)
    guarded.allow_cluster(AclOperation.ALTER_CONFIGS)
    assert alter(guarded, (LOGGER, SET, "INFO"), **as_alice) == [(0, None)]


def test_resources_of_one_request_have_one_result_each(guarded: GuardedNode, logger: logging.Logger) -> None:
    guarded.node.create_topic("t")
    level = AlterableConfig(LOGGER, SET, "INFO")
    resources = [
        AlterConfigsResource(BROKER_LOGGER, "1", [level]),
        AlterConfigsResource(TOPIC, "t", [AlterableConfig("retention.ms", SET, "5")]),
    ]
    request = IncrementalAlterConfigsRequest(resources)
    answered = guarded.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, request, 1, SUPER_USER).responses
    assert {(each.resource_type, each.error_code) for each in answered} == {(BROKER_LOGGER, 0), (TOPIC, 0)}
    assert logger.level == logging.INFO
    twice = IncrementalAlterConfigsRequest([AlterConfigsResource(BROKER_LOGGER, "1", [AlterableConfig(LOGGER, 1)])] * 2)
    for who in (SUPER_USER, "User:alice"):
        answered = guarded.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, twice, 1, who).responses
        assert {each.error_code for each in answered} == {E.INVALID_REQUEST}
    assert logger.level == logging.INFO


@pytest.fixture
def audit() -> Iterator[logging.Logger]:
    loggers = [logging.getLogger("moldau.audit"), logging.root]
    before = [each.level for each in loggers]
    yield loggers[0]
    for each, level in zip(loggers, before, strict=True):
        each.setLevel(level)


@pytest.mark.parametrize("change", [("moldau.audit", SET, "WARN"), ("moldau.audit", DELETE, None)])
def test_the_audit_log_cannot_be_hidden(
    guarded: GuardedNode, audit: logging.Logger, change: tuple[str, int, str | None]
) -> None:
    audit.setLevel(logging.INFO)
    ((refused, text),) = alter(guarded, change)
    assert (refused, text) == (E.INVALID_REQUEST, "The lines of moldau.audit cannot be hidden while the broker runs")
    assert alter(guarded, ("moldau.audit", SET, "DEBUG")) == [(0, None)]
    assert audit.level == logging.DEBUG


def test_a_change_above_the_audit_log_does_not_hide_it(guarded: GuardedNode, audit: logging.Logger) -> None:
    audit.setLevel(logging.NOTSET)
    logging.root.setLevel(logging.INFO)
    assert alter(guarded, ("root", SET, "FATAL")) == [(0, None)]
    assert (logging.root.level, audit.getEffectiveLevel()) == (logging.CRITICAL, logging.INFO)


def test_levels_between_those_of_kafka_have_the_name_of_what_is_written() -> None:
    root = logging.RootLogger(logging.INFO + 5)
    root.manager = logging.Manager(root)  # type: ignore[misc]
    levels = LogLevels(root)
    assert levels.levels() == {"moldau": "WARN", "root": "WARN"}
    for number, name in ((0, "TRACE"), (5, "TRACE"), (10, "DEBUG"), (40, "ERROR"), (50, "FATAL"), (51, "FATAL")):
        root.setLevel(number)
        assert levels.levels()["root"] == name
