"""Runs a gateway: its fronts, its users and its metrics on one event loop, until a signal."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from moldau.gateway.http.limits import HttpLimits
from moldau.gateway.http.server import HttpOptions, HttpServer
from moldau.gateway.kafka.accounts import KafkaAccounts
from moldau.gateway.metrics import Measured, steps
from moldau.platforms.event_loop import new_loop
from moldau.prometheus.listener import MetricsListener

STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


@dataclass(frozen=True, slots=True)
class GatewayOptions:
    bootstrap: str
    properties: Mapping[str, str]
    """Of a Kafka client: how the cluster is reached, and the gateway's own user."""
    anonymous: bool
    """Whether devices without credentials act as the gateway's own user."""
    http: HttpOptions
    http_limits: HttpLimits


@dataclass(frozen=True, slots=True)
class Listeners:
    """Sockets that are bound; None: not served."""

    http: socket.socket | None
    metrics: socket.socket | None = None


def run(options: GatewayOptions, listeners: Listeners, on_start: Callable[[], None]) -> None:
    """Serve until SIGINT or SIGTERM. UnusableProperty or ValueError if the cluster cannot be reached with these
    properties."""
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(_run(options, listeners, on_start))


async def _run(options: GatewayOptions, listeners: Listeners, on_start: Callable[[], None]) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in STOP_SIGNALS:
        signal.signal(number, lambda *_: loop.call_soon_threadsafe(stopped.set))
    accounts = KafkaAccounts(options.bootstrap, options.properties, options.anonymous)
    http = HttpServer(accounts, options.http, options.http_limits)
    metrics = None
    if listeners.metrics is not None:
        metrics = MetricsListener(listeners.metrics, lambda: steps(Measured(accounts, http)))
        await metrics.start()
    serving = [] if listeners.http is None else [asyncio.create_task(http.serve(listeners.http), name="HTTP")]
    waiting = asyncio.create_task(stopped.wait())
    on_start()
    try:
        await asyncio.wait([waiting, *serving], return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        http.stop()
        await asyncio.gather(*serving)
    finally:
        if metrics is not None:
            metrics.stop()
        await accounts.close()
