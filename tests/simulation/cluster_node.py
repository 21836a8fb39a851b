"""A machine of the cluster, and the process on it: started, killed, stopped and wiped, its power lost, its disk full.

The process is a whole node as it is: only its clock, timers, files, chance, flusher and network are virtual.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

from cluster_connection import Listening
from cluster_life import Life, LifeTimers, MachineClock
from cluster_network import SimulatedPeers

from moldau.assembly import Assembly
from moldau.assembly import World as Ports
from moldau.base.errors import StorageFault
from moldau.base.ids import TopicPartition
from moldau.base.names import METADATA_TOPIC
from moldau.base.ports import RunInThread
from moldau.base.promise import Promise
from moldau.log.cleaning.job import Cleaned, CleaningJob
from moldau.log.flush import FlushWork
from moldau.log.log import Log
from moldau.replica.flushing import Flushable
from moldau.replica.partition import Partition
from moldau.runtime.cleaning.ports import CleaningFailed, CleansInThread
from moldau.settings import Settings, from_properties
from moldau.testing.files import MemoryFiles
from moldau.wire.batch import BatchHeader, split_batches

if TYPE_CHECKING:
    from cluster_world import World

CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"
METADATA = TopicPartition(METADATA_TOPIC, 0)
READ_BYTES = 1 << 20
CLIENT_PORT = 9092
CONTROLLER_PORT = 9093
FLUSH_MS = 6
RESTART_MS = (50, 4_000)
OPEN_RETRY_MS = 1_000


class SlowFlusher:
    """Brings logs to disk as the broker's own flusher does, in a time that chance gives."""

    def __init__(
        self, timers: LifeTimers, delay_ms: Callable[[], int], on_fault: Callable[[StorageFault], None]
    ) -> None:
        self._timers = timers
        self._delay_ms = delay_ms
        self._on_fault = on_fault
        self._asked: dict[Flushable, None] = {}
        self._is_running = False

    def request(self, log: Flushable) -> None:
        self._asked[log] = None
        if not self._is_running:
            self._begin()

    def _begin(self) -> None:
        asked, self._asked = list(self._asked), {}
        works = []
        for each in asked:
            if each.log.fault is None:
                work = each.log.begin_flush()
                if work is not None:
                    works.append((each, work))
                else:
                    each.flushed()
        if works:
            self._is_running = True
            self._timers.after_ms(self._delay_ms(), lambda: self._end(works))

    def _end(self, works: list[tuple[Flushable, FlushWork]]) -> None:
        self._is_running = False
        for each, work in works:
            try:
                work.sync()
            except StorageFault as fault:
                if each.log.fault is None:
                    self._on_fault(fault)
                    return
                continue
            if each.log.fault is None:
                each.log.finish_flush(work)
                each.flushed()
        if self._asked and not self._is_running:
            self._begin()


class WatchedCleaning(CleansInThread):
    """Before records may go, those who judge have seen them."""

    def __init__(self, world: World, machine: Machine, run_in_thread: RunInThread) -> None:
        super().__init__(machine.files, run_in_thread)
        self._world = world
        self._machine = machine

    def clean(self, job: CleaningJob, bytes_per_second: float) -> Promise[Cleaned | CleaningFailed]:
        self._world.audit.check()
        self._world.faults.log_is_cleaned(self._machine)
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
        self.flush_ms = FLUSH_MS
        self.lives = 0
        self.boots = 1
        self.life: Life | None = None
        self.assembly: Assembly | None = None
        """Of the life that goes on; None while the process is down or could not open its directory yet."""
        self.has_power = True
        self.is_serving = False
        self.is_leaving = False
        self._start_is_due = False

    @property
    def is_up(self) -> bool:
        """Its process runs, be it stopped or not."""
        return self.life is not None

    @property
    def is_well(self) -> bool:
        return self.life is not None and not self.life.is_stopped and self.is_serving and not self.is_leaving

    # --- beginning ------------------------------------------------------------------------------------------------

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
            if self.life is None:
                self._start()

    def _start(self) -> None:
        self.lives += 1
        if not self.has_power:
            self.has_power = True
            self._world.network.lighten(self.host)
        life = self.life = Life(
            self.host,
            on_power_loss=lambda: self._world.faults.power_went(self, "in the middle of a write"),
            on_failure=self._failed,
        )
        self._world.trace(f"{self.host} starts, life {self.lives}")
        life.act(lambda: self._open(life))

    def _open(self, life: Life) -> None:
        timers = self._world.timers_of(self, life)
        ports = Ports(
            clock=self.clock,
            timers=timers,
            files=self.files,
            rng=self._rng,
            flusher=SlowFlusher(timers, self._flush_delay_ms, self._disk_failed),
            peers=SimulatedPeers(self._world.network, life, timers.after_ms),
            run_in_thread=lambda work: self._run_in_thread(timers, work),
            disk_space=lambda: (1 << 40, 1 << 40),
            on_fault=self._disk_failed,
            boot_id=f"{self.host} boot {self.boots}",
            cleans=WatchedCleaning(self._world, self, lambda work: self._run_in_thread(timers, work)),
        )
        try:
            self.assembly = assembly = Assembly(self.settings, ports)
            self._listen(assembly, life)
            assembly.driver.add_listener(QuorumWatch(self._world, self.node_id))
            assembly.start(self.settings.advertised_listeners).then(lambda _: self._serves(life))
        except StorageFault as fault:
            self._world.trace(f"{self.host} cannot start: {fault}")
            self.end(OPEN_RETRY_MS)

    def _listen(self, assembly: Assembly, life: Life) -> None:
        network = self._world.network
        if assembly.broker_side is not None:
            name = self.settings.listeners[0].name
            network.listen(self.host, CLIENT_PORT, Listening(life, assembly.broker_side.router, name, _forget))
        if assembly.controller_side is not None:
            name = self.settings.controller_listeners[0].name
            router = assembly.controller_side.router
            network.listen(self.host, CONTROLLER_PORT, Listening(life, router, name, assembly.connection_gone))

    def _serves(self, life: Life) -> None:
        if life is self.life:
            self.is_serving = True
            self._world.trace(f"{self.host} serves")

    def _flush_delay_ms(self) -> int:
        return self._rng.randint(1, self.flush_ms)

    def _run_in_thread(self, timers: LifeTimers, work: Callable[[], None]) -> Promise[StorageFault | None]:
        """What another thread would do, which the disk keeps waiting."""
        done: Promise[StorageFault | None] = Promise()

        def do() -> None:
            try:
                work()
            except StorageFault as fault:
                done.complete(fault)
            else:
                done.complete(None)

        timers.after_ms(self._flush_delay_ms(), do)
        return done

    def _disk_failed(self, fault: Exception) -> None:
        if not isinstance(fault, StorageFault):
            self._world.failed_inside(fault)
        self._world.trace(f"{self.host} stops: {fault}")
        self._world.faults.count("a node stops because of its disk", self.host)
        if self.assembly is not None:
            with suppress(StorageFault):
                self.assembly.distrust()
        self.end(self._rng.randint(*RESTART_MS))

    def _failed(self, failure: Exception) -> None:
        """Also if the disk is to blame: somebody should have heeded that."""
        self._world.failed_inside(failure)

    # --- ending ---------------------------------------------------------------------------------------------------

    def end(self, restart_after_ms: int) -> None:
        """The process is no more. What it had written is there, as the machine is."""
        life = self._bury()
        if life is not None:
            self._world.network.process_died(life)
        self.files = self._reopened()
        self.start_after_ms(restart_after_ms)

    def lose_power(self, restart_after_ms: int) -> None:
        """What was not synced is lost, as far as chance wills."""
        life = self._bury()
        if life is not None:
            self._world.network.power_lost(life)
        self.has_power = False
        self.boots += 1
        self._world.network.darken(self.host)
        self.files = self.files.crash(self._rng)
        self.start_after_ms(restart_after_ms)

    def wipe(self) -> None:
        """Somebody puts in an empty disk; only while the process is down."""
        assert self.life is None
        self.files = MemoryFiles()

    def leave(self) -> None:
        """The process is told to stop, as SIGTERM does."""
        life, assembly = self.life, self.assembly
        if life is None or assembly is None or self.is_leaving:
            return
        self.is_leaving = True
        life.act(lambda: assembly.leave().then(lambda _: self._left(life)))

    def _left(self, life: Life) -> None:
        if life is self.life and self.assembly is not None:
            self.assembly.release()
            # Replies to those who waited leave first, as a listener lets them.
            self._world.timers.soon(lambda: life.act(lambda: self._close(life)))

    def _close(self, life: Life) -> None:
        if life is not self.life or self.assembly is None:
            return
        self.assembly.stop()
        try:
            self.assembly.close()
        except StorageFault as fault:
            self._world.trace(f"{self.host} cannot close: {fault}")
        self._world.trace(f"{self.host} has left")
        self.end(self._rng.randint(*RESTART_MS))

    def _bury(self) -> Life | None:
        life, self.life = self.life, None
        self.assembly = None
        self.is_serving = self.is_leaving = False
        if life is not None:
            life.end()
            self._world.audit.process_ended(self.node_id)
        return life

    def _reopened(self) -> MemoryFiles:
        """The disk as the next process finds it: what ails it does not end with a process."""
        files = self.files
        after = files.restart()
        after.bytes_left, after.write_bytes_max = files.bytes_left, files.write_bytes_max
        after.sync_fails, after.truncate_fails = files.sync_fails, files.truncate_fails
        return after

    def heal_disk(self) -> None:
        self.flush_ms = FLUSH_MS
        self.files.bytes_left = self.files.write_bytes_max = None
        self.files.sync_fails = self.files.truncate_fails = False

    # --- what is inside, for those who judge ----------------------------------------------------------------------

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
        """How far the metadata log is committed, as this node knows, and where it begins."""
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

    def is_in_the_image(self) -> bool:
        """Whether the controller knows of this life of the process, and counts on it."""
        if self.assembly is None:
            return False
        if self.assembly.broker_side is None:
            return True
        broker = self._world.newest_image().brokers.get(self.node_id)
        return broker is not None and not broker.fenced and broker.epoch == self.assembly.broker_side.lifecycle.epoch


class QuorumWatch:
    """Hears from the quorum's driver who leads."""

    def __init__(self, world: World, node_id: int) -> None:
        self._world = world
        self._node_id = node_id

    def leading(self, epoch: int) -> None:
        self._world.audit.quorum_leads(self._node_id, epoch)

    def resigned(self) -> None:
        """Nothing to judge."""

    def leader_changed(self, leader_id: int, epoch: int) -> None:
        """Nothing to judge."""

    def committed(self, high_watermark: int) -> None:
        """The log is read after every step."""


def _forget(address: str) -> None:
    """Brokers do not mind who goes."""


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
