"""The operations that responses report as allowed."""

from __future__ import annotations

from moldau.base.acl_operations import CLUSTER_OPERATIONS, GROUP_OPERATIONS, TOPIC_OPERATIONS, AclOperation, bits
from moldau.security.acls.access import UNRESTRICTED, Restricted
from moldau.security.acls.allowed_operations import allowed_bits
from moldau.security.acls.authorizer import Authorizer
from moldau.security.acls.bindings import AclBinding, PatternType, Permission, ResourceType
from moldau.security.principals import Principal

ANN = Principal("User", "ann")


def test_without_restrictions_all_operations_of_the_resource_are_allowed() -> None:
    assert allowed_bits(UNRESTRICTED, ResourceType.TOPIC, "t") == TOPIC_OPERATIONS
    assert allowed_bits(UNRESTRICTED, ResourceType.GROUP, "g") == GROUP_OPERATIONS
    assert allowed_bits(UNRESTRICTED, ResourceType.CLUSTER) == CLUSTER_OPERATIONS
    super_user = Restricted(Authorizer([ANN]), ANN, "10.0.0.1")
    assert allowed_bits(super_user, ResourceType.TOPIC, "t") == TOPIC_OPERATIONS


def test_allowed_bits_include_implied_and_exclude_denied_operations() -> None:
    authorizer = Authorizer()
    access = Restricted(authorizer, ANN, "10.0.0.1")
    assert allowed_bits(access, ResourceType.TOPIC, "t") == 0

    def change(operation: AclOperation, permission: Permission) -> None:
        literal = PatternType.LITERAL
        authorizer.change([AclBinding(ResourceType.TOPIC, "t", literal, "User:ann", "*", operation, permission)])

    change(AclOperation.READ, Permission.ALLOW)
    assert allowed_bits(access, ResourceType.TOPIC, "t") == 264, "READ and DESCRIBE, as Kafka reports them"
    assert allowed_bits(access, ResourceType.TOPIC, "u") == 0
    assert allowed_bits(access, ResourceType.GROUP, "t") == 0
    change(AclOperation.ALL, Permission.ALLOW)
    change(AclOperation.DELETE, Permission.DENY)
    assert allowed_bits(access, ResourceType.TOPIC, "t") == TOPIC_OPERATIONS - bits([AclOperation.DELETE])
