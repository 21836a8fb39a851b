"""A cluster in which every sync of a file takes time, and a disk does one sync after the other.

Flushes wait in threads, one for the metadata log and some for all others. A sync on the event loop stops the whole
process until it is done. One disk is slow, or disks are stuck for seconds. In every other seed there are no other
faults; then the quorum must keep its leader although a disk is slow.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from machines.flushers import begin_flush, end_flush
from machines.machine import Machine
from machines.process import Process, ProcessTimers
from machines.world import TAIL

from cluster.faults import Faults
from cluster.world import SMALL, ClusterWorld, Size
from moldau.base.errors import StorageFault
from moldau.base.promise import Promise
from moldau.log.flush import FlushWork
from moldau.replica.flushing import Flushable, Flusher
from moldau.testing.clock import FakeTimers

USUAL_MS = (0, 2)
SLOW_MS = (10, 50)
STUCK_MS = (500, 12_000)
STUCK_GAP_MS = 6_000
THREADS = 4
FILES_OF_OTHER_WORK = 2
"""Syncs of a checkpoint or a snapshot: the file and its directory."""


class Disk:
    """Does syncs one after the other; each takes a random time."""

    def __init__(self, timers: FakeTimers, rng: Random) -> None:
        self._clock = timers.clock
        self._rng = rng
        self._busy_until_ms = 0
        self.sync_ms = USUAL_MS

    def take_ms(self, syncs: int) -> int:
        """Return in how many milliseconds this many syncs are done, after those that were requested before."""
        now_ms = self._clock.monotonic_ms()
        sync_ms = sum(self._rng.randint(*self.sync_ms) for _ in range(syncs))
        self._busy_until_ms = max(self._busy_until_ms, now_ms) + sync_ms
        return self._busy_until_ms - now_ms

    def stick(self, for_ms: int) -> None:
        """Do nothing for that time."""
        self._busy_until_ms = max(self._busy_until_ms, self._clock.monotonic_ms()) + for_ms

    def heal(self) -> None:
        self.sync_ms = USUAL_MS
        self._busy_until_ms = self._clock.monotonic_ms()


class TimedFlusher:
    """Flushes logs in some threads, each log by itself, as the broker's own flusher does."""

    def __init__(self, machine: TimedMachine, timers: ProcessTimers, threads: int) -> None:
        self._machine = machine
        self._timers = timers
        self._idle = threads
        self._asked: dict[Flushable, None] = {}
        self._flushed_now: set[Flushable] = set()

    def request(self, log: Flushable) -> None:
        self._asked[log] = None
        self._begin()

    def _begin(self) -> None:
        for each in [log for log in self._asked if log not in self._flushed_now]:
            if not self._idle:
                return
            self._asked.pop(each, None)
            if each.log.fault is not None:
                continue
            work = begin_flush(each)
            if work is None:
                continue
            self._idle -= 1
            self._flushed_now.add(each)
            delay_ms = self._machine.disk.take_ms(_syncs(work))
            self._timers.after_ms(delay_ms, lambda each=each, work=work: self._end(each, work))  # type: ignore[misc]

    def _end(self, each: Flushable, work: FlushWork) -> None:
        self._idle += 1
        self._flushed_now.discard(each)
        fault = end_flush(each, work, lambda: self._machine.in_thread(work.sync))
        if fault is not None:
            self._machine.disk_failed(fault)
            return
        self._begin()


def _syncs(work: FlushWork) -> int:
    is_active = work.active is not None
    return len(work.paths) + 2 * len(work.checkpoints) + is_active + work.directory_changed + work.is_new


class TimedMachine(Machine):
    _is_in_thread = False

    def __init__(self, world: DisksWorld, node_id: int, roles: str, properties: dict[str, str], rng: Random) -> None:
        super().__init__(world, node_id, roles, properties, rng)
        self.disk = Disk(world.timers, Random(rng.random()))
        self._all_timers = world.timers
        self._blocked_until_ms = 0

    def new_flusher(self, timers: ProcessTimers) -> Flusher:
        return TimedFlusher(self, timers, THREADS)

    def new_quorum_flusher(self, timers: ProcessTimers) -> Flusher:
        return TimedFlusher(self, timers, 1)

    def thread_delay_ms(self) -> int:
        return self.disk.take_ms(FILES_OF_OTHER_WORK)

    def in_thread(self, work: Callable[[], None]) -> None:
        """Run work whose syncs have already been waited for."""
        self._is_in_thread = True
        try:
            work()
        finally:
            self._is_in_thread = False

    def disk_failed(self, fault: StorageFault) -> None:
        self._disk_failed(fault)

    def heal_disk(self) -> None:
        super().heal_disk()
        self.disk.heal()

    def _open(self, process: Process) -> None:
        self.files.on_sync = lambda: self._on_sync(process)
        super()._open(process)

    def _run_in_thread(self, timers: ProcessTimers, work: Callable[[], None]) -> Promise[StorageFault | None]:
        return super()._run_in_thread(timers, lambda: self.in_thread(work))

    def _on_sync(self, process: Process) -> None:
        """A sync on the event loop: nothing else runs until it is done."""
        if self._is_in_thread:
            return
        delay_ms = self.disk.take_ms(1)
        if delay_ms:
            process.is_blocked = True
            self._blocked_until_ms = self._all_timers.clock.monotonic_ms() + delay_ms
            self._all_timers.after_ms(delay_ms, lambda: self._unblock(process))

    def _unblock(self, process: Process) -> None:
        if process.is_blocked and self._all_timers.clock.monotonic_ms() >= self._blocked_until_ms:
            process.unblock()


class DiskFaults(Faults):
    def __init__(self, world: DisksWorld, rng: Random) -> None:
        super().__init__(world, rng)
        self._disks = world
        if world.only_disks:
            self._fault_weights = {self._inject_nothing: 1}

    def begin(self) -> None:
        super().begin()
        if self._disks.only_disks:
            self._world.network.loss = 0.0
        if self._disks.is_only_slow:
            victim = self._machine()
            self.count("a disk is slow for the whole run", victim.host)
            victim.disk.sync_ms = SLOW_MS
        else:
            self._stick()

    def quorum_elected(self, node_id: int) -> None:
        if not self._disks.only_disks:
            super().quorum_elected(node_id)
        elif self._disks.is_only_slow and not self.is_over:
            self._world.violated(f"n{node_id} is elected although the only fault is a slow disk")

    def _stick(self) -> None:
        """A disk does nothing for a while, again and again."""
        if not self.is_over:
            victim, for_ms = self._machine(), self._rng.randint(*STUCK_MS)
            self.count("a disk is stuck", f"{victim.host} for {for_ms} ms")
            victim.disk.stick(for_ms)
            self._later(for_ms + int(self._rng.expovariate(1) * STUCK_GAP_MS), self._stick)

    def _machine(self) -> TimedMachine:
        machine = self._rng.choice(list(self._world.machines.values()))
        assert isinstance(machine, TimedMachine)
        return machine

    def _inject_nothing(self) -> None:
        """Replaces all other faults."""


class DisksWorld(ClusterWorld):
    kind = "disks"

    def __init__(self, seed: int, size: Size = SMALL, tail: int = TAIL) -> None:
        self.only_disks = seed % 2 == 0
        self.is_only_slow = seed % 4 < 2
        super().__init__(seed, size, tail)

    def new_machine(self, node_id: int, roles: str, properties: dict[str, str], rng: Random) -> TimedMachine:
        return TimedMachine(self, node_id, roles, properties, rng)

    def new_faults(self, rng: Random) -> DiskFaults:
        return DiskFaults(self, rng)
