"""A broker, its clients and the faults, from one seed and in virtual time.

A run has two parts. First, random faults of clients, topics, network, clock, disk and process are injected. Then all
faults end, and within bounded time every group must be stable: each subscribed partition has one owner, and its members
make progress.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from machines.machine import Machine
from machines.network import Network
from machines.world import TAIL, World
from reading_client import PARKED, Held, ReadingClient

from groups.audit import Audit, differences, replayed
from groups.coordinator import Coordinator
from groups.faults import LAST_FAULT_MS, Faults
from groups.ledger import Ledger
from groups.population import Population
from groups.watch import Call, Watch, WatchedRouter
from moldau.base.errors import ErrorCode
from moldau.base.ids import Uuid
from moldau.base.topic_names import CONSUMER_OFFSETS_TOPIC
from moldau.coordinator.group.group import Group
from moldau.coordinator.group.groups import Groups
from moldau.metadata.image import MetadataImage
from moldau.server.router import Router
from moldau.wire.apis import ApiKey

START_MAX_MS = 30_000
RECOVERY_MAX_MS = 100_000
"""Several times longer than any session without heartbeats and any rebalance can last."""
PROGRESS_MAX_MS = 60_000
PARKED_MAX_MS = 40_000
"""A little more than the longest rebalance timeout and the delay of the first rebalance."""
ANSWER_MAX_MS = 20_000
DELETION_MAX_MS = 10_000
REMOVAL_MAX_MS = 1_000
ENTRIES_PER_SECOND = 20
SLOW_MS = (100, 3_000)
LATE_MS = 20_000
"""How long a late message may still have consequences."""


@dataclass(frozen=True, slots=True)
class Size:
    """How much happens in a run."""

    name: str
    groups: int
    members: int
    """Maximum number of members of a group at a time."""
    topics: int
    chaos_ms: int


BRIEF = Size("brief", groups=6, members=7, topics=4, chaos_ms=10_000)
SHORT = Size("short", groups=6, members=7, topics=4, chaos_ms=45_000)
SMALL = Size("small", groups=6, members=7, topics=4, chaos_ms=90_000)
MEDIUM = Size("medium", groups=16, members=8, topics=8, chaos_ms=150_000)
LARGE = Size("large", groups=30, members=12, topics=10, chaos_ms=240_000)
SIZES = {size.name: size for size in (BRIEF, SHORT, SMALL, MEDIUM, LARGE)}


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


class GroupsWorld(World):
    kind = "groups"
    answers_early = False
    step_ms = 100

    def __init__(self, seed: int, size: Size = SMALL, tail: int = TAIL, has_mixed_groups: bool = True) -> None:
        super().__init__(seed, size.name, tail)
        master = Random(seed)
        self.size = size
        self.has_mixed_groups = has_mixed_groups
        self.client_rng = Random(master.random())
        self.clients: dict[str, ReadingClient] = {}
        self.members = 0
        self.topic_names: dict[Uuid, str] = {}
        self.image = MetadataImage()
        self._incarnations: dict[int, int] = {}
        self._machines: list[Any] = []
        self._loaded: dict[int, Groups] = {}
        """The state of each partition's groups that was loaded last."""
        self.ledger = Ledger(self)
        self.audit = Audit(self)
        self.watch = Watch(self)
        self.network = Network(self, Random(master.random()))
        self.network.slow_ms = SLOW_MS
        self.machine = Coordinator(self, _properties(Random(master.random())), Random(master.random()))
        self.population = Population(self, Random(master.random()))
        self.faults = Faults(self, Random(master.random()))

    def trace_answer(self, call: Call, codes: set[ErrorCode], response: Any) -> None:
        shown = "+".join(sorted(code.name for code in codes)) or "NONE"
        about = getattr(response, "member_epoch", None) or getattr(response, "generation_id", "")
        self.trace(f"{call.sender} {ApiKey(call.api).name} v{call.version} {shown} {about}")

    # --- the broker -----------------------------------------------------------------------------------------------

    def router_of(self, router: Router) -> WatchedRouter:
        return WatchedRouter(self, router)

    def node_serves(self, machine: Machine) -> None:
        self.machine.current.add_listener(self._follow)
        self._follow(self.machine.current.image, None)
        self.audit.reopen()
        self.audit.check_kept(self.faults.promised)
        self.check_loaded()

    def check_loaded(self) -> None:
        """Check state that was just loaded, before a request changes it. It must be that of the process before, if this
        was killed."""
        if not self.machine.is_serving:
            return
        for index, _, groups in self.machine.shards():
            if self._loaded.get(index) is not groups:
                self._loaded[index] = groups
                self.ledger.check_all_holders()
                if index in self.faults.left:
                    self._compare(self.faults.left.pop(index), groups, "after the process was killed")

    def process_ends(self, machine: Machine) -> None:
        self.faults.process_ends()
        self.watch.process_ends()

    def disk_stops_node(self, machine: Machine) -> None:
        self.faults.count("the node stops because of its disk")

    def power_fails(self, machine: Machine) -> None:
        self.faults.lose_power("during a write")

    def message_is_slow(self, source: str, target: str) -> None:
        for name in (source, target):
            if name in self.clients:
                self.clients[name].excuse(LATE_MS)

    def _follow(self, image: MetadataImage, changes: Any) -> None:
        self.image = image
        for name, topic in image.topics.items():
            self.topic_names.setdefault(topic.id, name)

    def group(self, group_id: str) -> Group | None:
        """Return the group as the coordinator has it, or None while there is no coordinator."""
        if not self.machine.is_serving:
            return None
        machine = self.machine.machine_of(group_id)
        return None if machine is None else machine.state.groups.get(group_id)

    def incarnation(self, group_id: str) -> int | None:
        """Return a number for the coordinator's state that has the group, None if none is loaded: state that is not
        logged is lost from one to the next."""
        machine = self.machine.machine_of(group_id)
        if machine is None:
            return None
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
        self.machine.start_now()
        self._until(START_MAX_MS, self._why_not_started, "the broker does not start")
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
        self._check_deletion()
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

    def _why_not_started(self) -> str:
        """Start the node's coordinator, as the first client does that looks for it."""
        if not self.machine.is_serving:
            return "it does not serve"
        if CONSUMER_OFFSETS_TOPIC not in self.image.topics:
            self.machine.side.groups.topic.create_if_missing()
        return "" if self.machine.is_loaded() else "its coordinator is not loaded"

    def check(self) -> None:
        self.check_loaded()
        self.audit.catch_up()
        self._check_parked()

    def _check_parked(self) -> None:
        for call in self.watch.parked:
            limit_ms = PARKED_MAX_MS if call.api in PARKED else ANSWER_MAX_MS
            if self.elapsed_ms - call.delivered_ms > limit_ms:
                self.violated(f"{call.sender} waits for {ApiKey(call.api).name} since {call.delivered_ms}")

    def check_replay(self, is_compacted: bool) -> None:
        """Compare with a replayed machine, only between two iterations of the loop, when every decision is written."""
        if not self.machine.is_serving:
            return
        for index, _, groups in self.machine.shards():
            other = replayed(self.machine, self.machine.offsets_partitions()[index].log, is_compacted)
            self._compare(groups, other, "compacted" if is_compacted else "replayed")

    def _compare(self, live: Groups, other: Groups, how: str) -> None:
        for difference in differences(live, other):
            self.violated(f"{how}: {difference}")

    def _check_leftovers(self) -> None:
        """Check that nothing is left of deleted topics, at the latest after the expiration of offsets."""
        self.machine.act(self.machine.side.groups.expire_offsets)
        self._let_pass(self.step_ms)
        if left := self._why_offsets_left():
            self.violated(left)

    def _check_deletion(self) -> None:
        """Delete a topic, now that nothing is wrong: its offsets are removed at once."""
        name = next(iter(self._topics_with_offsets()), None)
        if name is not None:
            self._until(DELETION_MAX_MS, lambda: self._why_not_deleted(name), "a topic is not deleted")
            self._until(REMOVAL_MAX_MS, self._why_offsets_left, "offsets are not removed")

    def _why_not_deleted(self, name: str) -> str:
        """Ask until the topic is deleted: the administrator's connection may still hang."""
        if name not in self.image.topics:
            return ""
        self.population.delete(name)
        return f"{name} exists"

    def _topics_with_offsets(self) -> list[str]:
        """Return all topics in which a group has committed."""
        return sorted(
            {
                topic
                for _, _, groups in self.machine.shards()
                for committed in groups.state.offsets.values()
                for topic in committed
            }
        )

    def _why_offsets_left(self) -> str:
        left = [topic for topic in self._topics_with_offsets() if topic not in self.image.topics]
        return f"there are offsets of {', '.join(left)}, deleted before" if left else ""

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
        if not self.machine.is_serving:
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


def _properties(rng: Random) -> dict[str, str]:
    return {
        "group.initial.rebalance.delay.ms": str(rng.choice([0, 500, 3_000])),
        "group.consumer.session.timeout.ms": "15000",
        "group.consumer.heartbeat.interval.ms": "3000",
        "offsets.retention.minutes": "1",
    }
