"""DescribeAcls v1–3, from this node's image: an ACL that was just created may be missing for a moment."""

from __future__ import annotations

from itertools import groupby

from moldau.base.errors import ErrorCode, KafkaError
from moldau.metadata.controller.acls import read_filter
from moldau.metadata.current import CurrentImage
from moldau.security.acls.bindings import AclBinding
from moldau.security.acls.denials import denied
from moldau.security.acls.requirements import CLUSTER_DESCRIBE
from moldau.server.handlers.acl_codes import check_codes
from moldau.server.router import Caller
from moldau.wire.apis import ApiKey
from moldau.wire.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)


class DescribeAcls:
    api = ApiKey.DESCRIBE_ACLS
    versions = (1, 3)

    def __init__(self, current: CurrentImage, has_authorizer: bool) -> None:
        self._current = current
        self._has_authorizer = has_authorizer

    def answer(self, request: DescribeAclsRequest, caller: Caller) -> DescribeAclsResponse:
        check_codes([request])
        if not caller.access.allows(CLUSTER_DESCRIBE):
            return _error_response(denied(CLUSTER_DESCRIBE))
        if not self._has_authorizer:
            message = "No Authorizer is configured on the broker"
            return _error_response(KafkaError(ErrorCode.SECURITY_DISABLED, message))
        requested = read_filter(request)
        matching = sorted(binding for binding in self._current.image.acl_ids if requested.matches(binding))
        return DescribeAclsResponse(
            resources=[
                DescribeAclsResource(
                    *resource,
                    acls=[
                        AclDescription(each.principal, each.host, each.operation, each.permission) for each in bindings
                    ],
                )
                for resource, bindings in groupby(matching, key=_resource)
            ]
        )


def _resource(binding: AclBinding) -> tuple[int, str, int]:
    return binding.resource_type, binding.pattern, binding.pattern_type


def _error_response(error: KafkaError) -> DescribeAclsResponse:
    return DescribeAclsResponse(error_code=error.code, error_message=error.message)
