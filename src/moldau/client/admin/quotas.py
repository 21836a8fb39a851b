"""Lists and changes client quotas. Errors are raised as KafkaError."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Final

from moldau.client.requests.ask import Ask, raise_error
from moldau.security.quotas.entities import Entity
from moldau.wire.apis import ApiKey
from moldau.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    OpData,
    RequestEntityData,
    RequestEntryData,
)
from moldau.wire.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)

MATCH_EXACT, MATCH_DEFAULT, MATCH_ANY = 0, 1, 2
"""How DescribeClientQuotas matches a name."""
Limits = dict[str, float]


class AnyName(Enum):
    ANY_NAME = 0


ANY_NAME: Final = AnyName.ANY_NAME


class Quotas:
    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    def all(self) -> dict[Entity, Limits]:
        return self._find(DescribeClientQuotasRequest(components=[], strict=False))

    def of(self, names: Sequence[tuple[str, str | AnyName | None]]) -> dict[Entity, Limits]:
        """Return the quotas of entities that have exactly these types; the name None is the default of its type."""
        components = [
            ComponentData(
                entity_type=kind,
                match_type=MATCH_ANY if name is ANY_NAME else MATCH_DEFAULT if name is None else MATCH_EXACT,
                match=name if isinstance(name, str) else None,
            )
            for kind, name in names
        ]
        return self._find(DescribeClientQuotasRequest(components=components, strict=True))

    def _find(self, request: DescribeClientQuotasRequest) -> dict[Entity, Limits]:
        response = self._ask(ApiKey.DESCRIBE_CLIENT_QUOTAS, request, DescribeClientQuotasResponse)
        raise_error(response.error_code, response.error_message)
        return {
            frozenset((part.entity_type, part.entity_name) for part in entry.entity): {
                value.key: value.value for value in sorted(entry.values, key=lambda value: value.key)
            }
            for entry in response.entries or ()
        }

    def alter(
        self, names: Sequence[tuple[str, str | None]], limits: Mapping[str, float], removed: Sequence[str] = ()
    ) -> None:
        """Set and remove limits of one entity; the name None is the default of its type."""
        changes = [OpData(key=key, value=value) for key, value in limits.items()]
        changes += [OpData(key=key, remove=True) for key in removed]
        entity = [RequestEntityData(entity_type=kind, entity_name=name) for kind, name in names]
        request = AlterClientQuotasRequest(entries=[RequestEntryData(entity=entity, ops=changes)])
        response = self._ask(ApiKey.ALTER_CLIENT_QUOTAS, request, AlterClientQuotasResponse)
        for entry in response.entries:
            raise_error(entry.error_code, entry.error_message)
