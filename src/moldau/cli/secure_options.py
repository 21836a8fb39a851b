"""What `moldau start --secure` and `moldau cluster start --secure` have in common: an option, and lines at the end."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

secure_name_option = click.option(
    "--secure-name",
    "secure_names",
    metavar="NAME",
    multiple=True,
    help="With --secure: one more name or address of this machine, for its certificate; repeatable.",
)


def connect_lines(address: str, client_file: Path, password: str | None, is_terminal: bool) -> list[str]:
    """Return how to connect. `password` is that of a new admin user, which is shown on terminals only: other output is
    often kept in a log."""
    from moldau.secure_setup.settings import ADMIN  # a plain start has no use for it

    config = f"--command-config {shlex.quote(str(client_file))}"
    if password is None:
        first = f"Secured with TLS, passwords and ACLs; the settings of the user {ADMIN} are in {client_file}."
    elif is_terminal:
        first = f"Secured with TLS, passwords and ACLs. User: {ADMIN}, password: {password} (not shown again)."
    else:
        first = f"Secured with TLS, passwords and ACLs; the password of the user {ADMIN} is in {client_file}."
    last = (
        f"  moldau user add ann -b {address} {config}"
        if password is not None
        else f"  moldau user password {ADMIN} --save {shlex.quote(str(client_file))} -b {address} {config}"
    )
    return [first, f"  kafka-topics.sh --bootstrap-server {address} {config} --list", last]
