"""Runs a gateway: its fronts, its users and its metrics on one event loop, until a signal."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from moldau.base.errors import ErrorCode, KafkaError
from moldau.gateway.http.limits import HttpLimits
from moldau.gateway.http.server import HttpOptions, HttpServer
from moldau.gateway.kafka.accounts import KafkaAccounts
from moldau.gateway.metrics import Measured, steps
from moldau.gateway.mqtt.limits import MqttLimits
from moldau.gateway.mqtt.server import MqttServer
from moldau.gateway.mqtt.topics import RETAINED_TOPIC, SESSIONS_TOPIC, Rule
from moldau.platforms.event_loop import new_loop
from moldau.prometheus.listener import MetricsListener

log = logging.getLogger("moldau.gateway")

STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
NOT_THERE_YET: Final = (
    ErrorCode.BROKER_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.NOT_CONTROLLER,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)
"""The cluster is not there yet, or a broker does not know yet the topics that were just created."""
AGAIN_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class GatewayOptions:
    bootstrap: str
    properties: Mapping[str, str]
    """Of a Kafka client: how the cluster is reached, and the gateway's own user."""
    anonymous: bool
    """Whether devices without credentials act as the gateway's own user."""
    http: HttpOptions
    http_limits: HttpLimits
    mqtt_rules: Sequence[Rule] = ()
    mqtt_limits: MqttLimits = field(default_factory=MqttLimits)


@dataclass(frozen=True, slots=True)
class Listeners:
    """Sockets that are bound; None: not served."""

    http: socket.socket | None
    mqtt: socket.socket | None = None
    metrics: socket.socket | None = None


def run(options: GatewayOptions, listeners: Listeners, on_start: Callable[[str], None]) -> None:
    """Serve until SIGINT or SIGTERM. `on_start` is told what serves, HTTP or MQTT. UnusableProperty or ValueError if
    the properties are wrong, KafkaError if the cluster does not let the gateway keep the sessions of MQTT."""
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(_run(options, listeners, on_start))


async def _run(options: GatewayOptions, listeners: Listeners, on_start: Callable[[str], None]) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in STOP_SIGNALS:
        signal.signal(number, lambda *_: loop.call_soon_threadsafe(stopped.set))
    accounts = KafkaAccounts(options.bootstrap, options.properties, options.anonymous)
    serving: list[asyncio.Task[Any]] = [asyncio.create_task(stopped.wait(), name="stop")]
    http = mqtt = metrics = None
    if listeners.http is not None:
        http = HttpServer(accounts, options.http, options.http_limits, lambda: on_start("HTTP"))
        serving.append(asyncio.create_task(http.serve(listeners.http), name="HTTP"))
    if listeners.mqtt is not None:
        mqtt = MqttServer(accounts, accounts.own, options.mqtt_rules, options.mqtt_limits)
        start = partial(mqtt.start, [listeners.mqtt], _tls_context(options.http))
        served = _serve_mqtt(mqtt, start, accounts, stopped, lambda: on_start("MQTT"))
        serving.append(asyncio.create_task(served, name="MQTT"))
    if listeners.metrics is not None:
        metrics = MetricsListener(listeners.metrics, lambda: steps(Measured(accounts, http, mqtt)))
        await metrics.start()
    try:
        await asyncio.wait(serving, return_when=asyncio.FIRST_COMPLETED)
        stopped.set()
        if http is not None:
            http.stop()
        await asyncio.gather(*serving)
    finally:
        if metrics is not None:
            metrics.stop()
        await accounts.close()


async def _serve_mqtt(
    mqtt: MqttServer,
    start: Callable[[], Awaitable[None]],
    accounts: KafkaAccounts,
    stopped: asyncio.Event,
    on_start: Callable[[], None],
) -> None:
    """Listen once the sessions and retained messages were read, until stopped. A cluster that is not there yet is
    waited for."""
    said = ""
    try:
        while not stopped.is_set():
            try:
                await accounts.create_topics([SESSIONS_TOPIC, RETAINED_TOPIC])
                await start()
            except KafkaError as error:
                if error.code not in NOT_THERE_YET:
                    raise
                if str(error) != said:
                    said = str(error)
                    log.warning("MQTT waits for the cluster: %s", said)
                with suppress(TimeoutError):
                    await asyncio.wait_for(stopped.wait(), AGAIN_S)
            else:
                on_start()
                await stopped.wait()
    finally:
        await mqtt.stop()


def _tls_context(options: HttpOptions) -> ssl.SSLContext | None:
    if options.certificate is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=options.client_authorities)
    context.load_cert_chain(options.certificate, options.key)
    context.verify_mode = ssl.CERT_NONE if options.client_authorities is None else ssl.CERT_OPTIONAL
    return context
