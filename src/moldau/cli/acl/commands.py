"""`moldau acl`: list, allow, deny, remove, and `test`, which answers whether somebody may do something and why."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import click

from moldau.cli.acl.selection import (
    bindings,
    filters,
    hints,
    parse_host,
    parse_operations,
    parse_principal,
    resource_options,
)
from moldau.cli.cluster.connect import answering_cluster
from moldau.cli.connect import Broker, broker_options
from moldau.cli.next_steps import worded
from moldau.cli.output import Table, confirm, format_option, show
from moldau.security.acls.authorizer import Rules
from moldau.security.acls.bindings import AclBinding, AclFilter, PatternType, Permission
from moldau.security.acls.selection import (
    ANY_HOST,
    UNKNOWN_RULES,
    Resource,
    decide_from,
    decision_line,
    operation_word,
    resource_word,
)

if TYPE_CHECKING:
    from moldau.client.admin.acls import Acls
    from moldau.client.admin.cluster_admin import ClusterAdmin

TIMEOUT_MS: Final = 20_000
COLUMNS: Final = ("PRINCIPAL", "HOST", "PERMISSION", "OPERATION", "RESOURCE", "NAME", "PATTERN")

principal_argument = click.argument("principal", metavar="USER", callback=parse_principal)
operations_argument = click.argument("operations", metavar="[OPERATION,...]", required=False)
role_option = click.option(
    "--role",
    "roles",
    multiple=True,
    type=click.Choice(["producer", "consumer"]),
    help="All that a producer or a consumer needs of the named resources. Repeatable.",
)


@click.group()
def acl() -> None:
    """List and change who may do what, and test it. Takes effect where the brokers have an authorizer."""


@acl.command(name="list", short_help="List ACLs.")
@click.option("--user", metavar="USER", callback=parse_principal, help="Only of this principal.")
@resource_options
@format_option
@broker_options
def list_acls(broker: Broker, user: str | None, resources: Sequence[Resource], output_format: str) -> None:
    """List ACLs: all of them, or those of a user or for a resource.

    \b
    moldau acl list
    moldau acl list --user ann --topic orders
    """
    with _acls(broker) as acls:
        found = {each for wanted in filters(user, None, Permission.ANY, [], resources) for each in acls.find(wanted)}
    show(output_format, Table(COLUMNS, [_row(each) for each in sorted(found)], empty="no such ACLs"))


@acl.command(short_help="Allow a user something.")
@principal_argument
@operations_argument
@role_option
@click.option(
    "--host",
    default=ANY_HOST,
    show_default=True,
    callback=parse_host,
    help="The address that the user must connect from.",
)
@resource_options
@broker_options
def allow(
    broker: Broker,
    principal: str,
    operations: str | None,
    roles: Sequence[str],
    host: str,
    resources: Sequence[Resource],
) -> None:
    """Allow a user operations on resources. USER is a name, '*' for everybody, or TYPE:NAME.

    Who may read, write, delete or alter may also describe; who may alter configs may also read them.

    \b
    moldau acl allow ann read,write --topic orders
    moldau acl allow ann --role consumer --topic orders --group billing
    moldau acl allow ann all --topic team-a. --group team-a. --prefix
    """
    wanted = bindings(principal, host, Permission.ALLOW, parse_operations(operations), roles, resources)
    _create(broker, wanted, principal, hints(principal, roles, resources))


@acl.command(short_help="Deny a user something, whatever else allows it.")
@principal_argument
@operations_argument
@click.option("--host", default=ANY_HOST, show_default=True, callback=parse_host, help="The address that it holds for.")
@resource_options
@broker_options
def deny(broker: Broker, principal: str, operations: str | None, host: str, resources: Sequence[Resource]) -> None:
    """Deny a user operations on resources. One denial is stronger than any number of permissions.

    \b
    moldau acl deny ann write --topic audit
    moldau acl deny '*' all --topic secret. --prefix
    """
    wanted = bindings(principal, host, Permission.DENY, parse_operations(operations), (), resources)
    _create(broker, wanted, principal, hints(principal, (), resources))


def _create(broker: Broker, wanted: Sequence[AclBinding], principal: str, notes: Sequence[str]) -> None:
    if not wanted:
        raise click.UsageError("name a resource: --topic, --group, --transactional-id or --cluster")
    with _admin(broker) as admin:
        from moldau.client.admin.acls import Acls

        Acls(admin).create(wanted)
        unknown = _unknown_user(admin, principal)
    for each in wanted:
        click.echo(str(each))
    for line in (*notes, *unknown):
        click.echo(line, err=True)


def _unknown_user(admin: ClusterAdmin, principal: str) -> list[str]:
    from moldau.client.admin.users import Users
    from moldau.operations.rights import unknown_user_notes

    return [f"note: {worded(note)}" for note in unknown_user_notes(principal, Users(admin))]


@acl.command(short_help="Remove ACLs.")
@click.option("--user", metavar="USER", callback=parse_principal, help="Only of this principal.")
@click.option("--host", help="Only those for this address.")
@click.option("--permission", type=click.Choice(["allow", "deny"]), help="Only those that allow, or that deny.")
@click.option("--operation", "operations", metavar="OPERATION,...", help="Only those for these operations.")
@resource_options
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@broker_options
def remove(
    broker: Broker,
    user: str | None,
    host: str | None,
    permission: str | None,
    operations: str | None,
    resources: Sequence[Resource],
    yes: bool,
) -> None:
    """Remove the ACLs that fit all that is named: a user, resources, operations.

    \b
    moldau acl remove --user ann
    moldau acl remove --user ann --operation write --topic orders --yes
    """
    kind = Permission.ANY if permission is None else Permission[permission.upper()]
    wanted = filters(user, host, kind, parse_operations(operations), resources)
    if wanted == [AclFilter()]:
        raise click.UsageError("name what to remove: --user, a resource, or an operation")
    with _acls(broker) as acls:
        found = sorted({each for acl_filter in wanted for each in acls.find(acl_filter)})
        if not found:
            click.echo("no such ACLs")
            return
        for each in found:
            click.echo(str(each))
        confirm(f"Remove {'this ACL' if len(found) == 1 else f'these {len(found)} ACLs'}?", yes)
        removed = acls.delete(wanted)
    click.echo(f"removed {len(removed)}")


@acl.command(short_help="May a user do something, and by which rule?")
@principal_argument
@click.argument("operation", metavar="OPERATION")
@click.option(
    "--host",
    default=ANY_HOST,
    show_default="from anywhere",
    callback=parse_host,
    help="The address that the user connects from.",
)
@resource_options
@broker_options
@click.pass_context
def test(
    ctx: click.Context, broker: Broker, principal: str, operation: str, host: str, resources: Sequence[Resource]
) -> None:
    """Say whether a user may do something with resources, and which rule decides. Exits with 1 if not.

    Without --host it says too from which addresses the answer is another, because an ACL names them.

    Super users are known only to who may read the brokers' configs, and not at all from Apache Kafka.

    \b
    moldau acl test ann write --topic orders
    """
    operations = parse_operations(operation)
    if not resources or any(each.pattern_type is PatternType.PREFIXED for each in resources):
        raise click.UsageError("name resources, without --prefix: --topic, --group, --transactional-id or --cluster")
    from moldau.client.admin.acls import Acls

    with _admin(broker) as admin:
        acls, notes = Acls(admin), _unknown_user(admin, principal)
        rules = acls.rules()
        found = {resource: acls.covering([resource]) for resource in resources}
    if rules is None:
        notes.append(f"note: {UNKNOWN_RULES}")
    is_allowed = True
    for resource, covering in found.items():
        authorizer = (rules or Rules()).authorizer(covering)
        for each in operations:
            decision, exceptions = decide_from(authorizer, covering, principal, host, each, resource)
            is_allowed = is_allowed and decision.is_allowed
            click.echo(decision_line(principal, each, resource, decision, exceptions))
    for line in notes:
        click.echo(line, err=True)
    ctx.exit(0 if is_allowed else 1)


@contextmanager
def _acls(broker: Broker) -> Iterator[Acls]:
    from moldau.client.admin.acls import Acls

    with _admin(broker) as admin:
        yield Acls(admin)


@contextmanager
def _admin(broker: Broker) -> Iterator[ClusterAdmin]:
    from moldau.client.admin.cluster_admin import ClusterAdmin

    with answering_cluster(broker) as cluster:
        yield ClusterAdmin(cluster, TIMEOUT_MS)


def _row(acl: AclBinding) -> tuple[str, ...]:
    return (
        acl.principal,
        acl.host,
        acl.permission.name.lower(),
        operation_word(acl.operation),
        resource_word(acl.resource_type),
        acl.pattern,
        acl.pattern_type.name.lower(),
    )
