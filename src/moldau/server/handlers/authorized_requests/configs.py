"""Authorization of AlterConfigs and IncrementalAlterConfigs, for each resource alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from moldau.base.errors import KafkaError
from moldau.security.acls.access import Access
from moldau.server.handlers.authorized_requests.authorized import Authorized, duplicates, unchanged
from moldau.server.handlers.config_access import altering_error
from moldau.wire.messages import alter_configs, incremental_alter_configs
from moldau.wire.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from moldau.wire.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

R = TypeVar("R", alter_configs.AlterConfigsResource, incremental_alter_configs.AlterConfigsResource)


def authorize_alter_configs(request: AlterConfigsRequest, access: Access) -> Authorized:
    allowed, errors = _split(request.resources, access)
    if not errors:
        return Authorized(request, unchanged)
    denials = [
        alter_configs.AlterConfigsResourceResponse(error.code, error.message, each.resource_type, each.resource_name)
        for each, error in errors
    ]
    return Authorized(
        AlterConfigsRequest(allowed, request.validate_only) if allowed else None,
        lambda response: AlterConfigsResponse(response.throttle_time_ms, [*response.responses, *denials]),
    )


def authorize_incremental_alter_configs(request: IncrementalAlterConfigsRequest, access: Access) -> Authorized:
    allowed, errors = _split(request.resources, access)
    if not errors:
        return Authorized(request, unchanged)
    denials = [
        incremental_alter_configs.AlterConfigsResourceResponse(
            error.code, error.message, each.resource_type, each.resource_name
        )
        for each, error in errors
    ]
    return Authorized(
        IncrementalAlterConfigsRequest(allowed, request.validate_only) if allowed else None,
        lambda response: IncrementalAlterConfigsResponse(response.throttle_time_ms, [*response.responses, *denials]),
    )


def _split(resources: Sequence[R], access: Access) -> tuple[list[R], list[tuple[R, KafkaError]]]:
    """Return the resources that may be sent to the controller, and the others with their errors."""
    unchecked = duplicates((each.resource_type, each.resource_name) for each in resources)
    allowed: list[R] = []
    errors: list[tuple[R, KafkaError]] = []
    for each in resources:
        key = (each.resource_type, each.resource_name)
        error = None if key in unchecked else altering_error(access, *key)
        if error is None:
            allowed.append(each)
        else:
            errors.append((each, error))
    return allowed, errors
