"""AlterClientQuotas v0–1."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from operator import attrgetter
from typing import Any

from moldau.base.errors import KafkaError
from moldau.base.promise import Promise
from moldau.base.steps import Steps, TurnItems, map_in_steps
from moldau.base.turns import LISTED_A_TURN
from moldau.metadata.controller.client_quotas import decide_alter_client_quotas
from moldau.security.acls.requirements import CLUSTER_ALTER_CONFIGS
from moldau.security.principals import Client
from moldau.server.admin_actions import NAMES_MAX, AdminAction, Lazy, first_joined
from moldau.server.handlers.forwarded import Deciders, ForwardedHandler
from moldau.wire.apis import ApiKey
from moldau.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    ResponseEntityData,
    ResponseEntryData,
)


class AlterClientQuotas(ForwardedHandler):
    api = ApiKey.ALTER_CLIENT_QUOTAS
    versions = (0, 1)
    needs = (CLUSTER_ALTER_CONFIGS,)

    @staticmethod
    def decide(
        deciders: Deciders, request: AlterClientQuotasRequest, version: int, client: Client | None
    ) -> Promise[Any]:
        return deciders.admin.submit(lambda image: decide_alter_client_quotas(image, request))

    def refuse(self, request: AlterClientQuotasRequest, error: KafkaError) -> Steps[AlterClientQuotasResponse]:
        turn = TurnItems(LISTED_A_TURN)
        entries: list[ResponseEntryData] = []
        for entry in request.entries:
            entity = yield from map_in_steps(
                turn, entry.entity, lambda part: ResponseEntityData(part.entity_type, part.entity_name)
            )
            entries.append(ResponseEntryData(error.code, error.message, entity))
            if turn.ends_after(1):
                yield
        return AlterClientQuotasResponse(entries=entries)

    @staticmethod
    def admin_actions(request: Any, response: Any) -> Iterator[AdminAction]:
        part_key = attrgetter("entity_type", "entity_name")
        changes = {frozenset(map(part_key, entry.entity)): entry.ops for entry in request.entries}
        for result in response.entries:
            ops = changes.get(frozenset(map(part_key, result.entity)), ())
            yield AdminAction(
                f"quota:{_quota_entity(result.entity)}", result.error_code, Lazy(partial(_quota_changes, ops))
            )


def _quota_changes(ops: Sequence[Any]) -> str:
    changes = (f"delete:{change.key}" if change.remove else f"{change.key}={change.value:g}" for change in ops)
    return first_joined(changes, len(ops))


def _quota_entity(parts: Sequence[Any]) -> str:
    """Return the parts in order, of an entity with nonsensically many parts only the first."""
    some = parts[:NAMES_MAX]
    names = ("<default>" if part.entity_name is None else part.entity_name for part in some)
    return ",".join(sorted(f"{part.entity_type}={name}" for part, name in zip(some, names, strict=True)))
