"""The gateway's HTTP server in this process, before a cluster in memory or a real one."""

from __future__ import annotations

import asyncio
import http.client
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from harness.patience import PATIENCE_S
from moldau.gateway.http.limits import HttpLimits
from moldau.gateway.http.server import HttpOptions, HttpServer
from moldau.gateway.kafka.accounts import KafkaAccounts
from moldau.gateway.ports import Accounts
from moldau.platforms.event_loop import new_loop
from moldau.web.server import bind


@dataclass(frozen=True)
class RunningGateway:
    port: int
    server: HttpServer
    loop: asyncio.AbstractEventLoop

    def call(self, function: Callable[[], Any]) -> Any:
        """Call it in the thread of the event loop, where the accounts live."""

        async def call() -> Any:
            return function()

        return asyncio.run_coroutine_threadsafe(call(), self.loop).result(PATIENCE_S)

    def post(
        self, path: str, body: bytes | str = b"", content_type: str = "application/json", **headers: str
    ) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("localhost", self.port, timeout=PATIENCE_S)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request("POST", path, body, {"Content-Type": content_type, **named})
        response = connection.getresponse()
        data = response.read()
        connection.close()
        return response.status, data

    def connect(self) -> socket.socket:
        return socket.create_connection(("localhost", self.port), PATIENCE_S)


DEFAULT_OPTIONS = HttpOptions()
DEFAULT_LIMITS = HttpLimits()


@contextmanager
def http_gateway(
    accounts: Callable[[], Accounts], options: HttpOptions = DEFAULT_OPTIONS, limits: HttpLimits = DEFAULT_LIMITS
) -> Iterator[RunningGateway]:
    """`accounts` is called on the event loop of the server."""
    ready = threading.Event()
    running: list[RunningGateway] = []

    async def serve() -> None:
        with bind("localhost", 0) as listener:
            cluster = accounts()
            server = HttpServer(cluster, options, limits, ready.set)
            running.append(RunningGateway(listener.getsockname()[1], server, asyncio.get_running_loop()))
            await server.serve(listener)
            if isinstance(cluster, KafkaAccounts):
                await cluster.close()

    def run() -> None:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(serve())

    thread = threading.Thread(target=run, name="gateway")
    thread.start()
    assert ready.wait(PATIENCE_S)
    try:
        yield running[0]
    finally:
        with suppress(RuntimeError):  # the test has stopped it
            running[0].loop.call_soon_threadsafe(running[0].server.stop)
        thread.join(PATIENCE_S)
        assert not thread.is_alive(), "the gateway does not stop"
