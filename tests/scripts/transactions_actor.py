"""The transaction coordinator as a script can drive it: producers by name, each with the client's own idea of its id
and epoch.

    init A timeout=60000 version=6          InitProducerId: A is the producer of the transactional id from now on
    go-on A                                 the same with the id and epoch that A has (KIP-360)
    add A t-0 t-1 tv=2                      AddPartitionsToTxn: by A itself (tv=0), or as it writes to them (tv=2)
    verify A t-0                            is it in A's transaction? Leaders ask before they take a batch
    commit A version=5, abort A epoch=3     EndTxn, as A or as A was once
    written                                 the markers that were sent last are in all their partitions
    written n=1                             those that were sent first are
    hold, release                           the log takes its time to commit; it has committed
    fail kept=1                             the coordinator fails: of what was not committed another finds so much
    takeover                                another coordinator takes over, from the log
    given A epoch=32766                     A has come far: its epoch is this
    advance ms=500, expire                  lets time pass; looks for ids that nobody uses
    list, describe                          what is known

The transactional id is `x` unless told otherwise (id=y), the version of transactions is 2 unless `cluster tv=1` says
otherwise. Markers that go out are told in lines of their own, and in the last what was written to the log.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from conversation import Said
from transaction_rooms import NOBODY, TransactionRooms

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import TopicPartition
from moldau.base.promise import Promise
from moldau.coordinator.machine import Outcome, ProducerIdAndEpoch
from moldau.coordinator.transaction.listing import filter_of
from moldau.coordinator.transaction.records import TransactionLogValue
from moldau.coordinator.transaction.settings import TransactionSettings
from moldau.coordinator.transaction.transaction import Transaction, record_of, transaction_of
from moldau.wire.messages.list_transactions import ListTransactionsRequest

SETTINGS = TransactionSettings(id_expiration_ms=600_000)


class TransactionsActor(TransactionRooms):
    def __init__(self) -> None:
        super().__init__(settings=SETTINGS)
        self._producers: dict[str, ProducerIdAndEpoch] = {}
        self._happened: list[str] = []
        self._written_records: list[str] = []
        self._told_markers = 0

    def answer(self, said: Said) -> str:
        self._happened, self._written_records = [], []
        told = getattr(self, "_say_" + said.name.replace("-", "_"))(said)
        for markers in self.sent[self._told_markers :]:
            outcome = "commit" if markers.committed else "abort"
            where = " ".join(map(str, markers.partitions))
            by = f"{markers.producer_id}/{markers.producer_epoch}"
            version = f"tv={markers.transaction_version}, coordinator epoch {markers.coordinator_epoch}"
            self._happened.append(f"markers {outcome} {by} to {where} ({version})")
        self._told_markers = len(self.sent)
        wrote = ["wrote " + ", ".join(self._written_records)] if self._written_records else []
        return "\n".join([*([told] if told else []), *self._happened, *wrote]) or "ok"

    def take(self, outcome: Outcome[Any]) -> Any:
        self._written_records += [
            _words(transaction_of("", record.value)) if isinstance(record.value, TransactionLogValue) else "gone"
            for record in outcome.records
        ]
        return super().take(outcome)

    # --- requests -----------------------------------------------------------------------------------------------

    def _say_init(self, said: Said) -> None:
        self._initialize(said, NOBODY)

    def _say_go_on(self, said: Said) -> None:
        self._initialize(said, self._as(said))

    def _initialize(self, said: Said, expected: ProducerIdAndEpoch) -> None:
        name = said.words[0]

        def told(response: Any) -> str:
            if response.error_code:
                return ErrorCode(response.error_code).name
            self._producers[name] = ProducerIdAndEpoch(response.producer_id, response.producer_epoch)
            return f"producer {response.producer_id} epoch {response.producer_epoch}"

        timeout_ms, version = said.number("timeout", 60_000), said.number("version", 6)
        self._tell(name, self.init(_id(said), timeout_ms, expected, version), told)

    def _say_add(self, said: Said) -> None:
        answer = self.add(self._as(said), _partitions(said), said.number("tv", 2), _id(said))
        self._tell(said.words[0], answer, _code)

    def _say_verify(self, said: Said) -> None:
        answer = self.verify(self._as(said), _partitions(said), _id(said))
        self._tell(said.words[0], answer, lambda codes: ", ".join(_code(each) for each in codes.values()))

    def _say_commit(self, said: Said) -> None:
        self._finish(said, committed=True)

    def _say_abort(self, said: Said) -> None:
        self._finish(said, committed=False)

    def _finish(self, said: Said, committed: bool) -> None:
        name, version, producer = said.words[0], said.number("version", 5), self._as(said)

        def told(response: Any) -> str:
            if response.error_code or version < 5:
                return _code(response.error_code)
            if producer == self._producers[name]:
                self._producers[name] = ProducerIdAndEpoch(response.producer_id, response.producer_epoch)
            return f"ok, goes on as producer {response.producer_id} epoch {response.producer_epoch}"

        self._tell(name, self.end(producer, committed, version, _id(said)), told)

    def _as(self, said: Said) -> ProducerIdAndEpoch:
        """The producer that speaks, or who it was."""
        producer = self._producers[said.words[0]]
        return ProducerIdAndEpoch(
            said.number("producer", producer.producer_id), said.number("epoch", producer.producer_epoch)
        )

    def _tell(self, name: str, answer: Any, told: Any) -> None:
        def tell(value: Any) -> None:
            self._happened.append(f"{name}: {value.code.name if isinstance(value, KafkaError) else told(value)}")

        if not isinstance(answer, Promise):
            tell(answer)
            return
        answer.then(tell)
        if not answer.done:
            self._happened.append(f"{name} waits")

    # --- time and the log ---------------------------------------------------------------------------------------

    def _say_cluster(self, said: Said) -> None:
        self.version = said.number("tv", 2)

    def _say_given(self, said: Said) -> None:
        before = self[_id(said)]
        far = replace(before, producer_epoch=said.number("epoch", 0))
        self.log.append(self.machine.encode(record_of(far)))
        self.reload()
        self._producers[said.words[0]] = far.producer

    def _say_written(self, said: Said) -> None:
        self.written(self.sent[said.number("n", len(self.sent)) - 1])

    def _say_hold(self, said: Said) -> None:
        self.is_committing = False

    def _say_release(self, said: Said) -> None:
        self.is_committing = True
        self.commit()

    def _say_fail(self, said: Said) -> None:
        self.is_committing = True
        self.fail(said.number("kept", 0))

    def _say_takeover(self, said: Said) -> None:
        self.fail()

    def _say_advance(self, said: Said) -> None:
        self.advance(said.number("ms", 0))

    def _say_expire(self, said: Said) -> None:
        self.expire()

    # --- what is known ------------------------------------------------------------------------------------------

    def _say_list(self, said: Said) -> str:
        found = self.take(self.machine.listed(filter_of(ListTransactionsRequest())))
        return "\n".join(f"{each.transactional_id} {each.transaction_state}" for each in found) or "none"

    def _say_describe(self, said: Said) -> str:
        found = self.machine.transactions.get(_id(said))
        return "not there" if found is None else _words(found)


def _words(transaction: Transaction) -> str:
    following = f" then {transaction.next_producer_id}" if transaction.next_producer_id >= 0 else ""
    partitions = "".join(f" {each}" for each in sorted(transaction.partitions))
    by = f"{transaction.producer_id}/{transaction.producer_epoch}"
    return f"{transaction.state.title} {by}{following}{partitions}"


def _id(said: Said) -> str:
    return said.values.get("id", "x")


def _partitions(said: Said) -> list[TopicPartition]:
    split = [word.rpartition("-") for word in said.words[1:]]
    return [TopicPartition(topic, int(index)) for topic, _, index in split]


def _code(code: int) -> str:
    return "ok" if code == ErrorCode.NONE else ErrorCode(code).name
