"""A whole cluster, its clients and the faults, from one seed and in virtual time.

A run has three parts. The cluster starts; then random faults are injected; then all faults end, and within bounded time
everything must work again and every acknowledged record must be there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from random import Random
from unittest.mock import patch

from machines.machine import CLIENT_PORT, CONTROLLER_PORT, Machine
from machines.network import Network
from machines.world import TAIL, World

from cluster.admin import AdminClient
from cluster.audit import Audit
from cluster.client import ClusterClient
from cluster.committers import Committer
from cluster.consumers import RACKS, Consumer
from cluster.faults import Faults
from cluster.ledger import Ledger
from cluster.producers import CarelessProducer, Producer
from moldau.metadata import apply
from moldau.metadata.image import MetadataImage
from moldau.runtime.controller import active

START_MAX_MS = 30_000
RECOVERY_MAX_MS = 60_000
DRAIN_MAX_MS = 60_000
FEW_RECORDS_A_TURN = 3
"""Number of metadata records that every other seed applies in one turn of the loop. With more, a small cluster would
apply all of them in one turn."""


@dataclass(frozen=True, slots=True)
class Size:
    """How much happens in a run."""

    name: str
    nodes: tuple[int, ...]
    """Node counts to choose from."""
    topics: int
    producers: int
    gap_ms: int
    """Mean time between two records of a producer."""
    chaos_ms: int


BRIEF = Size("brief", nodes=(3,), topics=1, producers=2, gap_ms=250, chaos_ms=5_000)
SHORT = Size("short", nodes=(3, 3, 3, 5), topics=1, producers=2, gap_ms=250, chaos_ms=20_000)
SMALL = Size("small", nodes=(3, 3, 3, 5), topics=1, producers=2, gap_ms=250, chaos_ms=40_000)
MEDIUM = Size("medium", nodes=(3, 4, 5), topics=2, producers=4, gap_ms=150, chaos_ms=90_000)
LARGE = Size("large", nodes=(5, 6, 7), topics=3, producers=6, gap_ms=100, chaos_ms=180_000)
SIZES = {size.name: size for size in (BRIEF, SHORT, SMALL, MEDIUM, LARGE)}


@dataclass(slots=True)
class Report:
    seed: int
    digest: int
    """Checksum of all events: the same for the same seed."""
    virtual_ms: int
    nodes: int
    starts: int
    acknowledged: int
    commits: int
    batches: int
    faults: Counter[str]

    @staticmethod
    def shown(reports: Sequence[Report]) -> str:
        """Sum up all reports in one line."""
        return (
            f"{sum(each.starts for each in reports):,} starts of {sum(each.nodes for each in reports):,} nodes, "
            f"{sum(each.acknowledged for each in reports):,} records and {sum(each.commits for each in reports):,} "
            f"commits acknowledged, {sum(each.batches for each in reports):,} batches compared"
        )


class ClusterWorld(World):
    kind = "cluster"

    def __init__(self, seed: int, size: Size = SMALL, tail: int = TAIL) -> None:
        super().__init__(seed, size.name, tail)
        master = Random(seed)
        self.size = size
        self.rng = Random(master.random())
        self.is_synced = self.rng.random() < 0.4
        """Whether every record is on disk before it is acknowledged: then any machine may lose its power at any
        time."""
        self.image = MetadataImage()
        self.audit = Audit(self)
        self.network = Network(self, Random(master.random()))
        self.machines = self._build(Random(master.random()))
        self.broker_ids = [machine.node_id for machine in self.machines.values() if machine.is_broker]
        self.replication_factor = min(3, len(self.broker_ids))
        self.bootstrap = {node_id: (f"n{node_id}", CLIENT_PORT) for node_id in self.broker_ids}
        self.fleeting = ["fleeting"]
        self.topics = [*self.lasting_topics(), *self.fleeting]
        self.admin = AdminClient(self, "admin", Random(master.random()))
        self.clients: list[ClusterClient] = []
        self.producers: list[Producer] = []
        self.careless: list[CarelessProducer] = []
        self.consumers: list[Consumer] = []
        self.committers: list[Committer] = []
        self.client_rng = Random(master.random())
        self.faults = self.new_faults(Random(master.random()))

    def _build(self, rng: Random) -> dict[int, Machine]:
        """Build nodes with both roles, or three controllers and separate brokers."""
        count = rng.choice(self.size.nodes)
        apart = count >= 5 and rng.random() < 0.4
        ids = list(range(1, count + 1))
        roles = {
            node_id: "broker,controller" if not apart else "controller" if node_id <= 3 else "broker" for node_id in ids
        }
        if apart:
            for extra in (count + 1,):
                roles[extra] = "broker"
        voters = ",".join(f"{i}@n{i}:{CONTROLLER_PORT}" for i, role in roles.items() if "controller" in role)
        brokers = sum("broker" in role for role in roles.values())
        properties = {"controller.quorum.voters": voters, **_properties(rng, min(3, brokers), self.is_synced)}
        properties |= self.more_properties(rng)
        if rng.random() < 0.3:
            properties["replica.selector.class"] = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
        return {
            node_id: self.new_machine(
                node_id, role, {**properties, "broker.rack": rng.choice(RACKS)}, Random(rng.random())
            )
            for node_id, role in roles.items()
        }

    # --- hooks for other kinds of runs ----------------------------------------------------------------------------

    def new_machine(self, node_id: int, roles: str, properties: dict[str, str], rng: Random) -> Machine:
        return Machine(self, node_id, roles, properties, rng)

    def new_faults(self, rng: Random) -> Faults:
        return Faults(self, rng)

    def lasting_topics(self) -> list[str]:
        return [f"topic-{number}" for number in range(self.size.topics)]

    def more_properties(self, rng: Random) -> dict[str, str]:
        """Settings of every node."""
        return {}

    def topic_configs(self, name: str) -> dict[str, str]:
        return {}

    def new_ledger(self, topic: str, partition: int) -> Ledger:
        return Ledger(f"{topic}-{partition}", self.violated)

    # --- what happens on machines ---------------------------------------------------------------------------------

    def process_ends(self, machine: Machine) -> None:
        self.audit.process_ended(machine.node_id)

    def node_leads_quorum(self, node_id: int, epoch: int) -> None:
        self.audit.quorum_leads(node_id, epoch)

    def cleaning_begins(self, machine: Machine) -> None:
        """Let the audit read the records first."""
        self.audit.check()
        self.faults.log_is_cleaned(machine)

    def disk_stops_node(self, machine: Machine) -> None:
        self.faults.count("a node stops because of its disk", machine.host)

    def power_fails(self, machine: Machine) -> None:
        self.faults.power_fails(machine, "during a write")

    def check(self) -> None:
        self.newest_image()
        self.audit.check()

    def newest_image(self) -> MetadataImage:
        """Return the newest image of all nodes."""
        for machine in self.machines.values():
            if machine.assembly is not None and machine.assembly.current.image.offset > self.image.offset:
                self.image = machine.assembly.current.image
        return self.image

    # --- a run ----------------------------------------------------------------------------------------------------

    def run(self) -> Report:
        with ExitStack() as patches:
            if self.seed % 2:
                for module in (apply, active):
                    patches.enter_context(patch.object(module, "ITEMS_A_TURN", FEW_RECORDS_A_TURN))
            return self._run()

    def _run(self) -> Report:
        for machine in self.machines.values():
            machine.start_after_ms(self.rng.randint(0, 300))
        self._until(START_MAX_MS, self._why_not_serving, "the cluster does not start")
        self.populate()
        self._until(START_MAX_MS, self.why_not_settled, "the clients cannot work")
        self.faults.begin()
        self._let_pass(self.size.chaos_ms)
        self.faults.end()
        self._until(RECOVERY_MAX_MS, self._why_not_recovered, "the cluster does not recover")
        why_not_used = self.use()
        self._until(RECOVERY_MAX_MS, why_not_used, "the cluster does not become available")
        self.stop_clients()
        self._until(DRAIN_MAX_MS, self.why_not_drained, "not everything is written, replicated and read")
        self.judge()
        self.fail()
        return self.report()

    def use(self) -> Callable[[], str]:
        """Return a check that new records and commits are acknowledged from now on; it returns what is missing."""
        acknowledged = {place: ledger.acknowledged for place, ledger in self.audit.ledgers.items()}
        commits = {committer.name: committer.commits for committer in self.committers}
        return lambda: self._why_not_used(acknowledged, commits)

    def stop_clients(self) -> None:
        """Stop the clients; they finish what they have begun."""
        for producer in self.producers:
            producer.is_over = True
        for careless in self.careless:
            careless.is_over = True

    def judge(self) -> None:
        """Make checks that are possible only at the end."""

    def report(self) -> Report:
        return Report(
            self.seed,
            self.digest,
            self.elapsed_ms,
            len(self.machines),
            sum(machine.starts for machine in self.machines.values()),
            sum(ledger.acknowledged for ledger in self.audit.ledgers.values()),
            sum(committer.commits for committer in self.committers),
            self.audit.batches,
            self.faults.counts,
        )

    def populate(self) -> None:
        rng, size = self.client_rng, self.size
        self.clients.append(self.admin)
        for name in self.topics:
            self.admin.create(name, 1 if name in self.fleeting else rng.randint(1, 3))
            for number in range(size.producers if name not in self.fleeting else 1):
                gap_ms = rng.randint(size.gap_ms // 2, size.gap_ms * 2)
                self.producers.append(Producer(self, f"p{number}-{name}", name, Random(rng.random()), gap_ms))
            self.consumers.append(Consumer(self, f"c-{name}", name, Random(rng.random())))
        self.careless.append(CarelessProducer(self, "careless", self.topics[0], Random(rng.random()), 4 * size.gap_ms))
        for number in range(2):
            name = f"g{number}"
            self.committers.append(Committer(self, name, self.topics[0], Random(rng.random()), 3 * size.gap_ms))
        self.clients += [*self.producers, *self.careless, *self.consumers, *self.committers]

    # --- checks without faults; each returns the reason, or "" ------------------------------------------------------

    def _why_not_serving(self) -> str:
        for machine in self.machines.values():
            if not machine.is_well:
                return f"{machine.host} does not serve"
        return ""

    def why_not_settled(self) -> str:
        for name in self.topics:
            if name not in self.image.topics:
                return f"{name} does not exist"
        for committer in self.committers:
            if not committer.commits:
                return f"{committer.name} has committed nothing"
        for producer in self.producers:
            if not producer.lanes:
                return f"{producer.name} knows no partition"
        return ""

    def _why_not_recovered(self) -> str:
        """Check that all nodes serve and that every replica of every partition is in sync."""
        if why := self._why_not_serving():
            return why
        if sum(machine.leads_quorum() for machine in self.machines.values()) != 1:
            return "the quorum has no leader, or several"
        for machine in self.machines.values():
            assert machine.assembly is not None
            if machine.assembly.current.image.offset < self.image.offset - 2:
                return f"{machine.host} has not applied the newest metadata"
        for name, topic in self.image.topics.items():
            for index, state in enumerate(topic.partitions):
                if state.leader < 0 or sorted(state.isr) != sorted(state.replicas) or state.adding_replicas:
                    return f"{name}-{index} is led by {state.leader}, in sync are {state.isr} of {state.replicas}"
        return ""

    def _why_not_used(self, acknowledged: dict[tuple[bytes, int], int], commits: dict[str, int]) -> str:
        for name, topic in self.image.topics.items():
            for index in range(len(topic.partitions) if name in self.topics else 0):
                ledger = self.audit.ledger(topic.id, index)
                if ledger.acknowledged <= acknowledged.get((topic.id, index), 0):
                    return f"nothing new is acknowledged in {ledger.name}"
        return self.why_no_commits(commits)

    def why_no_commits(self, commits: dict[str, int]) -> str:
        for committer in self.committers:
            if committer.commits <= commits[committer.name]:
                return f"{committer.name} commits nothing"
        return ""

    def why_not_drained(self) -> str:
        """Check that everything is acknowledged, committed on every replica, and read."""
        for producer in self.producers:
            if not producer.is_idle and producer.topic_id in self.image.topic_names:
                return f"{producer.name} has unacknowledged records"
        if why := self.audit.unread():
            return why
        for consumer in self.consumers:
            for place in consumer.places.values():
                end = self.audit.ledger(place.topic_id, place.partition).end
                if place.topic_id in self.image.topic_names and place.position < end:
                    return f"{consumer.name} has read {place.partition} up to {place.position} of {end}"
        return self.why_replicas_differ()

    def why_replicas_differ(self) -> str:
        for machine in self.machines.values():
            for partition in machine.partitions():
                if partition.name.topic in self.topics:
                    end = self.audit.ledger(partition.topic_id, partition.name.partition).end
                    if not partition.high_watermark == partition.log.end_offset == end:
                        return (
                            f"{partition.name} on {machine.host} has log end {partition.log.end_offset} and high "
                            f"watermark {partition.high_watermark}; both should be {end}"
                        )
        return ""


def _properties(rng: Random, replication_factor: int, is_synced: bool) -> dict[str, str]:
    heartbeat_ms = rng.choice([200, 400])
    properties = {
        "broker.heartbeat.interval.ms": heartbeat_ms,
        "broker.session.timeout.ms": heartbeat_ms * rng.choice([5, 8]),
        "controller.quorum.election.timeout.ms": rng.choice([400, 600]),
        "controller.quorum.fetch.timeout.ms": rng.choice([800, 1_200]),
        "controller.quorum.election.backoff.max.ms": 200,
        "controller.quorum.request.timeout.ms": 1_000,
        "replica.lag.time.max.ms": rng.choice([2_000, 4_000]),
        "replica.fetch.wait.max.ms": 400,
        "replica.fetch.backoff.ms": 200,
        "replica.socket.timeout.ms": 1_500,
        "replica.high.watermark.checkpoint.interval.ms": 2_000,
        "leader.imbalance.check.interval.seconds": rng.choice([3, 10, 300]),
        "metadata.log.max.record.bytes.between.snapshots": rng.choice([2_000, 8_000, 20_971_520]),
        "offsets.topic.replication.factor": replication_factor,
        "offsets.topic.num.partitions": 2,
        "default.replication.factor": replication_factor,
        "min.insync.replicas": 2,
        "group.initial.rebalance.delay.ms": 0,
        "auto.create.topics.enable": "false",
    }
    if is_synced:
        properties["log.flush.interval.messages"] = 1
    return {name: str(value) for name, value in properties.items()}
