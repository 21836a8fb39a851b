"""Producers, a coordinator that fails, and partitions: a model to check random histories against.

A producer acts as its client library would: it writes when a partition was added, ends with commit or abort, retries
until it gets a response, and gives up on a fatal error. All that it writes between two ends is one *token*. A partition
keeps tokens open until a marker of their producer arrives, by Kafka's rules for epochs. The model does not use the
states of the coordinator; `check` has the invariants of tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from harness.in_memory_transaction_shard import NO_PRODUCER, InMemoryTransactionShard

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import TopicPartition
from moldau.base.promise import Promise
from moldau.coordinator.machine import ProducerIdAndEpoch
from moldau.coordinator.transaction.markers import TransactionMarkers

PARTITIONS = tuple(TopicPartition("t", index) for index in range(3))
TIMEOUT_MS = 60_000
RETRIABLE = {ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
Token = tuple[int, int]
"""The producer, and the number of its transaction."""


@dataclass
class Leader:
    """A partition, with the last epochs of every producer id and of the coordinator."""

    epochs: dict[int, int] = field(default_factory=dict)
    coordinator_epochs: dict[int, int] = field(default_factory=dict)
    open: dict[int, set[Token]] = field(default_factory=dict)

    def write(self, producer: ProducerIdAndEpoch, token: Token) -> bool:
        if producer.producer_epoch < self.epochs.get(producer.producer_id, -1):
            return False
        self.epochs[producer.producer_id] = producer.producer_epoch
        self.open.setdefault(producer.producer_id, set()).add(token)
        return True

    def mark(self, markers: TransactionMarkers) -> set[Token]:
        """Return the tokens that the marker ends."""
        producer_id = markers.producer_id
        if markers.coordinator_epoch < self.coordinator_epochs.get(producer_id, -1):
            return set()
        self.coordinator_epochs[producer_id] = markers.coordinator_epoch
        epoch_min = self.epochs.get(producer_id, -1) + (1 if markers.transaction_version >= 2 else 0)
        if markers.producer_epoch < epoch_min:
            return set()
        self.epochs[producer_id] = markers.producer_epoch
        return self.open.pop(producer_id, set())


@dataclass
class Producer:
    number: int
    version: int
    """The client's transaction.version: 0 or 2."""
    identity: ProducerIdAndEpoch = NO_PRODUCER
    transactions: int = 0
    added: set[TopicPartition] = field(default_factory=set)
    ending: bool | None = None
    """The requested commit or abort that has no response yet."""
    has_request_in_flight: bool = False
    loses_next_response: bool = False

    @property
    def token(self) -> Token:
        return self.number, self.transactions


class TransactionWorld:
    def __init__(self, shard: InMemoryTransactionShard, versions: list[int]) -> None:
        self.shard = shard
        shard.is_committing = False
        self.producers = [Producer(number, version) for number, version in enumerate(versions)]
        self.leaders = {each: Leader() for each in PARTITIONS}
        self.outcomes: dict[Token, set[bool]] = {}
        """The outcomes of tokens by their markers."""
        self.reported_outcomes: dict[Token, bool] = {}
        """The outcomes of tokens by the responses to their producers."""
        self.undelivered: list[tuple[TransactionMarkers, set[TopicPartition]]] = []
        self.fenced: dict[ProducerIdAndEpoch, int] = {}
        """The producers that were replaced, and by which."""
        self.issued: set[ProducerIdAndEpoch] = set()
        self.sent_requests: list[Callable[[], Any]] = []
        self._collected = 0

    # --- steps of producers -------------------------------------------------------------------------------------

    def init(self, number: int, sends_identity: bool) -> None:
        producer = self.producers[number]
        expected = producer.identity if sends_identity else NO_PRODUCER
        if producer.has_request_in_flight or (sends_identity and producer.identity == NO_PRODUCER):
            return

        def on_response(response: Any, is_delivered: bool) -> None:
            if response.error_code != ErrorCode.NONE:
                if is_delivered and response.error_code not in RETRIABLE:
                    self._give_up(producer)
                return
            identity = ProducerIdAndEpoch(response.producer_id, response.producer_epoch)
            replaced_by = self.fenced.get(expected)
            assert replaced_by in (None, number), (
                f"{expected} was replaced by {replaced_by} and continues as {identity}"
            )
            for other in self.issued - {identity}:
                self.fenced.setdefault(other, number)
            if expected == NO_PRODUCER:
                self.fenced |= dict.fromkeys(self.issued - {identity}, number)
                assert identity not in self.issued, "issued twice"
            self.issued.add(identity)
            if is_delivered:
                self._give_up(producer)
                producer.identity = identity

        self._await_response(producer, self.shard.init("x", TIMEOUT_MS, expected), on_response)

    def start_if_all_gave_up(self, number: int) -> None:
        """Start a producer again, since all have given up."""
        if all(producer.identity == NO_PRODUCER for producer in self.producers):
            self.init(number, sends_identity=False)

    def add(self, number: int, partition: TopicPartition) -> None:
        producer = self.producers[number]
        if producer.has_request_in_flight or producer.identity == NO_PRODUCER or producer.ending is not None:
            return
        identity = producer.identity
        is_fenced = identity in self.fenced

        def on_response(response: Any, is_delivered: bool) -> None:
            if response != ErrorCode.NONE:
                if is_delivered and response not in RETRIABLE:
                    self._give_up(producer)
                return
            assert not is_fenced, f"{identity} was fenced and adds partitions"
            if is_delivered and self.leaders[partition].write(identity, producer.token):
                producer.added.add(partition)
                self.outcomes.setdefault(producer.token, set())

        self._await_response(producer, self.shard.add(identity, [partition], producer.version), on_response)

    def end(self, number: int, committed: bool) -> None:
        producer = self.producers[number]
        if (
            producer.has_request_in_flight
            or producer.identity == NO_PRODUCER
            or (producer.version < 2 and not producer.added)
        ):
            return
        if committed and not producer.added and producer.ending is None:
            return
        committed = producer.ending = committed if producer.ending is None else producer.ending
        identity, token = producer.identity, producer.token
        is_fenced = identity in self.fenced
        version = 5 if producer.version == 2 else 4
        if version == 5:
            self.sent_requests.append(lambda: self.shard.end(identity, committed, version))

        def on_response(response: Any, is_delivered: bool) -> None:
            if response.error_code != ErrorCode.NONE:
                if is_delivered and response.error_code not in RETRIABLE:
                    self._give_up(producer)
                return
            assert not is_fenced, f"{identity} was fenced and ends its transaction"
            if version == 5:
                self.issued.add(ProducerIdAndEpoch(response.producer_id, response.producer_epoch))
            if not is_delivered:
                return
            if producer.added:
                self.reported_outcomes[token] = committed
            producer.added, producer.ending = set(), None
            producer.transactions += 1
            if version == 5:
                producer.identity = ProducerIdAndEpoch(response.producer_id, response.producer_epoch)

        self._await_response(producer, self.shard.end(identity, committed, version), on_response)

    def resend_late_request(self, which: int) -> None:
        """Deliver an old request again, as over a slow connection; its response is lost."""
        if self.sent_requests:
            self.sent_requests[which % len(self.sent_requests)]()

    def _give_up(self, producer: Producer) -> None:
        """Kill a producer; the coordinator must end its open transaction."""
        producer.identity = NO_PRODUCER
        producer.added, producer.ending = set(), None
        producer.transactions += 1

    def _await_response(self, producer: Producer, response: Any, on_response: Callable[[Any, bool], None]) -> None:
        producer.has_request_in_flight = True
        loses_next_response, producer.loses_next_response = producer.loses_next_response, False

        def on_reply(value: Any) -> None:
            producer.has_request_in_flight = False
            if not isinstance(value, KafkaError):
                on_response(value, not loses_next_response)

        if isinstance(response, Promise):
            response.then(on_reply)
        else:
            on_reply(response)

    # --- other events -------------------------------------------------------------------------------------------

    def lose_next_response(self, number: int) -> None:
        self.producers[number].loses_next_response = True

    def commit(self) -> None:
        self.shard.commit()

    def fail(self, kept: int) -> None:
        self.shard.fail(kept)

    def advance(self, by_ms: int) -> None:
        self.shard.advance(by_ms)

    def deliver(self, which: int, partition: TopicPartition | None = None) -> None:
        """Deliver markers to one or all of their partitions, and notify the coordinator that sent them if it exists."""
        self._collect()
        if not self.undelivered:
            return
        markers, left = self.undelivered[which % len(self.undelivered)]
        for each in sorted(left if partition is None else left & {partition}):
            left.remove(each)
            for token in self.leaders[each].mark(markers):
                self.outcomes[token].add(markers.committed)
        if not left:
            self.undelivered = [each for each in self.undelivered if each[0] is not markers]
            self.shard.execute(self.shard.machine.markers_written(markers))

    def _collect(self) -> None:
        new_markers = self.shard.sent[self._collected :]
        self._collected = len(self.shard.sent)
        self.undelivered += [(markers, set(markers.partitions)) for markers in new_markers]

    def settle(self) -> None:
        """Deliver everything, and let all timeouts pass."""
        for _ in range(4):
            self.commit()
            self._collect()
            while self.undelivered:
                self.deliver(0)
                self.commit()
                self._collect()
            self.advance(TIMEOUT_MS)
        self.check_replay()

    # --- invariants ---------------------------------------------------------------------------------------------

    def check_replay(self) -> None:
        """Check that another coordinator finds in the log what this one knows, once all is committed."""
        self.commit()
        now = dict(self.shard.machine.transactions)
        found = self.shard.replayed().transactions
        assert found.keys() == now.keys()
        for name, each in found.items():
            assert each == self.shard.as_logged(now[name])

    def check(self) -> None:
        assert not any(leader.open.get(each) for leader in self.leaders.values() for each in leader.open)
        for token, outcome in self.outcomes.items():
            assert len(outcome) == 1, f"{token} is {outcome}"
            assert self.reported_outcomes.get(token) in (None, *outcome), (
                f"{token} is {outcome}, {self.reported_outcomes[token]} was reported"
            )
