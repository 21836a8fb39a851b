"""A cluster with compacted topics and a cleaner on every node that hardly rests, and clients who use them as tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

import cluster_world
import transactions_world
from cluster_ledger import Ledger
from compaction_clients import KeyedProducer, KeyedTransactionalProducer, TableReader
from compaction_ledger import CompactedLedger

SIZES = cluster_world.SIZES
SMALL = cluster_world.SMALL


@dataclass(slots=True)
class Report(cluster_world.Report):
    rounds: int
    gone: int
    readings: int

    @staticmethod
    def shown(reports: Sequence[Report]) -> str:
        told = cluster_world.Report.shown(reports)
        return (
            f"{told}; {sum(each.rounds for each in reports):,} rounds of cleaning took away "
            f"{sum(each.gone for each in reports):,} records; tables were read "
            f"{sum(each.readings for each in reports):,} times"
        )


class CompactionWorld(transactions_world.TransactionsWorld):
    kind = "compaction"

    def __init__(self, seed: int, size: cluster_world.Size = SMALL, tail: int = cluster_world.TAIL) -> None:
        self.tables: list[TableReader] = []
        self.is_no_replica_away_for_longer = seed % 2 == 0
        """Than tombstones are kept. A replica that was would have values that others have forgotten, as with Kafka."""
        self.delete_retention_ms = 20_000 if self.is_no_replica_away_for_longer else 3_000
        super().__init__(seed, size, tail)

    def lasting_topics(self) -> list[str]:
        return [f"table-{number}" for number in range(self.size.topics)]

    def topic_configs(self, name: str) -> dict[str, str]:
        if name in self.fleeting:
            return {}
        return {
            "cleanup.policy": "compact",
            "delete.retention.ms": str(self.delete_retention_ms),
            "min.cleanable.dirty.ratio": "0.01",
            "segment.ms": "700",
        }

    def new_ledger(self, topic: str, partition: int) -> Ledger:
        if topic in self.lasting_topics():
            return CompactedLedger(f"{topic}-{partition}", self.violated)
        return super().new_ledger(topic, partition)

    def populate(self) -> None:
        rng, size = self.client_rng, self.size
        self.clients.append(self.admin)
        for name in self.topics:
            self.admin.create(name, 1 if name in self.fleeting else rng.randint(1, 2))
        for name in self.lasting_topics():
            for number in range(2):
                gap_ms = rng.randint(size.gap_ms, size.gap_ms * 2)
                self.producers.append(KeyedProducer(self, f"k{number}-{name}", name, Random(rng.random()), gap_ms))
            for number in range(2):
                self.tables.append(TableReader(self, f"t{number}-{name}", name, Random(rng.random())))
        for number in range(size.producers // 2):
            self.seat(f"x{number}", self.lasting_topics(), KeyedTransactionalProducer)
        self.clients += [*self.producers, *self.tables]

    def use(self) -> Callable[[], str]:
        is_used = super().use()
        rounds = self.audit.cleanings.rounds
        if self.faults.counts["a clock jumps"]:
            # A segment that begins with a marker from the future is not closed before that has come.
            return is_used
        return lambda: is_used() or ("" if self.audit.cleanings.rounds > rounds else "no log is cleaned")

    def is_drained(self) -> str:
        if why := super().is_drained():
            return why
        for table in self.tables:
            if not table.readings:
                return f"{table.name} was never read whole"
        return ""

    def judge_processed(self) -> None:
        """Nothing is processed here."""

    def report(self) -> Report:
        told = cluster_world.World.report(self)
        cleanings = self.audit.cleanings
        return Report(
            told.seed,
            told.digest,
            told.virtual_ms,
            told.nodes,
            told.lives,
            told.acknowledged,
            told.commits,
            told.batches,
            told.faults,
            cleanings.rounds,
            cleanings.gone,
            sum(table.readings for table in self.tables),
        )


World = CompactionWorld
