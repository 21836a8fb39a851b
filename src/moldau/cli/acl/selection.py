"""The options of `moldau acl` that name resources and operations."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import click

from moldau.base.acl_operations import AclOperation
from moldau.cli.completion import complete_topics
from moldau.security.acls import selection
from moldau.security.acls.bindings import (
    CLUSTER_NAME,
    AclBinding,
    AclFilter,
    PatternType,
    Permission,
    ResourceType,
)
from moldau.security.acls.selection import Resource, UnusableAcl, Wording

F = TypeVar("F", bound=Callable[..., Any])

OPTIONS: Final = {
    ResourceType.TOPIC: "--topic",
    ResourceType.GROUP: "--group",
    ResourceType.TRANSACTIONAL_ID: "--transactional-id",
}
WORDING: Final = Wording("--role {role}", "--prefix", "{kind} {name} --prefix", OPTIONS)


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
    try:
        return None if text is None else selection.principal_of(text)
    except UnusableAcl as error:
        raise click.BadParameter(str(error)) from error


def parse_operations(text: str | None) -> list[AclOperation]:
    """Parse operations with commas between them: read,describe-configs."""
    try:
        return selection.operations_named((text or "").split(","))
    except UnusableAcl as error:
        raise click.BadParameter(str(error)) from error


def parse_host(ctx: click.Context, param: click.Parameter, text: str) -> str:
    """Return the address as brokers compare it."""
    try:
        return selection.host_of(text)
    except UnusableAcl as error:
        raise click.BadParameter(str(error)) from error


def bindings(
    principal: str,
    host: str,
    permission: Permission,
    operations: Sequence[AclOperation],
    roles: Sequence[str],
    resources: Sequence[Resource],
) -> list[AclBinding]:
    """Return an ACL for each resource and operation. A role adds the operations that it needs of each resource."""
    try:
        return selection.bindings(principal, host, permission, operations, roles, resources, WORDING)
    except UnusableAcl as error:
        raise click.UsageError(str(error)) from error


def hints(principal: str, roles: Sequence[str], resources: Sequence[Resource]) -> list[str]:
    """Return what is allowed, but often meant otherwise, a line each."""
    user, kinds = principal.partition(":")[2], {resource.type for resource in resources}
    lines = selection.star_notes(resources, WORDING)
    if "consumer" in roles and ResourceType.TOPIC in kinds and ResourceType.GROUP not in kinds:
        lines.append(
            f"note: {user} cannot join a consumer group by this;"
            f" `moldau acl allow {user} --role consumer --group GROUP` allows it"
        )
    return lines


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
