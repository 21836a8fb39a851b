"""A node: the only place where all parts meet. It has no logic of its own: parts are made, started, and stopped in
reverse order.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import resource
import shutil
import signal
import sys
from collections.abc import Callable, Coroutine, Mapping
from random import Random, SystemRandom

from moldau import __version__
from moldau.base.clock import Clock, SystemClock
from moldau.base.errors import StorageFault
from moldau.base.ids import METADATA_TOPIC_UUID, TopicPartition
from moldau.base.limits import RECEIVE_BUDGET_BYTES
from moldau.base.listeners import Listener as Address
from moldau.base.names import METADATA_TOPIC
from moldau.base.topic_configs import topic_config_texts
from moldau.log import meta_properties
from moldau.log.config import LogConfig
from moldau.log.files import DiskFiles, Files
from moldau.log.store import LogStore
from moldau.metadata.controller.brokers import decide_register_broker
from moldau.metadata.controller.configs import broker_layers
from moldau.metadata.controller.features import SUPPORTED, decide_bootstrap
from moldau.metadata.controller.topics import new_uuid
from moldau.metadata.current import CurrentImage
from moldau.metadata.image import Endpoint, MetadataImage
from moldau.raft.quorum import Quorum
from moldau.replica.partitions import Partitions
from moldau.replica.sessions import SessionCache
from moldau.replica.waiting import ParkedFetches
from moldau.runtime.admin import Admin
from moldau.runtime.controller_loop import Controller, MetadataLog
from moldau.runtime.flusher import GroupFlusher
from moldau.runtime.group_coordinator import GroupCoordinator, offsets_topic
from moldau.runtime.housekeeping import Housekeeping
from moldau.runtime.producer_ids import ProducerIds
from moldau.runtime.quorum_state_file import QuorumStateFile
from moldau.runtime.timers import LoopTimers
from moldau.server.conversation import ReceiveBudget
from moldau.server.handlers import Parts, handlers
from moldau.server.listener import Listener
from moldau.server.router import Router
from moldau.settings import Settings
from moldau.wire.messages.fetch import FetchResponse

log = logging.getLogger("moldau.node")
METADATA = TopicPartition(METADATA_TOPIC, 0)
STOP_GRACE_S = 10.0
FAILED_GRACE_S = 1.0
"""After the disk failed: replies that wait for it never come."""
OPEN_RETRY_MS = 5_000
FETCH_SESSION_EVICTION_MS = 120_000


class Node:
    def __init__(
        self,
        settings: Settings,
        *,
        clock: Clock | None = None,
        files: Files | None = None,
        rng: Random | None = None,
    ) -> None:
        self.settings = settings
        self._clock = clock or SystemClock()
        self._files = files or DiskFiles()
        self._rng = rng or SystemRandom()
        self._static: Mapping[str, str] = settings.broker_layers().static
        self._current = CurrentImage()
        self.addresses: list[Address] = []
        """Where the node really listens: ports given as 0 are resolved here."""
        self._listeners: list[Listener] = []
        self.failed: asyncio.Future[StorageFault]

    async def start(self) -> None:
        """Opens the data directory, leads the quorum of one, lays out the partitions, and serves."""
        loop = asyncio.get_running_loop()
        self.failed = loop.create_future()
        self._timers = LoopTimers(loop)
        self._flusher = GroupFlusher(loop, self._storage_failed)
        self._log_dir = self.settings.log_dirs[0]
        self._store = LogStore(self._files, self._log_dir)
        try:
            self._load_store()
            self._open_listeners()
            self._build()
            await self._lead()
        except BaseException:
            for listener in self._listeners:
                listener.release()
            self._store.abandon()
            raise
        self._beats = asyncio.TaskGroup()
        await self._beats.__aenter__()
        self._tasks = [self._beats.create_task(self._heed(beat)) for beat in self._chores()]
        for listener in self._listeners:
            listener.start()

    async def stop(self) -> None:
        """Answers what was asked, brings everything to disk, and marks the directory as cleanly left."""
        grace_s = FAILED_GRACE_S if self.failed.done() else STOP_GRACE_S
        self._parked.release_all()
        self._groups.close()
        for listener in self._listeners:
            await listener.stop(grace_s)
        for task in self._tasks:
            task.cancel()
        await self._beats.__aexit__(None, None, None)
        await self._housekeeping.finish()
        await self._flusher.finish()
        if self.failed.done():
            self._store.abandon()
            return
        await asyncio.get_running_loop().run_in_executor(None, self._store.close, self._housekeeping.high_watermarks())

    def _load_store(self) -> None:
        settings = self.settings
        meta = meta_properties.claim(
            self._files, settings.log_dirs[:1], settings.node_id, settings.cluster_id, lambda: new_uuid(self._rng)
        )[0]
        self._cluster_id, self._directory_id = meta.cluster_id, meta.directory_id
        found = self._store.load(lambda _: LogConfig(), self._clock.now_ms())
        if found.logs and not found.was_clean:
            log.warning("the last stop was not a clean one: %d logs were checked", found.logs)
        for recovered in found.recovered:
            log.warning("recovered: %s", recovered)
        for directory, why in found.unreadable:
            log.error("%s cannot be read and is left as it is: %s", directory, why)

    def _open_listeners(self) -> None:
        settings = self.settings
        budget = ReceiveBudget(max(RECEIVE_BUDGET_BYTES, 2 * settings.socket_request_max_bytes))
        self._router = Router()
        for address in settings.listeners:
            listener = Listener(
                address.name,
                self._router,
                budget,
                settings.socket_request_max_bytes,
                min(settings.max_connections, _open_files_max() // 2 // len(settings.listeners)),
                settings.max_connections_per_ip,
                settings.connections_max_idle_ms,
                settings.socket_send_buffer_bytes,
                settings.socket_receive_buffer_bytes,
            )
            _, port = listener.bind(address.host, address.port)
            self._listeners.append(listener)
            self.addresses.append(address._replace(port=port))

    def _build(self) -> None:
        settings = self.settings
        metadata_log = self._store.get(METADATA) or self._store.create(
            METADATA, METADATA_TOPIC_UUID, LogConfig(), self._clock.now_ms()
        )
        raft_log = MetadataLog(metadata_log)
        state_file = QuorumStateFile(self._files, metadata_log.directory)
        quorum = Quorum(settings.node_id, [settings.node_id], self._cluster_id, raft_log, state_file)
        self._controller = Controller(quorum, raft_log, self._flusher, self._current, self._clock)
        self._partitions = Partitions(
            settings.node_id, self._store, self._flusher, self._topic_configs, self._rng, log.error
        )
        self._current.follow(lambda image, changes: self._partitions.follow(image, changes, self._clock.now_ms()))
        self._admin = Admin(
            self._controller,
            settings.node_id,
            self._static,
            settings.num_partitions,
            settings.default_replication_factor,
            settings.delete_topic_enable,
            self._rng,
        )
        self._groups = GroupCoordinator(
            settings.groups,
            offsets_topic(
                settings.offsets_topic_num_partitions,
                settings.offsets_topic_replication_factor,
                settings.offsets_topic_segment_bytes,
            ),
            settings.node_id,
            self._partitions,
            self._current,
            self._admin,
            self._clock,
            self._timers,
            self._rng,
        )
        self._current.follow(self._groups.follow)
        self._parked: ParkedFetches[FetchResponse] = ParkedFetches(self._timers)
        self._housekeeping = Housekeeping(
            self._partitions, self._store, self._flusher, self._clock, settings.producer_id_expiration_ms
        )
        self._router.serve(handlers(self._parts()))

    def _parts(self) -> Parts:
        settings = self.settings
        return Parts(
            current=self._current,
            partitions=self._partitions,
            admin=self._admin,
            groups=self._groups,
            producer_ids=ProducerIds(self._admin.allocate_producer_ids),
            sessions=SessionCache(
                settings.max_incremental_fetch_session_cache_slots, FETCH_SESSION_EVICTION_MS, self._rng
            ),
            parked=self._parked,
            clock=self._clock,
            timers=self._timers,
            served=self._router.served,
            node_id=settings.node_id,
            cluster_id=self._cluster_id,
            static=self._static,
            log_dir=os.path.abspath(self._log_dir),
            disk_space=self._disk_space,
            auto_create_topics=settings.auto_create_topics_enable,
            fetch_bytes_max=settings.fetch_max_bytes,
        )

    async def _lead(self) -> None:
        """Replays the metadata log, then registers this node in it."""
        settings = self.settings
        self._controller.start()
        bootstrapped = self._controller.submit(decide_bootstrap)
        endpoints = [Endpoint(a.name, a.host, a.port, 0) for a in self.advertised()]
        registered = self._controller.submit(
            lambda image: decide_register_broker(
                image,
                settings.node_id,
                new_uuid(self._rng),
                endpoints,
                settings.broker_rack,
                [self._directory_id],
                SUPPORTED,
            )
        )
        await self._flusher.finish()
        if self.failed.done():
            raise self.failed.result()
        assert bootstrapped.done, "the first metadata record is committed"
        assert registered.done, "the node is registered"

    def advertised(self) -> list[Address]:
        """What clients are told, with real ports where the settings left them open."""
        bound = {address.name: address.port for address in self.addresses}
        return [a._replace(port=a.port or bound[a.name]) for a in self.settings.advertised_listeners]

    def _chores(self) -> list[Coroutine[None, None, None]]:
        settings, keep = self.settings, self._housekeeping
        return [
            keep.every(settings.log_retention_check_interval_ms, keep.retain),
            keep.every(OPEN_RETRY_MS, lambda: self._partitions.retry(self._current.image, self._clock.now_ms())),
            keep.every(min(settings.log_flush_scheduler_interval_ms, 1000), keep.flush_by_time),
            keep.every(settings.producer_id_expiration_check_interval_ms, keep.expire_producers),
            keep.every(settings.offsets_retention_check_interval_ms, self._groups.expire_offsets),
            keep.keep_checkpoints(settings.replica_high_watermark_checkpoint_interval_ms),
        ]

    async def _heed(self, beat: Coroutine[None, None, None]) -> None:
        """A chore that the disk fails stops the node in order, as a flush would."""
        try:
            await beat
        except StorageFault as fault:
            self._storage_failed(fault)

    def _topic_configs(self, image: MetadataImage, overrides: Mapping[str, str]) -> Mapping[str, str]:
        """All configs of a topic with these overrides, as texts."""
        return topic_config_texts(overrides, broker_layers(image, self.settings.node_id, self._static))

    def _disk_space(self) -> tuple[int, int]:
        try:
            usage = shutil.disk_usage(self._log_dir)
        except OSError as fault:
            raise StorageFault(self._log_dir, fault) from fault
        return usage.total, usage.free

    def _storage_failed(self, fault: StorageFault) -> None:
        if not self.failed.done():
            self.failed.set_result(fault)


def run(settings: Settings, *, announce: Callable[[str], None] = print) -> int:
    """Runs a node until SIGTERM or SIGINT; gives the exit status. What keeps it from starting is raised."""
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s")
    _allow_open_files()
    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(_run(settings, announce))


async def _run(settings: Settings, announce: Callable[[str], None]) -> int:
    loop = asyncio.get_running_loop()
    told_to_stop = loop.create_future()

    def tell() -> None:
        if not told_to_stop.done():
            told_to_stop.set_result(None)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, tell)
    node = Node(settings)
    await node.start()
    _calm_the_collector()
    where = ", ".join(address.address for address in node.advertised())
    announce(
        f"Moldau {__version__} is ready: {where} (node {settings.node_id}, data in {settings.log_dirs[0]}). "
        "Stop with Ctrl-C."
    )
    try:
        await asyncio.wait([told_to_stop, node.failed], return_when=asyncio.FIRST_COMPLETED)
    finally:
        # Also when a chore has failed by a fault of ours, which cancels us: only the stop tells which it was.
        await node.stop()
    if node.failed.done():
        log.error("stopped, because the disk failed: %s", node.failed.result())
        return 1
    return 0


def new_loop() -> asyncio.AbstractEventLoop:
    """uvloop where it can be had: it moves bytes several times as fast as asyncio's own loop."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


def _calm_the_collector() -> None:
    """What is here now stays: the cycle collector need not look at it again, nor come by every few hundred objects."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


def _open_files_max() -> int:
    """Of which connections may take half: a log that cannot open its files would stop the node."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft


def _allow_open_files() -> None:
    """As many open files as the system grants: each connection and each partition's segment is one."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
