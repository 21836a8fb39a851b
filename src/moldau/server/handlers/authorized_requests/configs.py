"""Authorization of AlterConfigs and IncrementalAlterConfigs, for each resource alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import compress
from operator import attrgetter, not_
from typing import Any, Final, TypeVar

from moldau.base.errors import KafkaError
from moldau.base.steps import Steps, TurnItems, map_in_steps, no_steps
from moldau.security.acls.access import Access
from moldau.server.handlers.authorized_requests.authorized import (
    AUTHORIZED_A_TURN,
    Authorized,
    duplicates,
    unchanged,
)
from moldau.server.handlers.config_access import altering_error
from moldau.wire.messages import alter_configs, incremental_alter_configs
from moldau.wire.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from moldau.wire.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

R = TypeVar("R", alter_configs.AlterConfigsResource, incremental_alter_configs.AlterConfigsResource)


_KEY: Final = attrgetter("resource_type", "resource_name")


def authorize_alter_configs(request: AlterConfigsRequest, access: Access) -> Steps[Authorized]:
    allowed, denials = yield from _split(request.resources, access, alter_configs.AlterConfigsResourceResponse)
    if not denials:
        return Authorized(request, unchanged)
    return Authorized(
        AlterConfigsRequest(allowed, request.validate_only) if allowed else None,
        lambda response: no_steps(AlterConfigsResponse(response.throttle_time_ms, [*response.responses, *denials])),
    )


def authorize_incremental_alter_configs(request: IncrementalAlterConfigsRequest, access: Access) -> Steps[Authorized]:
    allowed, denials = yield from _split(
        request.resources, access, incremental_alter_configs.AlterConfigsResourceResponse
    )
    if not denials:
        return Authorized(request, unchanged)
    return Authorized(
        IncrementalAlterConfigsRequest(allowed, request.validate_only) if allowed else None,
        lambda response: no_steps(
            IncrementalAlterConfigsResponse(response.throttle_time_ms, [*response.responses, *denials])
        ),
    )


def _split(
    resources: Sequence[R], access: Access, denial: Callable[[int, str | None, int, str], Any]
) -> Steps[tuple[list[R], list[Any]]]:
    """Return the resources that may be sent to the controller, and a `denial` for each of the others."""
    unchecked = duplicates(map(_KEY, resources))
    turn = TurnItems(AUTHORIZED_A_TURN)

    def error(resource: R) -> KafkaError | None:
        key = _KEY(resource)
        return None if key in unchecked else altering_error(access, *key)

    errors = yield from map_in_steps(turn, resources, error)
    denied = [(each, error) for each, error in zip(resources, errors, strict=True) if error is not None]
    denials = yield from map_in_steps(turn, denied, lambda pair: denial(pair[1].code, pair[1].message, *_KEY(pair[0])))
    return list(compress(resources, map(not_, errors))), denials
