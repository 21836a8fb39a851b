"""Changing client quotas: AlterClientQuotas v0–1 (KIP-546). Each entity succeeds or fails alone."""

from __future__ import annotations

import math
from collections.abc import Mapping
from ipaddress import ip_address
from operator import itemgetter
from typing import Final

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.limits import CHANGES_OF_REQUEST_MAX, INT32_MAX, INT64_MAX
from moldau.base.steps import Steps, TurnItems, map_in_steps
from moldau.base.turns import ITEMS_A_TURN
from moldau.metadata.controller.decision import Decision
from moldau.metadata.image import MetadataImage
from moldau.security.quotas.entities import (
    CLIENT_KEYS,
    CONSUMER_BYTE_RATE,
    ENTITY_TYPES,
    IP,
    IP_KEYS,
    PRODUCER_BYTE_RATE,
    Entity,
)
from moldau.wire.log_records.metadata import ClientQuotaRecord, QuotaEntity
from moldau.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    OpData,
    RequestEntryData,
    ResponseEntityData,
    ResponseEntryData,
)

ENTITY_COST: Final = 3
"""An entity takes as long to decide as so many of its quotas."""
FRACTION_MAX: Final = 1e-6
"""A whole number may differ by so much: the request carries floats."""


def decide_alter_client_quotas(
    image: MetadataImage, request: AlterClientQuotasRequest
) -> Steps[Decision[AlterClientQuotasResponse]]:
    turn = TurnItems(ITEMS_A_TURN)
    if sum(len(entry.ops) for entry in request.entries) > CHANGES_OF_REQUEST_MAX:
        refusal = KafkaError(ErrorCode.POLICY_VIOLATION, f"More than {CHANGES_OF_REQUEST_MAX} quotas in one request.")
        refused: list[ResponseEntryData] = []
        for entry in request.entries:
            if turn.ends_after(1):
                yield
            refused.append((yield from _result(turn, _entity(entry), refusal)))
        return Decision(AlterClientQuotasResponse(entries=refused))
    results: dict[Entity, ResponseEntryData] = {}
    records: list[ClientQuotaRecord] = []
    for entry in request.entries:
        if turn.ends_after(ENTITY_COST + len(entry.ops)):
            yield
        entity = _entity(entry)
        try:
            if entity in results:  # as in Kafka, the entity has this error, and yet its first entry counts
                raise _invalid("The entity is there twice in the request.")
            changes = _check(entity, entry)
        except KafkaError as error:
            results[entity] = yield from _result(turn, entity, error)
            continue
        results[entity] = yield from _result(turn, entity)
        records += _records(entity, changes, image.client_quotas.get(entity, {}))
    response = AlterClientQuotasResponse(entries=list(results.values()))
    return Decision(response, () if request.validate_only else tuple(records))


def _entity(entry: RequestEntryData) -> Entity:
    """Return the entity; of a type that is there twice, the last name counts."""
    return frozenset({part.entity_type: part.entity_name for part in entry.entity}.items())


def _check(entity: Entity, entry: RequestEntryData) -> dict[str, float | None]:
    """Return the new limits by key, None to remove one; raise KafkaError INVALID_REQUEST if something is invalid."""
    _check_entity(entity)
    keys = IP_KEYS if any(kind == IP for kind, _ in entity) else CLIENT_KEYS
    changes: dict[str, float | None] = {}
    for change in entry.ops:
        if change.key in changes:
            raise _invalid(f"The key {change.key} is there twice for one entity.")
        if not change.remove:
            _check_value(change, keys)
        changes[change.key] = None if change.remove else change.value
    return changes


def _check_entity(entity: Entity) -> None:
    kinds = {kind for kind, _ in entity}
    if not entity:
        raise _invalid("Invalid empty client quota entity")
    for kind, name in entity:
        if name == "":
            raise _invalid(f"Empty {kind} not supported")
        if kind not in ENTITY_TYPES:
            raise _invalid(f"Unhandled client quota entity type: {kind}")
        if kind == IP and name is not None and not _is_address(name):
            raise _invalid(f"{name} is not a valid IP or resolvable host.")
    if IP in kinds and len(kinds) > 1:
        raise _invalid("Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId")


def _is_address(text: str) -> bool:
    """Return whether the text is an IP address. Kafka also asks the name service, which may block."""
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def _check_value(change: OpData, keys: tuple[str, ...]) -> None:
    if change.key not in keys:
        raise _invalid(f"Invalid configuration key {change.key}")
    if not change.value > 0:
        raise _invalid(f"Quota {change.key} must be greater than 0")
    if change.key in (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, *IP_KEYS):
        largest, kind = (INT32_MAX, "an INT") if change.key in IP_KEYS else (INT64_MAX, "a LONG")
        if change.value > largest:
            raise _invalid(f"Proposed value for {change.key} is too large for {kind}.")
        if abs(change.value - round(change.value)) > FRACTION_MAX:
            raise _invalid(f"{change.key} cannot be a fractional value.")
    if not math.isfinite(change.value):
        raise _invalid(f"Quota {change.key} must be a finite number")


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)


def _records(entity: Entity, changes: Mapping[str, float | None], old: Mapping[str, float]) -> list[ClientQuotaRecord]:
    parts = [QuotaEntity(*part) for part in sorted(entity, key=lambda part: part[0])]
    return [
        ClientQuotaRecord(parts, key, 0.0 if value is None else value, value is None)
        for key, value in changes.items()
        if old.get(key) != value
    ]


def _result(turn: TurnItems, entity: Entity, error: KafkaError | None = None) -> Steps[ResponseEntryData]:
    """Return the result of an entity. One that is refused may have thousands of parts."""
    sorted_parts = sorted(entity, key=itemgetter(0))
    parts = yield from map_in_steps(turn, sorted_parts, lambda part: ResponseEntityData(*part))
    if error is None:
        return ResponseEntryData(0, None, parts)
    return ResponseEntryData(error.code, error.message, parts)
