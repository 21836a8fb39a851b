"""Every handler and every kind of principal: a request is refused if, and only if, a permission that the handler
declares is missing. Controllers have handlers of their own for some APIs of brokers.

Here a refusal is any authorization error in the response. The tests of each API check its exact response.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from harness.guarded_node import SUPER_USER, GuardedNode
from harness.sample_requests import RESOURCE, VERSIONS, sample_request

from moldau.base.acl_operations import AclOperation
from moldau.base.errors import ErrorCode
from moldau.security.acls.access import Needs
from moldau.security.acls.bindings import CLUSTER_NAME, AclBinding, PatternType, Permission, ResourceType
from moldau.server.apis import declared_handlers
from moldau.server.handler import Handler
from moldau.wire.apis import ApiKey
from moldau.wire.schema import Message

REFUSALS = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
}
FILTERED = {
    ApiKey.LIST_GROUPS,
    ApiKey.LIST_TRANSACTIONS,
    ApiKey.DESCRIBE_CLUSTER,
    ApiKey.DESCRIBE_DELEGATION_TOKEN,
}
"""These APIs leave out resources that the client may not describe, and refuse nothing."""
KINDS = ("anonymous", "none", "other user", "other host", "other name", "denied", "literal", "prefixed", "all", "super")
ALLOWED = {"literal", "prefixed", "all", "super"}


def principal(kind: str) -> str:
    match kind:
        case "anonymous":
            return "User:ANONYMOUS"
        case "super":
            return SUPER_USER
    return f"User:{kind.replace(' ', '-')}"


def acls(kind: str, needs: Sequence[Needs]) -> Iterator[AclBinding]:
    """Yield ACLs with all that the API needs; for a kind that must be refused, one part of each ACL is wrong."""
    if kind in ("anonymous", "none", "super"):
        return
    for each in needs:
        is_cluster = each.resource is ResourceType.CLUSTER
        if is_cluster and kind == "other name":
            continue
        resource = f"User:{RESOURCE}" if each.resource is ResourceType.USER else RESOURCE
        name = CLUSTER_NAME if is_cluster else "else" if kind == "other name" else resource
        is_prefix = kind == "prefixed" and not is_cluster
        yield AclBinding(
            each.resource,
            name[:3] if is_prefix else name,
            PatternType.PREFIXED if is_prefix else PatternType.LITERAL,
            "User:somebody-else" if kind == "other user" else principal(kind),
            "10.9.9.9" if kind == "other host" else "*",
            AclOperation.ALL if kind == "all" else each.operation,
            Permission.ALLOW,
        )
        if kind == "denied":
            yield AclBinding(
                each.resource, name, PatternType.LITERAL, principal(kind), "*", AclOperation.ALL, Permission.DENY
            )


def codes(value: Any) -> Iterator[int]:
    """Yield all error codes in a response, at every level."""
    if isinstance(value, list | tuple):
        for each in value:
            yield from codes(each)
    elif isinstance(value, Message):
        for name in value.__slots__:
            field = getattr(value, name)
            if name.endswith("error_code"):
                yield field
            else:
                yield from codes(field)


GUARDED = [each for each in declared_handlers() if each.needs]
NO_REQUIREMENTS = {
    ApiKey.API_VERSIONS,
    ApiKey.SASL_HANDSHAKE,
    ApiKey.SASL_AUTHENTICATE,
    # Clients describe only themselves.
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS,
    ApiKey.PUSH_TELEMETRY,
    # Of these the controller checks that the client owns the token or is one of its renewers.
    ApiKey.RENEW_DELEGATION_TOKEN,
    ApiKey.EXPIRE_DELEGATION_TOKEN,
}


@pytest.mark.parametrize("handler", GUARDED, ids=lambda each: each.__name__)
def test_a_handler_refuses_exactly_the_principals_without_permission(handler: type[Handler]) -> None:
    """The allowed ones come last: they change the node."""
    node = GuardedNode()
    node.node.create_topic(RESOURCE)
    authorizer = node.node.assembly.authorizer
    assert authorizer is not None
    for kind in KINDS:
        if kind == "other name" and all(each.resource is ResourceType.CLUSTER for each in handler.needs):
            continue  # there is only one cluster
        authorizer.change(acls(kind, handler.needs))
        check(node, handler, kind)


def check(node: GuardedNode, handler: type[Handler], kind: str) -> None:
    api, of_controller = handler.api, not handler.is_on_brokers
    version = VERSIONS.get(api, handler.versions[1])
    before = node.end_offset
    response = node.ask(api, sample_request(api), version, principal(kind), of_controller=of_controller)
    refused = REFUSALS & set(codes(response))
    is_filtered = (
        not of_controller and api in FILTERED and (kind, api) != ("anonymous", ApiKey.DESCRIBE_DELEGATION_TOKEN)
    )
    if kind in ALLOWED or is_filtered:
        assert not refused, (kind, response)
    else:
        assert refused, (kind, response)
        assert node.end_offset == before, "a refused request changed the metadata"


def test_no_served_api_is_missing_from_the_requirements() -> None:
    node = GuardedNode()
    served = {api for side in (True, False) for api in node.router(of_controller=side).served()}
    assert {each.api for each in declared_handlers() if not each.needs} == NO_REQUIREMENTS
    assert served - NO_REQUIREMENTS == {each.api for each in GUARDED}
