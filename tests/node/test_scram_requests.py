"""AlterUserScramCredentials and DescribeUserScramCredentials on a node, with and without permission."""

from __future__ import annotations

from typing import Any

import pytest
from harness.restricted_node import RestrictedNode

from moldau.base.acl_operations import AclOperation
from moldau.base.errors import ErrorCode
from moldau.security.acls.bindings import CLUSTER_NAME, ResourceType
from moldau.wire.apis import ApiKey
from moldau.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from moldau.wire.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName


def alter(node: RestrictedNode, user: str, *changes: tuple[str, int]) -> Any:
    upsertions = [ScramCredentialUpsertion(name, mechanism, 4096, b"salt", b"salted") for name, mechanism in changes]
    request = AlterUserScramCredentialsRequest((), upsertions)
    return node.completed(node.ask(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, request, 0, user))


def describe(node: RestrictedNode, user: str, *names: str) -> Any:
    request = DescribeUserScramCredentialsRequest([UserName(name) for name in names] or None)
    return node.ask(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, request, 0, user)


@pytest.fixture
def node() -> RestrictedNode:
    made = RestrictedNode()
    made.start()
    for user, mechanism in (("bob", 2), ("ann", 1), ("bob", 1)):
        assert not alter(made, "root", (user, mechanism)).results[0].error_code
    return made


def shown(response: Any) -> dict[str, Any]:
    return {
        each.user: each.error_message or [(info.mechanism, info.iterations) for info in each.credential_infos]
        for each in response.results
    }


def test_scram_credentials_are_described(node: RestrictedNode) -> None:
    everyone = {"ann": [(1, 4096)], "bob": [(1, 4096), (2, 4096)]}
    assert shown(describe(node, "root")) == everyone
    assert shown(describe(node, "root", "ann")) == {"ann": [(1, 4096)]}
    response = describe(node, "root", "ann", "ann", "nobody", "bob")
    assert shown(response) == {
        "ann": "Cannot describe SCRAM credentials for the same user twice in a single request: ann",
        "nobody": "Attempt to describe a user credential that does not exist: nobody",
        "bob": [(1, 4096), (2, 4096)],
    }
    codes = [each.error_code for each in response.results]
    assert codes == [ErrorCode.DUPLICATE_RESOURCE, ErrorCode.RESOURCE_NOT_FOUND, 0]


def test_scram_requests_need_describe_and_alter_on_the_cluster(node: RestrictedNode) -> None:
    denied = describe(node, "ann")
    assert denied.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert not denied.results
    node.allow(AclOperation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)
    assert set(shown(describe(node, "ann"))) == {"ann", "bob"}
    (result,) = alter(node, "ann", ("eve", 1)).results
    assert (result.user, result.error_code) == ("eve", ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    assert "eve" not in shown(describe(node, "ann"))
    node.allow(AclOperation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME)
    assert not alter(node, "ann", ("eve", 1)).results[0].error_code
    assert "eve" in shown(describe(node, "ann"))
