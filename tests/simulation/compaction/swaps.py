"""Prolongs the time in which cleaned segments replace old ones, one in each iteration of the loop, and injects faults
into it.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from machines.machine import Machine
from machines.process import Process, ProcessTimer, ProcessTimers

from moldau.base.errors import StorageFault
from moldau.log import compaction, layout
from moldau.log.log import Log

if TYPE_CHECKING:
    from compaction.admin import TableAdmin
    from compaction.world import CompactionWorld

TURN_MS = (0, 3, 30, 150, 500)
"""Maximum times of an iteration of the loop; each process has one of them."""
SHARE = 0.3
"""Share of swaps with a fault."""
OPERATIONS_OF_GROUP = 13
"""Approximate number of renames."""
FULL_MS = 1_500


class SlowTurns(ProcessTimers):
    """A busy event loop: calls that yield to others wait."""

    def __init__(self, world: CompactionWorld, machine: Machine, process: Process, rng: Random) -> None:
        super().__init__(world.timers, process, machine.clock)
        self._rng = rng
        self.turn_ms = rng.choice(TURN_MS)

    def after_ms(self, delay_ms: int, call: Callable[[], None]) -> ProcessTimer:
        return super().after_ms(delay_ms or self._rng.randint(0, self.turn_ms), call)


class SwapFaults:
    def __init__(self, world: CompactionWorld, admin: TableAdmin, rng: Random) -> None:
        self._world = world
        self._admin = admin
        self._rng = rng
        self._generations: dict[Any, int] = {}
        """The generation of each log when its last swap began."""
        self._acts: dict[Callable[[Machine, Any, int], None], int] = {
            self._lose_power: 5,
            self._kill: 2,
            self._kill_leader: 4,
            self._suspend: 2,
            self._disconnect: 3,
            self._move_replica: 3,
            self._delete_topic: 3,
            self._fill_disk: 3,
            self._delete_records: 3,
            self._shorten_retention: 3,
        }

    @contextmanager
    def watching(self) -> Iterator[None]:
        begin, roll_back = compaction.begin_swap, Log.roll_back_swap

        def begun(log: Any, job: Any, cleaned: Any) -> Any:
            work = begin(log, job, cleaned)
            if work is not None:
                self._begun(log, len(cleaned.groups))
            return work

        def rolled_back(log: Any) -> None:
            if log.swapping is not None:
                self._world.faults.count(f"a swap is rolled back: {self._why(log)}", str(log.partition))
            roll_back(log)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(compaction, "begin_swap", begun)
            patch.setattr(Log, "roll_back_swap", rolled_back)
            yield

    def _why(self, log: Any) -> str:
        half = "half done" if log.swapping.replaced else "renamed" if log.swapping.renamed else "begun"
        if log.fault is not None:
            return f"{half}, deleted"
        return f"{half}, truncated" if self._generations.get(log) != log.generation else f"{half}, no space"

    def _begun(self, log: Any, groups: int) -> None:
        world = self._world
        world.faults.counts["a swap of several segments"] += groups > 1
        self._generations[log] = log.generation
        machine = next((each for each in world.machines.values() if _has(each, log)), None)
        if machine is None or groups < 2 or world.faults.is_over or self._rng.random() >= SHARE:
            return
        act = self._rng.choices(list(self._acts), list(self._acts.values()))[0]
        process = machine.process

        def happen() -> None:
            if machine.process is process and world.faults.may_lose_power_later(machine):
                world.faults.count(f"while segments are swapped:{act.__name__.replace('_', ' ')}", machine.host)
                act(machine, log, groups)

        world.timers.after_ms(self._rng.randint(0, 20 * groups), happen)

    # --- faults ---------------------------------------------------------------------------------------------------

    def _lose_power(self, machine: Machine, log: Any, groups: int) -> None:
        machine.files.power_lost_at = machine.files.operations + self._rng.randint(0, OPERATIONS_OF_GROUP * groups)

    def _kill(self, machine: Machine, log: Any, groups: int) -> None:
        machine.end(self._rng.randint(20, 1_000))

    def _kill_leader(self, machine: Machine, log: Any, groups: int) -> None:
        """Elect another leader, which may have fewer records."""
        topic = self._world.newest_image().topics.get(log.partition.topic)
        if topic is not None and log.partition.partition < len(topic.partitions):
            leader = self._world.machines.get(topic.partitions[log.partition.partition].leader)
            if leader is not None and leader.is_up:
                leader.end(self._rng.randint(20, 3_000))

    def _suspend(self, machine: Machine, log: Any, groups: int) -> None:
        process = machine.process
        if process is not None and not process.is_stopped:
            process.stop()
            self._world.faults.for_a_while(process.resume, 200, 3_000)

    def _disconnect(self, machine: Machine, log: Any, groups: int) -> None:
        """Disconnect it from all but the clients: what it appends as a leader will be truncated."""
        others = [each.host for each in self._world.machines.values() if each is not machine]
        self._world.faults.disconnect(machine.host, others)

    def _move_replica(self, machine: Machine, log: Any, groups: int) -> None:
        self._admin.move_away(log.partition.topic, log.partition.partition, machine.node_id)

    def _delete_topic(self, machine: Machine, log: Any, groups: int) -> None:
        if log.partition.topic in self._world.fleeting:
            self._world.admin.create_or_delete_topic()

    def _fill_disk(self, machine: Machine, log: Any, groups: int) -> None:
        """Fill the disk so that not even an empty file can be created."""
        files, honest = machine.files, machine.files.rename

        def rename(source: str, target: str) -> None:
            if target.endswith(layout.SWAP):
                files.__dict__.pop("rename", None)
                raise StorageFault(target, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
            honest(source, target)

        def restore() -> None:
            files.__dict__.pop("rename", None)
            machine.heal_disk()

        files.__dict__["rename"] = rename
        files.bytes_left = 0
        self._world.faults.for_a_while(restore, 50, FULL_MS)

    def _delete_records(self, machine: Machine, log: Any, groups: int) -> None:
        if log.partition.topic in self._world.lasting_topics():
            self._admin.trim(log.partition.topic)

    def _shorten_retention(self, machine: Machine, log: Any, groups: int) -> None:
        """Set the topic to be deleted instead of compacted, with a retention that most of it exceeds."""
        if log.partition.topic in self._world.lasting_topics():
            configs = {"cleanup.policy": self._rng.choice(["delete", "compact,delete"]), "retention.bytes": "500"}
            self._admin.change(log.partition.topic, configs)


def _has(machine: Machine, log: Any) -> bool:
    return any(partition.log is log for partition in machine.partitions())
