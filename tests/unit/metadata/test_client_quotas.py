"""AlterClientQuotas: accepted and refused changes, and the quotas in the image and in a snapshot."""

from __future__ import annotations

import math

import pytest
from clusters import restore

from moldau.base.errors import ErrorCode
from moldau.base.steps import finish
from moldau.metadata.apply import apply
from moldau.metadata.controller import client_quotas
from moldau.metadata.controller.client_quotas import decide_alter_client_quotas
from moldau.metadata.image import MetadataImage
from moldau.metadata.records import decode_record, encode_record
from moldau.metadata.snapshot import changes_between
from moldau.security.quotas.entities import entity
from moldau.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    OpData,
    RequestEntityData,
    RequestEntryData,
)

INVALID = ErrorCode.INVALID_REQUEST
Parts = list[tuple[str, str | None]]


def entry(parts: Parts, *changes: OpData) -> RequestEntryData:
    return RequestEntryData([RequestEntityData(*part) for part in parts], list(changes))


def alter(
    image: MetadataImage, *entries: RequestEntryData, validate_only: bool = False
) -> tuple[MetadataImage, list[tuple[int, str | None]]]:
    decision = finish(decide_alter_client_quotas(image, AlterClientQuotasRequest(list(entries), validate_only)))
    results = [(each.error_code, each.error_message) for each in decision.response.entries]
    records = [decode_record(encode_record(record)) for record in decision.records]
    return apply(image, records, image.offset + len(records), 1)[0], results


def test_quotas_are_set_changed_and_removed() -> None:
    both: Parts = [("client-id", "app"), ("user", None)]
    image, results = alter(
        MetadataImage(),
        entry([("user", "ann")], OpData("producer_byte_rate", 1000.0), OpData("request_percentage", 12.5)),
        entry(both, OpData("consumer_byte_rate", 5.0)),
        entry([("ip", "10.0.0.1")], OpData("connection_creation_rate", 7.0)),
    )
    assert results == [(0, None)] * 3
    assert dict(image.client_quotas) == {
        entity(user="ann"): {"producer_byte_rate": 1000.0, "request_percentage": 12.5},
        entity(client_id="app", user=None): {"consumer_byte_rate": 5.0},
        entity(ip="10.0.0.1"): {"connection_creation_rate": 7.0},
    }
    image, _ = alter(
        image,
        entry([("user", "ann")], OpData("producer_byte_rate", remove=True), OpData("request_percentage", 50.0)),
        entry(list(reversed(both)), OpData("consumer_byte_rate", remove=True), OpData("no_such_key", remove=True)),
    )
    assert dict(image.client_quotas) == {
        entity(user="ann"): {"request_percentage": 50.0},
        entity(ip="10.0.0.1"): {"connection_creation_rate": 7.0},
    }


@pytest.mark.parametrize(
    ("parts", "changes", "message"),
    [
        ([], [], "Invalid empty client quota entity"),
        ([("user", "")], [], "Empty user not supported"),
        ([("group", "g")], [], "Unhandled client quota entity type: group"),
        ([("ip", "10.0.0.1"), ("user", "ann")], [], "Invalid quota entity combination, IP entity shouldnot be"),
        ([("ip", "not an address")], [], "not an address is not a valid IP or resolvable host."),
        ([("user", "ann")], [OpData("foo", 1.0)], "Invalid configuration key foo"),
        ([("user", "ann")], [OpData("connection_creation_rate", 1.0)], "Invalid configuration key connection_creat"),
        ([("ip", None)], [OpData("producer_byte_rate", 1.0)], "Invalid configuration key producer_byte_rate"),
        ([("user", "ann")], [OpData("producer_byte_rate", 0.0)], "Quota producer_byte_rate must be greater than 0"),
        ([("user", "ann")], [OpData("request_percentage", -1.0)], "Quota request_percentage must be greater than 0"),
        ([("user", "ann")], [OpData("request_percentage", math.nan)], "Quota request_percentage must be greater"),
        ([("user", "ann")], [OpData("producer_byte_rate", 1.5)], "producer_byte_rate cannot be a fractional value."),
        ([("user", "ann")], [OpData("consumer_byte_rate", 1e300)], "Proposed value for consumer_byte_rate is too la"),
        ([("user", "ann")], [OpData("consumer_byte_rate", math.inf)], "Proposed value for consumer_byte_rate is too"),
        ([("ip", None)], [OpData("connection_creation_rate", 2.0**31)], "Proposed value for connection_creation_rate"),
        ([("user", "ann")], [OpData("request_percentage", 1.0)] * 2, "The key request_percentage is there twice"),
    ],
)
def test_an_invalid_entry_is_refused_and_the_others_are_applied(
    parts: Parts, changes: list[OpData], message: str
) -> None:
    good = entry([("user", "bob")], OpData("producer_byte_rate", 1.0))
    image, results = alter(MetadataImage(), entry(parts, *changes), good)
    assert results[0][0] == INVALID
    assert (results[0][1] or "").startswith(message)
    assert results[1] == (0, None)
    assert list(image.client_quotas) == [entity(user="bob")]


def test_the_second_entry_of_an_entity_is_refused() -> None:
    one = entry([("user", "ann")], OpData("producer_byte_rate", 1.0))
    image, results = alter(MetadataImage(), one, one)
    assert [code for code, _ in results] == [INVALID]
    assert len(image.client_quotas) == 1


def test_an_unchanged_quota_writes_no_record() -> None:
    change = entry([("user", "ann")], OpData("producer_byte_rate", 1.0))
    image, _ = alter(MetadataImage(), change)
    again, results = alter(image, change, entry([("user", "eve")], OpData("producer_byte_rate", remove=True)))
    assert again.offset == image.offset
    assert results == [(0, None)] * 2
    only_checked, _ = alter(MetadataImage(), change, validate_only=True)
    assert not only_checked.client_quotas


def test_the_number_of_quotas_in_a_request_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_quotas, "CHANGES_OF_REQUEST_MAX", 1)
    change = OpData("producer_byte_rate", 1.0)
    _, results = alter(MetadataImage(), entry([("user", "a")], change), entry([("user", "b")], change))
    assert {code for code, _ in results} == {ErrorCode.POLICY_VIOLATION}


def test_a_snapshot_restores_all_quotas() -> None:
    image, _ = alter(
        MetadataImage(),
        entry([("user", None), ("client-id", "app")], OpData("producer_byte_rate", 1.0)),
        entry([("user", "ann"), ("client-id", None)], OpData("consumer_byte_rate", 2.0)),
        entry([("user", None)], OpData("request_percentage", 0.5), OpData("controller_mutation_rate", 0.1)),
    )
    restored = restore(image)
    assert dict(restored.client_quotas) == dict(image.client_quotas)
    assert changes_between(MetadataImage(), restored).has_client_quotas
    assert not changes_between(image, restored).has_client_quotas
