"""Creating and deleting ACLs, with each error as in Apache Kafka 4.3.1, and ACLs in records and snapshots."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import pytest
from clusters import applied, restore

from moldau.base.acl_operations import AclOperation
from moldau.base.errors import ErrorCode
from moldau.base.ids import Uuid
from moldau.base.steps import finish
from moldau.metadata.apply import apply
from moldau.metadata.controller import acls
from moldau.metadata.controller.acls import decide_create_acls, decide_delete_acls
from moldau.metadata.image import MetadataImage
from moldau.metadata.snapshot import changes_between
from moldau.security.acls.bindings import AclBinding, PatternType, Permission, ResourceType
from moldau.security.acls.index import AclIndex
from moldau.wire.log_records.metadata import RemoveAccessControlEntryRecord
from moldau.wire.messages.create_acls import AclCreation, CreateAclsRequest
from moldau.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsFilterResult, DeleteAclsRequest

E = ErrorCode
TOPIC, GROUP, CLUSTER = 2, 3, 4
ANY, MATCH, LITERAL, PREFIXED = 1, 2, 3, 4
READ, WRITE, IDEMPOTENT_WRITE = 3, 4, 12
DENY, ALLOW = 2, 3
UNKNOWN_CODE = 99
ONLY_CLUSTER_NAME = "The only valid name for the CLUSTER resource is kafka-cluster"


def creation(name: str = "a", **fields: object) -> AclCreation:
    made = AclCreation(TOPIC, name, LITERAL, "User:alice", "*", READ, ALLOW)
    for field, value in fields.items():
        setattr(made, field, value)
    return made


def acl_filter(name: str | None = None, **fields: object) -> DeleteAclsFilter:
    made = DeleteAclsFilter(ANY, name, ANY, None, None, ANY, ANY)
    for field, value in fields.items():
        setattr(made, field, value)
    return made


def ids() -> Callable[[], Uuid]:
    numbers = count(1)
    return lambda: next(numbers).to_bytes(16)


def create(image: MetadataImage, *creations: AclCreation) -> tuple[MetadataImage, list[tuple[int, str | None]]]:
    first = len(image.acls)
    numbers = count(first + 1)
    decision = finish(decide_create_acls(image, CreateAclsRequest(creations), lambda: next(numbers).to_bytes(16)))
    results = [(each.error_code, each.error_message) for each in decision.response.results]
    return applied(image, decision.records), results


def delete(image: MetadataImage, *filters: DeleteAclsFilter) -> tuple[MetadataImage, list[DeleteAclsFilterResult]]:
    decision = finish(decide_delete_acls(image, DeleteAclsRequest(filters)))
    return applied(image, decision.records), list(decision.response.filter_results)


def names(image: MetadataImage) -> list[str]:
    return sorted(binding.pattern for binding in image.acls.values())


def matched_names(result: DeleteAclsFilterResult) -> list[str]:
    return [each.resource_name for each in result.matching_acls]


# --- creation -----------------------------------------------------------------------------------------------------


def test_a_created_acl_is_in_the_image_by_id_and_by_binding() -> None:
    image, results = create(MetadataImage(), creation("orders", resource_pattern_type=PREFIXED))
    assert results == [(0, "")], "the message of a success is empty, not null"
    binding = AclBinding(
        ResourceType.TOPIC, "orders", PatternType.PREFIXED, "User:alice", "*", AclOperation.READ, Permission.ALLOW
    )
    assert dict(image.acls) == {(1).to_bytes(16): binding}
    assert dict(image.acl_ids) == {binding: (1).to_bytes(16)}


def test_an_existing_acl_is_created_again_without_a_record() -> None:
    image, _ = create(MetadataImage(), creation())
    decision = finish(decide_create_acls(image, CreateAclsRequest([creation(), creation("b"), creation("b")]), ids()))
    assert [each.error_code for each in decision.response.results] == [0, 0, 0]
    assert [getattr(record, "resource_name", None) for record in decision.records] == ["b"]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"resource_type": CLUSTER, "resource_name": "*"}, ONLY_CLUSTER_NAME),
        ({"resource_type": CLUSTER, "resource_name": ""}, ONLY_CLUSTER_NAME),
        ({"resource_name": ""}, "Invalid empty resource name"),
        ({"resource_name": "", "resource_type": UNKNOWN_CODE}, "Invalid empty resource name"),
        ({"resource_type": UNKNOWN_CODE, "operation": UNKNOWN_CODE}, "Invalid resourceType UNKNOWN"),
        ({"resource_pattern_type": UNKNOWN_CODE, "operation": UNKNOWN_CODE}, "Invalid patternType UNKNOWN"),
        ({"operation": UNKNOWN_CODE, "permission_type": UNKNOWN_CODE}, "Invalid operation UNKNOWN"),
        ({"permission_type": UNKNOWN_CODE, "principal": "zed"}, "Invalid permissionType UNKNOWN"),
        (
            {"principal": "zed"},
            "Could not parse principal from `zed` (no colon is present separating the principal type from the"
            " principal name)",
        ),
        (
            {"principal": ""},
            "Could not parse principal from `` (no colon is present separating the principal type from the"
            " principal name)",
        ),
        ({"principal": "User:" + "x" * 1020}, "The principal is longer than 1024 characters"),
    ],
    ids=lambda value: value[:30] if isinstance(value, str) else "",
)
def test_invalid_parts_are_refused_and_do_not_stop_valid_acls(fields: dict[str, object], message: str) -> None:
    image, results = create(MetadataImage(), creation("before"), creation(**fields), creation("after"))
    assert [code for code, _ in results] == [0, E.INVALID_REQUEST, 0]
    assert results[1][1] == message
    assert names(image) == ["after", "before"]


@pytest.mark.parametrize(
    "fields",
    [
        {"resource_type": ANY},
        {"resource_pattern_type": ANY},
        {"resource_pattern_type": MATCH},
        {"operation": ANY},
        {"permission_type": ANY},
    ],
    ids=str,
)
def test_a_value_that_only_filters_may_have_fails_the_whole_request(fields: dict[str, object]) -> None:
    image, results = create(MetadataImage(), creation("before"), creation("", **fields), creation("", host="h"))
    assert results == [(E.UNKNOWN_SERVER_ERROR, None)] * 3
    assert not image.acls


@pytest.mark.parametrize(
    "fields",
    [
        {"operation": IDEMPOTENT_WRITE},  # topics have no such operation
        {"resource_type": CLUSTER, "resource_name": "kafka-cluster", "resource_pattern_type": PREFIXED},
        {"resource_name": "not a topic/name"},
        {"principal": "Robot:r2"},
        {"principal": ":"},
        {"host": ""},
        {"host": "10.0.0.0/8"},
    ],
    ids=str,
)
def test_values_that_only_the_command_line_checks_are_accepted(fields: dict[str, object]) -> None:
    image, results = create(MetadataImage(), creation(**fields))
    assert (results, len(image.acls)) == ([(0, "")], 1)


def test_at_most_ten_thousand_new_acls_are_created_at_once() -> None:
    image, _ = create(MetadataImage(), creation("old"))
    most = [creation(str(number)) for number in range(acls.CHANGES_OF_REQUEST_MAX)]
    full, results = create(image, creation("old"), *most)
    assert set(results) == {(0, "")}
    assert len(full.acls) == acls.CHANGES_OF_REQUEST_MAX + 1
    unchanged, results = create(image, creation("old"), creation(""), *most, creation("one more"))
    assert results[1] == (E.INVALID_REQUEST, "Invalid empty resource name")
    del results[1]
    assert set(results) == {(E.POLICY_VIOLATION, "Unable to perform excessively large batch operation.")}
    assert names(unchanged) == ["old"]


# --- deletion -----------------------------------------------------------------------------------------------------


def five_acls() -> MetadataImage:
    image, _ = create(
        MetadataImage(),
        creation("ab"),
        creation("*"),
        creation("a", resource_pattern_type=PREFIXED),
        creation("ab", resource_type=GROUP, principal="User:bob", host="h", operation=WRITE, permission_type=DENY),
        creation("b", resource_pattern_type=PREFIXED),
    )
    return image


@pytest.mark.parametrize(
    ("selected", "expected"),
    [
        (acl_filter(), ["*", "a", "ab", "b", "ab"]),
        (acl_filter("ab"), ["ab", "ab"]),
        (acl_filter("ab", pattern_type_filter=MATCH), ["*", "a", "ab", "ab"]),
        (acl_filter("ab", pattern_type_filter=MATCH, resource_type_filter=GROUP), ["ab"]),
        (acl_filter("ab", pattern_type_filter=PREFIXED), []),
        (acl_filter(pattern_type_filter=PREFIXED), ["a", "b"]),
        (acl_filter("*", pattern_type_filter=LITERAL), ["*"]),
        (acl_filter(principal_filter="User:bob"), ["ab"]),
        (acl_filter(host_filter="h"), ["ab"]),
        (acl_filter(operation=WRITE), ["ab"]),
        (acl_filter(permission_type=DENY), ["ab"]),
        (acl_filter(principal_filter=""), []),
    ],
)
def test_a_filter_deletes_the_acls_that_it_matches(selected: DeleteAclsFilter, expected: list[str]) -> None:
    before = five_acls()
    image, (result,) = delete(before, selected)
    assert (result.error_code, result.error_message) == (0, None)
    assert matched_names(result) == expected
    assert {(each.error_code, each.error_message) for each in result.matching_acls} <= {(0, None)}
    assert sorted([*names(image), *expected]) == names(before)


def test_a_matching_acl_is_returned_with_all_its_parts() -> None:
    _, (result,) = delete(five_acls(), acl_filter(permission_type=DENY))
    (acl,) = result.matching_acls
    assert (acl.resource_type, acl.resource_name, acl.pattern_type) == (GROUP, "ab", LITERAL)
    assert (acl.principal, acl.host, acl.operation, acl.permission_type) == ("User:bob", "h", WRITE, DENY)


def test_an_acl_that_two_filters_match_is_reported_twice_and_removed_once() -> None:
    image = five_acls()
    decision = finish(
        decide_delete_acls(image, DeleteAclsRequest([acl_filter("ab"), acl_filter("b"), acl_filter("ab")]))
    )
    assert [matched_names(each) for each in decision.response.filter_results] == [["ab", "ab"], ["b"], ["ab", "ab"]]
    assert len(decision.records) == 3
    assert names(applied(image, decision.records)) == ["*", "a"]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"resource_type_filter": UNKNOWN_CODE}, "Unknown patternFilter."),
        ({"pattern_type_filter": UNKNOWN_CODE, "operation": UNKNOWN_CODE}, "Unknown patternFilter."),
        ({"operation": UNKNOWN_CODE}, "Unknown entryFilter."),
        ({"permission_type": UNKNOWN_CODE}, "Unknown entryFilter."),
    ],
)
def test_an_unknown_code_fails_only_its_filter(fields: dict[str, object], message: str) -> None:
    image, results = delete(five_acls(), acl_filter(**fields), acl_filter("b"))
    assert [(each.error_code, each.error_message) for each in results] == [(E.INVALID_REQUEST, message), (0, None)]
    assert matched_names(results[0]) == []
    assert names(image) == ["*", "a", "ab", "ab"]


def many_acls(number: int) -> MetadataImage:
    image = MetadataImage()
    for start in range(0, number, acls.CHANGES_OF_REQUEST_MAX):
        stop = min(number, start + acls.CHANGES_OF_REQUEST_MAX)
        image, _ = create(image, *(creation(f"{index:06}") for index in range(start, stop)))
    assert len(image.acls) == number
    return image


def test_at_most_ten_thousand_acls_are_deleted_at_once() -> None:
    image = many_acls(acls.CHANGES_OF_REQUEST_MAX + 1)
    unchanged, results = delete(image, acl_filter("000000"), acl_filter())
    message = "Cannot remove more than 10000 acls in a single delete operation."
    assert [(each.error_code, each.error_message) for each in results] == [(E.INVALID_REQUEST, message)] * 2
    assert [matched_names(each) for each in results] == [[], []]
    assert len(unchanged.acls) == len(image.acls)
    smaller, _ = delete(image, acl_filter("000000"))
    emptied, (result,) = delete(smaller, acl_filter())
    assert (result.error_code, len(result.matching_acls), len(emptied.acls)) == (0, acls.CHANGES_OF_REQUEST_MAX, 0)


def test_the_number_of_filters_times_acls_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise one request of 32,000 filters could stop a controller with many ACLs for minutes."""
    assert acls.COMPARISONS_MAX == 100_000
    monkeypatch.setattr(acls, "COMPARISONS_MAX", 100)
    image = many_acls(50)
    unchanged, results = delete(image, *[acl_filter("000001")] * 3)
    message = "3 filters are too many for 50 ACLs: send at most 2 filters in one request."
    assert [(each.error_code, each.error_message) for each in results] == [(E.INVALID_REQUEST, message)] * 3
    assert len(unchanged.acls) == 50
    assert len(delete(image, *[acl_filter("000001")] * 2)[0].acls) == 49
    monkeypatch.setattr(acls, "COMPARISONS_MAX", 10)
    assert len(delete(image, acl_filter("000001"))[0].acls) == 49, "one filter is always possible"
    exact = [DeleteAclsFilter(*binding) for binding in image.acl_ids]
    assert not delete(image, *exact)[0].acls, "a filter that names one ACL exactly needs no search"
    refused = acl_filter(operation=UNKNOWN_CODE)
    assert len(delete(image, *[refused] * 3, acl_filter("000001"))[0].acls) == 49, "nor does one that is refused"


def test_the_size_of_the_response_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acls, "MATCHES_MAX", 100)
    image = many_acls(50)
    unchanged, results = delete(image, *[acl_filter()] * 3)
    assert {each.error_code for each in results} == {E.INVALID_REQUEST}
    assert "more than 100 times" in (results[0].error_message or "")
    assert len(unchanged.acls) == 50
    assert not delete(image, *[acl_filter()] * 2)[0].acls


# --- records and snapshots ----------------------------------------------------------------------------------------


def test_a_snapshot_restores_the_acls() -> None:
    image = five_acls()
    assert restore(image) == image
    assert dict(restore(image).acl_ids) == dict(image.acl_ids)
    after_deletion, _ = delete(image, acl_filter("ab"))
    assert len(after_deletion.acls) == 3
    assert restore(after_deletion) == after_deletion
    assert restore(MetadataImage()).acls == MetadataImage().acls


def test_the_changes_of_records_and_of_snapshots_keep_an_index_equal_to_the_image() -> None:
    """A node may see a deletion and a new creation of the same ACL in one batch of records."""
    old, _ = create(MetadataImage(), creation("a"), creation("b"))
    created = finish(decide_create_acls(old, CreateAclsRequest([creation("c")]), lambda: bytes([9]) * 16))
    both = [*created.records, RemoveAccessControlEntryRecord(bytes([9]) * 16)]
    binding_a = next(binding for binding in old.acl_ids if binding.pattern == "a")
    removed = [RemoveAccessControlEntryRecord(old.acl_ids[binding_a])]
    again = finish(
        decide_create_acls(applied(old, removed), CreateAclsRequest([creation("a")]), lambda: bytes([8]) * 16)
    )
    new, changes = apply(old, [*both, *removed, *again.records], offset=99, epoch=1)
    for added, dropped in [
        (changes.acls_added, changes.acls_removed),
        (changes_between(old, new).acls_added, changes_between(old, new).acls_removed),
    ]:
        index = AclIndex()
        for binding in [*old.acl_ids, *added]:
            index.add(binding)
        for binding in dropped:
            index.remove(binding)
        assert sorted(index.of_type(ResourceType.TOPIC)) == sorted(new.acl_ids)
    assert names(new) == ["a", "b"]
