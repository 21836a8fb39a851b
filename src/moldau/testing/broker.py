"""A real broker inside this process, for tests and notebooks: own thread, free port, temporary directory.

with broker() as kafka:
    Producer({"bootstrap.servers": kafka.bootstrap_servers}).produce("orders", b"one")

with broker(secure=True) as kafka:
    kafka.add_user("ann")
    kafka.allow("ann", "write", topic="orders")
    Producer(kafka.client_config("ann")).produce("orders", b"one")
"""

from __future__ import annotations

import asyncio
import tempfile
import threading
import warnings
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from moldau.base.settings.log import LOG_DIRS
from moldau.base.settings.node import LISTENERS
from moldau.base.settings.own import MOLDAU_RESERVE_BYTES
from moldau.node import Node, require_support
from moldau.platforms.event_loop import new_loop
from moldau.settings import from_properties
from moldau.testing.secured import SecuredClients

START_TIMEOUT_S = 30.0
NO_RESERVE: Final = {MOLDAU_RESERVE_BYTES.name: "0"}
"""A broker of a test need not survive a full disk, and many of them would take many megabytes."""
Property = str | int | float | bool
"""A setting as a test writes it: text as in a properties file, or a Python value."""


class TestBroker(SecuredClients):
    """A broker that runs in its own thread until `stop`."""

    __test__ = False  # tells pytest that this is no test class

    def __init__(
        self, data_dir: Path, properties: Mapping[str, Property] | None = None, *, secure: bool = False
    ) -> None:
        """Raises SettingsError for an invalid value; warns (UserWarning) of a key without effect. `secure` is like
        `moldau start --secure`."""
        self.data_dir = data_dir
        secured = self._secured_properties(self._secure([data_dir])) if secure else {}
        listeners = f"{'SASL_SSL' if secure else 'PLAINTEXT'}://127.0.0.1:0"
        own = {LISTENERS.name: listeners, LOG_DIRS.name: str(data_dir), **NO_RESERVE}
        properties_by_name = {**own, **secured, **(properties or {})}
        self._settings = from_properties({key: property_text(value) for key, value in properties_by_name.items()})
        for line in self._settings.warnings:
            warnings.warn(line, stacklevel=2)
        self._thread = threading.Thread(target=self._serve, name="moldau broker", daemon=True)
        self._ready: Future[str] = Future()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._fault: BaseException | None = None
        self._node: Node | None = None

    @property
    def bootstrap_servers(self) -> str:
        """The address for clients."""
        return self._ready.result(START_TIMEOUT_S)

    @property
    def limit_counters(self) -> Mapping[str, int]:
        """How often each limit was reached: docs/security.md lists the names."""
        assert self._node is not None, "the broker has been started"
        return self._node.assembly.counters.values

    @property
    def metrics_address(self) -> str:
        """HOST:PORT of `/metrics`, if `metrics.listener` is set."""
        assert self._node is not None, "the broker has been started"
        address = self._node.metrics_address
        assert address is not None, "metrics.listener is set"
        return address.address

    def start(self) -> TestBroker:
        """Return when clients can connect; raise the error if the start fails."""
        require_support()
        self._thread.start()
        self._ready.result(START_TIMEOUT_S)
        return self

    def stop(self) -> None:
        """Stop cleanly: all data is on disk afterwards, and a broker can be started again on `data_dir`."""
        if self._loop is not None and self._stopping is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stopping.set)
            self._thread.join()
        if self._fault is not None:
            raise self._fault

    def __repr__(self) -> str:
        return f"<Moldau broker at {self.bootstrap_servers}, data in {self.data_dir}>"

    def _serve(self) -> None:
        try:
            with asyncio.Runner(loop_factory=new_loop) as runner:
                runner.run(self._run())
        except BaseException as fault:
            if self._ready.done():
                self._fault = fault
            else:
                self._ready.set_exception(fault)

    async def _run(self) -> None:
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        node = self._node = Node(self._settings)
        await node.start()
        self._ready.set_result(node.addresses[0].address)
        await self._stopping.wait()
        await node.stop()


@contextmanager
def broker(data_dir: str | Path | None = None, *, secure: bool = False, **properties: Property) -> Iterator[TestBroker]:
    """Run a broker for the length of a `with`. Settings are Kafka's, with underscores: `num_partitions=3`. With
    `secure` clients need TLS and a password, which `client_config` returns, and ACLs."""
    settings = {name.replace("_", "."): value for name, value in properties.items()}
    if data_dir is not None:
        yield from _running(TestBroker(Path(data_dir), settings, secure=secure))
        return
    with tempfile.TemporaryDirectory(prefix="moldau-") as directory:
        yield from _running(TestBroker(Path(directory), settings, secure=secure))


def property_text(value: Property) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _running(test_broker: TestBroker) -> Iterator[TestBroker]:
    test_broker.start()
    try:
        yield test_broker
    finally:
        test_broker.stop()
