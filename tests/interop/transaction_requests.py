"""The requests of a transactional producer, one function for each.

While the coordinator completes the previous transaction, it answers CONCURRENT_TRANSACTIONS; the functions here retry
as clients do, unless `at_once` is set. The module contains no expectations.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

from batches import CONTROL, HEADER_SIZE, TRANSACTIONAL, batch, headers_of
from harness.patience import LOOK_EVERY_S, Patience
from kio.schema.errors import ErrorCode
from protocol_requests import produce
from wire_client import Wire, message

TRANSACTION_KEY = 1
BUSY = {ErrorCode.concurrent_transactions, ErrorCode.coordinator_load_in_progress}
ELSEWHERE = {ErrorCode.coordinator_not_available, ErrorCode.not_coordinator}
"""The coordinator has moved; or, with only one broker, it is not ready yet."""
Partitions = Mapping[str, Sequence[int]]
Codes = dict[tuple[str, int], ErrorCode]
Answer = TypeVar("Answer")


class TransactionalProducer(NamedTuple):
    transactional_id: str
    id: int
    epoch: int

    @property
    def fields(self) -> dict[str, Any]:
        return {"transactional_id": self.transactional_id, "producer_id": self.id, "producer_epoch": self.epoch}


def until(ask: Callable[[], Answer], fulfilled: Callable[[Answer], bool], what: str) -> Answer:
    """Repeat the request until the response fulfils the condition, and return it."""
    patience = Patience(lambda: f"{what}; at last it was {answer}")
    while not fulfilled(answer := ask()):
        patience.check()
        time.sleep(LOOK_EVERY_S)
    return answer


def settled(ask: Callable[[], Answer], code: Callable[[Answer], ErrorCode]) -> Answer:
    return until(ask, lambda answer: code(answer) not in BUSY, "the coordinator is not busy")


def init(wire: Wire, transactional_id: str | None, version: int = 4, at_once: bool = False, **fields: Any) -> Any:
    all_fields = {"transactional_id": transactional_id, "transaction_timeout": 60_000} | fields

    def ask() -> Any:
        answer = wire.ask(message("init_producer_id", version, **all_fields))
        if answer.error_code in ELSEWHERE:  # The first FindCoordinator creates the coordinators' topic.
            wire.ask(message("find_coordinator", 4, key_type=TRANSACTION_KEY, coordinator_keys=(transactional_id,)))
        return answer

    if at_once:
        return ask()
    return until(ask, lambda answer: answer.error_code not in BUSY | ELSEWHERE, "the coordinator is available")


def new_transactional_producer(wire: Wire, transactional_id: str, **fields: Any) -> TransactionalProducer:
    answer = init(wire, transactional_id, **fields)
    assert answer.error_code == 0, answer
    return TransactionalProducer(transactional_id, answer.producer_id, answer.producer_epoch)


def topics_of(partitions: Partitions) -> list[dict[str, Any]]:
    return [{"name": name, "partitions": list(indexes)} for name, indexes in partitions.items()]


def codes_of(topics: Any) -> Codes:
    return {
        (topic.name, each.partition_index): each.partition_error_code
        for topic in topics
        for each in topic.results_by_partition
    }


def add_partitions(
    wire: Wire, producer: TransactionalProducer, partitions: Partitions, version: int = 3, at_once: bool = False
) -> Codes:
    """Send the clients' form: one transaction, versions 0 to 3."""
    producer_fields = {f"v3_and_below_{name}": value for name, value in producer.fields.items()}
    payload = message("add_partitions_to_txn", version, v3_and_below_topics=topics_of(partitions), **producer_fields)

    def ask() -> Codes:
        return codes_of(wire.ask(payload).results_by_topic_v3_and_below)

    return ask() if at_once else settled(ask, any_code)


def any_code(codes: Codes) -> ErrorCode:
    """Return the code that stands for all: a retriable one if there is any."""
    return next((code for code in codes.values() if code in BUSY), ErrorCode.none)


class Batched(NamedTuple):
    """One transaction in a broker's request."""

    producer: TransactionalProducer
    partitions: Partitions
    verify_only: bool = True


def add_batched(wire: Wire, requested: Sequence[Batched], version: int = 5) -> dict[str, Codes]:
    """Send the brokers' form: any number of transactions, each added to or only verified, versions 4 and 5."""
    transactions = [
        {**each.producer.fields, "verify_only": each.verify_only, "topics": topics_of(each.partitions)}
        for each in requested
    ]

    def ask() -> dict[str, Codes]:
        answer = wire.ask(message("add_partitions_to_txn", version, transactions=transactions))
        assert answer.error_code == 0, answer
        return {each.transactional_id: codes_of(each.topic_results) for each in answer.results_by_transaction}

    return until(
        ask,
        lambda found: all(any_code(codes) not in BUSY for codes in found.values()),
        "the coordinator is not busy",
    )


def verify(wire: Wire, producer: TransactionalProducer, partitions: Partitions, version: int = 5) -> Codes:
    return add_batched(wire, [Batched(producer, partitions)], version)[producer.transactional_id]


def add_offsets(wire: Wire, producer: TransactionalProducer, group: str, version: int = 3) -> ErrorCode:
    payload = message("add_offsets_to_txn", version, group_id=group, **producer.fields)
    code: ErrorCode = settled(lambda: wire.ask(payload).error_code, lambda code: code)
    return code


def commit_offsets(
    wire: Wire,
    producer: TransactionalProducer,
    group: str,
    offsets: Mapping[tuple[str, int], int],
    version: int = 3,
    metadata: str | None = "",
    **fields: Any,
) -> Codes:
    by_topic: dict[str, list[dict[str, Any]]] = {}
    for (topic, partition), offset in offsets.items():
        place = {"partition_index": partition, "committed_offset": offset, "committed_metadata": metadata}
        by_topic.setdefault(topic, []).append(place)
    topics = [{"name": name, "partitions": places} for name, places in by_topic.items()]
    payload = message("txn_offset_commit", version, group_id=group, topics=topics, **producer.fields, **fields)

    def ask() -> Codes:
        answer = wire.ask(payload)
        return {
            (topic.name, each.partition_index): each.error_code for topic in answer.topics for each in topic.partitions
        }

    return settled(ask, any_code)


def fetch_offset(wire: Wire, group: str, topic: str, require_stable: bool = False, partition: int = 0) -> Any:
    topics = [{"name": topic, "partition_indexes": [partition]}]
    answer = wire.ask(message("offset_fetch", 7, group_id=group, topics=topics, require_stable=require_stable))
    assert answer.error_code == 0, answer
    return answer.topics[0].partitions[0]


def end(wire: Wire, producer: TransactionalProducer, committed: bool, version: int = 4, at_once: bool = False) -> Any:
    payload = message("end_txn", version, committed=committed, **producer.fields)

    def ask() -> Any:
        return wire.ask(payload)

    return ask() if at_once else settled(ask, lambda answer: answer.error_code)


def next_epoch(wire: Wire, producer: TransactionalProducer, committed: bool) -> TransactionalProducer:
    """End the transaction as clients of transaction.version 2 do; return the producer with its next epoch."""
    answer = end(wire, producer, committed, version=5)
    assert answer.error_code == 0, answer
    return producer._replace(id=answer.producer_id, epoch=answer.producer_epoch)


def transactional_batch(
    producer: TransactionalProducer, values: Sequence[bytes] = (b"x",), seq: int = 0, **lies: Any
) -> bytes:
    fields = {"pid": producer.id, "epoch": producer.epoch, "seq": seq, "attributes": TRANSACTIONAL} | lies
    return batch(values, **fields)


def send(
    wire: Wire,
    producer: TransactionalProducer,
    topic: str | UUID,
    values: Sequence[bytes] = (b"x",),
    seq: int = 0,
    version: int = 11,
    **fields: Any,
) -> Any:
    """Write one transactional batch to partition 0, or to `partition`; return the response for that partition."""
    records = transactional_batch(producer, values, seq)
    all_fields = {"transactional_id": producer.transactional_id} | fields
    return settled(
        lambda: produce(wire, topic, records, version, **all_fields), lambda answer: ErrorCode(answer.error_code)
    )


def open_transaction(wire: Wire, producer: TransactionalProducer, topic: str, values: Sequence[bytes] = (b"x",)) -> int:
    """Open a transaction of version 1 with one batch in partition 0; return the batch's offset."""
    assert set(add_partitions(wire, producer, {topic: [0]}).values()) == {ErrorCode.none}
    answer = send(wire, producer, topic, values)
    assert answer.error_code == 0, answer
    return int(answer.base_offset)


class Marker(NamedTuple):
    producer: TransactionalProducer
    partitions: Partitions
    committed: bool = True
    coordinator_epoch: int = 0
    transaction_version: int = 0


def write_markers(wire: Wire, markers: Sequence[Marker], version: int = 1) -> dict[int, Codes]:
    def fields(marker: Marker) -> dict[str, Any]:
        all_fields = marker.producer.fields | {
            "transaction_result": marker.committed,
            "coordinator_epoch": marker.coordinator_epoch,
            "topics": [{"name": name, "partition_indexes": list(some)} for name, some in marker.partitions.items()],
        }
        del all_fields["transactional_id"]
        return all_fields | ({"transaction_version": marker.transaction_version} if version >= 2 else {})

    answer = wire.ask(message("write_txn_markers", version, markers=[fields(each) for each in markers]))
    return {
        each.producer_id: {
            (topic.name, partition.partition_index): partition.error_code
            for topic in each.topics
            for partition in topic.partitions
        }
        for each in answer.markers
    }


def write_marker(wire: Wire, marker: Marker, version: int = 1) -> ErrorCode:
    """Return the error code of the marker's one partition."""
    (code,) = write_markers(wire, [marker], version)[marker.producer.id].values()
    return code


class ControlRecord(NamedTuple):
    """The content of a control batch: commit or abort, and the coordinator's epoch."""

    base_offset: int
    producer_id: int
    producer_epoch: int
    committed: bool
    coordinator_epoch: int


def control_records(records: bytes | None) -> list[ControlRecord]:
    """The key is version and type, two int16; the value a version and the coordinator's epoch, int16 and int32.

    A record of such small parts has a byte each for its length, attributes, deltas and the key's and value's length.
    """
    found, data, position = [], bytes(records or b""), 0
    for header in headers_of(data):
        if header.attributes & CONTROL:
            _, kind = struct.unpack_from(">hh", data, position + HEADER_SIZE + 5)
            _, coordinator_epoch = struct.unpack_from(">hi", data, position + HEADER_SIZE + 10)
            fields = (header.base_offset, header.producer_id, header.producer_epoch)
            found.append(ControlRecord(*fields, kind == 1, coordinator_epoch))
        position += 12 + header.length
    return found


class Described(NamedTuple):
    """DescribeTransactions' result for one id. It is decoded by hand: kio has no start time of -1, which means none."""

    error_code: ErrorCode
    transactional_id: str
    state: str
    timeout_ms: int
    start_ms: int
    producer_id: int
    producer_epoch: int
    partitions: frozenset[tuple[str, int]]


class Compact:
    """Reads the fields of a flexible response one after the other. Lengths here are small: one byte each."""

    def __init__(self, data: bytes) -> None:
        self.data, self.position = data, 0

    def take(self, form: str) -> int:
        (value,) = struct.unpack_from(form, self.data, self.position)
        self.position += struct.calcsize(form)
        return int(value)

    def text(self) -> str:
        size = self.take(">B") - 1
        self.position += size
        return self.data[self.position - size : self.position].decode()

    def many(self, read: Callable[[], Answer]) -> list[Answer]:
        return [read() for _ in range(self.take(">B") - 1)]

    def end(self) -> None:
        assert self.take(">B") == 0, "no tagged fields are known"


def described(data: Compact) -> Described:
    def topic() -> list[tuple[str, int]]:
        name = data.text()
        places = [(name, index) for index in data.many(lambda: data.take(">i"))]
        data.end()
        return places

    code, transactional_id, state = ErrorCode(data.take(">h")), data.text(), data.text()
    numbers = [data.take(form) for form in (">i", ">q", ">q", ">h")]
    partitions = frozenset(place for places in data.many(topic) for place in places)
    data.end()
    return Described(code, transactional_id, state, *numbers, partitions)


def describe_all(wire: Wire, transactional_ids: Sequence[str]) -> list[Described]:
    wire.post(message("describe_transactions", 0, transactional_ids=transactional_ids))
    _, correlation_id = wire.posted.popleft()
    data = Compact(wire.receive_frame())
    assert data.take(">i") == correlation_id
    data.end()
    assert data.take(">i") == 0, "the response is not throttled"
    found = data.many(lambda: described(data))
    data.end()
    assert data.position == len(data.data), "bytes after the end of the response"
    return found


def describe(wire: Wire, transactional_id: str) -> Described:
    (found,) = describe_all(wire, [transactional_id])
    return found


def await_state(wire: Wire, transactional_id: str, state: str) -> Described:
    return until(lambda: describe(wire, transactional_id), lambda shown: shown.state == state, state)


def describe_producers(wire: Wire, topic: str, partition: int = 0) -> dict[int, Any]:
    topics = [{"name": topic, "partition_indexes": [partition]}]
    (shown,) = wire.ask(message("describe_producers", 0, topics=topics)).topics[0].partitions
    assert shown.error_code == 0, shown
    return {each.producer_id: each for each in shown.active_producers}
