"""The operations that ACLs allow or deny, and which of them exist for each kind of resource.

Responses carry sets of operations as bits. Without an authorizer, everybody may do all that exists.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import Final


class AclOperation(IntEnum):
    """Kafka's operations with their codes on the wire."""

    UNKNOWN = 0
    ANY = 1
    """In filters only."""
    ALL = 2
    """In ACLs only: every operation."""
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15

    @classmethod
    def _missing_(cls, value: object) -> AclOperation:
        return cls.UNKNOWN


def bits(operations: Iterable[AclOperation]) -> int:
    """Return the set of operations as it is in responses."""
    return sum(1 << operation for operation in operations)


def operations_of(operation_bits: int) -> list[AclOperation]:
    """Return the operations in such a set."""
    return [operation for operation in AclOperation if operation_bits >> operation & 1]


_COMMON: Final = (AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS)
TOPIC_OPERATIONS: Final = bits(
    [
        *_COMMON,
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.CREATE,
        AclOperation.DELETE,
        AclOperation.ALTER,
    ]
)
GROUP_OPERATIONS: Final = bits([*_COMMON, AclOperation.READ, AclOperation.DELETE])
CLUSTER_OPERATIONS: Final = bits(
    [
        *_COMMON,
        AclOperation.CREATE,
        AclOperation.ALTER,
        AclOperation.CLUSTER_ACTION,
        AclOperation.IDEMPOTENT_WRITE,
    ]
)
TRANSACTIONAL_ID_OPERATIONS: Final = bits([AclOperation.DESCRIBE, AclOperation.WRITE, AclOperation.TWO_PHASE_COMMIT])
DELEGATION_TOKEN_OPERATIONS: Final = bits([AclOperation.DESCRIBE])
USER_OPERATIONS: Final = bits([AclOperation.CREATE_TOKENS, AclOperation.DESCRIBE_TOKENS])
OPERATIONS_OMITTED: Final = -(2**31)
"""Sent instead of a set if the client did not ask for one."""
