"""ACL bindings and filters, with Kafka's numbers, and the rule by which a filter matches a binding."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple

from moldau.base.acl_operations import AclOperation

WILDCARD: Final = "*"
CLUSTER_NAME: Final = "kafka-cluster"
"""The name of the only resource of type CLUSTER."""


class ResourceType(IntEnum):
    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7

    @classmethod
    def _missing_(cls, value: object) -> ResourceType:
        return cls.UNKNOWN


class PatternType(IntEnum):
    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    """In filters: every pattern that covers the name, whatever its type."""
    LITERAL = 3
    PREFIXED = 4

    @classmethod
    def _missing_(cls, value: object) -> PatternType:
        return cls.UNKNOWN


class Permission(IntEnum):
    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3

    @classmethod
    def _missing_(cls, value: object) -> Permission:
        return cls.UNKNOWN


class AclBinding(NamedTuple):
    """One ACL: a pattern of resources, and what a principal may or may not do with them."""

    resource_type: ResourceType
    pattern: str
    pattern_type: PatternType
    principal: str
    host: str
    operation: AclOperation
    permission: Permission

    def __str__(self) -> str:
        pattern = f"{self.resource_type.name}:{self.pattern_type.name}:{self.pattern}"
        verb = "may" if self.permission is Permission.ALLOW else "may not"
        return f"{self.principal} from {self.host} {verb} {self.operation.name} {pattern}"


def covers(pattern_type: PatternType, pattern: str, name: str) -> bool:
    """Return whether a resource of that name belongs to the pattern."""
    if pattern_type is PatternType.PREFIXED:
        return name.startswith(pattern)
    return pattern in (name, WILDCARD)


@dataclass(frozen=True, slots=True)
class AclFilter:
    """Selects bindings. None and ANY match everything."""

    resource_type: ResourceType = ResourceType.ANY
    pattern: str | None = None
    pattern_type: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission: Permission = Permission.ANY

    def matches(self, binding: AclBinding) -> bool:
        return (
            self.resource_type in (ResourceType.ANY, binding.resource_type)
            and self.permission in (Permission.ANY, binding.permission)
            and self.operation in (AclOperation.ANY, binding.operation)
            and self.principal in (None, binding.principal)
            and self.host in (None, binding.host)
            and self._matches_pattern(binding)
        )

    def only_binding(self) -> AclBinding | None:
        """Return the one binding that the filter can match; None if there may be several."""
        if self.pattern is None or self.principal is None or self.host is None:
            return None
        if self.pattern_type in (PatternType.ANY, PatternType.MATCH) or self.resource_type is ResourceType.ANY:
            return None
        if self.operation is AclOperation.ANY or self.permission is Permission.ANY:
            return None
        return AclBinding(
            self.resource_type,
            self.pattern,
            self.pattern_type,
            self.principal,
            self.host,
            self.operation,
            self.permission,
        )

    def _matches_pattern(self, binding: AclBinding) -> bool:
        if self.pattern_type not in (PatternType.ANY, PatternType.MATCH, binding.pattern_type):
            return False
        if self.pattern is None:
            return True
        if self.pattern_type is PatternType.MATCH:
            return covers(binding.pattern_type, binding.pattern, self.pattern)
        return binding.pattern == self.pattern
