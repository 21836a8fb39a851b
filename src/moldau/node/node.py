"""A node on a real machine: the sockets, threads, signals and disks of an `Assembly`."""

from __future__ import annotations

import asyncio
import logging
import shutil
import socket
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from random import Random, SystemRandom
from typing import TYPE_CHECKING, Any

from moldau.assembly import Assembly, World
from moldau.base.clock import Clock, SystemClock
from moldau.base.errors import ListenFault, StorageFault
from moldau.base.limits import DESCRIPTORS_RESERVED_FOR_SHORT_LIVED_FILES, reserved_descriptors
from moldau.base.listeners import Listener as Address
from moldau.base.loop_watch import LOOP_WATCH
from moldau.base.promise import Promise
from moldau.base.settings.own import MOLDAU_IGNORE_DYNAMIC_LISTENER_CONFIGS
from moldau.client.peer_connections import PeerConnections, TlsContext
from moldau.log.files import DiskFiles, Files, staying_descriptor_max
from moldau.node.listener_security import SaslServers, static_listeners
from moldau.platforms.boot import boot_id
from moldau.platforms.open_files import open_files_limit
from moldau.platforms.scheduling import run_queue_wait_s
from moldau.platforms.support import refusal_text
from moldau.runtime.cleaning.process import CleaningProcess
from moldau.runtime.flusher import LogFlusher
from moldau.runtime.internal_errors import INTERNAL_ERRORS
from moldau.runtime.listener_configs import ListenerConfigs
from moldau.runtime.node_tls import NodeTls
from moldau.runtime.running_clock import RunningClock
from moldau.runtime.slow_calls import SlowCalls
from moldau.runtime.thread_work import ThreadWork
from moldau.runtime.timers import LoopTimers
from moldau.runtime.views.workers import view_workers
from moldau.security.quotas.connections import ConnectionQuotas
from moldau.server.listener import Listener, bound_socket
from moldau.settings import Settings

if TYPE_CHECKING:
    from moldau.assembly.broker_side import BrokerSide
    from moldau.assembly.controller_side import ControllerSide
    from moldau.prometheus.listener import MetricsListener
    from moldau.runtime.node_oauth import NodeOAuth

log = logging.getLogger("moldau.node")
STOP_GRACE_S = 10.0
FAILED_GRACE_S = 1.0
"""Used after a disk failure: responses that wait for the disk will never come."""
FLUSH_THREADS = 4
"""Logs are synced side by side: disks and file systems combine concurrent syncs."""
CLOSING_THREADS = 4
"""Each opens files for a moment; only few descriptors are reserved for that."""
CODEC_THREADS = 2
"""They encode and decode large messages, and must not wait behind reads from the disk."""
CONTROLLER_GRACE_S = 0.2
"""Parked fetches of other nodes wait longer than this: those nodes fetch from another leader."""


class Node:
    def __init__(
        self,
        settings: Settings,
        *,
        clock: Clock | None = None,
        files: Files | None = None,
        rng: Random | None = None,
        peers: Callable[[asyncio.AbstractEventLoop, TlsContext | None], PeerConnections] = PeerConnections,
        on_recovered: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_recovered` is called when the logs are recovered, which may hold up the event loop for minutes."""
        require_support()
        self._on_recovered = on_recovered
        self.settings = settings
        self._system_clock = clock or SystemClock()
        self._files = files or DiskFiles(staying_descriptor_max())
        self._uses_cleaning_process = isinstance(self._files, DiskFiles)
        """Whether another process cleans the logs: it can read only files on the real disk."""
        self._rng = rng or SystemRandom()
        self._new_peers = peers
        self.addresses: list[Address] = []
        """The addresses on which the node listens for clients, with the actual port where the setting is 0."""
        self._bound_ports: dict[str, int] = {}
        """The actual port of each listener, by name."""
        self._listeners: list[Listener] = []
        self._controller_listeners: list[Listener] = []
        self.metrics_address: Address | None = None
        """Where metrics are served, with the actual port."""
        self._metrics: MetricsListener | None = None
        self._disk_work = ThreadWork(self._fail)
        self._codec_work = ThreadWork(self._fail, ThreadPoolExecutor(CODEC_THREADS, "moldau-codec"))
        self.failed: asyncio.Future[Exception]

    async def start(self) -> None:
        """Bind the addresses, open the data directory, join the quorum, create the partitions, and serve."""
        loop = asyncio.get_running_loop()
        self.failed = loop.create_future()
        slow_calls = SlowCalls(LOOP_WATCH, self._system_clock, run_queue_wait_s)
        self._clock = RunningClock(self._system_clock, LoopTimers(loop), slow_calls.mark)
        self._flusher = LogFlusher(loop, self._fail, FLUSH_THREADS)
        self._quorum_flusher = LogFlusher(loop, self._fail, 1)
        self._tls = self._read_tls()
        self._oauth = await self._read_oauth(loop)
        self._sasl = SaslServers(self.settings, self._clock, self._oauth, self._disk_work.run)
        self._listener_configs = self._dynamic_configs()
        self._peers = self._new_peers(loop, self._tls.client(self.settings.inter_broker_listener_name))
        self._controller_peers = self._new_peers(loop, self._tls.client(self.settings.controller_listener_name))
        sockets, world = self._bind_addresses(), self._world(loop)
        try:
            self.assembly = Assembly(self.settings, world)
        except BaseException:
            _close_all(sockets)
            raise
        try:
            self._on_recovered()
            self._open_listeners(sockets)
            await self._serve_metrics(world, sockets)
            await self._begin()
        except BaseException:
            self.abandon()
            raise

    def _read_tls(self) -> NodeTls:
        settings = self.settings
        served = [each.name for each in (*settings.listeners, *settings.controller_listeners)]
        internal = [] if settings.is_alone else [settings.inter_broker_listener_name, settings.controller_listener_name]
        return NodeTls(settings.tls, served, internal)

    def _dynamic_configs(self) -> ListenerConfigs | None:
        """Return the dynamic configs of the listeners; None on a node that is no broker, which has none."""
        settings = self.settings
        if not settings.is_broker:
            return None
        is_ignored = settings.value(MOLDAU_IGNORE_DYNAMIC_LISTENER_CONFIGS) is True
        return ListenerConfigs(settings.node_id, static_listeners(settings), self._tls, self._sasl.change, is_ignored)

    async def _read_oauth(self, loop: asyncio.AbstractEventLoop) -> NodeOAuth | None:
        """Return what verifies the tokens of OAUTHBEARER; None if no listener offers it."""
        listeners = {name: each.oauthbearer for name, each in self.settings.sasl.listeners.items() if each.oauthbearer}
        if not listeners:
            return None
        from moldau.runtime.node_oauth import NodeOAuth  # it needs a package that not every node has

        oauth = NodeOAuth(listeners, self._clock)
        await oauth.start(loop)
        return oauth

    def _world(self, loop: asyncio.AbstractEventLoop) -> World:
        return World(
            clock=self._clock,
            lease_clock=self._system_clock,
            timers=LoopTimers(loop),
            files=self._files,
            rng=self._rng,
            flusher=self._flusher,
            quorum_flusher=self._quorum_flusher,
            run_all=_run_in_threads,
            peers=self._peers.with_login(self.settings.sasl.broker_login),
            controller_peers=self._controller_peers.with_login(self.settings.sasl.controller_login),
            run_in_thread=self._disk_work.run,
            run_codec=self._codec_work.run,
            disk_space=self._disk_space,
            boot_id=boot_id(),
            on_fault=self._fail,
            listener_configs=self._listener_configs,
            cleaner=CleaningProcess(loop) if self._uses_cleaning_process else None,
            views=view_workers(loop, self.settings.broker_layers()),
            # Connections get half of the open files: a log that cannot open its files would stop the node.
            connection_descriptors=open_files_limit() // 2,
        )

    async def _begin(self) -> None:
        for listener in self._controller_listeners:
            listener.start()
        ready: asyncio.Future[Any] = _as_future(self.assembly.start(self.advertised()))
        failed: asyncio.Future[Any] = self.failed
        await asyncio.wait([ready, failed], return_when=asyncio.FIRST_COMPLETED)
        if self.failed.done():
            raise self.failed.result()
        if self._listener_configs is not None:
            await self._listener_configs.start(self.assembly.current.image)
        for listener in self._listeners:
            listener.start()
        self._tls.start(asyncio.get_running_loop())

    async def _serve_metrics(self, world: World, sockets: Mapping[Address, socket.socket]) -> None:
        address = self.settings.metrics_listener
        if address is None:
            return
        # Imported here: most nodes start without metrics, and sooner without these modules.
        from moldau.assembly.metrics import NodeMetrics
        from moldau.prometheus.listener import MetricsListener

        metrics = NodeMetrics(
            self.assembly,
            world,
            self._clock,
            lambda: [*self._listeners, *self._controller_listeners],
            (self._flusher, self._quorum_flusher),
            self._controller_peers,
        )
        self._metrics = MetricsListener(sockets[address], metrics.steps, INTERNAL_ERRORS.log)
        await self._metrics.start()
        self.metrics_address = address._replace(port=self._metrics.port)
        log.info("node %d: metrics are at http://%s/metrics", self.settings.node_id, self.metrics_address.address)

    async def stop(self) -> None:
        """Answer the pending requests, flush everything, and mark the directory as cleanly shut down."""
        grace_s = FAILED_GRACE_S if self.failed.done() else STOP_GRACE_S
        if not self.failed.done():
            await _as_future(self.assembly.leave())
        for listener in self._listeners:
            self.assembly.release()  # each time: the listeners behind it accept requests while it stops
            await listener.stop(grace_s)
        self.assembly.stop()
        for listener in self._controller_listeners:
            await listener.stop(CONTROLLER_GRACE_S)
        self._close_peers()
        self._clock.stop()
        await self._wait_for_threads()
        if self.failed.done():
            self.assembly.abandon()
            return
        await asyncio.get_running_loop().run_in_executor(None, self.assembly.close)

    def abandon(self) -> None:
        """End like a killed process: no goodbye to other nodes, no more writes, the directory stays as it is."""
        self.assembly.halt()
        self._close_peers()
        self._clock.stop()
        self._codec_work.close()
        for flusher in (self._flusher, self._quorum_flusher):
            flusher.close()
        for listener in (*self._listeners, *self._controller_listeners):
            listener.abort()
        self.assembly.abandon()

    def _close_peers(self) -> None:
        self._tls.stop()
        if self._metrics is not None:
            self._metrics.stop()
        if self._oauth is not None:
            self._oauth.stop()
        for peers in (self._peers, self._controller_peers):
            peers.close_all()

    async def _wait_for_threads(self) -> None:
        """Wait for threads that still use the disk, or whose results are appended. No new work begins: its result would
        be appended to a log that is being closed."""
        for work in (self._codec_work, self._disk_work):
            work.close()
            await work.wait()
        for flusher in (self._flusher, self._quorum_flusher):
            await flusher.finish()
            flusher.close()

    def _bind_addresses(self) -> dict[Address, socket.socket]:
        """Bind all listeners, before the data directory is opened: an address in use must leave it clean."""
        settings, sockets = self.settings, dict[Address, socket.socket]()
        addresses = (
            *(settings.controller_listeners if settings.is_controller else ()),
            *(settings.listeners if settings.is_broker else ()),
            *((settings.metrics_listener,) if settings.metrics_listener else ()),
        )
        for address in addresses:
            try:
                is_shared = address.name == settings.shared_listener
                sockets[address] = bound_socket(address.host, address.port, is_shared)
            except OSError as refused:
                _close_all(sockets)
                raise ListenFault(address.address, refused) from refused
        return sockets

    def _open_listeners(self, sockets: Mapping[Address, socket.socket]) -> None:
        settings = self.settings
        connections = self.assembly.connections
        broker, controller = self.assembly.broker_side, self.assembly.controller_side
        if controller is not None:
            for address in settings.controller_listeners:
                self._open(address, sockets[address], controller, connections.controllers, self._controller_listeners)
        if broker is not None:
            for address in settings.listeners:
                opened = self._open(address, sockets[address], broker, connections.clients, self._listeners)
                self.addresses.append(opened)

    def _open(
        self,
        address: Address,
        bound: socket.socket,
        side: BrokerSide | ControllerSide,
        quotas: ConnectionQuotas,
        listeners: list[Listener],
    ) -> Address:
        settings = self.settings
        listener = Listener(
            address.name,
            side.router,
            self.assembly.connections.budget,
            settings.socket_request_max_bytes,
            quotas,
            settings.connections_max_idle_ms,
            settings.socket_send_buffer_bytes,
            settings.socket_receive_buffer_bytes,
            self.assembly.access,
            side.connection_gone,
            open_files_limit() - reserved_descriptors(DESCRIPTORS_RESERVED_FOR_SHORT_LIVED_FILES, open_files_limit()),
            self._sasl.open(address.name, self.assembly.current),
            self._tls.server(address.name),
            self.assembly.audit.login_failed,
        )
        _, port = listener.adopt(bound)
        listeners.append(listener)
        self._bound_ports[address.name] = port
        return address._replace(port=port)

    def advertised(self) -> list[Address]:
        """Return the addresses that clients connect to, with the actual port where the setting is 0."""
        return self._with_bound_ports(self.settings.advertised_listeners)

    def advertised_controllers(self) -> list[Address]:
        """Return the addresses at which others reach this controller, with the actual port where the setting is 0."""
        return self._with_bound_ports(self.settings.advertised_controllers)

    def _with_bound_ports(self, addresses: Iterable[Address]) -> list[Address]:
        return [each._replace(port=each.port or self._bound_ports[each.name]) for each in addresses]

    def _disk_space(self) -> tuple[int, int]:
        directory = self.settings.log_dirs[0]
        try:
            usage = shutil.disk_usage(directory)
        except OSError as fault:
            raise StorageFault(directory, fault) from fault
        return usage.total, usage.free

    def _fail(self, fault: Exception) -> None:
        if isinstance(fault, StorageFault):
            with suppress(StorageFault):  # only the first disk failure is reported
                self.assembly.distrust()
        else:
            log.error("node %d: internal error in a background task", self.settings.node_id, exc_info=fault)
        if not self.failed.done():
            self.failed.set_result(fault)


def _run_in_threads(calls: Iterable[Callable[[], None]]) -> None:
    with ThreadPoolExecutor(CLOSING_THREADS, "close") as threads:
        futures = [threads.submit(call) for call in calls]
    for future in futures:
        future.result()


def _close_all(sockets: Mapping[Address, socket.socket]) -> None:
    for each in sockets.values():
        each.close()


def _as_future(promise: Promise[None]) -> asyncio.Future[None]:
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    promise.then(lambda _: None if future.done() else future.set_result(None))
    return future


def require_support() -> None:
    """Raise RuntimeError on an operating system that the broker does not support."""
    if line := refusal_text("the broker"):
        raise RuntimeError(line)
