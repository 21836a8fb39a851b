"""`moldau gateway`: let devices send and follow records over HTTP until Ctrl-C."""

from __future__ import annotations

import logging
import os
import ssl
import sys

import click

from moldau.base.errors import UnusableProperty
from moldau.cli.connect import Broker, CommandFailed, broker_options
from moldau.cli.console import bound, check_readable
from moldau.cli.side_processes import GATEWAY, HTTP_DEFAULT
from moldau.cli.stop_signals import STOP_WITH_STDIN, stop_with_stdin
from moldau.platforms.heap import share_heap


@click.command(short_help="Let devices send and follow records over HTTP.")
@click.option("--http", default=HTTP_DEFAULT, show_default=True, metavar="HOST:PORT", help="Where to listen for HTTP.")
@click.option("--anonymous", is_flag=True, help="Devices without a password act as the user of --command-config.")
@click.option("--allow-origin", multiple=True, metavar="URL", help="A site whose pages may use it. Repeatable.")
@click.option("--allow-host", multiple=True, metavar="NAME", help="A name under which browsers reach it. Repeatable.")
@click.option("--tls-certificate", metavar="FILE", help="Serve TLS: the certificate chain as PEM.")
@click.option("--tls-key", metavar="FILE", help="Serve TLS: the private key as PEM.")
@click.option("--tls-client-ca", metavar="FILE", help="Devices may log in with certificates of these authorities, PEM.")
@click.option("--metrics", metavar="HOST:PORT", help="Serve metrics for Prometheus there.")
@broker_options
def gateway(
    broker: Broker,
    http: str,
    anonymous: bool,
    allow_origin: tuple[str, ...],
    allow_host: tuple[str, ...],
    tls_certificate: str | None,
    tls_key: str | None,
    tls_client_ca: str | None,
    metrics: str | None,
) -> None:
    """Let devices, browsers and scripts send and follow records over HTTP until Ctrl-C. It speaks only Kafka's protocol
    to the cluster, so any Kafka may be behind it.

    If the cluster's listener needs SASL, each device logs in with its own user and password (Basic), token (Bearer) or
    certificate, and sends and reads what the ACLs let it; nothing is stored. --command-config then says how to reach
    the cluster, and who the gateway itself is.

    \b
    moldau gateway
    curl -d '{"t": 21.5}' -H 'Content-Type: application/json' localhost:8082/topics/telemetry
    moldau gateway -b kafka.example.com:9092 --http 0.0.0.0:8082 --command-config client.properties
    """
    try:
        from moldau.gateway.http.limits import HttpLimits
        from moldau.gateway.http.server import HttpOptions
        from moldau.gateway.process import GatewayOptions, Listeners, run
        from moldau.web.hosts import allowed_hosts
    except ImportError as error:
        raise CommandFailed(GATEWAY.missing) from error
    if (tls_certificate is None) != (tls_key is None):
        raise click.UsageError("--tls-certificate and --tls-key belong together", click.get_current_context())
    if tls_client_ca is not None and tls_certificate is None:
        raise click.UsageError("--tls-client-ca needs --tls-certificate", click.get_current_context())
    check_readable({"--tls-certificate": tls_certificate, "--tls-key": tls_key, "--tls-client-ca": tls_client_ca})
    try:
        hosts = allowed_hosts(allow_host)
    except UnusableProperty as wrong:
        raise CommandFailed(f"--allow-host {wrong}") from wrong
    share_heap()
    if os.environ.get(STOP_WITH_STDIN):
        stop_with_stdin()
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    http_socket = bound(http, "--http")
    metrics_socket = None if metrics is None else bound(metrics, "--metrics")
    options = GatewayOptions(
        broker.bootstrap_servers,
        broker.client_config,
        anonymous,
        HttpOptions(tls_certificate, tls_key, tls_client_ca, hosts, frozenset(allow_origin)),
        HttpLimits(),
    )
    scheme = "http" if tls_certificate is None else "https"

    def announce() -> None:
        host, port = http.rpartition(":")[0], http_socket.getsockname()[1]
        click.echo(f"the gateway to {broker.bootstrap_servers} is at {scheme}://{host}:{port}", err=True)

    try:
        run(options, Listeners(http_socket, metrics_socket), announce)
    except ssl.SSLError as error:
        files = f"--tls-certificate {tls_certificate}, --tls-key {tls_key}, --tls-client-ca {tls_client_ca}"
        raise CommandFailed(f"{files}: {error.strerror or error}; expected PEM files that belong together") from error
    except (UnusableProperty, ValueError) as wrong:
        raise CommandFailed(str(wrong)) from wrong
