"""A machine and the process on it: starts, kills, suspensions, power losses, replaced and full disks.

The process is a whole node with its real code: only clock, timers, files, random numbers, flusher and network are
virtual.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

from machines.connection import Listening
from machines.flushers import SlowFlusher
from machines.network import SimulatedPeers
from machines.process import MachineClock, Process, ProcessTimers
from moldau.assembly import Assembly
from moldau.assembly import World as Ports
from moldau.base.errors import StorageFault
from moldau.base.ids import TopicPartition
from moldau.base.ports import RunInThread
from moldau.base.promise import Promise
from moldau.base.topic_names import METADATA_TOPIC
from moldau.log.cleaning.job import CleaningJob, CleaningResult
from moldau.log.log import Log
from moldau.replica.flushing import Flusher
from moldau.replica.partition import Partition
from moldau.runtime.cleaning.ports import CleaningFailed, ThreadSegmentCleaner
from moldau.runtime.running_clock import RunningClock
from moldau.settings import Settings, from_properties
from moldau.testing.files import MemoryFiles
from moldau.wire.batch import BatchHeader, split_batches

if TYPE_CHECKING:
    from machines.world import World

CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"
METADATA = TopicPartition(METADATA_TOPIC, 0)
READ_BYTES = 1 << 20
CLIENT_PORT = 9092
CONTROLLER_PORT = 9093
FLUSH_MS = 6
RESTART_MS = (50, 4_000)
OPEN_RETRY_MS = 1_000
DISK_BYTES = 1 << 40
NEW_DISK_MS = 15_000
"""In this time a node has prepared a new disk for the case that it is full."""


class WatchedCleaning(ThreadSegmentCleaner):
    """Lets the audit read the records before a cleaning may remove them."""

    def __init__(self, world: World, machine: Machine, run_in_thread: RunInThread) -> None:
        super().__init__(machine.files, run_in_thread)
        self._world = world
        self._machine = machine

    def clean(self, job: CleaningJob, bytes_per_second: float) -> Promise[CleaningResult | CleaningFailed]:
        self._world.cleaning_begins(self._machine)
        return super().clean(job, bytes_per_second)


class Machine:
    def __init__(self, world: World, node_id: int, roles: str, properties: Mapping[str, str], rng: Random) -> None:
        self._world = world
        self._rng = rng
        self.node_id = node_id
        self.host = f"n{node_id}"
        self.is_broker = "broker" in roles
        self.is_controller = "controller" in roles
        self.settings = _settings(node_id, roles, properties)
        self.clock = MachineClock(world.timers)
        self.files = MemoryFiles()
        self._disk_since_ms = 0
        self._may_be_full = False
        """Whether the process must cope with a full disk."""
        self.flush_ms = FLUSH_MS
        self.starts = 0
        self.boots = 1
        self.process: Process | None = None
        self.assembly: Assembly | None = None
        """The node of the running process; None while it is down or could not open its directory yet."""
        self.has_power = True
        self.is_serving = False
        self.is_leaving = False
        self._start_is_due = False

    @property
    def is_up(self) -> bool:
        """Whether its process runs, suspended or not."""
        return self.process is not None

    @property
    def is_well(self) -> bool:
        return self.process is not None and not self.process.is_stopped and self.is_serving and not self.is_leaving

    # --- start ----------------------------------------------------------------------------------------------------

    def start_after_ms(self, delay_ms: int) -> None:
        if not self._start_is_due:
            self._start_is_due = True
            self._world.timers.after_ms(delay_ms, self._start_if_due)

    def start_now(self) -> None:
        self._start_is_due = True
        self._start_if_due()

    def _start_if_due(self) -> None:
        if self._start_is_due:
            self._start_is_due = False
            if self.process is None:
                self._start()

    def _start(self) -> None:
        self.starts += 1
        if not self.has_power:
            self.has_power = True
            self._world.network.power_on(self.host)
        process = self.process = Process(
            self.host,
            on_power_loss=lambda: self._world.power_fails(self),
            on_failure=self._failed,
        )
        self._world.trace(f"{self.host} starts, process {self.starts}")
        process.act(lambda: self._open(process))

    def _open(self, process: Process) -> None:
        timers = self._world.timers_of(self, process)
        ports = Ports(
            clock=RunningClock(self.clock, timers),
            lease_clock=self.clock,
            timers=timers,
            files=self.files,
            rng=self._rng,
            flusher=self.new_flusher(timers),
            quorum_flusher=self.new_quorum_flusher(timers),
            peers=SimulatedPeers(self._world.network, process, timers.after_ms),
            run_in_thread=lambda work: self._run_in_thread(timers, work),
            disk_space=self._disk_space,
            on_fault=self._disk_failed,
            boot_id=f"{self.host} boot {self.boots}",
            cleaner=WatchedCleaning(self._world, self, lambda work: self._run_in_thread(timers, work)),
            views=self._world.views_of(lambda work: self._run_in_thread(timers, work)),
        )
        try:
            self.assembly = assembly = Assembly(self.settings, ports)
            self._listen(assembly, process)
            if self._world.answers_early:
                self._listen_for_clients(assembly, process)
            assembly.driver.add_listener(QuorumWatch(self._world, self.node_id))
            assembly.start(self.settings.advertised_listeners).then(lambda _: self._serves(process))
        except StorageFault as fault:
            self._world.trace(f"{self.host} cannot start: {fault}")
            self._judge_stop(f"cannot start: {fault}")
            self.end(OPEN_RETRY_MS)

    def _disk_space(self) -> tuple[int, int]:
        """Return the size of the disk and the free bytes."""
        return DISK_BYTES, DISK_BYTES if self.files.bytes_left is None else self.files.bytes_left

    def new_flusher(self, timers: ProcessTimers) -> Flusher:
        return SlowFlusher(timers, self._flush_delay_ms, self._disk_failed)

    def new_quorum_flusher(self, timers: ProcessTimers) -> Flusher | None:
        """None: the metadata log is flushed by the same flusher."""
        return None

    def _listen(self, assembly: Assembly, process: Process) -> None:
        network = self._world.network
        if assembly.controller_side is not None:
            name = self.settings.controller_listeners[0].name
            router, gone = assembly.controller_side.router, assembly.controller_side.connection_gone
            network.listen(self.host, CONTROLLER_PORT, Listening(process, router, name, gone))

    def _listen_for_clients(self, assembly: Assembly, process: Process) -> None:
        if assembly.broker_side is not None:
            name = self.settings.listeners[0].name
            router = self._world.router_of(assembly.broker_side.router)
            gone = assembly.broker_side.connection_gone
            self._world.network.listen(self.host, CLIENT_PORT, Listening(process, router, name, gone))

    def _serves(self, process: Process) -> None:
        if process is self.process and self.assembly is not None:
            self.is_serving = True
            if not self._world.answers_early:
                self._listen_for_clients(self.assembly, process)
            self._world.trace(f"{self.host} serves")
            self._world.node_serves(self)

    def _flush_delay_ms(self) -> int:
        return self._rng.randint(1, self.flush_ms)

    def _run_in_thread(self, timers: ProcessTimers, work: Callable[[], None]) -> Promise[StorageFault | None]:
        """Run `work` after a delay, as another thread would that waits for the disk."""
        done: Promise[StorageFault | None] = Promise()

        def do() -> None:
            try:
                work()
            except StorageFault as fault:
                done.complete(fault)
            else:
                done.complete(None)

        timers.after_ms(self.thread_delay_ms(), do)
        return done

    def thread_delay_ms(self) -> int:
        return self._flush_delay_ms()

    def _disk_failed(self, fault: Exception) -> None:
        if not isinstance(fault, StorageFault):
            self._world.failed_inside(fault)
        self._world.trace(f"{self.host} stops: {fault}")
        self._judge_stop(f"stops: {fault}")
        self._world.disk_stops_node(self)
        if self.assembly is not None:
            with suppress(StorageFault):
                self.assembly.distrust()
        self.end(self._rng.randint(*RESTART_MS))

    def _judge_stop(self, what: str) -> None:
        """A disk that fails may stop a node, a full one may not."""
        files = self.files
        is_only_full = files.bytes_left is not None and not files.sync_fails and not files.truncate_fails
        if is_only_full and self._may_be_full:
            self._world.violated(f"{self.host} {what}, although its disk is only full")

    def _failed(self, failure: Exception) -> None:
        """Even a disk error is a violation here: the node should have handled it."""
        self._world.failed_inside(failure)

    # --- end ------------------------------------------------------------------------------------------------------

    def end(self, restart_after_ms: int) -> None:
        """Kill the process; everything that it wrote is still there."""
        process = self._end_process()
        if process is not None:
            self._world.network.process_died(process)
        self.files = self._reopened()
        self.start_after_ms(restart_after_ms)

    def lose_power(self, restart_after_ms: int) -> None:
        """Lose the machine's power: unsynced bytes are lost, at random."""
        process = self._end_process()
        if process is not None:
            self._world.network.power_lost(process)
        self.has_power = False
        self.boots += 1
        self._world.network.power_off(self.host)
        self.files = self.files.crash(self._rng)
        self.start_after_ms(restart_after_ms)

    def wipe(self) -> None:
        """Replace the disk by an empty one, while the process is down."""
        assert self.process is None
        self.files = MemoryFiles()
        self._disk_since_ms = self._world.elapsed_ms

    def leave(self) -> None:
        """Stop the process as SIGTERM does."""
        process, assembly = self.process, self.assembly
        if process is None or assembly is None or self.is_leaving:
            return
        self.is_leaving = True
        process.act(lambda: assembly.leave().then(lambda _: self._left(process)))

    def _left(self, process: Process) -> None:
        if process is self.process and self.assembly is not None:
            self.assembly.release()
            # Waiting replies are sent first, as a listener does.
            self._world.timers.soon(lambda: process.act(lambda: self._close(process)))

    def _close(self, process: Process) -> None:
        if process is not self.process or self.assembly is None:
            return
        self.assembly.stop()
        try:
            self.assembly.close()
        except StorageFault as fault:
            self._world.trace(f"{self.host} cannot close: {fault}")
        self._world.trace(f"{self.host} has left")
        self.end(self._rng.randint(*RESTART_MS))

    def _end_process(self) -> Process | None:
        if self.process is not None:
            self._world.process_ends(self)
        process, self.process = self.process, None
        self.assembly = None
        self.is_serving = self.is_leaving = False
        if process is not None:
            process.end()
        return process

    def _reopened(self) -> MemoryFiles:
        """Return the disk for the next process: its faults do not end with a process."""
        files = self.files
        after = files.restart()
        after.bytes_left, after.write_bytes_max = files.bytes_left, files.write_bytes_max
        after.sync_fails, after.truncate_fails = files.sync_fails, files.truncate_fails
        return after

    def fill_disk(self, bytes_left: int) -> None:
        """Fill the disk. A process has to cope with it if it had the time to prepare for it."""
        self.files.bytes_left = bytes_left
        self._may_be_full = self._world.elapsed_ms - self._disk_since_ms >= NEW_DISK_MS

    def heal_disk(self) -> None:
        self.flush_ms = FLUSH_MS
        self.files.bytes_left = self.files.write_bytes_max = None
        self.files.sync_fails = self.files.truncate_fails = False

    # --- state for the checks -------------------------------------------------------------------------------------

    def partitions(self) -> list[Partition]:
        if self.assembly is None or self.assembly.broker_side is None:
            return []
        return list(self.assembly.broker_side.partitions)

    def has_refusing_logs(self) -> bool:
        return self.assembly is not None and any(log.fault is not None for log in self.assembly.store)

    def _metadata_log(self) -> Log:
        assert self.assembly is not None
        log = self.assembly.store.get(METADATA)
        assert log is not None
        return log

    def metadata_bounds(self) -> tuple[int, int]:
        """Return the high watermark of the metadata log on this node, and its log start offset."""
        assert self.assembly is not None
        return self.assembly.driver.high_watermark, self._metadata_log().start_offset

    def metadata_end(self) -> int:
        return self._metadata_log().end_offset

    def metadata_batches(self, from_offset: int, to_offset: int) -> Iterator[BatchHeader]:
        log = self._metadata_log()
        while from_offset < to_offset:
            found = log.read(from_offset, READ_BYTES, to_offset, at_least_one=True)
            if found is None:
                return
            for header, _ in split_batches(memoryview(found.read())):
                from_offset = header.next_offset
                yield header

    def leads_quorum(self) -> bool:
        return self.assembly is not None and self.assembly.driver.is_leader


class QuorumWatch:
    """Is notified by the quorum's driver when this node leads."""

    def __init__(self, world: World, node_id: int) -> None:
        self._world = world
        self._node_id = node_id

    def leading(self, epoch: int) -> None:
        self._world.node_leads_quorum(self._node_id, epoch)

    def no_longer_leading(self) -> None:
        """Nothing to check."""

    def leader_changed(self, leader_id: int, epoch: int) -> None:
        """Nothing to check."""

    def committed(self, high_watermark: int) -> None:
        """The log is read after every step."""


def _settings(node_id: int, roles: str, properties: Mapping[str, str]) -> Settings:
    host = f"n{node_id}"
    listeners = []
    if "broker" in roles:
        listeners.append(f"PLAINTEXT://{host}:{CLIENT_PORT}")
    if "controller" in roles:
        listeners.append(f"CONTROLLER://{host}:{CONTROLLER_PORT}")
    settings = from_properties(
        {
            "process.roles": roles,
            "node.id": str(node_id),
            "listeners": ",".join(listeners),
            "controller.listener.names": "CONTROLLER",
            "log.dirs": "data",
            **properties,
        }
    )
    return replace(settings, cluster_id=CLUSTER_ID)
