"""The cost of a transaction itself: begin, one record to each of some partitions, commit, over a raw connection.

The end of a transaction is answered when it is decided; its markers are written after that, and a producer that begins
the next one too soon must retry. The next transaction begins at once and retries until it may: the time for the markers
is included.
"""

from __future__ import annotations

import os
import threading
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack

from bench.brokers.connection import TIMEOUT_S, BrokerRefused, Connection
from bench.brokers.frames import record
from bench.brokers.servers import Server
from bench.brokers.topics import new_topic
from bench.groups.frames import ERROR_AT, error_of
from bench.measuring.results import Quantity
from bench.measuring.rounds import Measured, Turn, Workload
from bench.transactions.frames import (
    Producer,
    add_frame,
    added_error,
    compact_end_frame,
    compact_produce_frame,
    compact_produced_error,
    end_frame,
    find_coordinator_frame,
    init_frame,
    produce_frame,
    produced_error,
    transactional_batch,
)

PARTITIONS = (1, 3, 10)
PRODUCERS = 10
RECORD_BYTES = 100
ASK_AGAIN_S = 0.001
NOT_YET = frozenset({3, 5, 6, 14, 15, 16, 51})
"""A partition or a coordinator that has only just been made; CONCURRENT_TRANSACTIONS."""
COMPACT_ERROR_AT = ERROR_AT + 1


class Transactor(ABC):
    """A transactional producer with one request in flight."""

    def __init__(self, connection: Connection, topic: str, partitions: int) -> None:
        self._connection = connection
        self._topic = topic
        self._partitions = range(partitions)
        self._record = record(0, os.urandom(RECORD_BYTES))
        transactional_id = f"bench-{uuid.uuid4().hex[:12]}"
        self._retry_while_busy(find_coordinator_frame(transactional_id), error_of)
        reply = self._retry_while_busy(init_frame(transactional_id), error_of)
        self._producer = Producer(transactional_id, *_id_and_epoch(reply, ERROR_AT + 2))

    @abstractmethod
    def commit_one(self) -> None:
        """Commit one whole transaction."""

    def _batches(self, sequence: int) -> dict[int, bytes]:
        return dict.fromkeys(self._partitions, transactional_batch(self._producer, sequence, self._record))

    def _retry_while_busy(self, frame: bytes, error_in: Callable[[memoryview], int]) -> memoryview:
        """Return the reply once the broker is no longer busy with the previous transaction."""
        deadline = time.perf_counter() + TIMEOUT_S
        while error := error_in(reply := self._connection.ask(frame)):
            if error not in NOT_YET or time.perf_counter() > deadline:
                raise BrokerRefused(f"{self._connection.address}: a transaction: error {error}")
            time.sleep(ASK_AGAIN_S)
        return reply


class Naming(Transactor):
    """Names the partitions before it writes to them: transaction.version 1."""

    _sequence = 0

    def commit_one(self) -> None:
        count = len(self._partitions)
        batches = self._batches(self._sequence)
        self._retry_while_busy(
            add_frame(self._producer, self._topic, self._partitions), lambda it: added_error(it, self._topic, count)
        )
        self._retry_while_busy(
            produce_frame(self._producer.transactional_id, self._topic, batches),
            lambda it: produced_error(it, self._topic, count),
        )
        self._retry_while_busy(end_frame(self._producer), error_of)
        self._sequence += 1


class Adding(Transactor):
    """Adds partitions by writing to them, and gets another epoch with every end: transaction.version 2."""

    def commit_one(self) -> None:
        count = len(self._partitions)
        self._retry_while_busy(
            compact_produce_frame(self._producer.transactional_id, self._topic, self._batches(0)),
            lambda it: compact_produced_error(it, self._topic, count),
        )
        reply = self._retry_while_busy(compact_end_frame(self._producer), lambda it: error_of(it, COMPACT_ERROR_AT))
        producer_id, epoch = _id_and_epoch(reply, COMPACT_ERROR_AT + 2)
        self._producer = self._producer._replace(producer_id=producer_id, epoch=epoch)


VERSIONS: dict[int, type[Transactor]] = {1: Naming, 2: Adding}


def transaction_workloads(seconds: float) -> Iterator[Workload]:
    for version in VERSIONS:
        for partitions in PARTITIONS:
            yield transactions(version, partitions, 1, seconds)
        yield transactions(version, 1, PRODUCERS, seconds)


def transactions(version: int, partitions: int, producers: int, seconds: float) -> Workload:
    """Run one transaction after the other for some seconds; several producers have a thread and connection each."""
    name = f"transaction of {partitions} partition{'s' * (partitions > 1)}, version {version}"
    name += f", {producers} producers" * (producers > 1)
    quantities = (
        Quantity(name, "/s", work_unit="transaction"),
        *(Quantity(f"{name}, {each}", "ms", False, "transaction") for each in ("p50", "p99")),
    )

    def prepare(server: Server, cleanup: ExitStack) -> Turn:
        topic = new_topic(server.address, partitions, cleanup)
        connections = [cleanup.enter_context(Connection(server.address)) for _ in range(producers)]
        transactors = [VERSIONS[version](connection, topic, partitions) for connection in connections]
        for transactor in transactors:
            transactor.commit_one()

        def turn() -> Measured:
            began = time.perf_counter()
            latencies = sorted(_all_at_once(transactors, began + seconds))
            elapsed = time.perf_counter() - began
            percentiles = (latencies[len(latencies) * percent // 100] * 1e3 for percent in (50, 99))
            return Measured((len(latencies) / elapsed, *percentiles), len(latencies))

        return turn

    return Workload(quantities, prepare)


def _all_at_once(transactors: Sequence[Transactor], until: float) -> list[float]:
    """Return the duration of each transaction."""
    latencies: list[float] = []
    failed: list[Exception] = []

    def work(transactor: Transactor) -> None:
        try:
            while (began := time.perf_counter()) < until:
                transactor.commit_one()
                latencies.append(time.perf_counter() - began)
        except (BrokerRefused, OSError) as refused:
            failed.append(refused)

    threads = [threading.Thread(target=work, args=(each,), daemon=True) for each in transactors]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise BrokerRefused(str(failed[0]))
    return latencies


def _id_and_epoch(reply: memoryview, at: int) -> tuple[int, int]:
    return int.from_bytes(reply[at : at + 8], "big"), int.from_bytes(reply[at + 8 : at + 10], "big", signed=True)
