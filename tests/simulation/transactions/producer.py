"""A process that writes transactions to several partitions at once, with several batches in flight, in either version
of the protocol. It retries as real clients do, aborts what cannot be committed, and ends when it is fenced.

Where a real version 1 client would reuse its epoch while a request may still be in flight, this one requests a new
epoch (KIP-360): in version 1 a late request may end or enter the next transaction, and no broker can prevent it.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any

from cluster.consumers import UNKNOWN_TOPIC_ERRORS
from cluster.ledger import name_of
from cluster.scripted import Script

from moldau.base.errors import ErrorCode
from moldau.wire.apis import ApiKey
from moldau.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from moldau.wire.messages.end_txn import EndTxnRequest
from moldau.wire.messages.init_producer_id import InitProducerIdRequest
from moldau.wire.records import NEXT_OFFSET, Record
from transactions.client import EARLY, TRANSACTION, Answered, Place, TransactionalClient
from transactions.history import Fate, Written
from transactions.writing import Lane, Writing

if TYPE_CHECKING:
    from transactions.world import TransactionsWorld

FENCED = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    }
)
ABORTABLE = frozenset({ErrorCode.TRANSACTION_ABORTABLE}) | UNKNOWN_TOPIC_ERRORS
COMMIT_SHARE = 0.75
STALL_SHARE = 0.05
TIMEOUTS_MS = (1_500, 3_000, 6_000)


class Fenced(Exception):
    """Another process has the transactional id by now."""


class Abortable(Exception):
    """This transaction can only be aborted."""


class TransactionalProducer(TransactionalClient):
    def __init__(
        self,
        world: TransactionsWorld,
        name: str,
        transactional_id: str,
        topics: list[str],
        rng: Random,
        gap_ms: int,
        on_initialized: Callable[[TransactionalProducer], None],
        on_ended: Callable[[TransactionalProducer], None],
    ) -> None:
        super().__init__(world, name, topics, rng)
        self._history = world.history
        self.transactional_id = transactional_id
        self.is_v2 = rng.random() < 0.5
        self._timeout_ms = rng.choice(TIMEOUTS_MS)
        self._gap_ms = gap_ms
        self._on_initialized = on_initialized
        self._on_ended = on_ended
        self.producer_id = self.producer_epoch = -1
        self._lanes: dict[Place, Lane] = {}
        self._added: set[str] = set()
        """Names of the partitions in the open transaction."""
        self._number = 0
        self._is_doubtful = False
        """Whether a batch of this epoch may still be in flight."""
        self.is_over = False
        self.is_idle = False
        self.play(self._live())

    # --- the script -----------------------------------------------------------------------------------------------

    def _live(self) -> Script[None]:
        try:
            yield from self._initialize()
            self._on_initialized(self)
            yield from self.resume()
            while not self.is_over:
                if self.routes:
                    yield from self.transact()
                yield self.pause(1 + int(self.rng.expovariate(1) * self._gap_ms))
        except Fenced:
            self.world.trace(f"{self.name} is fenced")
        self.is_idle = True
        self._on_ended(self)

    def resume(self) -> Script[None]:
        """Do what is needed before the first transaction."""
        yield from ()

    def transact(self) -> Script[None]:
        written = self.begin()
        is_good = True
        try:
            for _ in range(self.rng.randint(1, 2)):
                chosen = self.rng.sample(sorted(self.routes), min(self.rng.randint(1, 3), len(self.routes)))
                yield from self.write(written, {place: self._batches(written, place) for place in chosen})
                yield from self.perhaps_stall()
        except Abortable:
            is_good = False
        yield from self.end(written, is_good and self.rng.random() < COMMIT_SHARE)

    def perhaps_stall(self) -> Script[None]:
        """Sometimes pause for longer than the transaction timeout."""
        if self.rng.random() < STALL_SHARE:
            yield self.pause(self._timeout_ms + 500)
        elif self.rng.random() < 0.3:
            yield self.pause(self.rng.randint(1, self._gap_ms))

    def begin(self) -> Written:
        self._number += 1
        self._added.clear()
        return self._history.begin(f"{self.name}.{self._number}")

    def _batches(self, written: Written, place: Place) -> list[list[Record]]:
        where = f"{place[0]}-{place[1]}"
        count = len(written.values.get(where, ()))
        batches = []
        for _ in range(self.rng.randint(1, 3)):
            size = self.rng.randint(1, 3)
            names = [f"{written.name}/{where}/{count + number}".encode() for number in range(size)]
            count += size
            batches.append([self.record(name) for name in names])
        return batches

    def record(self, name: bytes) -> Record:
        return Record(NEXT_OFFSET, self.world.clock.now_ms(), None, name)

    # --- the coordinator ------------------------------------------------------------------------------------------

    def coordinate(
        self,
        what: str,
        api: ApiKey,
        version: int,
        request: Any,
        code_of: Callable[[Any], int],
        early: frozenset[ErrorCode] = EARLY,
    ) -> Script[Any]:
        """Raise `Fenced` or `Abortable` if the request is refused."""
        answered = yield from self.coordinated(
            TRANSACTION, self.transactional_id, what, api, version, request, code_of, early
        )
        self._judge(what, answered)
        return answered.reply

    def _judge(self, what: str, answered: Answered) -> None:
        if answered.code is ErrorCode.NONE:
            if answered.was_replaced and self.producer_id >= 0:
                self.world.violated(f"{self.name} {what} although another process had replaced it before the request")
            return
        if answered.code in ABORTABLE:
            raise Abortable
        self.judge(answered.code, what, FENCED)
        raise Fenced

    def _initialize(self) -> Script[None]:
        """Get a producer id and epoch, or a new epoch if it has one."""
        request = InitProducerIdRequest(self.transactional_id, self._timeout_ms, self.producer_id, self.producer_epoch)
        reply = yield from self.coordinate(
            "gets an epoch", ApiKey.INIT_PRODUCER_ID, 5, request, lambda reply: reply.error_code
        )
        self._take_epoch(reply.producer_id, reply.producer_epoch)

    def _take_epoch(self, producer_id: int, producer_epoch: int) -> None:
        self.world.audit.producer_id_given(self.transactional_id, producer_id)
        self.producer_id, self.producer_epoch = producer_id, producer_epoch
        self._lanes.clear()
        self._is_doubtful = False

    def _add(self, places: list[Place]) -> Script[None]:
        new = [place for place in places if f"{place[0]}-{place[1]}" not in self._added]
        if not new:
            return
        by_topic: dict[str, list[int]] = {}
        for topic, partition in new:
            by_topic.setdefault(topic, []).append(partition)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.producer_epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name, numbers) for name, numbers in by_topic.items()],
        )
        # Do not wait for topics that may never come back.
        early = EARLY - UNKNOWN_TOPIC_ERRORS if any(self.world.may_be_deleted(topic) for topic in by_topic) else EARLY
        yield from self.coordinate("adds partitions", ApiKey.ADD_PARTITIONS_TO_TXN, 3, request, _worst_added, early)
        self._added.update(f"{topic}-{partition}" for topic, partition in new)

    # --- writing and ending ---------------------------------------------------------------------------------------

    def write(self, written: Written, batches: dict[Place, list[list[Record]]]) -> Script[None]:
        if not self.is_v2:
            yield from self._add(list(batches))
        for (topic, partition), given in batches.items():
            values = [name_of(record) for batch in given for record in batch]
            written.values.setdefault(f"{topic}-{partition}", []).extend(values)
            if self.world.may_be_deleted(topic):
                self._note_topic(written, (topic, partition))
            if self.is_v2:
                self._added.add(f"{topic}-{partition}")
        writing = Writing(self, self._lanes, batches)
        code: ErrorCode = yield writing.ask
        if code is not ErrorCode.NONE:
            self._is_doubtful = True
            raise Abortable

    def _note_topic(self, written: Written, place: Place) -> None:
        """Note the topic id to which it writes; by name that is unknown."""
        lane, route = self._lanes.get(place), self.routes.get(place)
        topic_id = lane.topic_id if lane is not None else None if route is None else route.topic_id
        written.fleeting[f"{place[0]}-{place[1]}"] = topic_id if self.is_v2 else None

    def end(self, written: Written, is_commit: bool) -> Script[None]:
        if not self._added:
            written.fate = Fate.ABORTED
            return
        what = f"{'commits' if is_commit else 'aborts'} {written.name}"
        if is_commit:
            written.is_commit_asked, written.fate = True, Fate.DOUBTFUL
        request = EndTxnRequest(self.transactional_id, self.producer_id, self.producer_epoch, is_commit)
        version = 5 if self.is_v2 else 4
        answered = yield from self.coordinated(
            TRANSACTION, self.transactional_id, what, ApiKey.END_TXN, version, request, lambda reply: reply.error_code
        )
        if answered.code is not ErrorCode.NONE and is_commit and not answered.is_doubtful:
            written.fate = Fate.REFUSED
        try:
            self._judge(what, answered)
        except Abortable:
            yield from self.end(written, False)
            return
        if written.fate is not Fate.REFUSED:
            written.fate = Fate.COMMITTED if is_commit else Fate.ABORTED
        if self.is_v2:
            self._take_epoch(answered.reply.producer_id, answered.reply.producer_epoch)
        elif self._is_doubtful or answered.is_doubtful:
            yield from self._initialize()


def _worst_added(reply: Any) -> int:
    results = [each for topic in reply.results_by_topic_v3_and_below for each in topic.results_by_partition]
    codes = [each.partition_error_code for each in results]
    return next((code for code in codes if code not in (ErrorCode.NONE, ErrorCode.OPERATION_NOT_ATTEMPTED)), 0)
