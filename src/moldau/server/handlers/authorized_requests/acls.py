"""Authorization of CreateAcls and DeleteAcls. A node without an authorizer has no use for ACLs and refuses them."""

from __future__ import annotations

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.steps import Steps, no_steps
from moldau.security.acls.access import Access
from moldau.security.acls.denials import denied
from moldau.security.acls.requirements import CLUSTER_ALTER
from moldau.server.handlers.acl_codes import check_codes
from moldau.server.handlers.authorized_requests.authorized import Authorize, Authorized, refused, unchanged
from moldau.wire.messages.create_acls import CreateAclsRequest
from moldau.wire.messages.delete_acls import DeleteAclsRequest


def authorize_acl_change(has_authorizer: bool) -> Authorize:
    def authorize(request: CreateAclsRequest | DeleteAclsRequest, access: Access) -> Steps[Authorized]:
        check_codes(request.creations if isinstance(request, CreateAclsRequest) else request.filters)
        return no_steps(authorized(request, access))

    def authorized(request: CreateAclsRequest | DeleteAclsRequest, access: Access) -> Authorized:
        if not access.allows(CLUSTER_ALTER):
            return refused(request, denied(CLUSTER_ALTER))
        if not has_authorizer:
            return refused(request, KafkaError(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured."))
        return Authorized(request, unchanged)

    return authorize
