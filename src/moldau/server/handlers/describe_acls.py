"""DescribeAcls v1–3, from this node's image: an ACL that was just created may be missing for a moment."""

from __future__ import annotations

from heapq import merge
from itertools import groupby

from moldau.base.clock import Timers
from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.promise import Promise
from moldau.base.steps import Steps, TurnItems, split
from moldau.base.turns import LISTED_A_TURN
from moldau.metadata.controller.acls import read_filter
from moldau.metadata.current import CurrentImage
from moldau.security.acls.bindings import AclBinding, AclFilter
from moldau.security.acls.denials import denied
from moldau.security.acls.requirements import CLUSTER_DESCRIBE
from moldau.server.handler import Caller, Handler
from moldau.server.handlers.acl_codes import check_codes
from moldau.server.handlers.replies import run_steps
from moldau.wire.apis import ApiKey
from moldau.wire.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)


class DescribeAcls(Handler):
    api = ApiKey.DESCRIBE_ACLS
    versions = (1, 3)
    needs = (CLUSTER_DESCRIBE,)
    is_on_controllers = True

    def __init__(self, current: CurrentImage, has_authorizer: bool, timers: Timers) -> None:
        self._current = current
        self._has_authorizer = has_authorizer
        self._timers = timers

    def answer(
        self, request: DescribeAclsRequest, caller: Caller
    ) -> DescribeAclsResponse | Promise[DescribeAclsResponse]:
        check_codes([request])
        if not caller.access.allows(CLUSTER_DESCRIBE):
            return _error_response(denied(CLUSTER_DESCRIBE))
        if not self._has_authorizer:
            message = "No Authorizer is configured on the broker"
            return _error_response(KafkaError(ErrorCode.SECURITY_DISABLED, message))
        return run_steps(self._timers, self._describe(read_filter(request)))

    def _describe(self, requested: AclFilter) -> Steps[DescribeAclsResponse]:
        turn = TurnItems(LISTED_A_TURN)
        parts: list[list[AclBinding]] = []
        for some in split(list(self._current.image.acl_ids), LISTED_A_TURN):
            parts.append(sorted(filter(requested.matches, some)))
            if turn.ends_after(len(some)):
                yield
        resources: list[DescribeAclsResource] = []
        # Merged one by one: to sort 100,000 ACLs at once takes 200 ms.
        for resource, bindings in groupby(merge(*parts), key=_resource):
            acls: list[AclDescription] = []
            for each in bindings:
                acls.append(AclDescription(each.principal, each.host, each.operation, each.permission))
                if turn.ends_after(1):
                    yield
            resources.append(DescribeAclsResource(*resource, acls=acls))
        return DescribeAclsResponse(resources=resources)


def _resource(binding: AclBinding) -> tuple[int, str, int]:
    return binding.resource_type, binding.pattern, binding.pattern_type


def _error_response(error: KafkaError) -> DescribeAclsResponse:
    return DescribeAclsResponse(error_code=error.code, error_message=error.message)
