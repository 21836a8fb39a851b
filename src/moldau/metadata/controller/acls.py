"""Creating and deleting ACLs: CreateAcls v1–3 and DeleteAcls v1–3.

An invalid ACL, or a filter with an unknown code, fails alone. The whole request fails if one of its ACLs has a value
that only filters may have, or if it has or matches too many ACLs. An ACL that exists already is created again without
a record and without an error, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain, compress
from operator import countOf
from typing import Final

from moldau.base.acl_operations import AclOperation
from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import Uuid
from moldau.base.limits import CHANGES_OF_REQUEST_MAX
from moldau.base.steps import Steps, TurnItems, map_in_steps
from moldau.base.turns import ITEMS_A_TURN
from moldau.metadata.controller.decision import Decision
from moldau.metadata.image import MetadataImage
from moldau.security.acls.bindings import (
    CLUSTER_NAME,
    AclBinding,
    AclFilter,
    PatternType,
    Permission,
    ResourceType,
)
from moldau.security.principals import PRINCIPAL_LENGTH_MAX
from moldau.wire.log_records.metadata import AccessControlEntryRecord, RemoveAccessControlEntryRecord
from moldau.wire.messages.create_acls import AclCreation, AclCreationResult, CreateAclsRequest, CreateAclsResponse
from moldau.wire.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from moldau.wire.messages.describe_acls import DescribeAclsRequest
from moldau.wire.schema import MetadataRecord

COMPARISONS_MAX: Final = 100_000
"""Of filters with ACLs in one request: later requests to the controller wait for it. One filter is always allowed,
and a filter that can match one ACL only is looked up instead."""
MATCHES_MAX: Final = 100_000
"""ACLs in one response: several filters may match the same ACL."""


def decide_create_acls(
    image: MetadataImage, request: CreateAclsRequest, new_id: Callable[[], Uuid]
) -> Steps[Decision[CreateAclsResponse]]:
    turn = TurnItems(ITEMS_A_TURN)
    bindings = yield from map_in_steps(turn, request.creations, _binding)
    if any((yield from map_in_steps(turn, bindings, _is_of_filters_only))):
        refusal = AclCreationResult(ErrorCode.UNKNOWN_SERVER_ERROR, None)
        return Decision(CreateAclsResponse(results=[refusal] * len(bindings)))
    added: dict[AclBinding, MetadataRecord] = {}

    def add(binding: AclBinding) -> AclCreationResult:
        if (problem := _problem(binding)) is not None:
            return AclCreationResult(ErrorCode.INVALID_REQUEST, problem)
        if binding not in image.acl_ids and binding not in added:
            added[binding] = AccessControlEntryRecord(new_id(), *binding)
        return AclCreationResult()

    results = yield from map_in_steps(turn, bindings, add)
    if len(added) > CHANGES_OF_REQUEST_MAX:
        refusal = AclCreationResult(ErrorCode.POLICY_VIOLATION, "Unable to perform excessively large batch operation.")
        return Decision(CreateAclsResponse(results=[each if each.error_code else refusal for each in results]))
    return Decision(CreateAclsResponse(results=results), tuple(added.values()))


def _binding(creation: AclCreation) -> AclBinding:
    return AclBinding(
        ResourceType(creation.resource_type),
        creation.resource_name,
        PatternType(creation.resource_pattern_type),
        creation.principal,
        creation.host,
        AclOperation(creation.operation),
        Permission(creation.permission_type),
    )


def _is_of_filters_only(binding: AclBinding) -> bool:
    """Return whether a part has a value that only filters may have. As in Kafka, it spoils the whole request."""
    return (
        binding.resource_type is ResourceType.ANY
        or binding.pattern_type in (PatternType.ANY, PatternType.MATCH)
        or binding.operation is AclOperation.ANY
        or binding.permission is Permission.ANY
    )


def _problem(binding: AclBinding) -> str | None:
    """Return which part of the binding is invalid; None if none is."""
    if binding.resource_type is ResourceType.CLUSTER and binding.pattern != CLUSTER_NAME:
        return f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
    if not binding.pattern:
        return "Invalid empty resource name"
    if binding.resource_type is ResourceType.UNKNOWN:
        return "Invalid resourceType UNKNOWN"
    if binding.pattern_type is PatternType.UNKNOWN:
        return "Invalid patternType UNKNOWN"
    if binding.operation is AclOperation.UNKNOWN:
        return "Invalid operation UNKNOWN"
    if binding.permission is Permission.UNKNOWN:
        return "Invalid permissionType UNKNOWN"
    if ":" not in binding.principal:
        return (
            f"Could not parse principal from `{binding.principal[:PRINCIPAL_LENGTH_MAX]}` (no colon is present"
            " separating the principal type from the principal name)"
        )
    if len(binding.principal) > PRINCIPAL_LENGTH_MAX:
        return f"The principal is longer than {PRINCIPAL_LENGTH_MAX} characters"
    return None


def decide_delete_acls(image: MetadataImage, request: DeleteAclsRequest) -> Steps[Decision[DeleteAclsResponse]]:
    """Either all valid filters are applied, or none of them: the removals are one batch."""
    turn = TurnItems(ITEMS_A_TURN)
    try:
        matching_acls = yield from _match_all(image, request, turn)
    except KafkaError as error:
        refusal = DeleteAclsFilterResult(error.code, error.message)
        return Decision(DeleteAclsResponse(filter_results=[refusal] * len(request.filters)))
    results: list[DeleteAclsFilterResult] = []
    for each in matching_acls:
        if turn.ends_after(1):
            yield
        if isinstance(each, KafkaError):
            results.append(DeleteAclsFilterResult(each.code, each.message))
        else:
            removed_acls = yield from map_in_steps(turn, each, _removed)
            results.append(DeleteAclsFilterResult(0, None, removed_acls))
    removed = dict.fromkeys(chain.from_iterable(each for each in matching_acls if not isinstance(each, KafkaError)))
    records = yield from map_in_steps(
        turn, list(removed), lambda binding: RemoveAccessControlEntryRecord(image.acl_ids[binding])
    )
    return Decision(DeleteAclsResponse(filter_results=results), tuple(records))


def _removed(binding: AclBinding) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(0, None, *binding)


def _match_all(
    image: MetadataImage, request: DeleteAclsRequest, turn: TurnItems
) -> Steps[list[list[AclBinding] | KafkaError]]:
    """Return for each filter the bindings that it matches, or its error. Raise KafkaError if that is too much."""
    filters = yield from map_in_steps(turn, request.filters, read_filter)
    problems = yield from map_in_steps(turn, filters, _filter_problem)
    only_bindings = yield from map_in_steps(turn, filters, AclFilter.only_binding)
    searches = countOf(zip(problems, only_bindings, strict=True), (None, None))
    bindings = list(image.acl_ids) if searches else []
    if searches > 1 and searches * len(bindings) > COMPARISONS_MAX:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"{searches} filters are too many for {len(bindings)} ACLs: send at most"
            f" {max(COMPARISONS_MAX // len(bindings), 1)} filters in one request.",
        )
    results: list[list[AclBinding] | KafkaError] = []
    removed: set[AclBinding] = set()
    match_count = 0
    for acl_filter, problem, only in zip(filters, problems, only_bindings, strict=True):
        if turn.ends_after(1):
            yield
        if problem is not None:
            results.append(KafkaError(ErrorCode.INVALID_REQUEST, problem))
            continue
        if only is None:
            matching = list(compress(bindings, (yield from map_in_steps(turn, bindings, acl_filter.matches))))
        else:
            matching = [only] if only in image.acl_ids else []
        results.append(matching)
        removed.update(matching)
        match_count += len(matching)
        if len(removed) > CHANGES_OF_REQUEST_MAX:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"Cannot remove more than {CHANGES_OF_REQUEST_MAX} acls in a single delete operation.",
            )
        matching.sort()
        if match_count > MATCHES_MAX:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"The filters match more than {MATCHES_MAX} times: send fewer filters that match the same ACLs.",
            )
    return results


def _filter_problem(acl_filter: AclFilter) -> str | None:
    if acl_filter.resource_type is ResourceType.UNKNOWN or acl_filter.pattern_type is PatternType.UNKNOWN:
        return "Unknown patternFilter."
    if acl_filter.operation is AclOperation.UNKNOWN or acl_filter.permission is Permission.UNKNOWN:
        return "Unknown entryFilter."
    return None


def read_filter(request: DeleteAclsFilter | DescribeAclsRequest) -> AclFilter:
    """Return the filter of a request. Unknown codes become UNKNOWN, which no ACL matches."""
    return AclFilter(
        ResourceType(request.resource_type_filter),
        request.resource_name_filter,
        PatternType(request.pattern_type_filter),
        request.principal_filter,
        request.host_filter,
        AclOperation(request.operation),
        Permission(request.permission_type),
    )
