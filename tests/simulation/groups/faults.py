"""Random faults of the network, the clock, the disk and the process, beside the random actions of clients. All are
counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

from reading_client import EXCUSE_MS

from groups.network import LOSS
from moldau.coordinator.group.groups import Groups
from moldau.testing.files import MemoryFiles

if TYPE_CHECKING:
    from groups.world import GroupsWorld

CLIENT_GAP_MS = 20_000
"""Mean time between two faults of the same client."""
ALL_GAP_MS = 2_000
"""Mean time between two faults of everything else."""
HOUR_MS = 3_600_000
FLUSH_MS = 20
SLOW_FLUSH_MS = 2_500
LAST_FAULT_MS = 1_500


class Faults:
    def __init__(self, world: GroupsWorld, rng: Random) -> None:
        self._world = world
        self._rng = rng
        self.counts: Counter[str] = Counter()
        self.promised: dict[int, list[tuple[int, int]]] = {}
        """What was committed when the process last died."""
        self.left: dict[int, Groups] = {}
        """The state of the last process, if its files are unchanged."""
        self.excused_until_ms = 0
        """Until then any client may have missed a deadline."""
        self.is_over = False
        self._fault_weights: dict[Callable[[], None], int] = {
            **world.population.other_actions,
            self._lose_messages: 2,
            self._jump: 1,
            self._slow_disk: 1,
            self._full_disk: 2,
            self._failing_sync: 1,
            self._short_writes: 1,
            self._crash_process: 2,
            self._power: 2,
            self._check: 2,
        }

    # --- beginning and end ----------------------------------------------------------------------------------------

    def begin(self) -> None:
        self._world.population.settle()
        self._disturb_a_client()
        self._inject_fault()

    def _disturb_a_client(self) -> None:
        if not self.is_over:
            self._one_of(self._world.population.client_actions)()
            gap_ms = self._rng.expovariate(1) * CLIENT_GAP_MS / max(len(self._world.clients), 1)
            self._later(1 + int(gap_ms), self._disturb_a_client)

    def _inject_fault(self) -> None:
        if not self.is_over:
            self._one_of(self._fault_weights)()
            self._later(1 + int(self._rng.expovariate(1) * ALL_GAP_MS), self._inject_fault)

    def _one_of(self, what: dict[Callable[[], None], int]) -> Callable[[], None]:
        return self._rng.choices(list(what), list(what.values()))[0]

    def _check(self) -> None:
        self._world.check_replay(is_compacted=self._rng.random() < 0.5)

    def end(self) -> None:
        """Inject last faults, from which some groups recover only by the coordinator's own timers; then end all
        faults."""
        self.is_over = True
        world = self._world
        world.network.loss = 0.0
        world.flush_ms = FLUSH_MS
        self._heal()
        world.files.power_lost_at = None
        for client in list(world.clients.values()):
            if client.stalled_until_ms > world.elapsed_ms:
                client.stalled_until_ms = world.elapsed_ms
        world.start_process()
        if world.process is not None and any(log.fault is not None for log in world.process.store):
            self.kill("a log that refuses writes is opened again")
        world.population.remove_some_members()
        self._later(LAST_FAULT_MS, self._inject_last_fault)

    def _inject_last_fault(self) -> None:
        """Let the log refuse writes once more while the remaining members rejoin."""
        self.count("the disk is full")
        self._world.files.bytes_left = 0
        self._later(LAST_FAULT_MS, self._heal)

    def count(self, what: str, about: str = "") -> None:
        self.counts[what] += 1
        self._world.trace(f"--- {what} {about}".rstrip())

    def _later(self, delay_ms: int, call: Callable[[], None]) -> None:
        self._world.timers.after_ms(delay_ms, call)

    # --- network, clock, disk -------------------------------------------------------------------------------------

    def _lose_messages(self) -> None:
        self.count("the network loses messages")
        self._world.network.loss = 0.2
        self._later(self._rng.randint(1_000, 10_000), self._lose_no_more)

    def _lose_no_more(self) -> None:
        if not self.is_over:
            self._world.network.loss = LOSS

    def _jump(self) -> None:
        by_ms = self._rng.choice([-HOUR_MS, -5_000, 5_000, HOUR_MS, 24 * HOUR_MS])
        self.count("the clock jumps", str(by_ms))
        self._world.clock.jump(by_ms)

    def _slow_disk(self) -> None:
        self.count("the disk is slow")
        self.excused_until_ms = self._world.elapsed_ms + EXCUSE_MS
        self._world.flush_ms = SLOW_FLUSH_MS
        self._later(self._rng.randint(1_000, 10_000), self._heal)

    def _full_disk(self) -> None:
        self.count("the disk is full")
        self._world.files.bytes_left = self._rng.randint(0, 3_000)
        # A half written batch cannot be truncated: the log accepts no more until it is opened again.
        self._world.files.truncate_fails = self._rng.random() < 0.2
        self._later(self._rng.randint(500, 6_000), self._heal)

    def _failing_sync(self) -> None:
        self.count("the disk fails to sync")
        self._world.files.sync_fails = True
        self._later(self._rng.randint(100, 2_000), self._heal)

    def _short_writes(self) -> None:
        self.count("the disk writes only a part")
        self._world.files.write_bytes_max = self._rng.randint(16, 200)
        self._later(self._rng.randint(1_000, 10_000), self._heal)

    def _heal(self) -> None:
        self._world.flush_ms = FLUSH_MS
        files = self._world.files
        files.bytes_left = files.write_bytes_max = None
        files.sync_fails = files.truncate_fails = False

    # --- the process ----------------------------------------------------------------------------------------------

    def _crash_process(self) -> None:
        if self._world.process is not None:
            self.count("the process is killed")
            self.kill("a random fault")

    def kill(self, why: str) -> None:
        """Kill the process, but not the machine: everything written is still there."""
        world = self._world
        if world.process is None:
            return
        world.audit.catch_up()
        # Between two iterations of the loop, so that every decision is written.
        self.left = {index: machine for index, shard, machine in world.process.shards() if shard.is_ready}
        self._note_end_of_process(why)
        world.end_process()
        world.files = self.reopened()
        self._later(self._rng.randint(10, 3_000), world.start_process)

    def reopened(self) -> MemoryFiles:
        """Return the disk for the next process: its faults do not end with a process."""
        files = self._world.files
        after = files.restart()
        after.bytes_left, after.write_bytes_max = files.bytes_left, files.write_bytes_max
        after.sync_fails, after.truncate_fails = files.sync_fails, files.truncate_fails
        return after

    def _power(self) -> None:
        world = self._world
        if world.process is None:
            return
        if self._rng.random() < 0.5:
            world.files.power_lost_at = world.files.operations + self._rng.randint(0, 30)
        else:
            self.lose_power("between two writes")

    def lose_power(self, when: str) -> None:
        self.count("power is lost", when)
        world = self._world
        if world.process is not None:
            self._note_end_of_process("power is lost")
        world.end_process()
        world.files = world.files.crash(self._rng)
        self.left = {}
        self._later(self._rng.randint(10, 3_000), world.start_process)

    def _note_end_of_process(self, why: str) -> None:
        world = self._world
        assert world.process is not None
        world.audit.catch_up()
        self.promised = world.audit.promised()
        world.trace(f"process {world.starts} has ended: {why}")
