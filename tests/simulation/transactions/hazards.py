"""Additional faults in half of the transaction runs: topics are deleted and recreated, also while markers are due;
records are deleted, also within transactions; producer ids run out of epochs.

They have random numbers of their own, so that the other runs stay the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any
from unittest import mock

from cluster.admin import AdminClient, deleted, deletion
from cluster.consumers import TRY_AGAIN

from moldau.base.errors import ErrorCode
from moldau.coordinator.transaction import initializing
from moldau.coordinator.transaction.transaction import PREPARED, PRODUCER_EPOCH_MAX, State, Transaction
from moldau.wire.apis import ApiKey

if TYPE_CHECKING:
    from machines.machine import Machine

    from transactions.world import TransactionsWorld

LOOK_MS = 20
TOPIC_GAP_MS = 3_000
RECORDS_GAP_MS = 1_500
LONG_LOOKS = 3
"""Number of checks in a row after which markers count as late."""
SHARE_OF_LOOKS = 0.1
"""Share of such checks at which the topic is deleted."""
EPOCHS_LEFT_MAX = 8


class Hazards:
    """Which of these faults a run has; the other runs draw no random numbers for them."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(f"hazards of {seed}")
        is_one = seed % 4 >= 2
        chosen = self.rng.sample(range(3), self.rng.randint(1, 3)) if is_one else []
        self.deletes_topics, self.deletes_records, self.uses_up_epochs = (kind in chosen for kind in range(3))
        self._seed = seed

    @contextmanager
    def few_epochs_left(self) -> Iterator[None]:
        """Give new producers almost no epochs left, as if they had run for years."""
        original = initializing.create

        def aged(transactional_id: str, *rest: Any) -> Transaction:
            left = Random(f"epochs of {transactional_id} in {self._seed}").randint(1, EPOCHS_LEFT_MAX)
            return replace(original(transactional_id, *rest), producer_epoch=PRODUCER_EPOCH_MAX - left)

        if not self.uses_up_epochs:
            yield
            return
        with mock.patch.object(initializing, "create", aged):
            yield


def transactions_of(machine: Machine) -> Iterator[Transaction]:
    """Yield the transactions that a node coordinates."""
    if machine.assembly is not None and machine.assembly.broker_side is not None:
        for each in machine.assembly.broker_side.transactions.shards.machines():
            yield from each.transactions.values()


def unfinished_transaction(machine: Machine) -> str:
    """Name a transaction that has not ended; return "" if all have."""
    for each in transactions_of(machine):
        if each.state is State.ONGOING or each.state in PREPARED:
            return f"{each.transactional_id} is in {each.state.title} on {machine.host}"
    return ""


class Eraser(AdminClient):
    """An administrator that deletes topics and records in use."""

    world: TransactionsWorld

    def __init__(self, world: TransactionsWorld, name: str, rng: Random) -> None:
        super().__init__(world, name, rng)
        self._looks: dict[tuple[str, str], int] = {}
        """For how many checks in a row markers were due."""

    def begin(self, hazards: Hazards) -> None:
        """Begin as soon as faults are injected."""
        if self.world.faults.is_over:
            self.later(LOOK_MS, lambda: self.begin(hazards))
            return
        if hazards.deletes_topics:
            self._again(TOPIC_GAP_MS, self._change_topic)
            self._look()
        if hazards.deletes_records:
            self._again(RECORDS_GAP_MS, self._delete_records)

    def _again(self, mean_ms: int, act: Callable[[], None]) -> None:
        """Repeat `act` at random intervals until the faults end."""

        def do() -> None:
            if not self.world.faults.is_over:
                self._again(mean_ms, act)
                act()

        self.later(1 + int(self.rng.expovariate(1) * mean_ms), do)

    # --- topics ---------------------------------------------------------------------------------------------------

    def _change_topic(self) -> None:
        self.world.faults.count("a topic of transactions is created or deleted")
        self.create_or_delete_topic()

    def _look(self) -> None:
        """Look for transactions that wait for markers in a topic that may be deleted."""
        if self.world.faults.is_over:
            return
        self.later(LOOK_MS, self._look)
        due = self._due()
        self._looks = {place: self._looks.get(place, 0) + 1 for place in due}
        long = [topic for (_, topic), looks in self._looks.items() if looks >= LONG_LOOKS]
        if long and self.rng.random() < SHARE_OF_LOOKS:
            topic = self.world.image.topics[self.rng.choice(long)]
            self.world.faults.count("a topic is deleted while markers are due", topic.name)
            self.delete(topic)

    def _due(self) -> list[tuple[str, str]]:
        """Return transactional ids, and the topics to which their markers are due."""
        return sorted(
            {
                (each.transactional_id, partition.topic)
                for machine in self.world.machines.values()
                for each in transactions_of(machine)
                if each.state in PREPARED
                for partition in each.partitions
                if self.world.may_be_deleted(partition.topic) and partition.topic in self.world.image.topics
            }
        )

    # --- records --------------------------------------------------------------------------------------------------

    def _delete_records(self) -> None:
        name = self.rng.choice(self.world.accounts)
        topic = self.world.image.topics.get(name)
        if topic is None:
            return
        index = self.rng.randrange(len(topic.partitions))
        ledger = self.world.transactional_ledger(topic.id, index)
        # Keep a record of each non-transactional producer: brokers without any accept every sequence.
        limit = ledger.last_plain_offset()
        offsets = [offset for part in ledger.parts for offset in part.offsets if ledger.start <= offset < limit]
        if not offsets:
            return
        # Mostly into the middle of a transaction; the audit has seen all deleted records.
        offset = self.rng.choice(offsets) + self.rng.randint(0, 1)
        leader = topic.partitions[index].leader
        if leader not in self.brokers:
            return
        self.world.faults.count("records are deleted", f"{ledger.name} below {offset}")
        ledger.delete_below(offset)
        request = deletion(name, index, offset)
        what = f"deletes {ledger.name} below {offset}"
        self.ask(leader, ApiKey.DELETE_RECORDS, 2, request, lambda reply: self._deleted(what, offset, reply), "admin")

    def _deleted(self, what: str, offset: int, reply: Any) -> None:
        code, start = deleted(reply)
        self.trace_result(what, code)
        # A leader may not know yet that all in-sync replicas have these records.
        if code not in TRY_AGAIN and code not in (ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE):
            self.world.violated(f"{self.name} {what}: {code.name}")
        if code is ErrorCode.NONE and start < offset:
            self.world.violated(f"{self.name} {what}: no error, but the log start offset is {start}")
