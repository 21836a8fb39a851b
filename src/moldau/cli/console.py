"""`moldau console`: serve the web console of a cluster until Ctrl-C."""

from __future__ import annotations

import logging
import os
import socket
import ssl
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from moldau.base.errors import UnusableProperty
from moldau.cli.connect import Broker, CommandFailed, broker_options
from moldau.cli.kafka.tool import ToolFailed
from moldau.cli.side_processes import CONSOLE, LISTEN_DEFAULT, split_listen
from moldau.cli.stop_signals import STOP_WITH_STDIN, stop_with_stdin
from moldau.platforms.heap import share_heap

if TYPE_CHECKING:
    from moldau.console.options import ConsoleOptions


@click.command(short_help="Serve a web console for any Kafka cluster.")
@click.option("--listen", "-l", default=LISTEN_DEFAULT, show_default=True, metavar="HOST:PORT", help="Where to listen.")
@click.option("--read-only", is_flag=True, help="Refuse everything that would change the cluster.")
@click.option("--metrics", multiple=True, metavar="URL", help="/metrics of a broker or a gateway. Repeatable.")
@click.option("--pipelines", multiple=True, metavar="DIR", help="Where pipelines keep their status. Repeatable.")
@click.option("--allow-host", multiple=True, metavar="NAME", help="A name under which browsers reach it. Repeatable.")
@click.option("--no-login", is_flag=True, help="Everybody acts as the user or certificate of --command-config.")
@click.option("--tls-certificate", metavar="FILE", help="Serve HTTPS: the certificate chain as PEM.")
@click.option("--tls-key", metavar="FILE", help="Serve HTTPS: the private key as PEM.")
@broker_options
def console(
    broker: Broker,
    listen: str,
    read_only: bool,
    metrics: tuple[str, ...],
    pipelines: tuple[str, ...],
    allow_host: tuple[str, ...],
    no_login: bool,
    tls_certificate: str | None,
    tls_key: str | None,
) -> None:
    """Serve the web console of a cluster until Ctrl-C. It speaks only Kafka's protocol, so it works with any Kafka.

    It listens on localhost unless --listen says otherwise. If the cluster's listener needs SASL, everybody logs in with
    their own user and password, and sees and does what the ACLs let them; nothing is stored. --command-config then says
    how to reach the cluster (security.protocol, ssl.truststore...).

    \b
    moldau console
    moldau console -b kafka.example.com:9092 --read-only
    moldau console --command-config client.properties --metrics http://localhost:9404/metrics
    """
    try:
        from moldau.console.options import ConsoleOptions
        from moldau.console.server import serve
        from moldau.web.hosts import allowed_hosts
    except ImportError as error:
        raise CommandFailed(CONSOLE.missing) from error
    if (tls_certificate is None) != (tls_key is None):
        raise click.UsageError("--tls-certificate and --tls-key belong together", click.get_current_context())
    try:
        hosts = allowed_hosts(allow_host)
    except UnusableProperty as wrong:
        raise CommandFailed(f"--allow-host {wrong}") from wrong
    check_readable({"--tls-certificate": tls_certificate, "--tls-key": tls_key})
    share_heap()  # it has many short-lived buffers in several threads
    if os.environ.get(STOP_WITH_STDIN):
        stop_with_stdin()
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    listener = bound(listen, "--listen")
    options = ConsoleOptions(
        broker.bootstrap_servers,
        broker.client_config,
        split_listen(listen, "--listen")[0],
        listener.getsockname()[1],
        read_only,
        not no_login,
        hosts,
        metrics,
        pipelines,
        tls_certificate,
        tls_key,
    )
    for line in access_warnings(options):
        click.echo(f"moldau: {line}", err=True)

    def announce() -> None:
        click.echo(f"the console of {options.bootstrap} is at {options.url}", err=True)

    try:
        with listener:
            serve(options, listener, announce)
    except ssl.SSLError as error:
        files = f"--tls-certificate {tls_certificate}, --tls-key {tls_key}"
        raise CommandFailed(f"{files}: {error.strerror or error}; expected PEM files that belong together") from error


def bound(listen: str, option: str) -> socket.socket:
    """Return a socket that is bound to HOST:PORT. Fail with the option if that cannot be."""
    from moldau.web.server import bind

    try:
        return bind(*split_listen(listen, option))
    except ToolFailed as failed:
        raise CommandFailed(str(failed)) from failed
    except OSError as error:
        raise CommandFailed(f"{option} {listen}: {error.strerror or error}") from error


def check_readable(files: Mapping[str, str | None]) -> None:
    """Fail with the option and the file if one cannot be read: OpenSSL names neither."""
    for option, path in files.items():
        try:
            if path is not None:
                open(path, "rb").close()
        except OSError as error:
            raise CommandFailed(f"{option} {path}: {error.strerror}") from error


def access_warnings(options: ConsoleOptions) -> list[str]:
    """Return what the one who starts the console should know about who can reach it."""
    lines = []
    if options.is_shared_certificate:
        lines.append(
            f"everybody who can reach {options.url} acts as the owner of the console's certificate:"
            " with security.protocol=SSL nobody logs in"
        )
    elif not options.login_required and not options.is_local:
        reason = "the cluster has no logins" if options.asks_login else "--no-login"
        lines.append(f"everybody who can reach this address can use the console ({reason})")
    if not options.is_tls and not options.is_local:
        lines.append("without --tls-certificate, passwords and records cross the network unencrypted")
    return lines
