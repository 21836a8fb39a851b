"""What CreateAcls and DeleteAcls have in common. A node without an authorizer has no use for ACLs and refuses them."""

from __future__ import annotations

from functools import cache, partial
from typing import Any

from moldau.base.acl_operations import AclOperation
from moldau.base.clock import Timers
from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.steps import WaitingSteps, no_steps
from moldau.runtime.controller.channel import AskController
from moldau.security.acls.access import Access
from moldau.security.acls.bindings import AclBinding, PatternType, Permission, ResourceType
from moldau.security.acls.requirements import CLUSTER_ALTER
from moldau.server.admin_actions import AdminAction, Lazy
from moldau.server.handlers.acl_codes import check_codes
from moldau.server.handlers.authorized_requests.authorized import Authorized
from moldau.server.handlers.forwarded import ForwardedHandler
from moldau.wire.messages.create_acls import CreateAclsRequest
from moldau.wire.messages.delete_acls import DeleteAclsRequest


class AclChange(ForwardedHandler):
    needs = (CLUSTER_ALTER,)

    def __init__(self, forward: AskController, timers: Timers, has_authorizer: bool) -> None:
        super().__init__(forward, timers)
        self._has_authorizer = has_authorizer

    def authorize(self, request: CreateAclsRequest | DeleteAclsRequest, access: Access) -> WaitingSteps[Authorized]:
        check_codes(request.creations if isinstance(request, CreateAclsRequest) else request.filters)
        if not self._has_authorizer and access.allows_quietly(CLUSTER_ALTER):
            error = KafkaError(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
            return no_steps(self.refused(request, error))
        return super().authorize(request, access)


def acl_action(acl: Any, pattern_type: int, error_code: int) -> AdminAction:
    kind = _resource_kind(acl.resource_type)
    return AdminAction(f"{kind}:{acl.resource_name}", error_code, Lazy(partial(_acl_text, acl, pattern_type)))


@cache
def _resource_kind(code: int) -> str:
    return ResourceType(code).name.lower()


def _acl_text(acl: Any, pattern_type: int) -> str:
    binding = AclBinding(
        ResourceType(acl.resource_type),
        acl.resource_name,
        PatternType(pattern_type),
        acl.principal,
        acl.host,
        AclOperation(acl.operation),
        Permission(acl.permission_type),
    )
    return str(binding)
