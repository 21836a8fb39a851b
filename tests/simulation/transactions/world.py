"""A cluster with clients that write, process and read in transactions while faults are injected.

Everything that must hold of a cluster must hold here too; besides, at the end every transaction has ended, as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from cluster import world as cluster_world
from cluster.consumers import Consumer
from cluster.ledger import Ledger
from cluster.producers import Producer
from compaction.ledger import CompactedLedger
from machines.world import TAIL

from moldau.base.ids import Uuid
from moldau.base.topic_names import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from moldau.runtime.coordinators.topic import java_hash
from transactions.hazards import Eraser, Hazards, unfinished_transaction
from transactions.history import Fate, History
from transactions.id_owner import Callback, IdOwner
from transactions.ledger import FleetingLedger, TransactionalLedger
from transactions.processor import INPUT, OUTPUT, Processor
from transactions.producer import TransactionalProducer
from transactions.reader import CommittedReader, LateReader, Session
from transactions.state import StateLedger, Successions

SMALL = cluster_world.SMALL
GAP_MS = 250


@dataclass(slots=True)
class Report(cluster_world.Report):
    fates: dict[str, int]
    processed: int

    @staticmethod
    def shown(reports: Sequence[Report]) -> str:
        report = cluster_world.Report.shown(reports)
        fates = {fate: sum(each.fates[fate.name] for each in reports) for fate in Fate}
        counts = ", ".join(f"{count:,} {fate.value}" for fate, count in fates.items())
        return f"{report}; transactions: {counts}; {sum(each.processed for each in reports):,} records processed"


class TransactionsWorld(cluster_world.ClusterWorld):
    kind = "transactions"

    def __init__(self, seed: int, size: cluster_world.Size = SMALL, tail: int = TAIL) -> None:
        self.history = History(self.violated)
        self.id_owners: list[IdOwner] = []
        self.readers: list[CommittedReader] = []
        self.outputs = 1
        """Number of output partitions that are written to, even if more are added."""
        self.processed = 0
        self.accounts: list[str] = []
        self.doomed: list[str] = []
        """Topics that will be deleted and not recreated."""
        self.hazards = Hazards(seed)
        self._successions: Successions = {}
        super().__init__(seed, size, tail)

    def lasting_topics(self) -> list[str]:
        return [*(f"accounts-{number}" for number in range(self.size.topics + 1)), INPUT, OUTPUT]

    def more_properties(self, rng: Random) -> dict[str, str]:
        factor = "3"
        return {
            "transaction.state.log.num.partitions": "2",
            "transaction.state.log.replication.factor": factor,
            "transaction.state.log.min.isr": "2",
            "log.roll.ms": str(rng.choice([1_000, 3_000])),
            "log.segment.delete.delay.ms": "1000",
            "log.cleaner.backoff.ms": str(rng.choice([150, 600])),
            "log.cleaner.min.cleanable.ratio": str(rng.choice([0.0, 0.2])),
            "log.cleaner.delete.retention.ms": "3000",
            "log.cleaner.dedupe.buffer.size": str(2 << 20),
        }

    def new_ledger(self, topic: str, partition: int) -> Ledger:
        name = f"{topic}-{partition}"
        if topic == TRANSACTION_STATE_TOPIC:
            return StateLedger(name, self.violated, self._successions, self._on_new_producer_id)
        if topic.startswith("__"):
            return CompactedLedger(name, self.violated)
        return (TransactionalLedger if topic in self.lasting_topics() else FleetingLedger)(name, self.violated)

    def _on_new_producer_id(self, transactional_id: str) -> None:
        self.faults.count("a producer id runs out of epochs", transactional_id)

    def producer_ids_of(self, transactional_id: str) -> list[int]:
        """Return its producer ids, one after the other, as far as they are committed."""
        self.audit.check()
        return self._successions.get(transactional_id, [])

    def transactional_ledger(self, topic_id: Uuid, partition: int) -> TransactionalLedger:
        ledger = self.audit.ledger(topic_id, partition)
        assert isinstance(ledger, TransactionalLedger)
        return ledger

    def coordinates(self, group_id: str, node_id: int) -> bool:
        """Whether a node coordinates the group, by the newest image."""
        topic = self.newest_image().topics.get(CONSUMER_OFFSETS_TOPIC)
        if topic is None:
            return False
        return bool(topic.partitions[java_hash(group_id) % len(topic.partitions)].leader == node_id)

    def run(self) -> cluster_world.Report:
        with self.hazards.few_epochs_left():
            return super().run()

    def may_be_deleted(self, topic: str) -> bool:
        return topic in self.fleeting or topic in self.doomed

    # --- clients --------------------------------------------------------------------------------------------------

    def populate(self) -> None:
        rng, size = self.client_rng, self.size
        self.clients.append(self.admin)
        if self.hazards.deletes_topics:
            self.doomed = ["doomed"]
            self.topics += self.doomed
        for name in self.topics:
            count = 1 if self.may_be_deleted(name) else rng.randint(1, 3)
            self.admin.create(name, count)
            if name == OUTPUT:
                self.outputs = count
        accounts = self.accounts = [name for name in self.topics if name.startswith("accounts")]
        others = [*self.fleeting, *self.doomed] if self.hazards.deletes_topics else []
        for number in range(size.producers):
            self.add_id_owner(f"x{number}", [*accounts, *others], TransactionalProducer)
        self.add_id_owner("feeder", [INPUT], TransactionalProducer)
        self.producers.append(Producer(self, f"p-{INPUT}", INPUT, Random(rng.random()), 2 * size.gap_ms))
        self.producers.append(Producer(self, f"p-{accounts[0]}", accounts[0], Random(rng.random()), 4 * size.gap_ms))
        self.add_id_owner("processor", [INPUT, OUTPUT], Processor)
        for name in [*accounts, OUTPUT, INPUT]:
            self.readers.append(CommittedReader(self, f"rc-{name}", name, Random(rng.random())))
        self.consumers.append(Consumer(self, f"ru-{accounts[0]}", accounts[0], Random(rng.random())))
        self._add_hazards()
        self.clients += [*self.producers, *self.readers, *self.consumers]

    def _add_hazards(self) -> None:
        rng = self.hazards.rng
        if self.hazards.deletes_topics:
            for name in (*self.fleeting, *self.doomed):
                self.readers.append(CommittedReader(self, f"rc-{name}", name, Random(rng.random())))
        if self.hazards.deletes_records:
            self.readers += [LateReader(self, f"late-{name}", name, Random(rng.random())) for name in self.accounts]
        if self.hazards.deletes_topics or self.hazards.deletes_records:
            eraser = Eraser(self, "eraser", Random(rng.random()))
            self.clients.append(eraser)
            eraser.begin(self.hazards)

    def add_id_owner(self, name: str, topics: list[str], kind: type[TransactionalProducer]) -> None:
        rng = self.client_rng
        gap_ms = rng.randint(GAP_MS // 2, GAP_MS * 2)

        def make(
            name: str, transactional_id: str, rng: Random, on_initialized: Callback, on_ended: Callback
        ) -> TransactionalProducer:
            return kind(self, name, transactional_id, topics, rng, gap_ms, on_initialized, on_ended)

        self.id_owners.append(IdOwner(self, name, Random(rng.random()), make, may_change_id=kind is not Processor))

    # --- checks ---------------------------------------------------------------------------------------------------

    def why_not_settled(self) -> str:
        for name in self.topics:
            if name not in self.image.topics:
                return f"{name} does not exist"
        if not self.history.count(Fate.COMMITTED):
            return "no transaction was committed"
        return ""

    def use(self) -> Callable[[], str]:
        before = {owner.transactional_id: self._committed_of(owner) for owner in self.id_owners}

        def why_not_used() -> str:
            for owner in self.id_owners:
                if self._committed_of(owner) <= before[owner.transactional_id]:
                    return f"{owner.transactional_id} commits nothing"
            return ""

        return why_not_used

    def _committed_of(self, owner: IdOwner) -> int:
        mine = f"{owner.transactional_id}."
        return sum(
            each.fate is Fate.COMMITTED for each in self.history.transactions.values() if each.name.startswith(mine)
        )

    def stop_clients(self) -> None:
        super().stop_clients()
        for owner in self.id_owners:
            owner.stop()

    def why_not_drained(self) -> str:
        for owner in self.id_owners:
            if not owner.is_idle:
                return f"{owner.transactional_id} has an unfinished transaction"
        if why := super().why_not_drained() or self._why_transactions_are_open():
            return why
        for reader in self.readers:
            for place in reader.places.values():
                end = self.audit.ledger(place.topic_id, place.partition).end
                if place.topic_id in self.image.topic_names and place.position < end:
                    return f"{reader.name} has read {place.partition} up to {place.position} of {end}"
        return ""

    def _why_transactions_are_open(self) -> str:
        for machine in self.machines.values():
            if why := unfinished_transaction(machine):
                return why
            for each in machine.partitions():
                hanging = each.log.producers.oldest_open_transaction
                if hanging is not None:
                    return f"a transaction is open in {each.name} on {machine.host} since {hanging}"
        return ""

    # --- the report -----------------------------------------------------------------------------------------------

    def judge(self) -> None:
        ledgers = {
            name: self.transactional_ledger(*name) for name in self.audit.ledgers if name[0] in self.image.topic_names
        }
        for ledger in ledgers.values():
            ledger.judge_claims()
        self.history.judge(ledgers)
        committed = {place: ledger.committed() for place, ledger in ledgers.items()}
        for reader in self.readers:
            for session in reader.sessions:
                place = (session.topic_id, session.partition)
                if place in ledgers and session.given != session.part_of(committed[place]):
                    self.violated(
                        f"{reader.name} read from {ledgers[place].name} {_difference(session, committed[place])}"
                    )
        self.judge_processed()

    def _ledgers_of(self, topic: str) -> list[TransactionalLedger]:
        image = self.image.topics[topic]
        return [self.transactional_ledger(image.id, index) for index in range(len(image.partitions))]

    def judge_processed(self) -> None:
        """Check that every input record became one output record, in order; the last ones may still be missing."""
        processed: dict[int, list[int]] = {}
        for ledger in self._ledgers_of(OUTPUT):
            for _, value in ledger.committed():
                source, _, offset = value.decode().partition(";")[2].partition("@")
                processed.setdefault(int(source), []).append(int(offset))
        self.processed = sum(map(len, processed.values()))
        for index, ledger in enumerate(self._ledgers_of(INPUT)):
            given = [offset for offset, _ in ledger.committed()]
            made = processed.get(index, [])
            if made != given[: len(made)]:
                wrong = next(place for place, offset in enumerate(made) if given[place : place + 1] != [offset])
                around = slice(max(wrong - 1, 0), wrong + 3)
                self.violated(f"the output has {made[around]} of {ledger.name} where the input has {given[around]}")

    def report(self) -> Report:
        report = super().report()
        fates = {fate.name: self.history.count(fate) for fate in Fate}
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
            fates,
            self.processed,
        )


def _difference(session: Session, committed: list[tuple[int, bytes]]) -> str:
    wanted = session.part_of(committed)
    for got, right in zip(session.given, wanted, strict=False):
        if got != right:
            return f"{got} where {right} should follow"
    return f"{len(session.given)} records from {session.begin} to {session.end}, {len(wanted)} are committed"
