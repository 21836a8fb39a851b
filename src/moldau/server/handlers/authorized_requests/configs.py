"""Authorization of AlterConfigs and IncrementalAlterConfigs, for each resource alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import compress
from operator import attrgetter, not_
from typing import Any, Final

from moldau.base.errors import KafkaError
from moldau.base.steps import Steps, TurnItems, map_in_steps
from moldau.base.turns import ITEMS_A_TURN
from moldau.metadata.controller.configs import AlteredResource
from moldau.security.acls.access import Access
from moldau.server.handlers.authorized_requests.authorized import Authorized, duplicates, unchanged
from moldau.server.handlers.config_access import altering_error
from moldau.wire.messages import alter_configs, incremental_alter_configs
from moldau.wire.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from moldau.wire.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

AlterRequest = AlterConfigsRequest | IncrementalAlterConfigsRequest
AlterResponse = AlterConfigsResponse | IncrementalAlterConfigsResponse
_KEY: Final = attrgetter("resource_type", "resource_name")


def authorize_alter_configs(request: AlterRequest, access: Access) -> Steps[Authorized]:
    unchecked = duplicates(map(_KEY, request.resources))

    def error(resource: AlteredResource) -> KafkaError | None:
        key = _KEY(resource)
        return None if key in unchecked else altering_error(access, *key)

    resources: Sequence[AlteredResource] = request.resources
    errors = yield from map_in_steps(TurnItems(ITEMS_A_TURN), resources, error)
    return without_refused(request, errors)


def without_refused(request: AlterRequest, errors: Sequence[KafkaError | None]) -> Authorized:
    """Take the resources that have an error out of a request."""
    if not any(errors):
        return Authorized(request, unchanged)
    resources: Sequence[AlteredResource] = request.resources
    refused = [(each, error) for each, error in zip(resources, errors, strict=True) if error is not None]
    rest: list[Any] = list(compress(resources, map(not_, errors)))
    is_full = isinstance(request, AlterConfigsRequest)
    result_class: Callable[[int, str | None, int, str], Any] = (
        alter_configs.AlterConfigsResourceResponse
        if is_full
        else incremental_alter_configs.AlterConfigsResourceResponse
    )

    def with_refused(response: AlterResponse) -> Steps[AlterResponse]:
        results = yield from map_in_steps(
            TurnItems(ITEMS_A_TURN),
            refused,
            lambda pair: result_class(pair[1].code, pair[1].message, *_KEY(pair[0])),
        )
        return type(response)(response.throttle_time_ms, [*response.responses, *results])

    return Authorized(type(request)(rest, request.validate_only) if rest else None, with_refused)
