"""The HTTP server of the gateway, on an event loop that others share."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from moldau.gateway.http import page
from moldau.gateway.http.application import Application
from moldau.gateway.http.intake import HttpCounters, Intake
from moldau.gateway.http.limits import HttpLimits
from moldau.gateway.http.outflow import Outflow
from moldau.gateway.http.proxy.consumers import Consumers
from moldau.gateway.http.proxy.routes import RestProxy
from moldau.gateway.http.repeats import Repeats
from moldau.gateway.http.visitors import Visitors
from moldau.gateway.ports import Accounts
from moldau.web.server import Server, ServerSettings

STOP_SECONDS: Final = 5
HEAD_BYTES_MAX: Final = 64 << 10


@dataclass(frozen=True, slots=True)
class HttpOptions:
    """What who starts the gateway chose."""

    certificate: str | None = None
    key: str | None = None
    client_authorities: str | None = None
    hosts: frozenset[str] = frozenset()
    origins: frozenset[str] = frozenset()


class HttpServer:
    def __init__(
        self, accounts: Accounts, options: HttpOptions, limits: HttpLimits, on_start: Callable[[], None] = lambda: None
    ) -> None:
        self.counters = HttpCounters()
        visitors = Visitors(accounts, options.hosts, options.origins)
        repeats = Repeats(asyncio.get_running_loop().time)
        self._intake = intake = Intake(visitors, limits, repeats, self.counters)
        self.outflow = Outflow(visitors, intake)
        self._proxy = RestProxy(visitors, intake)
        settings = ServerSettings(
            limits.connections,
            STOP_SECONDS,
            limits.idle_seconds,
            HEAD_BYTES_MAX,
            options.certificate,
            options.key,
            options.client_authorities,
            http="httptools",
            head_seconds_max=limits.head_seconds,
            slow_seconds_max=limits.slow_seconds,
            serves_sockets=True,
        )
        routes = [page.route(), *self.outflow.routes()]
        application = Application(intake, visitors, self._proxy, routes)
        self._server = Server(application, settings, self._end_streams, on_start)

    @property
    def connections(self) -> int:
        return len(self._server.server_state.connections)

    @property
    def bytes_receiving(self) -> int:
        """Of bodies that are not whole."""
        return self._intake.receiving

    @property
    def consumers(self) -> Consumers:
        """That clients of the REST proxy have made."""
        return self._proxy.consumers

    async def serve(self, listener: socket.socket) -> None:
        """Serve until `stop`."""
        try:
            await self._server.serve_beside([listener])
        finally:
            await self._proxy.consumers.close()

    def stop(self) -> None:
        self._server.stop()

    def _end_streams(self) -> None:
        self.outflow.stop()
        self._proxy.consumers.end_soon()
