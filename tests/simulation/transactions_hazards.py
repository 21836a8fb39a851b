"""What befalls transactions besides, in half of the runs: topics are deleted under them and made anew, also while their
markers are due; records are deleted, in the middle of them too; producer ids run out of epochs.

All of it by a chance of its own, so that the other runs stay what they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any
from unittest import mock

from cluster_admin import AdminClient, deleted, deletion
from cluster_consumers import TRY_AGAIN

from moldau.base.errors import ErrorCode
from moldau.coordinator.transaction import initializing
from moldau.coordinator.transaction.transaction import PREPARED, PRODUCER_EPOCH_MAX, State, Transaction
from moldau.wire.apis import ApiKey

if TYPE_CHECKING:
    from cluster_node import Machine
    from transactions_world import TransactionsWorld

LOOK_MS = 20
TOPIC_GAP_MS = 3_000
RECORDS_GAP_MS = 1_500
LONG_LOOKS = 3
"""After so many, markers seem to be late."""
SHARE_OF_LOOKS = 0.1
"""At which such a topic is deleted."""
EPOCHS_LEFT_MAX = 8


class Hazards:
    """Which of them there are in a run. In others nothing is drawn at all."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(f"hazards of {seed}")
        is_one = seed % 4 >= 2
        chosen = self.rng.sample(range(3), self.rng.randint(1, 3)) if is_one else []
        self.deletes_topics, self.deletes_records, self.uses_up_epochs = (kind in chosen for kind in range(3))
        self._seed = seed

    @contextmanager
    def late_epochs(self) -> Iterator[None]:
        """Whoever is new has almost no epochs left, as if it had been there for years: nobody can wait for that."""
        honest = initializing.create

        def aged(transactional_id: str, *rest: Any) -> Transaction:
            left = Random(f"epochs of {transactional_id} in {self._seed}").randint(1, EPOCHS_LEFT_MAX)
            return replace(honest(transactional_id, *rest), producer_epoch=PRODUCER_EPOCH_MAX - left)

        if not self.uses_up_epochs:
            yield
            return
        with mock.patch.object(initializing, "create", aged):
            yield


def transactions_of(machine: Machine) -> Iterator[Transaction]:
    """Those that a node coordinates."""
    if machine.assembly is not None and machine.assembly.broker_side is not None:
        for each in machine.assembly.broker_side.transactions.shards.machines():
            yield from each.transactions.values()


def undecided(machine: Machine) -> str:
    """Which of them has not come to its end; nothing if all have."""
    for each in transactions_of(machine):
        if each.state is State.ONGOING or each.state in PREPARED:
            return f"{each.transactional_id} is in {each.state.title} on {machine.host}"
    return ""


class Eraser(AdminClient):
    """Deletes what others use."""

    world: TransactionsWorld

    def __init__(self, world: TransactionsWorld, name: str, rng: Random) -> None:
        super().__init__(world, name, rng)
        self._looks: dict[tuple[str, str], int] = {}
        """For how many looks on end markers were due."""

    def begin(self, hazards: Hazards) -> None:
        """As soon as chance has its way with the others."""
        if self.world.faults.is_over:
            self.later(LOOK_MS, lambda: self.begin(hazards))
            return
        if hazards.deletes_topics:
            self._again(TOPIC_GAP_MS, self._change_topic)
            self._look()
        if hazards.deletes_records:
            self._again(RECORDS_GAP_MS, self._delete_records)

    def _again(self, mean_ms: int, act: Callable[[], None]) -> None:
        """And again, until it is over."""

        def do() -> None:
            if not self.world.faults.is_over:
                self._again(mean_ms, act)
                act()

        self.later(1 + int(self.rng.expovariate(1) * mean_ms), do)

    # --- topics ---------------------------------------------------------------------------------------------------

    def _change_topic(self) -> None:
        self.world.faults.count("a topic of transactions is deleted or made")
        self.delete_or_make()

    def _look(self) -> None:
        """For transactions that wait for markers in a topic that may go."""
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
        """Transactional ids, and topics to which markers of theirs are due."""
        return sorted(
            {
                (each.transactional_id, partition.topic)
                for machine in self.world.machines.values()
                for each in transactions_of(machine)
                if each.state in PREPARED
                for partition in each.partitions
                if self.world.may_go(partition.topic) and partition.topic in self.world.image.topics
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
        # Something of who writes without transactions stays: for one of whom nothing is left brokers take anything.
        limit = ledger.last_plain_offset()
        offsets = [offset for part in ledger.parts for offset in part.offsets if ledger.start <= offset < limit]
        if not offsets:
            return
        # Mostly into the middle of a transaction; what is deleted was seen by those who judge.
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
        self.told(what, code)
        # A leader may not know yet that all have what others have shown.
        if code not in TRY_AGAIN and code not in (ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE):
            self.world.violated(f"{self.name} {what}: {code.name}")
        if code is ErrorCode.NONE and start < offset:
            self.world.violated(f"{self.name} {what}: all is well, and {start} is the lowest")
