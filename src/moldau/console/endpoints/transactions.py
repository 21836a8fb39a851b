"""Transactions: which are open, which hang, and how to end one. The checks of `operations.transactions`."""

from __future__ import annotations

from typing import Any, Final

from moldau.base.errors import KafkaError
from moldau.base.ids import TopicPartition
from moldau.client.admin import transaction_values
from moldau.client.admin.transaction_values import OPEN_STATES, DescribedTransaction, ListedTransaction
from moldau.client.admin.transactions import Transactions
from moldau.console.access import ADMIN_TIMEOUT_MS
from moldau.console.call import Call, Endpoint, now_ms
from moldau.console.listing import LIST_PARAMETERS, list_query, page_of, whole_number
from moldau.operations.transactions import (
    TransactionConnection,
    abort_in_partition,
    active_producers,
    existing_partitions,
    existing_transactions,
    producer_beginning_at,
    require_open,
    terminate,
    unknown_to_coordinators,
)
from moldau.web.failures import bad_request

COLUMNS: Final = ("transactional_id", "state", "open_seconds", "partitions", "producer_id", "coordinator")
LONGER_THAN_SECONDS: Final = 900
PARTITIONS_MAX: Final = 5_000
"""A search for hanging transactions asks for the producers of each partition."""


def list_transactions(call: Call) -> dict[str, Any]:
    query = list_query(call.query, COLUMNS, "-open_seconds")
    states = OPEN_STATES if call.flag("open") else ()
    now = now_ms()
    with call.access.transactions() as transactions:
        listed = transactions.listed(states)
        described = transactions.described(each.transactional_id for each in listed if each.state in OPEN_STATES)
    rows = [_row(each, described.get(each.transactional_id), now) for each in listed]
    return {**page_of(rows, query, "transactional_id"), "read_ms": now, "complete": True}


def _row(listed: ListedTransaction, described: DescribedTransaction | KafkaError | None, now: int) -> dict[str, Any]:
    known = described if isinstance(described, DescribedTransaction) else None
    return {
        "transactional_id": listed.transactional_id,
        "state": listed.state,
        "open_seconds": None if known is None else _open_seconds(known, now),
        "partitions": None if known is None else len(known.partitions),
        "producer_id": listed.producer_id,
        "coordinator": listed.coordinator,
    }


def _open_seconds(transaction: DescribedTransaction, now: int) -> float | None:
    if transaction.start_ms is None or transaction.state not in OPEN_STATES:
        return None
    return round(max(0, now - transaction.start_ms) / 1000, 1)


def describe_transaction(call: Call) -> dict[str, Any]:
    name = call.path["id"]
    with call.access.cluster() as cluster:
        connection = TransactionConnection(Transactions(cluster, ADMIN_TIMEOUT_MS), cluster)
        (described,) = existing_transactions(connection, [name])
        starts = _starts(connection, described)
    return {
        "transactional_id": name,
        "state": described.state,
        "coordinator": described.coordinator,
        "producer_id": described.producer_id,
        "producer_epoch": described.producer_epoch,
        "timeout_seconds": described.timeout_ms / 1000,
        "open_seconds": _open_seconds(described, now_ms()),
        "partitions": [
            {"topic": each.topic, "partition": each.partition, "start": starts.get(each)}
            for each in sorted(described.partitions)
        ],
    }


def _starts(connection: TransactionConnection, described: DescribedTransaction) -> dict[TopicPartition, int | None]:
    """Return the first offset of the transaction in each of its partitions, as far as the user may know."""
    starts: dict[TopicPartition, int | None] = {}
    for partition, producers in connection.transactions.producers(described.partitions).items():
        if not isinstance(producers, KafkaError):
            of_id = [each.transaction_start for each in producers if each.producer_id == described.producer_id]
            starts[partition] = next((each for each in of_id if each is not None), None)
    return starts


def hanging(call: Call) -> dict[str, Any]:
    topic = call.query.get("topic")
    seconds = whole_number(call.query, "longer_than_seconds", LONGER_THAN_SECONDS, 0, 10**9)
    now = now_ms()
    with call.access.cluster() as cluster:
        connection = TransactionConnection(Transactions(cluster, ADMIN_TIMEOUT_MS), cluster)
        partitions = [
            each
            for each in existing_partitions(connection, [topic] if topic else [], ())
            if cluster.topic(each.topic).leaders[each.partition] >= 0
        ]
        if len(partitions) > PARTITIONS_MAX:
            raise bad_request(f"choose a topic: all together have more than {PARTITIONS_MAX} partitions")
        old = transaction_values.open_for_long(active_producers(connection, partitions), now, seconds * 1000)
        found = unknown_to_coordinators(connection, old)
    return {
        "rows": [
            {
                "topic": each.where.topic,
                "partition": each.where.partition,
                "producer_id": each.producer.producer_id,
                "producer_epoch": each.producer.producer_epoch,
                "start": each.producer.transaction_start,
                "last_write_seconds": round((now - each.producer.last_timestamp) / 1000, 1),
            }
            for each in sorted(found)
        ],
        "searched_partitions": len(partitions),
        "read_ms": now,
    }


def abort(call: Call) -> dict[str, Any]:
    name, topic = call.optional("transactional_id", str), call.optional("topic", str)
    if (name is None) == (topic is None):
        raise bad_request("name one: transactional_id, or topic, partition and start")
    with call.access.cluster() as cluster:
        connection = TransactionConnection(Transactions(cluster, ADMIN_TIMEOUT_MS), cluster)
        if name is not None:
            return {"ok": True, "message": _terminate(connection, name)}
        assert topic is not None
        partition, start = call.field("partition", int), call.field("start", int)
        return {"ok": True, "message": _abort_at(connection, topic, partition, start)}


def _terminate(connection: TransactionConnection, name: str) -> str:
    require_open(connection, name)
    terminate(connection, name)
    return f"aborted the transaction of {name}"


def _abort_at(connection: TransactionConnection, topic: str, index: int, start: int) -> str:
    (partition,) = existing_partitions(connection, [topic], [index])
    abort_in_partition(connection, partition, producer_beginning_at(connection, partition, start))
    return f"aborted the transaction at offset {start} of {topic} partition {index}"


ENDPOINTS: Final = (
    Endpoint("GET", "/api/transactions", list_transactions, (*LIST_PARAMETERS, "open")),
    Endpoint("GET", "/api/transactions/{id}", describe_transaction),
    Endpoint("GET", "/api/hanging", hanging, ("topic", "longer_than_seconds")),
    Endpoint("POST", "/api/transactions/abort", abort, fields=("transactional_id", "topic", "partition", "start")),
)
