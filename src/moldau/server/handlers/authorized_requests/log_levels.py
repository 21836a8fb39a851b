"""Changes of log levels in IncrementalAlterConfigs (KIP-412): the node that gets the request makes them itself, and
only on itself. The controller sees the rest of the request."""

from __future__ import annotations

import re
from collections.abc import Sequence
from operator import attrgetter
from typing import Final

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.steps import Steps, TurnItems, WaitingSteps, map_in_steps
from moldau.base.turns import ITEMS_A_TURN
from moldau.metadata.controller.configs import Operation
from moldau.metadata.records import ConfigResource
from moldau.runtime.log_levels import AUDIT, LEVELS, ROOT, LogLevels
from moldau.security.acls.access import Access
from moldau.server.handlers.authorized_requests.authorized import Authorize, Authorized, duplicates, split
from moldau.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

SHOWN_LENGTH_MAX: Final = 100
SHOWS_ACTIONS: Final = ("TRACE", "DEBUG", "INFO")
_KEY: Final = attrgetter("resource_type", "resource_name")
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,10}", re.ASCII)


def changing_log_levels(authorize: Authorize, node_id: int, log_levels: LogLevels) -> Authorize:
    def authorize_and_change(request: IncrementalAlterConfigsRequest, access: Access) -> WaitingSteps[Authorized]:
        authorized = yield from authorize(request, access)
        if not isinstance(authorized.request, IncrementalAlterConfigsRequest):
            return authorized
        turn = TurnItems(ITEMS_A_TURN)
        # The controller refuses resources of one name, but only if it sees all of them.
        repeated = duplicates(map(_KEY, request.resources))
        others, loggers = yield from split(
            turn,
            authorized.request.resources,
            lambda each: each.resource_type != ConfigResource.BROKER_LOGGER or _KEY(each) in repeated,
        )
        if not loggers:
            return authorized
        outcomes = yield from map_in_steps(
            turn, loggers, lambda each: _outcome(each, node_id, log_levels, request.validate_only)
        )

        def with_outcomes(response: IncrementalAlterConfigsResponse) -> Steps[IncrementalAlterConfigsResponse]:
            rest = yield from authorized.with_refused(response)
            assert isinstance(rest, IncrementalAlterConfigsResponse), "it returns what it was given"
            return IncrementalAlterConfigsResponse(rest.throttle_time_ms, [*rest.responses, *outcomes])

        left = IncrementalAlterConfigsRequest(others, request.validate_only) if others else None
        return Authorized(left, with_outcomes)

    return authorize_and_change


def _outcome(
    resource: AlterConfigsResource, node_id: int, log_levels: LogLevels, validate_only: bool
) -> AlterConfigsResourceResponse:
    error, message = ErrorCode.NONE, None
    try:
        _check(resource, node_id, log_levels)
        if not validate_only:
            _change(resource.configs, log_levels)
    except KafkaError as refused:
        error, message = refused.code, refused.message
    return AlterConfigsResourceResponse(error, message, resource.resource_type, resource.resource_name)


def _check(resource: AlterConfigsResource, node_id: int, log_levels: LogLevels) -> None:
    """Raise KafkaError, with Kafka's messages, if one of the changes is not possible: then none is made."""
    if duplicates(config.name for config in resource.configs):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    nulls = [config.name for config in resource.configs if config.value is None and _sets(config)]
    if nulls:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {_shown(','.join(nulls))}")
    name = resource.resource_name
    if not _INTEGER.fullmatch(name):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Node id must be an integer, but it is: {_shown(name)}")
    if int(name) != node_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unexpected node id. Expected {node_id}, but received {int(name)}")
    known = log_levels.levels()
    for config in resource.configs:
        _check_change(config, known)


def _check_change(config: AlterableConfig, known: dict[str, str]) -> None:
    operation = config.config_operation
    if operation not in (Operation.SET, Operation.DELETE):
        operations: dict[int, str] = {
            Operation.APPEND: "APPEND operation",
            Operation.SUBTRACT: "SUBTRACT operation",
        }
        what = operations.get(operation, f"Unknown operation type {operation}")
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{what} is not allowed for the BROKER_LOGGER resource")
    if config.name == AUDIT and (operation == Operation.DELETE or config.value not in SHOWS_ACTIONS):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"The lines of {AUDIT} cannot be hidden while the broker runs")
    if config.name not in known:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Logger {_shown(config.name)} does not exist!")
    if operation == Operation.SET and config.value not in LEVELS:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"Cannot set the log level of {config.name} to {_shown(config.value or '')} as it is not a supported log"
            f" level. Valid log levels are {', '.join(sorted(LEVELS))}",
        )
    if operation == Operation.DELETE and config.name == ROOT:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Removing the log level of the {ROOT} logger is not allowed")


def _change(configs: Sequence[AlterableConfig], log_levels: LogLevels) -> None:
    for config in configs:
        if _sets(config):
            assert config.value is not None, "it was checked"
            log_levels.set(config.name, config.value)
        else:
            log_levels.unset(config.name)


def _sets(config: AlterableConfig) -> bool:
    return config.config_operation == Operation.SET


def _shown(text: str) -> str:
    return text if len(text) <= SHOWN_LENGTH_MAX else text[:SHOWN_LENGTH_MAX] + "..."
