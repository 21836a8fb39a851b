"""A broker, its clients and the faults, from one seed and in virtual time.

A run has two parts. First, random faults of clients, topics, network, clock, disk and process are injected. Then all
faults end, and within bounded time every group must be stable: each subscribed partition has one owner, and its members
make progress.
"""

from __future__ import annotations

import zlib
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from machines.world import Violation
from reading_client import Held, ReadingClient

from groups.audit import Audit, differences, replayed
from groups.faults import FLUSH_MS, LAST_FAULT_MS, Faults
from groups.ledger import Ledger
from groups.network import Call, Network
from groups.node import Process
from groups.population import Population
from moldau.base.errors import ErrorCode, StorageFault
from moldau.base.ids import Uuid
from moldau.coordinator.group.group import Group
from moldau.coordinator.group.groups import Groups
from moldau.coordinator.group.settings import GroupSettings
from moldau.metadata.image import MetadataImage
from moldau.testing.clock import FakeTimers
from moldau.testing.files import MemoryFiles, PowerLoss
from moldau.wire.apis import ApiKey

STEP_MS = 100
RECOVERY_MAX_MS = 100_000
"""Several times longer than any session without heartbeats and any rebalance can last."""
PROGRESS_MAX_MS = 60_000
PARKED_MAX_MS = 40_000
"""A little more than the longest rebalance timeout and the delay of the first rebalance."""
ANSWER_MAX_MS = 20_000
TAIL = 60
ENTRIES_PER_SECOND = 20


@dataclass(frozen=True, slots=True)
class Size:
    """How much happens in a run."""

    name: str
    groups: int
    members: int
    """Maximum number of members of a group at a time."""
    topics: int
    chaos_ms: int


SMALL = Size("small", groups=6, members=7, topics=4, chaos_ms=90_000)
MEDIUM = Size("medium", groups=16, members=8, topics=8, chaos_ms=150_000)
LARGE = Size("large", groups=30, members=12, topics=10, chaos_ms=240_000)
SIZES = {size.name: size for size in (SMALL, MEDIUM, LARGE)}


@dataclass(slots=True)
class Report:
    seed: int
    digest: int
    """Checksum of all events: the same for the same seed."""
    virtual_ms: int
    answers: int
    records: int
    members: int
    faults: Counter[str]

    @staticmethod
    def shown(reports: Sequence[Report]) -> str:
        """Sum up all reports in one line."""
        return (
            f"{sum(each.members for each in reports):,} members, {sum(each.answers for each in reports):,} responses, "
            f"{sum(each.records for each in reports):,} records checked"
        )


class GroupsWorld:
    def __init__(self, seed: int, size: Size = SMALL, tail: int = TAIL, has_mixed_groups: bool = True) -> None:
        master = Random(seed)
        self.seed = seed
        self.size = size
        self.has_mixed_groups = has_mixed_groups
        self.timers = FakeTimers()
        self.clock = self.timers.clock
        self.client_rng = Random(master.random())
        self._node_rng = Random(master.random())
        self._flush_rng = Random(master.random())
        self.tail: deque[str] = deque(maxlen=tail or None)
        self.digest = 0
        self.violation: str | None = None
        self.clients: dict[str, ReadingClient] = {}
        self.members = 0
        self.topic_names: dict[Uuid, str] = {}
        self.image = MetadataImage()
        self.settings = _settings(Random(master.random()))
        self.files = MemoryFiles()
        self.process: Process | None = None
        """The process that serves."""
        self.newest: Process | None = None
        self.starts = 0
        self.flush_ms = FLUSH_MS
        self._incarnations: dict[int, int] = {}
        self._machines: list[Any] = []
        self.ledger = Ledger(self)
        self.audit = Audit(self)
        self.network = Network(self, Random(master.random()))
        self.population = Population(self, Random(master.random()))
        self.faults = Faults(self, Random(master.random()))

    # --- time and trace -------------------------------------------------------------------------------------------

    @property
    def elapsed_ms(self) -> int:
        return self.clock.monotonic_ms()

    def trace(self, text: str) -> None:
        line = f"{self.elapsed_ms:>8} {text}"
        self.digest = zlib.crc32(line.encode(), self.digest)
        self.tail.append(line)

    def trace_answer(self, call: Call, codes: set[ErrorCode], response: Any) -> None:
        shown = "+".join(sorted(code.name for code in codes)) or "NONE"
        about = getattr(response, "member_epoch", None) or getattr(response, "generation_id", "")
        self.trace(f"{call.sender} {ApiKey(call.api).name} v{call.version} {shown} {about}")

    def violated(self, what: str) -> None:
        """Note a violation; it is raised at the end of the step, where no code under test can catch it."""
        if self.violation is None:
            self.violation = what
            self.trace(f"VIOLATION {what}")
            self._events_before_violation = list(self.tail)

    def fail(self) -> None:
        if self.violation is not None:
            lines = "\n".join(self._events_before_violation)
            raise Violation(f"{self.violation}\n--- the last events before it\n{lines}")

    def how_to_replay(self) -> str:
        return (
            "replay with\npython tests/simulation/simulate.py --what groups "
            f"--seed {self.seed} --size {self.size.name} --trace"
        )

    # --- the broker -----------------------------------------------------------------------------------------------

    def start_process(self) -> None:
        """Start the process; retry if the disk refuses."""
        if self.process is not None:
            return
        self.starts += 1
        try:
            self.newest = process = Process(
                self.files, self.timers, self._node_rng, self.settings, self._flush_delay_ms, self._disk_failed
            )
            process.start()
        except StorageFault as fault:
            self.trace(f"the process cannot start: {fault}")
            self.end_process()
            self.files = self.faults.reopened()
            self.timers.after_ms(1_000, self.start_process)
            return
        process.current.add_listener(self._follow)
        self._follow(process.current.image, None)
        self.process = process
        self.trace(f"process {self.starts} is up")
        self._process_is_up()

    def end_process(self) -> None:
        """End the process, also one that has not started yet."""
        if self.newest is not None:
            self.newest.die()
        if self.process is not None:
            self.process = None
            self.network.disconnected()

    def _process_is_up(self) -> None:
        self.audit.reopen()
        self.audit.check_kept(self.faults.promised)
        self.ledger.check_all_holders()
        left, self.faults.left = self.faults.left, {}
        assert self.process is not None
        for index, shard, machine in self.process.shards():
            if index in left and shard.is_ready:
                self._compare(left[index], machine, "after the process was killed")

    def _follow(self, image: MetadataImage, changes: Any) -> None:
        self.image = image
        for name, topic in image.topics.items():
            self.topic_names.setdefault(topic.id, name)

    def _flush_delay_ms(self) -> int:
        return self._flush_rng.randint(1, self.flush_ms)

    def _disk_failed(self, fault: StorageFault) -> None:
        self.trace(f"the node stops: {fault}")
        self.faults.kill("its disk failed")

    def group(self, group_id: str) -> Group | None:
        """Return the group as the coordinator has it, or None while there is no coordinator."""
        if self.process is None:
            return None
        machine = self.process.machine_of(group_id)
        return None if machine is None else machine.state.groups.get(group_id)

    def incarnation(self, group_id: str) -> int:
        """Return a number for the coordinator's state that has the group: state that is not logged is lost from one to
        the next."""
        assert self.process is not None
        machine = self.process.groups.shards._shards[self.process.groups.shards.partition_of(group_id)].machine
        if id(machine) not in self._incarnations:
            self._machines.append(machine)
            self._incarnations[id(machine)] = len(self._machines)
        return self._incarnations[id(machine)]

    # --- what clients know ----------------------------------------------------------------------------------------

    def log_end(self, held: Held) -> int:
        return self.elapsed_ms * ENTRIES_PER_SECOND // 1_000

    def pattern(self) -> str:
        return self.client_rng.choice(["topic-[0-4]", "topic-.*", "topic-[2-9]", "topic-(1|3|5)"])

    def ids_of(self, topic: str) -> list[Uuid]:
        return [topic_id for topic_id, name in self.topic_names.items() if name == topic]

    def is_read(self, group_id: str, topic: str, partition: int) -> bool:
        """Whether a subscribed member reads it: a member that changed its subscription may still have to revoke it."""
        found = self.image.topics.get(topic)
        holders = {} if found is None else self.ledger.holders.get((group_id, Held(found.id, partition)), {})
        return any(
            self.ledger.is_valid(client) and topic in self.population.topics_of(client) for client in holders.values()
        )

    def shown(self, held: Held) -> str:
        return f"{self.topic_names.get(held.topic_id, '?')}-{held.partition}"

    # --- a run ----------------------------------------------------------------------------------------------------

    def run(self) -> Report:
        self.start_process()
        self.faults.begin()
        self._let_pass(self.size.chaos_ms)
        self.faults.end()
        self._let_pass(3 * LAST_FAULT_MS)
        self._until(RECOVERY_MAX_MS, self._why_not_stable, "not every group is stable")
        floors = dict(self.ledger.floors)
        self._until(PROGRESS_MAX_MS, lambda: self._why_no_progress(floors), "not every partition makes progress")
        self.check_replay(is_compacted=False)
        self.check_replay(is_compacted=True)
        self._check_leftovers()
        self.fail()
        return Report(
            self.seed,
            self.digest,
            self.elapsed_ms,
            self.ledger.answers,
            self.audit.records,
            self.members,
            self.faults.counts,
        )

    def _let_pass(self, duration_ms: int) -> None:
        end_ms = self.elapsed_ms + duration_ms
        while self.elapsed_ms < end_ms:
            try:
                self.timers.advance(STEP_MS)
            except PowerLoss:
                self.faults.lose_power("during a write")
            self.audit.catch_up()
            self._check_parked()
            self.fail()

    def _until(self, limit_ms: int, why_not: Any, otherwise: str) -> None:
        end_ms = self.elapsed_ms + limit_ms
        while why := why_not():
            if self.elapsed_ms >= end_ms:
                self.violated(f"{otherwise} within {limit_ms} ms: {why}")
                self.fail()
            self._let_pass(1_000)

    def _check_parked(self) -> None:
        for call, since_ms in self.network.parked.items():
            waits = call.api in (ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP)
            if self.elapsed_ms - since_ms > (PARKED_MAX_MS if waits else ANSWER_MAX_MS):
                self.violated(f"{call.sender} waits for {ApiKey(call.api).name} since {since_ms}")

    def check_replay(self, is_compacted: bool) -> None:
        """Compare with a replayed machine, only between two iterations of the loop, when every decision is written."""
        if self.process is None:
            return
        for index, shard, machine in self.process.shards():
            if shard.is_ready:
                other = replayed(self.process, self.process.offsets_partitions()[index].log, is_compacted)
                self._compare(machine, other, "compacted" if is_compacted else "replayed")

    def _compare(self, live: Groups, other: Groups, how: str) -> None:
        for difference in differences(live, other):
            self.violated(f"{how}: {difference}")

    def _check_leftovers(self) -> None:
        """Check that nothing is left of deleted topics, at the latest after the expiration of offsets."""
        assert self.process is not None
        self.process.groups.expire_offsets()
        self._let_pass(STEP_MS)
        for _, _, machine in self.process.shards():
            for group_id, committed in machine.state.offsets.items():
                for topic in committed.keys() - self.image.topics.keys():
                    self.violated(f"{group_id} still has offsets of {topic}, which was deleted")

    # --- the final state ------------------------------------------------------------------------------------------

    def _wanted(self) -> dict[tuple[str, Held], set[str]]:
        """Return every partition that should be read, with the clients that may read it."""
        wanted: dict[tuple[str, Held], set[str]] = {}
        for client in self.clients.values():
            for name in self.population.topics_of(client):
                topic = self.image.topics.get(name)
                for index in range(len(topic.partitions) if topic is not None else 0):
                    assert topic is not None
                    wanted.setdefault((client.group_id, Held(topic.id, index)), set()).add(client.name)
        return wanted

    def _why_not_stable(self) -> str:
        """Return why the groups are not stable; "" if they are."""
        if self.process is None:
            return "the broker is down"
        for client in self.clients.values():
            if not client.is_settled or not self.ledger.is_valid(client):
                return f"{client.name} is not settled"
            group = self.group(client.group_id)
            if group is None or group.state_name != "Stable":
                return f"{client.group_id} is {None if group is None else group.state_name}"
        wanted = self._wanted()
        for (group_id, held), readers in wanted.items():
            holders = set(self.ledger.holders.get((group_id, held), ()))
            if len(holders) != 1 or not holders <= readers:
                return f"{self.shown(held)} of {group_id} is held by {sorted(holders)}, wanted by {sorted(readers)}"
        for (group_id, held), found in self.ledger.holders.items():
            if (group_id, held) not in wanted:
                return f"{self.shown(held)} of {group_id} is held by {sorted(found)} and wanted by nobody"
        return ""

    def _why_no_progress(self, floors: dict[Any, int]) -> str:
        for group_id, held in self._wanted():
            place = (group_id, *held)
            if self.ledger.floors.get(place, -1) <= floors.get(place, -1):
                return f"{self.ledger.shown(place)} is still at {floors.get(place, -1)}"
        return ""


def _settings(rng: Random) -> GroupSettings:
    return GroupSettings(
        initial_rebalance_delay_ms=rng.choice([0, 500, 3_000]),
        consumer_session_timeout_ms=15_000,
        consumer_heartbeat_interval_ms=3_000,
        offsets_retention_ms=60_000,
    )
