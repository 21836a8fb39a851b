"""Sets of ACL operations as the numbers that Apache Kafka's brokers return."""

from __future__ import annotations

from moldau.base.acl_operations import CLUSTER_OPERATIONS, GROUP_OPERATIONS, TOPIC_OPERATIONS, AclOperation, bits


def test_operations_of_each_kind_of_resource() -> None:
    assert (TOPIC_OPERATIONS, GROUP_OPERATIONS, CLUSTER_OPERATIONS) == (3576, 3400, 8096)


def test_an_operation_is_the_bit_of_its_code() -> None:
    assert bits([AclOperation.READ, AclOperation.ALTER_CONFIGS]) == 0b1000_0000_1000
