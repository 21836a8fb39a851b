"""DescribeClientQuotas v0–1 (KIP-546). The quotas whose entities fit a filter; a broker answers from its image."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from moldau.base.clock import Timers
from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.promise import Promise
from moldau.base.steps import Steps, TurnItems, split
from moldau.base.turns import ITEMS_A_TURN
from moldau.metadata.current import CurrentImage
from moldau.security.acls.denials import denied
from moldau.security.acls.requirements import CLUSTER_DESCRIBE_CONFIGS
from moldau.security.quotas.entities import ENTITY_TYPES, IP, Entity
from moldau.server.handler import Caller, Handler
from moldau.server.handlers.replies import run_steps
from moldau.wire.apis import ApiKey
from moldau.wire.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)

EXACT: Final = 0
DEFAULT: Final = 1
SPECIFIED: Final = 2
"""Any name, or the default."""


class DescribeClientQuotas(Handler):
    api = ApiKey.DESCRIBE_CLIENT_QUOTAS
    versions = (0, 1)
    needs = (CLUSTER_DESCRIBE_CONFIGS,)

    def __init__(self, current: CurrentImage, timers: Timers) -> None:
        self._current = current
        self._timers = timers

    def answer(
        self, request: DescribeClientQuotasRequest, caller: Caller
    ) -> DescribeClientQuotasResponse | Promise[DescribeClientQuotasResponse]:
        if not caller.access.allows(CLUSTER_DESCRIBE_CONFIGS):
            return _error(KafkaError(denied(CLUSTER_DESCRIBE_CONFIGS).code))
        try:
            _check(request.components)
        except KafkaError as error:
            return _error(error)
        return run_steps(self._timers, self._describe(request))

    def _describe(self, request: DescribeClientQuotasRequest) -> Steps[DescribeClientQuotasResponse]:
        turn = TurnItems(ITEMS_A_TURN)
        found: list[EntryData] = []
        for some in split(list(self._current.image.client_quotas.items()), ITEMS_A_TURN):
            found += [_entry(entity, limits) for entity, limits in some if _matches(dict(entity), request)]
            if turn.ends_after(len(some)):
                yield
        return DescribeClientQuotasResponse(entries=found)


def _entry(entity: Entity, limits: Mapping[str, float]) -> EntryData:
    return EntryData(
        [EntityData(*part) for part in sorted(entity, key=lambda part: part[0])],
        [ValueData(*limit) for limit in sorted(limits.items())],
    )


def _error(error: KafkaError) -> DescribeClientQuotasResponse:
    return DescribeClientQuotasResponse(error_code=error.code, error_message=error.message, entries=None)


def _check(components: Sequence[ComponentData]) -> None:
    kinds: set[str] = set()
    for component in components:
        kind = component.entity_type
        if not kind:
            raise _invalid("Invalid empty entity type.")
        if kind in kinds:
            raise _invalid(f"Entity type {kind} cannot appear more than once in the filter.")
        if kind not in ENTITY_TYPES:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {kind}")
        kinds.add(kind)
        _check_match(component)
    if IP in kinds and len(kinds) > 1:
        raise _invalid(
            "Invalid entity filter component combination. IP filter component should not be used with user or clientId"
            " filter component."
        )


def _check_match(component: ComponentData) -> None:
    names = {EXACT: "MATCH_TYPE_EXACT", DEFAULT: "MATCH_TYPE_DEFAULT", SPECIFIED: "MATCH_TYPE_SPECIFIED"}
    name = names.get(component.match_type)
    if name is None:
        raise _invalid(f"Unknown match type {component.match_type}")
    if component.match_type == EXACT and component.match is None:
        raise _invalid(f"Request specified {name}, but set match string to null.")
    if component.match_type != EXACT and component.match is not None:
        raise _invalid(f"Request specified {name}, but also specified a match string.")


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)


def _matches(names: dict[str, str | None], request: DescribeClientQuotasRequest) -> bool:
    if request.strict and names.keys() != {component.entity_type for component in request.components}:
        return False
    return all(_fits(names, component) for component in request.components)


def _fits(names: dict[str, str | None], component: ComponentData) -> bool:
    if component.entity_type not in names:
        return False
    if component.match_type == SPECIFIED:
        return True
    return names[component.entity_type] == (None if component.match_type == DEFAULT else component.match)
