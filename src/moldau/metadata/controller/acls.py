"""Creating and deleting ACLs: CreateAcls v1–3 and DeleteAcls v1–3. Each ACL, and each filter, succeeds or fails alone.

An ACL that exists already is created once more without a record, and without an error, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from moldau.base.acl_operations import AclOperation
from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import Uuid
from moldau.metadata.controller.decision import Decision
from moldau.metadata.image import MetadataImage
from moldau.metadata.records import AccessControlEntryRecord, MetadataRecord, RemoveAccessControlEntryRecord
from moldau.security.acls.bindings import (
    CLUSTER_NAME,
    AclBinding,
    AclFilter,
    PatternType,
    Permission,
    ResourceType,
)
from moldau.security.principals import PRINCIPAL_LENGTH_MAX
from moldau.wire.messages.create_acls import AclCreation, AclCreationResult, CreateAclsRequest, CreateAclsResponse
from moldau.wire.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)

RECORDS_MAX: Final = 10_000
"""Of one request, as in Kafka."""


def decide_create_acls(
    image: MetadataImage, request: CreateAclsRequest, new_id: Callable[[], Uuid]
) -> Decision[CreateAclsResponse]:
    if len(request.creations) > RECORDS_MAX:
        refusal = AclCreationResult(ErrorCode.POLICY_VIOLATION, f"Cannot create more than {RECORDS_MAX} ACLs at once.")
        return Decision(CreateAclsResponse(results=[refusal] * len(request.creations)))
    results = []
    added: dict[AclBinding, MetadataRecord] = {}
    for creation in request.creations:
        try:
            binding = _new_binding(creation)
        except KafkaError as error:
            results.append(AclCreationResult(error.code, error.message))
            continue
        if binding not in image.acl_ids and binding not in added:
            added[binding] = AccessControlEntryRecord(new_id(), *binding)
        results.append(AclCreationResult(error_message=None))
    return Decision(CreateAclsResponse(results=results), tuple(added.values()))


def _new_binding(creation: AclCreation) -> AclBinding:
    """Return the binding; raise KafkaError INVALID_REQUEST if a part of it is invalid."""
    binding = AclBinding(
        ResourceType(creation.resource_type),
        creation.resource_name,
        PatternType(creation.resource_pattern_type),
        creation.principal,
        creation.host,
        AclOperation(creation.operation),
        Permission(creation.permission_type),
    )
    if (complaint := _complaint(binding)) is not None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, complaint)
    return binding


def _complaint(binding: AclBinding) -> str | None:
    if binding.resource_type in (ResourceType.UNKNOWN, ResourceType.ANY):
        return f"Invalid resourceType {binding.resource_type.name}"
    if binding.resource_type is ResourceType.CLUSTER and binding.pattern != CLUSTER_NAME:
        return f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
    if not binding.pattern:
        return "Invalid empty resource name"
    if binding.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        return f"Invalid patternType {binding.pattern_type.name}"
    if binding.operation in (AclOperation.UNKNOWN, AclOperation.ANY):
        return f"Invalid operation {binding.operation.name}"
    if binding.permission not in (Permission.DENY, Permission.ALLOW):
        return f"Invalid permissionType {binding.permission.name}"
    if ":" not in binding.principal:
        return (
            f"Could not parse principal from `{binding.principal[:PRINCIPAL_LENGTH_MAX]}` (no colon is present"
            " separating the principal type from the principal name)"
        )
    if len(binding.principal) > PRINCIPAL_LENGTH_MAX:
        return f"The principal is longer than {PRINCIPAL_LENGTH_MAX} characters"
    return None


def decide_delete_acls(image: MetadataImage, request: DeleteAclsRequest) -> Decision[DeleteAclsResponse]:
    results = []
    removed: dict[AclBinding, MetadataRecord] = {}
    for requested in request.filters:
        acl_filter = acl_filter_of(requested)
        if acl_filter is None:
            results.append(DeleteAclsFilterResult(ErrorCode.INVALID_REQUEST, "Unknown patternFilter or entryFilter."))
            continue
        matching = [binding for binding in sorted(image.acl_ids) if acl_filter.matches(binding)]
        removed.update((binding, RemoveAccessControlEntryRecord(image.acl_ids[binding])) for binding in matching)
        deleted = [DeleteAclsMatchingAcl(0, None, *binding) for binding in matching]
        results.append(DeleteAclsFilterResult(error_message=None, matching_acls=deleted))
    if len(removed) > RECORDS_MAX:
        message = f"Cannot remove more than {RECORDS_MAX} acls in a single delete operation."
        refusal = DeleteAclsFilterResult(ErrorCode.INVALID_REQUEST, message)
        return Decision(DeleteAclsResponse(filter_results=[refusal] * len(request.filters)))
    return Decision(DeleteAclsResponse(filter_results=results), tuple(removed.values()))


def acl_filter_of(requested: DeleteAclsFilter) -> AclFilter | None:
    """Return the filter of a request; None if a part of it is unknown."""
    acl_filter = AclFilter(
        ResourceType(requested.resource_type_filter),
        requested.resource_name_filter,
        PatternType(requested.pattern_type_filter),
        requested.principal_filter,
        requested.host_filter,
        AclOperation(requested.operation),
        Permission(requested.permission_type),
    )
    parts = (acl_filter.resource_type, acl_filter.pattern_type, acl_filter.operation, acl_filter.permission)
    return None if 0 in parts else acl_filter
