"""The options of `moldau acl` that name resources and operations, and the ACLs that follow from them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import click

from moldau.base.acl_operations import AclOperation, operations_of
from moldau.cli.completion import complete_topics
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
from moldau.security.principals import USER

F = TypeVar("F", bound=Callable[..., Any])

ANY_HOST: Final = WILDCARD
ROLES: Final = {
    "producer": {
        ResourceType.TOPIC: (AclOperation.WRITE, AclOperation.CREATE, AclOperation.DESCRIBE),
        ResourceType.TRANSACTIONAL_ID: (AclOperation.WRITE, AclOperation.DESCRIBE),
        ResourceType.CLUSTER: (AclOperation.IDEMPOTENT_WRITE,),
    },
    "consumer": {
        ResourceType.TOPIC: (AclOperation.READ, AclOperation.DESCRIBE),
        ResourceType.GROUP: (AclOperation.READ,),
    },
}
"""What a producer and a consumer need."""
OPTIONS: Final = {
    ResourceType.TOPIC: "--topic",
    ResourceType.GROUP: "--group",
    ResourceType.TRANSACTIONAL_ID: "--transactional-id",
}


@dataclass(frozen=True, slots=True)
class Resource:
    type: ResourceType
    name: str
    pattern_type: PatternType = PatternType.LITERAL


def resource_options(function: F) -> F:
    """Add --topic, --group, --transactional-id, --cluster and --prefix, and pass them on as `resources`."""

    @click.option(
        "--topic", "topics", multiple=True, shell_complete=complete_topics, help="A topic; '*' is all of them."
    )
    @click.option("--group", "groups", multiple=True, help="A consumer group; '*' is all of them.")
    @click.option("--transactional-id", "transactional_ids", multiple=True, help="A transactional id; '*' is all.")
    @click.option("--cluster", is_flag=True, help="The cluster itself.")
    @click.option("--prefix", is_flag=True, help="The names are prefixes: everything that begins so.")
    @functools.wraps(function)
    def wrapped(
        *args: Any,
        topics: Sequence[str],
        groups: Sequence[str],
        transactional_ids: Sequence[str],
        cluster: bool,
        prefix: bool,
        **others: Any,
    ) -> Any:
        pattern_type = PatternType.PREFIXED if prefix else PatternType.LITERAL
        named = [
            *((ResourceType.TOPIC, name) for name in topics),
            *((ResourceType.GROUP, name) for name in groups),
            *((ResourceType.TRANSACTIONAL_ID, name) for name in transactional_ids),
        ]
        resources = [Resource(kind, name, pattern_type) for kind, name in named]
        if any(not name for _, name in named):
            raise click.UsageError("the name of a resource is empty")
        if prefix and not named:
            raise click.UsageError("--prefix needs --topic, --group or --transactional-id")
        if cluster:
            resources.append(Resource(ResourceType.CLUSTER, CLUSTER_NAME))
        return function(*args, resources=resources, **others)

    return wrapped  # type: ignore[return-value]


def parse_principal(ctx: click.Context, param: click.Parameter, text: str | None) -> str | None:
    """Return the principal; a name without a type is a user."""
    if text is None or ":" in text.strip(":"):
        return text
    if not text or ":" in text:
        raise click.BadParameter(f"{text!r} is not a principal; expected a user's name, or TYPE:NAME")
    return f"{USER}:{text}"


def parse_operations(text: str | None) -> list[AclOperation]:
    """Parse operations with commas between them: read,describe-configs."""
    operations = []
    for word in filter(None, (part.strip() for part in (text or "").split(","))):
        name = word.upper().replace("-", "_")
        if name not in AclOperation.__members__ or AclOperation[name] in (AclOperation.UNKNOWN, AclOperation.ANY):
            raise click.BadParameter(f"{word!r} is not an operation; expected one of {_names(_all_operations())}")
        operations.append(AclOperation[name])
    return operations


def operation_word(operation: AclOperation) -> str:
    return operation.name.lower().replace("_", "-")


def _all_operations() -> Iterator[AclOperation]:
    return (each for each in AclOperation if each not in (AclOperation.UNKNOWN, AclOperation.ANY))


def _names(operations: Iterable[AclOperation]) -> str:
    return ", ".join(map(operation_word, operations))


def bindings(
    principal: str,
    host: str,
    permission: Permission,
    operations: Sequence[AclOperation],
    roles: Sequence[str],
    resources: Sequence[Resource],
) -> list[AclBinding]:
    """Return an ACL for each resource and operation. A role adds the operations that it needs of each resource."""
    result = []
    for resource in resources:
        _check_name(resource)
        chosen = [*operations, *(each for role in roles for each in ROLES[role].get(resource.type, ()))]
        _check(resource, chosen, roles, permission)
        result += [
            AclBinding(resource.type, resource.name, resource.pattern_type, principal, host, operation, permission)
            for operation in dict.fromkeys(chosen)
        ]
    return result


def hints(principal: str, roles: Sequence[str], resources: Sequence[Resource]) -> list[str]:
    """Return what is allowed, but often meant otherwise, a line each."""
    user, kinds = principal.partition(":")[2], {resource.type for resource in resources}
    lines = [
        f"note: {resource.name} is one name, with a star at its end; all names that begin with it are"
        f" {OPTIONS[resource.type]} {resource.name.rstrip(WILDCARD)} --prefix"
        for resource in resources
        if resource.name.endswith(WILDCARD) and resource.name != WILDCARD
    ]
    if "consumer" in roles and ResourceType.TOPIC in kinds and ResourceType.GROUP not in kinds:
        lines.append(
            f"note: {user} cannot join a consumer group by this;"
            f" `moldau acl allow {user} --role consumer --group GROUP` allows it"
        )
    return lines


def _check_name(resource: Resource) -> None:
    """Fail for a name that no topic can have."""
    if resource.type is not ResourceType.TOPIC or WILDCARD not in resource.name.strip() or resource.name == WILDCARD:
        return
    prefix = resource.name.partition(WILDCARD)[0]
    meant = f"for all topics that begin with {prefix} use --topic {prefix} --prefix" if prefix else "'*' is all topics"
    raise click.UsageError(f"--topic {resource.name}: names of topics have no star; {meant}")


def _check(
    resource: Resource, operations: Sequence[AclOperation], roles: Sequence[str], permission: Permission
) -> None:
    if resource.pattern_type is PatternType.PREFIXED and resource.name == WILDCARD:
        raise click.UsageError("--prefix needs the beginning of a name, not '*'")
    supported = [AclOperation.ALL, *operations_of(SUPPORTED[resource.type])]
    kind = resource.type.name.lower().replace("_", " ")
    if not operations:
        other_roles = _roles_for(resource.type) if permission is Permission.ALLOW else []
        choices = " or ".join((f"operations ({_names(supported)})", *other_roles))
        if roles:
            raise click.UsageError(
                f"--role {roles[0]} needs nothing of a {kind}; leave {resource.name} out, or name {choices}"
            )
        raise click.UsageError(f"no operation for the {kind} {resource.name}; name {choices}")
    for operation in operations:
        if operation not in supported:
            raise click.UsageError(f"a {kind} has no operation {operation_word(operation)}; it has {_names(supported)}")


def _roles_for(kind: ResourceType) -> list[str]:
    return [f"--role {role}" for role, needs in ROLES.items() if kind in needs]


def filters(
    principal: str | None,
    host: str | None,
    permission: Permission,
    operations: Sequence[AclOperation],
    resources: Sequence[Resource],
) -> list[AclFilter]:
    """Return filters for what was named; what was not named matches everything."""
    wanted: Sequence[Resource | None] = resources or [None]
    return [
        AclFilter(
            ResourceType.ANY if resource is None else resource.type,
            None if resource is None else resource.name,
            PatternType.ANY if resource is None else resource.pattern_type,
            principal,
            host,
            operation,
            permission,
        )
        for resource in wanted
        for operation in operations or [AclOperation.ANY]
    ]
