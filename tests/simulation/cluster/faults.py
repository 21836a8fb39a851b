"""Random faults of processes, machines, disks, clocks and the network, one at a time or several at once, beside the
administrator's random requests. All are counted.

Faults that lose unsynced bytes are injected only where Kafka's guarantee covers them: unless every record is synced
before it is acknowledged, another in-sync replica must survive, and gets no such fault until the controller knows of
the loss.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from machines.machine import RESTART_MS, Machine
from machines.network import LOSS
from machines.process import RATE_ONE

if TYPE_CHECKING:
    from cluster.world import ClusterWorld

GAP_MS = 1_800
"""Mean time between two faults."""
ADMIN_GAP_MS = 3_000
SHORT_MS = (200, 6_000)
JUMP_MS = 1_200_000
SLOW_FLUSH_MS = 600
POWER_OPERATIONS_MAX = 40
POWER_PATIENCE = 20
POWER_RETRY_MS = 200
CLEANING_OPERATIONS_MAX = 60
CLEANING_SHARE = 0.05
DISTURBED_SHARE = 0.25
"""Share of elections."""
Call = Callable[[], None]


class Faults:
    def __init__(self, world: ClusterWorld, rng: Random) -> None:
        self._world = world
        self._rng = rng
        self.counts: Counter[str] = Counter()
        self.is_over = True
        self._current_faults: dict[int, Call] = {}
        """The current faults by number, each with the call that ends it."""
        self._numbers = 0
        self._lost_data: dict[int, int] = {}
        """Nodes that lost data, until the controller knows: the metadata offset that they must have reached."""
        self._fault_weights: dict[Call, int] = {
            self._kill: 6,
            self._kill_several: 1,
            self._leave: 3,
            self._power: 5,
            self._all_power: 2,
            self._wipe: 1,
            self._stop: 5,
            self._isolate: 4,
            self._split: 3,
            self._one_way: 4,
            self._swizzle: 2,
            self._slow_host: 3,
            self._lose_messages: 3,
            self._jump: 2,
            self._drift: 2,
            self._slow_disk: 3,
            self._full_disk: 2,
            self._failing_sync: 2,
            self._short_writes: 1,
        }

    # --- beginning and end ----------------------------------------------------------------------------------------

    def begin(self) -> None:
        self.is_over = False
        self._world.network.loss = LOSS
        self._inject_fault()
        self._administer()

    def _inject_fault(self) -> None:
        if not self.is_over:
            self._later(1 + int(self._rng.expovariate(1) * GAP_MS), self._inject_fault)
            self._forget_known_losses()
            if not self._lost_data:
                self._rng.choices(list(self._fault_weights), list(self._fault_weights.values()))[0]()

    def _administer(self) -> None:
        if not self.is_over:
            self._later(1 + int(self._rng.expovariate(1) * ADMIN_GAP_MS), self._administer)
            admin = self._world.admin
            acts: dict[Call, int] = {admin.create_or_delete_topic: 3, admin.grow: 1, admin.reassign: 3, admin.elect: 2}
            act = self._rng.choices(list(acts), list(acts.values()))[0]
            self.count(f"an admin: {act.__name__.replace('_', ' ')}")
            act()

    def end(self) -> None:
        """End all faults and repair everything."""
        self.is_over = True
        world = self._world
        world.trace("--- all faults have ended")
        for restore in list(self._current_faults.values()):
            restore()
        self._current_faults.clear()
        world.network.loss = 0.0
        world.network.restore_all()
        for machine in world.machines.values():
            machine.heal_disk()
            machine.files.power_lost_at = None
            machine.clock.set_rate(RATE_ONE)
            if machine.process is None:
                machine.start_now()
            elif machine.has_refusing_logs():
                machine.end(0)  # restart it, so that failed logs are opened again

    def count(self, what: str, about: str = "") -> None:
        self.counts[what] += 1
        self._world.trace(f"--- {what} {about}".rstrip())

    def _later(self, delay_ms: int, call: Call) -> None:
        self._world.timers.after_ms(delay_ms, call)

    def for_a_while(self, restore: Call, low_ms: int = SHORT_MS[0], high_ms: int = SHORT_MS[1]) -> None:
        self._numbers += 1
        number = self._numbers
        self._current_faults[number] = restore
        self._later(self._rng.randint(low_ms, high_ms), lambda: self._end_fault(number))

    def _end_fault(self, number: int) -> None:
        restore = self._current_faults.pop(number, None)
        if restore is not None:
            self._world.trace("--- a fault has ended")
            restore()

    def _some(self) -> Machine:
        return self._rng.choice(list(self._world.machines.values()))

    def _some_running(self) -> Machine | None:
        running = [machine for machine in self._world.machines.values() if machine.is_up]
        return self._rng.choice(running) if running else None

    # --- processes ------------------------------------------------------------------------------------------------

    def _kill(self) -> None:
        machine = self._some_running()
        if machine is not None:
            self.count("a process is killed", machine.host)
            machine.end(self._rng.randint(*RESTART_MS))

    def _kill_several(self) -> None:
        machines = list(self._world.machines.values())
        chosen = self._rng.sample(machines, self._rng.randint(2, len(machines)))
        self.count("processes are killed", " ".join(machine.host for machine in chosen))
        for machine in chosen:
            if machine.is_up:
                machine.end(self._rng.randint(*RESTART_MS))

    def _leave(self) -> None:
        machine = self._some_running()
        if machine is not None and machine.is_serving:
            self.count("a process is shut down", machine.host)
            machine.leave()

    def _stop(self) -> None:
        machine = self._some_running()
        if machine is None or machine.process is None or machine.process.is_stopped:
            return
        self.count("a process is suspended", machine.host)
        process = machine.process
        process.stop()
        self.for_a_while(process.resume)

    def quorum_elected(self, node_id: int) -> None:
        """Sometimes disturb a new leader of the quorum: disconnect it, and kill one of its voters."""
        if self.is_over or self._lost_data or self._rng.random() >= DISTURBED_SHARE:
            return
        host = self._world.machines[node_id].host
        self.count("an election is disturbed", host)
        others = [each for each in self._hosts() if each != host]
        self._later(self._rng.randint(0, 8), lambda: self.disconnect(host, others))
        voters = [each for each in self._world.machines.values() if each.is_controller and each.node_id != node_id]
        victim = self._rng.choice(voters)
        self._later(self._rng.randint(0, 8), lambda: self._kill_briefly(victim))

    def disconnect(self, host: str, others: list[str]) -> None:
        if not self.is_over:
            self._cut([pair for other in others for pair in ((host, other), (other, host))])

    def _kill_briefly(self, machine: Machine) -> None:
        if not self.is_over and machine.is_up:
            self.count("a process is killed", machine.host)
            machine.end(self._rng.randint(20, 300))

    # --- power ----------------------------------------------------------------------------------------------------

    def _power(self, patience: int = POWER_PATIENCE) -> None:
        """Lose the power of a machine as soon as that is allowed."""
        machine = self._some_running()
        if machine is None or not self._may_lose(machine):
            if patience and not self.is_over:
                self._later(POWER_RETRY_MS, lambda: self._power(patience - 1))
            return
        if self._rng.random() < 0.5:
            self.lose_power(machine, "between two writes")
        else:
            machine.files.power_lost_at = machine.files.operations + self._rng.randint(0, POWER_OPERATIONS_MAX)

    def power_fails(self, machine: Machine, when: str) -> None:
        """Called at the chosen file operation. If other machines are down by now, only the process is killed."""
        machine.files.power_lost_at = None
        if self._may_lose(machine):
            self.lose_power(machine, when)
        else:
            self.count("a process is killed during a write", machine.host)
            machine.end(self._rng.randint(*RESTART_MS))

    def log_is_cleaned(self, machine: Machine) -> None:
        """Sometimes interrupt a cleaning, which writes, renames and removes files beside the log."""
        self.counts["a log is cleaned"] += 1
        if self.may_lose_power_later(machine) and self._rng.random() < CLEANING_SHARE:
            self.count("a cleaning is interrupted", machine.host)
            machine.files.power_lost_at = machine.files.operations + self._rng.randint(0, CLEANING_OPERATIONS_MAX)

    def may_lose_power_later(self, machine: Machine) -> bool:
        """Whether a loss of power may be scheduled for a later file operation of the machine."""
        return not self.is_over and not self._lost_data and machine.files.power_lost_at is None

    def lose_power(self, machine: Machine, when: str) -> None:
        self.count(f"power is lost {when}", machine.host)
        self._note_lost_data(machine)
        machine.lose_power(self._rng.randint(*RESTART_MS))

    def _all_power(self) -> None:
        """Lose the power of several machines, only where every acknowledged record is on disk."""
        if not self._world.is_synced:
            return
        machines = [machine for machine in self._world.machines.values() if machine.is_up]
        if self._rng.random() < 0.5:
            machines = self._rng.sample(machines, self._rng.randint(0, len(machines)))
        self.count("power is lost on several machines", " ".join(machine.host for machine in machines))
        for machine in machines:
            machine.lose_power(self._rng.randint(*RESTART_MS))

    def _may_lose(self, machine: Machine) -> bool:
        return self._world.is_synced or self._is_covered(machine)

    def _is_covered(self, machine: Machine) -> bool:
        """Whether everything else is healthy, and every partition with this node in the ISR has another in-sync
        replica."""
        others = [each for each in self._world.machines.values() if each is not machine]
        if not self.are_well(others):
            return False
        if any(each.leadership is not None and each.leadership.proposed is not None for each in machine.partitions()):
            return False  # by its own proposal it may be the only in-sync replica
        by_id = {each.node_id for each in others}
        return all(
            machine.node_id not in state.isr or any(each in by_id for each in state.isr)
            for topic in self._world.newest_image().topics.values()
            for state in topic.partitions
        )

    def are_well(self, machines: list[Machine]) -> bool:
        """Whether these machines and the network are healthy, and the controller knows of all losses."""
        is_quiet = not self._current_faults and not self._lost_data
        return is_quiet and all(each.is_well and self._is_in_the_image(each) for each in machines)

    def _is_in_the_image(self, machine: Machine) -> bool:
        """Whether the controller has registered and unfenced its process."""
        if machine.assembly is None:
            return False
        if machine.assembly.broker_side is None:
            return True
        broker = self._world.newest_image().brokers.get(machine.node_id)
        return broker is not None and not broker.fenced and broker.epoch == machine.assembly.broker_side.lifecycle.epoch

    def _note_lost_data(self, machine: Machine) -> None:
        if not self._world.is_synced:
            self._lost_data[machine.node_id] = self._world.newest_image().offset
            for each in self._world.machines.values():
                each.files.power_lost_at = None

    def _forget_known_losses(self) -> None:
        image = self._world.newest_image()
        for node_id, offset in list(self._lost_data.items()):
            machine = self._world.machines[node_id]
            broker = image.brokers.get(node_id)
            is_known = not machine.is_broker or broker is None or broker.fenced or broker.epoch > offset
            if is_known and machine.assembly is not None and machine.metadata_end() > offset:
                del self._lost_data[node_id]

    def _wipe(self) -> None:
        """Replace a disk by an empty one; a voter's only while all other voters have the committed metadata."""
        machine = self._some_running()
        if machine is None or not self._is_covered(machine):
            return
        committed = self._world.newest_image().offset
        others = [each for each in self._world.machines.values() if each is not machine and each.is_controller]
        if machine.is_controller and any(each.metadata_end() <= committed for each in others):
            return
        self.count("a disk is replaced", machine.host)
        self._lost_data[machine.node_id] = committed
        machine.end(self._rng.randint(*RESTART_MS))
        machine.wipe()

    # --- the network ----------------------------------------------------------------------------------------------

    def _hosts(self) -> list[str]:
        return [machine.host for machine in self._world.machines.values()]

    def _cut(self, pairs: list[tuple[str, str]]) -> None:
        network = self._world.network
        for source, target in pairs:
            network.cut(source, target)

        def restore() -> None:
            for source, target in pairs:
                network.restore(source, target)

        self.for_a_while(restore)

    def _isolate(self) -> None:
        host = self._some().host
        others = [each for each in self._hosts() if each != host]
        if self._rng.random() < 0.5:
            others += [client.name for client in self._world.clients]
        self.count("a machine is disconnected", host)
        self.disconnect(host, others)

    def _split(self) -> None:
        """Split the network in two, with clients on either side."""
        hosts = [*self._hosts(), *(client.name for client in self._world.clients)]
        left = [host for host in hosts if self._rng.random() < 0.5]
        right = [host for host in hosts if host not in left]
        self.count("the network is split", " ".join(left))
        self._cut([pair for a in left for b in right for pair in ((a, b), (b, a))])

    def _one_way(self) -> None:
        host = self._some().host
        others = [each for each in self._hosts() if each != host]
        chosen = self._rng.sample(others, self._rng.randint(1, len(others)))
        is_out = self._rng.random() < 0.5
        self.count(
            "messages pass in one direction only",
            f"{host} {'cannot send to' if is_out else 'cannot receive from'} {chosen}",
        )
        self._cut([(host, other) if is_out else (other, host) for other in chosen])

    def _swizzle(self) -> None:
        """Cut links one by one, and restore them in another order."""
        self.count("links are cut one by one")
        hosts = self._hosts()
        pairs = [(a, b) for a in hosts for b in hosts if a != b and self._rng.random() < 0.6]
        self._rng.shuffle(pairs)
        for place, pair in enumerate(pairs):
            self._later(place * 40, partial(self._clog, pair))

    def _clog(self, pair: tuple[str, str]) -> None:
        if not self.is_over:
            self._world.network.cut(*pair)
            self.for_a_while(lambda: self._world.network.restore(*pair), 500, 3_000)

    def _slow_host(self) -> None:
        host = self._some().host
        self.count("a machine's network is slow", host)
        self._world.network.slow_down(host, self._rng.choice([5, 20, 60]))
        self.for_a_while(lambda: self._world.network.speed_up(host))

    def _lose_messages(self) -> None:
        self.count("the network loses messages")
        self._world.network.loss = self._rng.choice([0.01, 0.05, 0.15])

        def restore() -> None:
            self._world.network.loss = LOSS

        self.for_a_while(restore)

    # --- clocks and disks -----------------------------------------------------------------------------------------

    def _jump(self) -> None:
        machine = self._some()
        by_ms = self._rng.randint(-JUMP_MS, JUMP_MS)
        self.count("a clock jumps", f"{machine.host} {by_ms}")
        machine.clock.jump(by_ms)

    def _drift(self) -> None:
        machine = self._some()
        rate = RATE_ONE + self._rng.randint(-200, 200)
        self.count("a clock drifts", f"{machine.host} {rate}")
        machine.clock.set_rate(rate)

    def _slow_disk(self) -> None:
        machine = self._some()
        self.count("a disk is slow", machine.host)
        machine.flush_ms = SLOW_FLUSH_MS
        self.for_a_while(machine.heal_disk)

    def _full_disk(self) -> None:
        machine = self._some()
        self.count("a disk is full", machine.host)
        machine.fill_disk(self._rng.randint(0, 3_000))
        machine.files.truncate_fails = self._rng.random() < 0.2
        self.for_a_while(machine.heal_disk)

    def _failing_sync(self) -> None:
        machine = self._some()
        self.count("a disk fails to sync", machine.host)
        machine.files.sync_fails = True
        self.for_a_while(machine.heal_disk, 50, 1_500)

    def _short_writes(self) -> None:
        machine = self._some()
        self.count("a disk writes only a part", machine.host)
        machine.files.write_bytes_max = self._rng.randint(16, 200)
        self.for_a_while(machine.heal_disk)
