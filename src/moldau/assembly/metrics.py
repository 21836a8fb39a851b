"""The metrics of a node: reads the integers that its parts keep, in steps that hold nobody up.

A step is text, which may be empty, or a promise that must be awaited before the next step. The listener of metrics
(`prometheus/listener`) runs one step a turn.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from moldau import __version__
from moldau.assembly.assembly import Assembly
from moldau.assembly.broker_side import BrokerSide
from moldau.assembly.world import World
from moldau.base.clock import MonotonicMs
from moldau.base.errors import StorageFault
from moldau.base.loop_watch import LOOP_WATCH
from moldau.client.peer_connections import PeerConnections
from moldau.coordinator.group.state import GroupState
from moldau.metrics import clients, cluster, groups, node, partitions, quorum, shares, topics
from moldau.metrics.lag_history import UNKNOWN_OFFSET, LagHistory, Place
from moldau.metrics.node import Value
from moldau.platforms.open_files import open_files_limit
from moldau.platforms.process_usage import ProcessUsage, process_usage
from moldau.prometheus.listener import Step
from moldau.prometheus.text import COUNTER, GAUGE, PIECE_SERIES, Family, labels, pieces
from moldau.runtime.broker.broker_client import BrokerClient
from moldau.runtime.broker.latest_offsets import LatestOffsets
from moldau.runtime.flusher import LogFlusher
from moldau.runtime.quorum.driver import FETCHES, REQUESTS
from moldau.runtime.running_clock import RunningClock
from moldau.server.listener import Listener
from moldau.server.router import Router
from moldau.wire.apis import APIS

STARTING: Final = 1
RUNNING: Final = 3
PENDING_CONTROLLED_SHUTDOWN: Final = 6
SHUTTING_DOWN: Final = 7
CONNECTION_PURPOSE: Final = "metrics"
_TRANSACTIONS: Final = Family("moldau_transactions", GAUGE, "Transactional ids by the state of their transaction.")
_LIMITS: Final = Family("moldau_limits_total", COUNTER, "How often each limit was reached; docs/security.md has them.")
_PURGATORY: Final = Family(
    "kafka_server_delayedoperationpurgatory_purgatorysize", GAUGE, "Requests that wait for data."
)


class NodeMetrics:
    """Created on the thread of the event loop, since that thread's processor time is measured."""

    def __init__(
        self,
        assembly: Assembly,
        world: World,
        clock: RunningClock,
        listeners: Callable[[], Sequence[Listener]],
        flushers: tuple[LogFlusher, LogFlusher],
        controller_peers: PeerConnections,
    ) -> None:
        """`clock` is that of the world; `flushers` are those of partitions and of the metadata log."""
        self._assembly = assembly
        self._world = world
        self._clock = clock
        self._listeners = listeners
        self._flushers = flushers
        self._controller_peers = controller_peers
        self._began_ms = clock.now_ms()
        self._began_monotonic_ms = self._monotonic_ms()
        self._idle = node.IdleShare(time.thread_time(), time.monotonic())
        self._metadata_rate = quorum.RecordRate()
        self._lag_history = LagHistory()
        self._usage = ProcessUsage(cpu_s=0.0)
        self._disk: tuple[int, int] | None = None
        """Its size and free bytes; None if they are unknown."""
        self._scrapes = 0
        self._unclean = cluster.UncleanElections(assembly.current, lambda: self._is_active)
        assembly.current.add_listener(self._unclean.on_image)

    @property
    def _is_active(self) -> bool:
        side = self._assembly.controller_side
        return side is not None and side.controller.is_active

    def _broker_state(self, side: BrokerSide) -> int:
        """Return the state of the broker, by the numbers of Kafka's BrokerState."""
        if side.lifecycle.is_leaving:
            return SHUTTING_DOWN if side.lifecycle.has_left else PENDING_CONTROLLED_SHUTDOWN
        broker = self._assembly.current.image.brokers.get(self._assembly.settings.node_id)
        return STARTING if broker is None or broker.fenced else RUNNING

    def steps(self) -> Iterator[Step]:
        """Yield all metrics."""
        self._scrapes += 1
        yield self._world.run_in_thread(self._measure_process_and_disk).map(lambda _: None)
        yield from self._process()
        yield from self._quorum()
        image, settings = self._assembly.current.image, self._assembly.settings
        if settings.is_controller:
            yield from cluster.collect_controller(image, self._is_active, self._unclean.count)
        if self._is_active:
            yield from cluster.collect_brokers(image, settings.inter_broker_listener_name)
        yield from cluster.collect_topics(image, settings.node_id, self._is_active)
        side = self._assembly.broker_side
        if side is not None:
            yield from self._broker(side)
        if settings.metrics_per_partition:
            local = None if side is None else side.partitions
            yield from cluster.collect_each(image, settings.node_id, self._is_active, local)

    def _broker(self, side: BrokerSide) -> Iterator[Step]:
        yield from topics.collect(side.partitions.traffic)
        every = side.partitions.all()
        yield from partitions.collect(every, side.partitions.missing_count, side.replication)
        if self._assembly.settings.metrics_per_partition:
            yield from partitions.collect_each(every)
        yield from node.collect_values(_broker_values(side, self._broker_state(side)))
        yield from pieces(_PURGATORY, [(labels(delayedOperation="Fetch"), len(side.parked))])
        yield from _transactions(side)
        yield from self._groups(side)
        yield from _shares(side)
        yield from clients.collect(side.telemetry.received.live(self._clock.monotonic_ms()))

    def _groups(self, side: BrokerSide) -> Iterator[Step]:
        states: list[GroupState] = [machine.state for machine in side.groups.shards.ready_machines()]
        rows: list[groups.Committed] = []
        ends: dict[Place, int] = {}
        for found in groups.committed_offsets(states):
            rows += found
            ends.update(dict.fromkeys((row.place for row in found), UNKNOWN_OFFSET))
            yield ""
        now_ms = MonotonicMs(self._clock.monotonic_ms())
        for turn in self._latest_offsets(side).look_up(ends):
            yield "" if turn is None else turn
        yield from ("" for _ in self._lag_history.note_in_steps(ends, now_ms))
        per_partition = self._assembly.settings.metrics_per_partition
        yield from groups.collect(states, rows, ends, self._lag_history, now_ms, per_partition)

    def _latest_offsets(self, side: BrokerSide) -> LatestOffsets:
        settings, current, world = self._assembly.settings, self._assembly.current, self._world
        brokers = BrokerClient(
            settings.node_id,
            current,
            world.peers,
            settings.inter_broker_listener_name,
            CONNECTION_PURPOSE,
            side.router.ask_here,
        )
        return LatestOffsets(current, side.partitions, brokers, world.timers)

    def _quorum(self) -> Iterator[Step]:
        driver = self._assembly.driver
        traffic = [self._controller_peers.traffic.get(purpose) for purpose in (REQUESTS, FETCHES)]
        channel = quorum.ChannelCounts(
            driver.requests,
            driver.responses,
            sum(each.bytes_out for each in traffic if each is not None),
            sum(each.bytes_in for each in traffic if each is not None),
        )
        rate = self._metadata_rate.at(driver.end_offset, self._clock.monotonic_ms())
        yield from quorum.collect(driver.quorum, driver.commit_times, rate, channel)

    def _process(self) -> Iterator[Step]:
        yield from node.collect_build(__version__, self._assembly.settings.node_id)
        yield from node.collect_requests(
            (APIS[counts.key].name, counts) for router in self._routers() for counts in router.counts()
        )
        yield from node.collect_listeners(
            [
                node.ListenerCounts(each.name, each.connections, each.accepted, each.refused)
                for each in self._listeners()
            ]
        )
        yield from node.collect_idle(self._idle.at(time.thread_time(), time.monotonic()))
        yield from node.collect_loop(LOOP_WATCH)
        yield from node.collect_values(usage_values(self._usage, self._began_ms))
        yield from node.collect_values(self._own_values())
        counts = self._assembly.counters.values
        yield from pieces(_LIMITS, ((labels(limit=name), count) for name, count in counts.items()))

    def _routers(self) -> list[Router]:
        sides = (self._assembly.broker_side, self._assembly.controller_side)
        return [side.router for side in sides if side is not None]

    def _measure_process_and_disk(self) -> None:
        """Runs in a thread."""
        self._usage = process_usage()
        try:
            self._disk = self._world.disk_space()
        except StorageFault:
            self._disk = None

    def _monotonic_ms(self) -> int:
        """Return the time of a clock that nobody sets; time in which the node did not run counts too."""
        return self._clock.monotonic_ms() + self._clock.paused_ms

    def _own_values(self) -> Iterator[Value]:
        logs, metadata = self._flushers
        uptime_s = (self._monotonic_ms() - self._began_monotonic_ms) / 1000
        yield Value("moldau_uptime_seconds", GAUGE, "Seconds since this node started.", uptime_s)
        yield Value("moldau_scrapes_total", COUNTER, "Scrapes of these metrics.", self._scrapes)
        yield Value("moldau_flushes_total", COUNTER, "Logs forced to disk.", logs.flushes)
        yield Value("moldau_flush_queue", GAUGE, "Logs that wait to be forced to disk.", logs.queued)
        yield Value("moldau_metadata_flushes_total", COUNTER, "Flushes of the metadata log.", metadata.flushes)
        yield Value("moldau_node_pauses_total", COUNTER, "Times that this node did not run.", self._clock.pauses)
        paused_s = self._clock.paused_ms / 1000
        yield Value("moldau_node_paused_seconds_total", COUNTER, "Seconds that this node did not run.", paused_s)
        if self._disk is not None:
            total, free = self._disk
            yield Value("moldau_data_dir_size_bytes", GAUGE, "Size of the file system with the data.", total)
            yield Value("moldau_data_dir_free_bytes", GAUGE, "Free bytes of that file system.", free)


def _broker_values(side: BrokerSide, state: int) -> Iterator[Value]:
    cleaner = side.cleaner
    states = "1: fenced; 3: running; 6: controlled shutdown; 7: shutting down."
    yield Value("kafka_server_kafkaserver_brokerstate", GAUGE, states, state)
    sessions = "kafka_server_fetchsessioncache_numincrementalfetchsessions"
    yield Value(sessions, GAUGE, "Incremental fetch sessions.", len(side.sessions))
    yield Value("moldau_parked_fetches", GAUGE, "Fetches that wait for data.", len(side.parked))
    yield Value("moldau_cleaner_cleanings_total", COUNTER, "Logs compacted.", cleaner.cleanings)
    yield Value("moldau_cleaner_failures_total", COUNTER, "Compactions that failed.", cleaner.failures)
    yield Value("moldau_cleaner_read_bytes_total", COUNTER, "Bytes that compactions read.", cleaner.bytes_read)
    yield Value("moldau_cleaner_written_bytes_total", COUNTER, "Bytes that they wrote.", cleaner.bytes_written)
    yield Value("moldau_cleaner_removed_records_total", COUNTER, "Records that they removed.", cleaner.records_removed)
    received = side.telemetry.received
    yield Value("moldau_telemetry_pushes_total", COUNTER, "Pushes of metrics by clients.", received.pushes)
    refused = "moldau_telemetry_refused_total"
    yield Value(refused, COUNTER, "Pushes that could not be read.", received.refused)
    yield Value("moldau_cleaner_given_up_logs", GAUGE, "Logs no longer compacted.", len(cleaner.uncleanable))


def _shares(side: BrokerSide) -> Iterator[Step]:
    local, sessions = side.shares, side.shares.sessions
    shared = [
        shares.Shared(each.share.key.group_id, each.partition.name.topic, each.share.window) for each in local.ready()
    ]
    yield from shares.collect(len(sessions), sessions.places, local.traffic, shared)


def _transactions(side: BrokerSide) -> Iterator[str]:
    counts: dict[str, int] = {}
    number = 0
    for machine in side.transactions.shards.ready_machines():
        for each in list(machine.transactions.values()):
            counts[each.state.title] = counts.get(each.state.title, 0) + 1
            number += 1
            if not number % PIECE_SERIES:
                yield ""
    yield from pieces(_TRANSACTIONS, ((labels(state=state), count) for state, count in sorted(counts.items())))


def usage_values(usage: ProcessUsage, began_ms: int) -> Iterator[Value]:
    """Return what is known of the process. The two Linux names are Kafka's."""
    yield Value("process_cpu_seconds_total", COUNTER, "Processor time.", usage.cpu_s)
    yield Value("process_start_time_seconds", GAUGE, "When this node started.", began_ms / 1000)
    yield Value("process_max_fds", GAUGE, "Limit of open files.", open_files_limit())
    linux = "kafka_server_kafkaserver_linux_disk"
    for name, help, value in (
        ("process_resident_memory_bytes", "Memory in use.", usage.resident_bytes),
        ("process_virtual_memory_bytes", "Address space.", usage.virtual_bytes),
        ("process_open_fds", "Open files and connections.", usage.open_files),
        (f"{linux}_read_bytes", "Bytes read from disks.", usage.read_bytes),
        (f"{linux}_write_bytes", "Bytes written to disks.", usage.written_bytes),
    ):
        if value is not None:
            yield Value(name, GAUGE, help, value)
