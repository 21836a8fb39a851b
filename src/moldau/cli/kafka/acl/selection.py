"""The ACLs that the flags of kafka-acls name: patterns of resources, and access control entries for them, which are
principals × operations × hosts. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from moldau.base.acl_operations import AclOperation, operations_of
from moldau.cli.flags import Arguments, UsageError
from moldau.cli.kafka.tool import ToolFailed
from moldau.security.acls.allowed_operations import SUPPORTED
from moldau.security.acls.bindings import (
    CLUSTER_NAME,
    WILDCARD,
    AclBinding,
    AclFilter,
    PatternType,
    Permission,
    ResourceType,
)

RESOURCE_FLAGS: Final = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional-id": ResourceType.TRANSACTIONAL_ID,
    "delegation-token": ResourceType.DELEGATION_TOKEN,
    "user-principal": ResourceType.USER,
}


class ResourcePattern(NamedTuple):
    """Which resources an ACL is for. In a search, the pattern type may also be ANY or MATCH."""

    resource_type: ResourceType
    name: str
    pattern_type: PatternType

    def __str__(self) -> str:
        return (
            f"ResourcePattern(resourceType={self.resource_type.name}, name={self.name},"
            f" patternType={self.pattern_type.name})"
        )


class AccessControlEntry(NamedTuple):
    """Who may or may not do what, from which host."""

    principal: str
    host: str
    operation: AclOperation
    permission: Permission

    def __str__(self) -> str:
        return (
            f"(principal={self.principal}, host={self.host}, operation={self.operation.name},"
            f" permissionType={self.permission.name})"
        )


CLUSTER: Final = ResourcePattern(ResourceType.CLUSTER, CLUSTER_NAME, PatternType.LITERAL)


def binding(pattern: ResourcePattern, entry: AccessControlEntry) -> AclBinding:
    resource_type, name, pattern_type = pattern
    return AclBinding(resource_type, name, pattern_type, *entry)


def acl_filter(pattern: ResourcePattern, entry: AccessControlEntry | None = None) -> AclFilter:
    """Return the filter for one entry of a pattern, or for all of them."""
    if entry is None:
        return AclFilter(*pattern)
    return AclFilter(*pattern, entry.principal, entry.host, entry.operation, entry.permission)


def split(acl: AclBinding) -> tuple[ResourcePattern, AccessControlEntry]:
    return ResourcePattern(*acl[:3]), AccessControlEntry(*acl[3:])


def patterns(arguments: Arguments) -> list[ResourcePattern]:
    """Return the patterns of resources that the flags name."""
    pattern_type = parse_pattern_type(arguments.single_value("resource-pattern-type") or "")
    named = [
        ResourcePattern(resource_type, name.strip(), pattern_type)
        for flag, resource_type in RESOURCE_FLAGS.items()
        for name in arguments.values_of(flag)
    ]
    if pattern_type is PatternType.LITERAL and (arguments.has("cluster") or arguments.has("idempotent")):
        named.append(CLUSTER)
    return list(dict.fromkeys(named))


def parse_pattern_type(text: str) -> PatternType:
    if text.upper() not in PatternType.__members__ or text.upper() == PatternType.UNKNOWN.name:
        raise UsageError(f"Cannot parse argument '{text}' of option resource-pattern-type")
    return PatternType[text.upper()]


def entries_by_pattern(arguments: Arguments) -> dict[ResourcePattern, list[AccessControlEntry]]:
    """Return the entries to add or remove, by pattern. Without principals the lists are empty, and --remove deletes all
    ACLs of the patterns."""
    named = patterns(arguments)
    if not named:
        raise UsageError(
            "You must provide at least one resource: --topic <topic> or --cluster or --group <group> or"
            " --delegation-token <Delegation Token ID>"
        )
    operations: dict[ResourcePattern, set[AclOperation]] = {}
    if arguments.has("producer"):
        _add_role(operations, named, _PRODUCER)
        if arguments.has("idempotent"):
            operations[CLUSTER] = {AclOperation.IDEMPOTENT_WRITE}
    if arguments.has("consumer"):
        _add_role(operations, named, _CONSUMER)
    if not (arguments.has("producer") or arguments.has("consumer")):
        chosen = {parse_operation(text) for text in arguments.values_of("operation") or [AclOperation.ALL.name]}
        operations = dict.fromkeys(named, chosen)
    entries = {pattern: list(_entries(arguments, sorted(chosen))) for pattern, chosen in operations.items()}
    for pattern, chosen in operations.items():
        _check_operations(pattern.resource_type, chosen if entries[pattern] else ())
    return entries


_PRODUCER: Final = {
    ResourceType.TOPIC: {AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.CREATE},
    ResourceType.TRANSACTIONAL_ID: {AclOperation.WRITE, AclOperation.DESCRIBE},
}
_CONSUMER: Final = {
    ResourceType.TOPIC: {AclOperation.READ, AclOperation.DESCRIBE},
    ResourceType.GROUP: {AclOperation.READ},
}


def _add_role(
    operations: dict[ResourcePattern, set[AclOperation]],
    named: Iterable[ResourcePattern],
    role: dict[ResourceType, set[AclOperation]],
) -> None:
    for pattern in named:
        if pattern.resource_type in role:
            operations.setdefault(pattern, set()).update(role[pattern.resource_type])


def parse_operation(text: str) -> AclOperation:
    """Parse `DescribeConfigs`, in any case and with or without underscores; UNKNOWN for anything else."""
    folded = text.strip().replace("_", "").lower()
    return next((each for each in AclOperation if each.name.replace("_", "").lower() == folded), AclOperation.UNKNOWN)


def _check_operations(resource_type: ResourceType, operations: Iterable[AclOperation]) -> None:
    supported = [AclOperation.ALL, *operations_of(SUPPORTED[resource_type])]
    if any(operation not in supported for operation in operations):
        names = ", ".join(operation.name for operation in supported)
        raise UsageError(f"ResourceType {resource_type.name} only supports operations [{names}]")


def _entries(arguments: Arguments, operations: Iterable[AclOperation]) -> Iterable[AccessControlEntry]:
    for side, permission in (("allow", Permission.ALLOW), ("deny", Permission.DENY)):
        principals = [check_principal(text) for text in arguments.values_of(f"{side}-principal")]
        hosts = [text.strip() for text in arguments.values_of(f"{side}-host")] or [WILDCARD]
        for principal in dict.fromkeys(principals):
            for host in dict.fromkeys(hosts):
                for operation in operations:
                    yield AccessControlEntry(principal, host, operation, permission)


def check_principal(text: str) -> str:
    principal = text.strip()
    kind, colon, name = principal.partition(":")
    if not (kind and colon and name):
        raise ToolFailed(f"expected a string in format principalType:principalName but got {principal}")
    return principal
