"""Random faults of the network, the clock, the disk and the process, beside the random actions of clients. All are
counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

from machines.machine import RESTART_MS
from reading_client import EXCUSE_MS

from moldau.coordinator.group.groups import Groups

if TYPE_CHECKING:
    from groups.world import GroupsWorld

CLIENT_GAP_MS = 20_000
"""Mean time between two faults of the same client."""
ALL_GAP_MS = 2_000
"""Mean time between two faults of everything else."""
HOUR_MS = 3_600_000
LOSS = 0.002
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
        self._world.network.loss = LOSS
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
        world.machine.heal_disk()
        world.machine.files.power_lost_at = None
        for client in list(world.clients.values()):
            client.wake()
        if world.machine.process is None:
            world.machine.start_now()
        elif world.machine.has_refusing_logs():
            world.machine.end(0)  # restart it, so that failed logs are opened again
        world.population.remove_some_members()
        self._later(LAST_FAULT_MS, self._inject_last_fault)

    def _inject_last_fault(self) -> None:
        """Let the log refuse writes once more while the remaining members rejoin."""
        self.count("the disk is full")
        self._world.machine.fill_disk(0)
        self._later(LAST_FAULT_MS, self._world.machine.heal_disk)

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
        self._world.machine.clock.jump(by_ms)

    def _slow_disk(self) -> None:
        self.count("the disk is slow")
        self.excused_until_ms = self._world.elapsed_ms + EXCUSE_MS
        self._world.machine.flush_ms = SLOW_FLUSH_MS
        self._later(self._rng.randint(1_000, 10_000), self._world.machine.heal_disk)

    def _full_disk(self) -> None:
        self.count("the disk is full")
        self._world.machine.fill_disk(self._rng.randint(0, 3_000))
        # A half written batch cannot be truncated: the log accepts no more until it is opened again.
        self._world.machine.files.truncate_fails = self._rng.random() < 0.2
        self._later(self._rng.randint(500, 6_000), self._world.machine.heal_disk)

    def _failing_sync(self) -> None:
        self.count("the disk fails to sync")
        self._world.machine.files.sync_fails = True
        self._later(self._rng.randint(100, 2_000), self._world.machine.heal_disk)

    def _short_writes(self) -> None:
        self.count("the disk writes only a part")
        self._world.machine.files.write_bytes_max = self._rng.randint(16, 200)
        self._later(self._rng.randint(1_000, 10_000), self._world.machine.heal_disk)

    # --- the process ----------------------------------------------------------------------------------------------

    def _crash_process(self) -> None:
        if self._world.machine.is_serving:
            self.count("the process is killed")
            self._world.machine.end(self._rng.randint(*RESTART_MS))

    def _power(self) -> None:
        machine = self._world.machine
        if not machine.is_serving:
            return
        if self._rng.random() < 0.5:
            machine.files.power_lost_at = machine.files.operations + self._rng.randint(0, 30)
        else:
            self.lose_power("between two writes")

    def lose_power(self, when: str) -> None:
        self.count("power is lost", when)
        self._world.machine.lose_power(self._rng.randint(*RESTART_MS))
        self.left = {}

    def process_ends(self) -> None:
        """Note what the process has promised, and its state: unless power is lost, everything written is still there.
        Every decision is written, because processes are killed between two iterations of the loop."""
        world = self._world
        world.trace(f"process {world.machine.starts} ends")
        self.left = {}
        if world.machine.is_serving:
            world.audit.catch_up()
            self.promised = world.audit.promised()
            self.left = {index: machine for index, _, machine in world.machine.shards()}
