"""`moldau pipeline run --metrics`: serves the metrics of a run while it goes on, from a thread of its own."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from types import TracebackType

import click

from moldau.base.listeners import parse_listener
from moldau.cli.connect import CommandFailed
from moldau.pipelines.running.display import Display
from moldau.pipelines.running.metrics import collect
from moldau.pipelines.running.progress import RunStatus
from moldau.platforms.addresses import bind_address
from moldau.prometheus.listener import MetricsListener

_NAME = "METRICS"


class ServedDisplay:
    """A display whose last status is also served to Prometheus."""

    def __init__(self, display: Display, address: str) -> None:
        """Begin to serve, before Spark starts; raise CommandFailed if the address cannot be used."""
        self._display = display
        self._status: RunStatus | None = None
        try:
            listener = parse_listener(f"{_NAME}://{address}", {_NAME: "PLAINTEXT"})
        except ValueError:
            raise click.BadParameter("expected HOST:PORT, such as localhost:9405", param_hint="--metrics") from None
        try:
            family, place = bind_address(listener.host, listener.port)
            bound = socket.create_server(place, family=family)
        except OSError as error:
            raise CommandFailed(f"--metrics: {address} cannot be used: {error.strerror or error}") from error
        self._listener = MetricsListener(bound, self._pieces)
        self.address = listener.on_this_machine._replace(port=self._listener.port).address
        self._thread = threading.Thread(target=self._serve, name="metrics", daemon=True)
        self._loop = asyncio.new_event_loop()
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._listener.start(), self._loop).result()

    def __enter__(self) -> ServedDisplay:
        self._display.__enter__()
        self._display.say(f"metrics: http://{self.address}/metrics")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._display.__exit__(kind, error, trace)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def show(self, status: RunStatus) -> None:
        self._status = status
        self._display.show(status)

    def say(self, text: str) -> None:
        self._display.say(text)

    def _serve(self) -> None:
        self._loop.run_forever()
        self._listener.stop()
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()

    def _pieces(self) -> Iterator[str]:
        status = self._status
        return iter(()) if status is None else collect(status)
