"""Runs scripts about the transaction coordinator. Producers have names; the actor keeps their ids and epochs.

    init A timeout=60000 version=6          InitProducerId: A is the producer of the transactional id from now on
    reinit A                                the same with A's current producer id and epoch (KIP-360)
    add A t-0 t-1 tv=2                      AddPartitionsToTxn: by A itself (tv=0), or as it writes to them (tv=2)
    verify A t-0                            whether it is in A's transaction, as leaders do before they append a batch
    commit A version=5, abort A epoch=3     EndTxn, with A's current or an earlier epoch
    markers-written                         the markers sent last are written in all their partitions
    markers-written n=1                     the same for the markers sent first
    hold, release                           the log does not commit yet; it commits
    fail kept=1                             the coordinator fails: so many uncommitted records are kept
    takeover                                another coordinator takes over and replays the log
    set-epoch A epoch=32766                 sets A's epoch
    advance ms=500, expire                  lets time pass; removes unused ids
    list, describe                          the coordinator's state

The transactional id is `x` by default (id=y), the transaction version is 2 unless `cluster tv=1` changes it. Each
marker that is sent has a line of its own, and the last line has the records written to the log.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from harness.in_memory_transaction_shard import NO_PRODUCER, InMemoryTransactionShard
from script import Command, error_name

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import TopicPartition
from moldau.base.promise import Promise
from moldau.base.steps import TurnItems, finish
from moldau.coordinator.machine import Outcome, ProducerIdAndEpoch
from moldau.coordinator.transaction.listing import filter_of
from moldau.coordinator.transaction.settings import TransactionSettings
from moldau.coordinator.transaction.transaction import Transaction, record_of, transaction_of
from moldau.wire.log_records.transactions import TransactionLogValue
from moldau.wire.messages.list_transactions import ListTransactionsRequest

SETTINGS = TransactionSettings(id_expiration_ms=600_000)


class TransactionsActor(InMemoryTransactionShard):
    def __init__(self) -> None:
        super().__init__(settings=SETTINGS)
        self._producers: dict[str, ProducerIdAndEpoch] = {}
        self._happened: list[str] = []
        self._written_records: list[str] = []
        self._shown_markers = 0

    def answer(self, command: Command) -> str:
        self._happened, self._written_records = [], []
        answer = getattr(self, "_do_" + command.name.replace("-", "_"))(command)
        for markers in self.sent[self._shown_markers :]:
            outcome = "commit" if markers.committed else "abort"
            where = " ".join(map(str, markers.partitions))
            by = f"{markers.producer_id}/{markers.producer_epoch}"
            version = f"tv={markers.transaction_version}, coordinator epoch {markers.coordinator_epoch}"
            self._happened.append(f"markers {outcome} {by} to {where} ({version})")
        self._shown_markers = len(self.sent)
        wrote = ["wrote " + ", ".join(self._written_records)] if self._written_records else []
        return "\n".join([*([answer] if answer else []), *self._happened, *wrote]) or "ok"

    def execute(self, outcome: Outcome[Any]) -> Any:
        self._written_records += [
            _transaction_line(transaction_of("", record.value))
            if isinstance(record.value, TransactionLogValue)
            else "tombstone"
            for record in outcome.records
        ]
        return super().execute(outcome)

    # --- requests -----------------------------------------------------------------------------------------------

    def _do_init(self, command: Command) -> None:
        self._initialize(command, NO_PRODUCER)

    def _do_reinit(self, command: Command) -> None:
        self._initialize(command, self._as(command))

    def _initialize(self, command: Command, expected: ProducerIdAndEpoch) -> None:
        name = command.words[0]

        def describe(response: Any) -> str:
            if response.error_code:
                return ErrorCode(response.error_code).name
            self._producers[name] = ProducerIdAndEpoch(response.producer_id, response.producer_epoch)
            return f"producer {response.producer_id} epoch {response.producer_epoch}"

        timeout_ms, version = command.number("timeout", 60_000), command.number("version", 6)
        self._show(name, self.init(_id(command), timeout_ms, expected, version), describe)

    def _do_add(self, command: Command) -> None:
        answer = self.add(self._as(command), _partitions(command), command.number("tv", 2), _id(command))
        self._show(command.words[0], answer, error_name)

    def _do_verify(self, command: Command) -> None:
        answer = self.verify(self._as(command), _partitions(command), _id(command))
        self._show(command.words[0], answer, lambda codes: ", ".join(error_name(each) for each in codes.values()))

    def _do_commit(self, command: Command) -> None:
        self._finish(command, committed=True)

    def _do_abort(self, command: Command) -> None:
        self._finish(command, committed=False)

    def _finish(self, command: Command, committed: bool) -> None:
        name, version, producer = command.words[0], command.number("version", 5), self._as(command)

        def describe(response: Any) -> str:
            if response.error_code or version < 5:
                return error_name(response.error_code)
            if producer == self._producers[name]:
                self._producers[name] = ProducerIdAndEpoch(response.producer_id, response.producer_epoch)
            return f"ok, continues as producer {response.producer_id} epoch {response.producer_epoch}"

        self._show(name, self.end(producer, committed, version, _id(command)), describe)

    def _as(self, command: Command) -> ProducerIdAndEpoch:
        """Return the producer of the command, perhaps with an earlier epoch."""
        producer = self._producers[command.words[0]]
        return ProducerIdAndEpoch(
            command.number("producer", producer.producer_id), command.number("epoch", producer.producer_epoch)
        )

    def _show(self, name: str, answer: Any, describe: Any) -> None:
        def on_response(value: Any) -> None:
            self._happened.append(f"{name}: {value.code.name if isinstance(value, KafkaError) else describe(value)}")

        if not isinstance(answer, Promise):
            on_response(answer)
            return
        answer.then(on_response)
        if not answer.done:
            self._happened.append(f"{name} waits")

    # --- time and the log ---------------------------------------------------------------------------------------

    def _do_cluster(self, command: Command) -> None:
        self.version = command.number("tv", 2)

    def _do_set_epoch(self, command: Command) -> None:
        before = self[_id(command)]
        far = replace(before, producer_epoch=command.number("epoch", 0))
        self.log.append(self.machine.encode(record_of(far)))
        self.reload()
        self._producers[command.words[0]] = far.producer

    def _do_markers_written(self, command: Command) -> None:
        self.written(self.sent[command.number("n", len(self.sent)) - 1])

    def _do_hold(self, command: Command) -> None:
        self.is_committing = False

    def _do_release(self, command: Command) -> None:
        self.is_committing = True
        self.commit()

    def _do_fail(self, command: Command) -> None:
        self.is_committing = True
        self.fail(command.number("kept", 0))

    def _do_takeover(self, command: Command) -> None:
        self.fail()

    def _do_advance(self, command: Command) -> None:
        self.advance(command.number("ms", 0))

    def _do_expire(self, command: Command) -> None:
        self.expire()

    # --- the coordinator's state ----------------------------------------------------------------------------------

    def _do_list(self, command: Command) -> str:
        found = finish(self.machine.listed(filter_of(ListTransactionsRequest()), TurnItems(1_000)))
        return "\n".join(f"{each.transactional_id} {each.transaction_state}" for each in found) or "none"

    def _do_describe(self, command: Command) -> str:
        found = self.machine.transactions.get(_id(command))
        return "unknown" if found is None else _transaction_line(found)


def _transaction_line(transaction: Transaction) -> str:
    following = f" then {transaction.next_producer_id}" if transaction.next_producer_id >= 0 else ""
    partitions = "".join(f" {each}" for each in sorted(transaction.partitions))
    by = f"{transaction.producer_id}/{transaction.producer_epoch}"
    return f"{transaction.state.title} {by}{following}{partitions}"


def _id(command: Command) -> str:
    return command.values.get("id", "x")


def _partitions(command: Command) -> list[TopicPartition]:
    split = [word.rpartition("-") for word in command.words[1:]]
    return [TopicPartition(topic, int(index)) for topic, _, index in split]
