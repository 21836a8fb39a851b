"""`moldau gateway`: let devices send and follow records over HTTP and MQTT until Ctrl-C."""

from __future__ import annotations

import logging
import os
import socket
import ssl
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import click

from moldau.base.errors import KafkaError, UnusableProperty
from moldau.cli.connect import Broker, CommandFailed, broker_options
from moldau.cli.console import bound, check_readable
from moldau.cli.side_processes import GATEWAY, HTTP_DEFAULT
from moldau.cli.stop_signals import STOP_WITH_STDIN, stop_with_stdin
from moldau.platforms.heap import share_heap


@click.command(short_help="Let devices send and follow records over HTTP and MQTT.")
@click.option("--http", metavar="HOST:PORT", help=f"Where to listen for HTTP; without --mqtt {HTTP_DEFAULT}.")
@click.option("--mqtt", metavar="HOST:PORT", help="Where to listen for MQTT, such as localhost:1883.")
@click.option(
    "--mqtt-topic",
    "rules",
    multiple=True,
    metavar="'FILTER -> TOPIC'",
    help="Where messages of MQTT go whose topic names match a filter. Repeatable; the first that matches counts.",
)
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
    http: str | None,
    mqtt: str | None,
    rules: tuple[str, ...],
    anonymous: bool,
    allow_origin: tuple[str, ...],
    allow_host: tuple[str, ...],
    tls_certificate: str | None,
    tls_key: str | None,
    tls_client_ca: str | None,
    metrics: str | None,
) -> None:
    """Let devices, browsers and scripts send and follow records over HTTP and MQTT until Ctrl-C. It speaks only Kafka's
    protocol to the cluster, so any Kafka may be behind it.

    If the cluster's listener needs SASL, each device logs in with its own user and password, token or certificate, and
    sends and reads what the ACLs let it; no password is stored. --command-config then says how to reach the cluster,
    and who the gateway itself is.

    A message of MQTT with the topic name telemetry/plant1/line2 is a record of the topic telemetry with the key
    plant1/line2, unless --mqtt-topic says otherwise. Sessions and retained messages are kept in the compacted topics
    _mqtt_sessions and _mqtt_retained, which the gateway creates.

    \b
    moldau gateway
    curl -d '{"t": 21.5}' -H 'Content-Type: application/json' localhost:8082/topics/telemetry
    moldau gateway --mqtt localhost:1883 --mqtt-topic 'plants/+/line/# -> telemetry'
    moldau gateway -b kafka.example.com:9092 --http 0.0.0.0:8082 --command-config client.properties
    """
    try:
        from moldau.gateway.http.limits import HttpLimits
        from moldau.gateway.http.server import HttpOptions
        from moldau.gateway.mqtt.topics import BadRule, parse_rule
        from moldau.gateway.process import GatewayOptions, Listeners, run
        from moldau.web.hosts import allowed_hosts, allowed_origins
    except ImportError as error:
        raise CommandFailed(GATEWAY.missing) from error
    _check_tls(tls_certificate, tls_key, tls_client_ca)
    with _refused_as("--allow-host", UnusableProperty):
        hosts = allowed_hosts(allow_host)
    with _refused_as("--allow-origin", UnusableProperty):
        origins = allowed_origins(allow_origin)
    with _refused_as("--mqtt-topic", BadRule):
        mqtt_rules = [parse_rule(text) for text in rules]
    share_heap()
    if os.environ.get(STOP_WITH_STDIN):
        stop_with_stdin()
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    if http is None and mqtt is None:
        http = HTTP_DEFAULT
    listeners = Listeners(_bound(http, "--http"), _bound(mqtt, "--mqtt"), _bound(metrics, "--metrics"))
    options = GatewayOptions(
        broker.bootstrap_servers,
        broker.client_config,
        anonymous,
        HttpOptions(tls_certificate, tls_key, tls_client_ca, hosts, origins),
        HttpLimits(),
        mqtt_rules,
    )
    addresses = {"HTTP": _address(http, listeners.http), "MQTT": _address(mqtt, listeners.mqtt)}

    def announce(front: str) -> None:
        scheme = front.lower() + ("" if tls_certificate is None else "s")
        click.echo(f"the gateway to {broker.bootstrap_servers} is at {scheme}://{addresses[front]}", err=True)

    with _failures_in_words(tls_certificate, tls_key, tls_client_ca, mqtt):
        run(options, listeners, announce)


@contextmanager
def _refused_as(option: str, error: type[Exception]) -> Iterator[None]:
    try:
        yield
    except error as wrong:
        raise CommandFailed(f"{option} {wrong}") from wrong


@contextmanager
def _failures_in_words(
    certificate: str | None, key: str | None, client_ca: str | None, mqtt: str | None
) -> Iterator[None]:
    try:
        yield
    except ssl.SSLError as error:
        files = f"--tls-certificate {certificate}, --tls-key {key}, --tls-client-ca {client_ca}"
        raise CommandFailed(f"{files}: {error.strerror or error}; expected PEM files that belong together") from error
    except KafkaError as error:
        raise CommandFailed(f"--mqtt {mqtt}: {error}") from error
    except (UnusableProperty, ValueError) as wrong:
        raise CommandFailed(str(wrong)) from wrong


def _check_tls(certificate: str | None, key: str | None, client_ca: str | None) -> None:
    if (certificate is None) != (key is None):
        raise click.UsageError("--tls-certificate and --tls-key belong together", click.get_current_context())
    if client_ca is not None and certificate is None:
        raise click.UsageError("--tls-client-ca needs --tls-certificate", click.get_current_context())
    check_readable({"--tls-certificate": certificate, "--tls-key": key, "--tls-client-ca": client_ca})


def _bound(listen: str | None, option: str) -> socket.socket | None:
    return None if listen is None else bound(listen, option)


def _address(listen: str | None, listener: socket.socket | None) -> str:
    """Return the address with the port that was chosen, if it was 0."""
    if listen is None or listener is None:
        return ""
    return f"{listen.rpartition(':')[0]}:{listener.getsockname()[1]}"
