"""The faults of `outages_world`: a node that its peers do not reach but clients do, logs that are damaged while all
nodes are down, and full disks.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

from machines.machine import NEW_DISK_MS, RESTART_MS, Machine

from cluster.damage import damage
from cluster.faults import POWER_PATIENCE, POWER_RETRY_MS, Faults
from moldau.base.ids import TopicPartition

if TYPE_CHECKING:
    from cluster.outages_world import OutagesWorld

GAP_MS = 6_000
"""Mean time from the end of an outage to the next one."""
CUT_OFF_MS = (14_000, 18_000)
NOTICE_MS = 200
PROGRESS_MS = 8_000
"""In this time every client makes progress, from the moment the others have elected leaders on."""
SUCCESSOR_MS = (100, 2_500)
SUCCESSOR_DOWN_MS = (3_000, 8_000)
FULL_MS = (4_000, 16_000)
FULL_BYTES_MAX = 3_000
FILLED_MS = 2_000
"""After that time the last bytes are used."""
ELECTION_MS = (200, 3_000)
Partitions = list[tuple[str, int]]


class OutageFaults(Faults):
    def __init__(self, world: OutagesWorld, rng: Random) -> None:
        super().__init__(world, rng)
        self._outages = world
        if world.only_outages:
            self._fault_weights = {self._inject_nothing: 1}

    def begin(self) -> None:
        super().begin()
        if self._outages.only_outages:
            self._world.network.loss = 0.0
        self._next(NEW_DISK_MS if self._outages.outages == ("full",) else 500)

    def quorum_elected(self, node_id: int) -> None:
        if not self._outages.only_outages:
            super().quorum_elected(node_id)

    def _inject_nothing(self) -> None:
        """Replaces all other faults."""

    def _next(self, wait_ms: int = 500) -> None:
        outages = {"cut off": self._cut_off, "damage": self._damage, "full": self._fill_disk}
        outage = outages[self._rng.choice(self._outages.outages)]
        self._later(wait_ms + int(self._rng.expovariate(1) * GAP_MS), outage)

    # --- a node that only clients reach -----------------------------------------------------------------------------

    def _cut_off(self) -> None:
        """Cut a broker off from its peers, but not from the clients."""
        brokers = [machine for machine in self._world.machines.values() if machine.is_broker and machine.is_well]
        if self.is_over or not brokers:
            self._next()
            return
        machine = self._rng.choice(brokers)
        self.count("a broker is cut off from its peers, not from clients", machine.host)
        network, others = self._world.network, [each for each in self._hosts() if each != machine.host]
        pairs = [pair for other in others for pair in ((machine.host, other), (other, machine.host))]
        for pair in pairs:
            network.cut(*pair)
        is_cut_off = True

        def restore() -> None:
            nonlocal is_cut_off
            is_cut_off = False
            for pair in pairs:
                network.restore(*pair)
            self._next()

        self.for_a_while(restore, *CUT_OFF_MS)
        self._await_successors(machine, self._led_by(machine), lambda: is_cut_off)

    def _led_by(self, machine: Machine) -> Partitions:
        return [
            (name, index)
            for name, topic in sorted(self._world.newest_image().topics.items())
            for index, state in enumerate(topic.partitions)
            if state.leader == machine.node_id
        ]

    def _await_successors(self, machine: Machine, led: Partitions, is_cut_off: Callable[[], bool]) -> None:
        if not is_cut_off():
            return
        broker = self._world.newest_image().brokers.get(machine.node_id)
        if broker is None or not broker.fenced or self._led_by(machine):
            self._later(NOTICE_MS, lambda: self._await_successors(machine, led, is_cut_off))
            return
        self._world.trace(f"--- others lead what {machine.host} led")
        if self._outages.kills_successors:
            self._later(self._rng.randint(*SUCCESSOR_MS), lambda: self._kill_successor(led))
        elif self._outages.only_outages:
            self._demand_progress(f"while only clients reach {machine.host}", is_cut_off)

    def _kill_successor(self, led: Partitions) -> None:
        topics = self._world.newest_image().topics
        leaders = {
            topics[name].partitions[index].leader: None
            for name, index in led
            if name in topics and index < len(topics[name].partitions)
        }
        successors = [self._world.machines[node_id] for node_id in leaders if node_id in self._world.machines]
        successors = [each for each in successors if each.is_up]
        if successors and not self.is_over:
            machine = self._rng.choice(successors)
            self.count("a leader is killed while its predecessor is cut off", machine.host)
            machine.end(self._rng.randint(*SUCCESSOR_DOWN_MS))

    def _demand_progress(self, when: str, is_still: Callable[[], bool]) -> None:
        """Check that all clients make progress, if the outage lasts so long."""
        why_not = self._outages.progress()

        def judge() -> None:
            why = why_not()
            if is_still() and why:
                self._world.violated(f"for {PROGRESS_MS} ms {when}: {why}")

        self._later(PROGRESS_MS, judge)

    # --- damaged logs -----------------------------------------------------------------------------------------------

    def _damage(self, patience: int = POWER_PATIENCE) -> None:
        """Kill all processes and damage logs of one node, where an undamaged in-sync replica has all records."""
        if self.is_over:
            return
        machines = list(self._world.machines.values())
        if not self.are_well(machines):
            if patience:
                self._later(POWER_RETRY_MS, lambda: self._damage(patience - 1))
            else:
                self._next()
            return
        victim = self._rng.choice([machine for machine in machines if machine.is_broker])
        covered = self._covered_without(victim)
        self._lost_data[victim.node_id] = self._world.newest_image().offset
        for machine in machines:
            machine.files.power_lost_at = None
            machine.end(self._rng.randint(*RESTART_MS))
        done = damage(victim.files, covered, self._rng)
        self.count("logs are damaged while all processes are down", f"{victim.host}: {', '.join(done)}")
        self._next()

    def _covered_without(self, victim: Machine) -> list[TopicPartition]:
        """Return the partitions that have another in-sync replica, also by any change of them that is under way."""
        changing = {
            partition.name
            for machine in self._world.machines.values()
            for partition in machine.partitions()
            if partition.leadership is not None and partition.leadership.proposed is not None
        }
        return [
            TopicPartition(name, index)
            for name, topic in sorted(self._world.newest_image().topics.items())
            for index, state in enumerate(topic.partitions)
            if any(each != victim.node_id for each in state.isr) and TopicPartition(name, index) not in changing
        ]

    # --- full disks -------------------------------------------------------------------------------------------------

    def _fill_disk(self) -> None:
        """Fill a disk, and often let the quorum elect another leader meanwhile."""
        if self.is_over:
            return
        machine = self._some()
        self.count("a disk is full", machine.host)
        machine.fill_disk(self._rng.randint(0, FULL_BYTES_MAX))
        is_full = True

        def restore() -> None:
            nonlocal is_full
            is_full = False
            machine.heal_disk()
            self._next()

        self.for_a_while(restore, *FULL_MS)
        if self._rng.random() < 0.6:
            for _ in range(self._rng.randint(1, 2)):
                self._later(self._rng.randint(*ELECTION_MS), lambda: self._kill_controller(machine))
        elif self._outages.only_outages:
            self._later(
                FILLED_MS, lambda: self._demand_progress(f"while the disk of {machine.host} is full", lambda: is_full)
            )

    def _kill_controller(self, spared: Machine) -> None:
        """Kill the leader of the quorum: all others vote, also the one whose disk is full."""
        leaders = [each for each in self._world.machines.values() if each.leads_quorum()]
        machine = self._rng.choice(leaders) if leaders else spared
        if not self.is_over:
            self.count("a process is killed while a disk is full", machine.host)
            machine.end(self._rng.randint(*RESTART_MS))
