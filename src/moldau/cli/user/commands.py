"""`moldau user`: list, add and remove users with a password (SCRAM), and give one a new password."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import click
from click.shell_completion import CompletionItem

from moldau.cli.cluster.connect import answering_cluster
from moldau.cli.connect import COMPLETION_SECONDS, Broker, CommandFailed, broker_options, completion_broker
from moldau.cli.next_steps import worded
from moldau.cli.output import Table, confirm, format_option, show
from moldau.cli.user.saving import Destination, bootstrap_properties, connection_properties, save_options

if TYPE_CHECKING:
    from moldau.client.admin.cluster_admin import ClusterAdmin
    from moldau.client.admin.users import Users

TIMEOUT_MS: Final = 20_000
LIST_HINT: Final = "`moldau user list` shows the users there are"


def _complete_users(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    try:
        with _users(completion_broker(ctx), COMPLETION_SECONDS) as users:
            return [CompletionItem(name) for name in users.all() if name.startswith(incomplete)]
    except CommandFailed:
        return []


new_user_argument = click.argument("name", metavar="NAME")
user_argument = click.argument("name", metavar="NAME", shell_complete=_complete_users)
stdin_option = click.option("--password-stdin", is_flag=True, help="Read the password from standard input.")


@click.group()
def user() -> None:
    """List, add and remove users with a password (SCRAM). What they may do is up to `moldau acl`."""


@user.command(name="list", short_help="List users.")
@format_option
@broker_options
def list_users(broker: Broker, output_format: str) -> None:
    """List the users who have a password in the cluster. Users in settings of nodes (PLAIN) are not shown.

    \b
    moldau user list
    """
    with _users(broker) as users:
        rows = [(name, ", ".join(sorted(credentials))) for name, credentials in users.all().items()]
    show(output_format, Table(("USER", "MECHANISMS"), rows, empty="no users"))


@user.command(short_help="Add a user with a random password.")
@new_user_argument
@stdin_option
@save_options
@broker_options
def add(broker: Broker, name: str, password_stdin: bool, destination: Destination | None) -> None:
    """Add a user. The password is random and shown once, unless --save or --password-stdin is given.

    If the brokers have an authorizer, a new user may do nothing until `moldau acl allow` allows it.

    \b
    moldau user add ann
    moldau user add ann --save ann.properties          for Kafka's tools, ours and Java's clients
    moldau user add ann --save ann.py                  for confluent-kafka; `python ann.py` lists the topics
    moldau user add ann --save ann.py --format kafka-python
    moldau user add ann --save ann.conf --format librdkafka         kcat -F ann.conf -L
    """
    from moldau.client.admin.acls import Acls
    from moldau.client.admin.users import Users
    from moldau.operations.rights import rights_of

    password = _checked_password(name, password_stdin, destination)
    with _admin(broker) as admin:
        users = Users(admin)
        if name in users.all():
            raise CommandFailed(f"there is a user {name} already; `moldau user password {name}` sets a new password")
        rights = rights_of(name, Acls(admin))
        connection = _connection(broker, admin, destination)
        users.set_password(name, password)
    _show_or_save(f"added {name}", name, password, destination, connection, password_stdin)
    if rights is not None:
        click.echo(worded(rights.note(name)), err=True)


@user.command(name="password", short_help="Give a user a new password.")
@user_argument
@stdin_option
@save_options
@broker_options
def change_password(broker: Broker, name: str, password_stdin: bool, destination: Destination | None) -> None:
    """Give a user a new password: a random one that is shown once, unless --save or --password-stdin is given.

    The old password is refused from then on; connections that are open stay open.

    \b
    moldau user password ann
    moldau user password admin --save client.properties
    moldau user password ann --save ann.py
    """
    from moldau.client.admin.users import Users

    password = _checked_password(name, password_stdin, destination)
    with _admin(broker) as admin:
        users = Users(admin)
        if name not in users.all():
            raise CommandFailed(f"no user {name}; {LIST_HINT}")
        connection = _connection(broker, admin, destination)
        users.set_password(name, password)
    _show_or_save(f"{name} has a new password", name, password, destination, connection, password_stdin)


@user.command(short_help="Remove users.")
@click.argument("names", metavar="NAME...", nargs=-1, required=True, shell_complete=_complete_users)
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@broker_options
def remove(broker: Broker, names: tuple[str, ...], yes: bool) -> None:
    """Remove users. Their ACLs stay, and so do connections that are open and delegation tokens.

    \b
    moldau user remove ann bob --yes
    """
    from moldau.client.admin.delegation_tokens import DelegationTokens
    from moldau.client.admin.users import Users
    from moldau.operations.tokens import tokens_note

    with _admin(broker) as admin:
        users, tokens = Users(admin), DelegationTokens(admin)
        unknown = sorted(set(names) - users.all().keys())
        if unknown:
            raise CommandFailed(f"no user {', '.join(unknown)}; {LIST_HINT}")
        for name in names:
            note = tokens_note(name, tokens, int(time.time() * 1000))
            if note is not None:
                click.echo(worded(note), err=True)
        confirm(f"Remove {', '.join(names)}?", yes)
        for name in names:
            users.remove(name)
            click.echo(f"removed {name}; `moldau acl remove --user {name}` removes its ACLs")


def _checked_password(name: str, from_stdin: bool, destination: Destination | None) -> str:
    """Return the password; fail before anything is changed if it cannot be saved."""
    password = _password(from_stdin)
    if destination is not None:
        destination.check(name, password)
    return password


def _password(from_stdin: bool) -> str:
    if not from_stdin:
        from moldau.secure_setup.first_users import new_password

        return new_password()
    password = sys.stdin.readline().rstrip("\r\n")
    if not password:
        raise CommandFailed("--password-stdin: standard input has no password")
    return password


def _connection(broker: Broker, admin: ClusterAdmin, destination: Destination | None) -> dict[str, str]:
    """Return how the user connects, if that is to be saved."""
    if destination is None:
        return {}
    return {**bootstrap_properties(broker, admin), **connection_properties(broker)}


def _show_or_save(
    done: str, name: str, password: str, destination: Destination | None, connection: Mapping[str, str], is_known: bool
) -> None:
    """Print what was done, and the password if it is new and not saved."""
    if destination is None:
        click.echo(done if is_known else f"{done}; password: {password}")
        return
    try:
        files = destination.write(connection, name, password)
    except OSError as error:
        # The password is set: without it the user could not log in.
        click.echo(f"{done}; password: {password}")
        raise CommandFailed(f"{destination.path}: {(error.strerror or str(error)).lower()}") from error
    click.echo(f"{done}; client settings in {files}")
    if "bootstrap.servers" not in connection:
        click.echo(f"add bootstrap.servers to {destination.path}: a listener where users log in", err=True)


@contextmanager
def _users(broker: Broker, answer_seconds: float | None = None) -> Iterator[Users]:
    from moldau.client.admin.users import Users

    with _admin(broker, answer_seconds) as admin:
        yield Users(admin)


@contextmanager
def _admin(broker: Broker, answer_seconds: float | None = None) -> Iterator[ClusterAdmin]:
    from moldau.client.admin.cluster_admin import ClusterAdmin

    timeout = {} if answer_seconds is None else {"answer_seconds": answer_seconds}
    with answering_cluster(broker, **timeout) as cluster:
        yield ClusterAdmin(cluster, TIMEOUT_MS)
