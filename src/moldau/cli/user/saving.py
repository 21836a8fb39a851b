"""`--save FILE`: the settings of a client in a file that only its owner can read, instead of a password on the
terminal."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, ParamSpec, TypeVar

import click

from moldau.base.errors import UnusableProperty
from moldau.base.listeners import host_and_port
from moldau.cli.connect import Broker, CommandFailed
from moldau.client.admin.cluster_admin import ClusterAdmin

P = ParamSpec("P")
T = TypeVar("T")

FORMAT_NAMES: Final = ("java", "librdkafka", "kafka-python", "python")
ADDRESSES_MAX: Final = 5
"""How many brokers a file names: a client needs one that answers."""


@dataclass(frozen=True)
class Destination:
    """Where the settings of a user go, and in which form."""

    path: Path
    file_format: str

    def check(self, name: str, password: str) -> None:
        """Fail before anything is changed if the file cannot be written."""
        from moldau.cli.user.client_formats import client_text
        from moldau.secure_setup.directory import check_can_write_private
        from moldau.secure_setup.settings import login_properties

        try:
            client_text(self.file_format, login_properties(name, password), self.path)
        except UnusableProperty as error:
            raise CommandFailed(f"--format {self.file_format}: {error}; nothing was changed") from error
        try:
            check_can_write_private(self.path)
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise CommandFailed(f"--save {self.path}: {reason}; nothing was changed") from error

    def write(self, connection: Mapping[str, str], name: str, password: str) -> str:
        """Write the files; return their names. Raise OSError."""
        from moldau.cli.user.client_formats import authority_file, client_text
        from moldau.secure_setup.directory import write_private, write_public
        from moldau.secure_setup.settings import login_properties

        properties = {**connection, **login_properties(name, password)}
        text, authority = client_text(self.file_format, properties, self.path)
        if authority is None:
            write_private(self.path, text)
            return str(self.path)
        beside = authority_file(self.path)
        write_public(beside, authority)
        write_private(self.path, text)
        return f"{self.path}, the authority's certificate in {beside}"


def save_options(command: Callable[P, T]) -> Callable[..., T]:
    """Add --save and --format to a command, which gets them as its argument `destination`; None without --save."""

    @click.option(
        "--save",
        metavar="FILE",
        type=click.Path(dir_okay=False, path_type=Path),
        help="Write the user's client settings to FILE, which only you can read, instead of showing the password.",
    )
    @click.option(
        "--format",
        "file_format",
        type=click.Choice(FORMAT_NAMES),
        help="For which client --save writes: java also for --command-config of all tools, librdkafka for kcat,"
        " kafka-python, or python, a Python file that runs with confluent-kafka. Without it, python for a FILE that"
        " ends in .py, else java. With librdkafka and kafka-python the authority's certificate is in a file beside,"
        " FILE's name with .ca.pem, that everybody can read.",
    )
    @functools.wraps(command)
    def with_destination(*args: Any, save: Path | None, file_format: str | None, **options: Any) -> T:
        if save is None:
            if file_format is not None:
                raise click.UsageError("--format says what --save FILE writes; give both", click.get_current_context())
            return command(*args, destination=None, **options)  # type: ignore[arg-type]
        from moldau.cli.user.client_formats import default_format

        destination = Destination(save, file_format or default_format(save))
        return command(*args, destination=destination, **options)  # type: ignore[arg-type]

    return with_destination


def connection_properties(broker: Broker) -> dict[str, str]:
    """Return how this command connects, with Java's names and without its user: the other user connects likewise. The
    certificates themselves are in it, not their path, so that the file can be copied to another machine."""
    from moldau.client.properties import public_java_properties
    from moldau.secure_setup.settings import CERTIFICATES

    properties = public_java_properties(broker.client_config)
    location = properties.pop("ssl.truststore.location", None)
    if location is not None:
        properties[CERTIFICATES] = Path(location).read_text()
    return properties


def bootstrap_properties(broker: Broker, admin: ClusterAdmin) -> dict[str, str]:
    """Return the addresses that the brokers advertise: other machines may not know that which this command was given.
    Nothing if this command itself does not log in, because the user has to connect to another listener."""
    if not broker.client_config.get("security.protocol", "").upper().startswith("SASL"):
        return {}
    nodes = sorted(node for node in admin.described().nodes.values() if not node.is_fenced)
    addresses = [host_and_port(node.host, node.port) for node in nodes[:ADDRESSES_MAX]]
    return {"bootstrap.servers": ",".join(addresses)}
