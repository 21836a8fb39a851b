"""A cluster with compacted topics, a cleaner on every node that runs almost all the time, and clients that use the
topics as tables.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from cluster import world as cluster_world
from cluster.ledger import Ledger
from machines.machine import Machine
from machines.process import Process, ProcessTimers
from machines.world import TAIL
from transactions import world as transactions_world

from compaction.admin import TableAdmin
from compaction.clients import CLOCK_JUMPS, KeyedProducer, KeyedTransactionalProducer, TableReader
from compaction.ledger import CompactedLedger
from compaction.retention import RetentionWatch
from compaction.swaps import SlowTurns, SwapFaults

SMALL = cluster_world.SMALL


@dataclass(slots=True)
class Report(cluster_world.Report):
    rounds: int
    removed: int
    readings: int
    expired: int

    @staticmethod
    def shown(reports: Sequence[Report]) -> str:
        report = cluster_world.Report.shown(reports)
        return (
            f"{report}; {sum(each.rounds for each in reports):,} rounds of cleaning removed "
            f"{sum(each.removed for each in reports):,} records; tables were read "
            f"{sum(each.readings for each in reports):,} times; "
            f"{sum(each.expired for each in reports):,} segments removed by retention"
        )


class CompactionWorld(transactions_world.TransactionsWorld):
    kind = "compaction"

    def __init__(self, seed: int, size: cluster_world.Size = SMALL, tail: int = TAIL) -> None:
        self.tables: list[TableReader] = []
        self.delete_retention_ms = 3_000 if seed % 2 else 20_000
        """Replicas are down for longer than the shorter of these."""
        self.has_retention = seed % 4 >= 2
        """Whether tables also have retention; then they are cleaned in many small segments."""
        self.table_rng = Random(f"tables of {seed}")
        super().__init__(seed, size, tail)
        if self.has_retention:
            self.audit.cleanings = RetentionWatch(self, self.audit.ledger)
        self.table_admin: TableAdmin | None = None

    def lasting_topics(self) -> list[str]:
        return [f"table-{number}" for number in range(self.size.topics)]

    def more_properties(self, rng: Random) -> dict[str, str]:
        properties = super().more_properties(rng)
        return properties | {"log.retention.check.interval.ms": "1000"} if self.has_retention else properties

    def topic_configs(self, name: str) -> dict[str, str]:
        if self.has_retention:
            return self._retained_configs()
        if name in self.fleeting:
            return {}
        return {
            "cleanup.policy": "compact",
            "delete.retention.ms": str(self.delete_retention_ms),
            "min.cleanable.dirty.ratio": "0.01",
            "segment.ms": "700",
        }

    def _retained_configs(self) -> dict[str, str]:
        rng = self.table_rng
        return {
            "cleanup.policy": "compact,delete",
            "delete.retention.ms": str(self.delete_retention_ms),
            "min.cleanable.dirty.ratio": "0.01",
            "segment.ms": rng.choice(["300", "700"]),
            # The index limits a segment to a few batches, also after cleaning.
            "segment.index.bytes": rng.choice(["48", "96"]),
            "index.interval.bytes": "100",
            "retention.ms": rng.choice(["9000", "20000", "-1"]),
            "retention.bytes": rng.choice(["-1", "3000", "6000"]),
        }

    def timers_of(self, machine: Machine, process: Process) -> ProcessTimers:
        if self.has_retention:
            return SlowTurns(self, machine, process, self.table_rng)
        return super().timers_of(machine, process)

    def new_ledger(self, topic: str, partition: int) -> Ledger:
        if topic in self.lasting_topics() or (self.has_retention and topic in self.fleeting):
            return CompactedLedger(f"{topic}-{partition}", self.violated)
        return super().new_ledger(topic, partition)

    def processes_ended(self) -> int:
        """Return how many processes have ended so far."""
        return sum(machine.starts + (machine.process is None) for machine in self.machines.values())

    def run(self) -> cluster_world.Report:
        if not isinstance(self.audit.cleanings, RetentionWatch):
            return super().run()
        self.table_admin = TableAdmin(self, "table-admin", Random(self.table_rng.random()))
        swap_faults = SwapFaults(self, self.table_admin, Random(self.table_rng.random()))
        with self.audit.cleanings.watching(), swap_faults.watching():
            return super().run()

    def populate(self) -> None:
        rng, size = self.client_rng, self.size
        self.clients.append(self.admin)
        for name in self.topics:
            self.admin.create(name, 1 if name in self.fleeting else rng.randint(1, 2))
        for name in self.topics if self.has_retention else self.lasting_topics():
            for number in range(2):
                gap_ms = rng.randint(size.gap_ms, size.gap_ms * 2)
                self.producers.append(KeyedProducer(self, f"k{number}-{name}", name, Random(rng.random()), gap_ms))
            for number in range(2 if name not in self.fleeting else 1):
                self.tables.append(TableReader(self, f"t{number}-{name}", name, Random(rng.random())))
        for number in range(size.producers // 2):
            self.add_id_owner(f"x{number}", self.lasting_topics(), KeyedTransactionalProducer)
        self.clients += [*self.producers, *self.tables]
        if self.table_admin is not None:
            self.clients.append(self.table_admin)

    def use(self) -> Callable[[], str]:
        why_not_used = super().use()
        if self.table_admin is not None:
            self.table_admin.settle()
        rounds = self.audit.cleanings.rounds
        return lambda: why_not_used() or self._why_not_cleaned(rounds) or self._why_not_trimmed()

    def _why_not_cleaned(self, rounds: int) -> str:
        if self.faults.counts[CLOCK_JUMPS]:
            # A segment that begins with a marker from the future is not closed before that time.
            return ""
        return "" if self.audit.cleanings.rounds > rounds else "no log is cleaned"

    def _why_not_trimmed(self) -> str:
        if self.table_admin is None or self.table_admin.trimmed.issuperset(self.lasting_topics()):
            return ""
        return "DeleteRecords does not succeed"

    def why_not_drained(self) -> str:
        if why := super().why_not_drained():
            return why
        for table in self.tables:
            if not table.readings and table.topic not in self.fleeting:
                return f"{table.name} was never read to the end"
        return ""

    def why_replicas_differ(self) -> str:
        """Also check that no log starts before that of its leader."""
        if why := super().why_replicas_differ():
            return why
        starts = {
            partition.name: partition.log.start_offset
            for machine in self.machines.values()
            for partition in machine.partitions()
            if partition.is_leader
        }
        for machine in self.machines.values():
            for partition in machine.partitions():
                if partition.log.start_offset < starts.get(partition.name, 0):
                    return f"{machine.host} has {partition.name} from {partition.log.start_offset} on: {starts}"
        return ""

    def judge_processed(self) -> None:
        """Nothing is processed here."""

    def report(self) -> Report:
        report = cluster_world.ClusterWorld.report(self)
        cleanings = self.audit.cleanings
        return Report(
            report.seed,
            report.digest,
            report.virtual_ms,
            report.nodes,
            report.starts,
            report.acknowledged,
            report.commits,
            report.batches,
            report.faults,
            cleanings.rounds,
            cleanings.removed,
            sum(table.readings for table in self.tables),
            cleanings.expired if isinstance(cleanings, RetentionWatch) else 0,
        )
