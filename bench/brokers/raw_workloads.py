"""Produce and fetch over raw connections, where the client costs next to nothing.

Produce keeps 5 requests in flight, as clients do; fetch asks one at a time, as consumers do, and reads what was just
written, so that it comes from the page cache. What is sent and how often is all that differs between workloads.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

from bench.brokers.connection import Connection, Fetching, Producing, all_together
from bench.brokers.frames import fetch_frame, produce_frame, record_batch
from bench.brokers.servers import Server
from bench.brokers.topics import new_topic
from bench.measuring.results import Quantity
from bench.measuring.rounds import Measured, Turn, Workload

IN_FLIGHT = 5
FILLED_RECORDS, FILLED_VALUE_BYTES = 1000, 100
KIB = 1 << 10
MIB = 1 << 20
GIB = 1 << 30


def raw_workloads(scale: float) -> Iterator[Workload]:
    """At scale 1.0 a turn takes a few seconds."""

    def times(count: int) -> int:
        return max(10, int(count * scale))

    yield produce(1, 100, times(30_000))
    yield produce(100, 100, times(15_000))
    yield produce(1000, 100, times(5_000))
    yield produce(100, KIB, times(4_000), in_bytes=True)
    yield produce(100, 100, times(4_000), connections=4)
    yield fetch("fetch 128 KiB", 128 * KIB, times(2_400), int(2 * GIB * scale))
    yield fetch("fetch 1 MiB", MIB, times(2_400), int(4 * GIB * scale))
    yield fetch("fetch 10 MiB", 10 * MIB, times(2_400), int(4 * GIB * scale))


def produce(records: int, value_bytes: int, requests: int, connections: int = 1, in_bytes: bool = False) -> Workload:
    """Batches of so many records, each connection to a partition of its own."""
    size = f"{value_bytes // KIB}KiB" if value_bytes >= KIB else f"{value_bytes}B"
    name = f"produce {records}x{size}" + (f", {connections} connections" if connections > 1 else "")
    quantity = Quantity(name, "MB/s" if in_bytes else "k rec/s")
    batch = record_batch(records, value_bytes)

    def prepare(server: Server, cleanup: ExitStack) -> Turn:
        topic = new_topic(server.address, connections, cleanup)
        producers = [producing(server, topic, partition, batch, cleanup) for partition in range(connections)]

        def turn() -> Measured:
            elapsed = seconds_of(lambda: all_together(producers, requests))
            total = requests * connections
            rate = total * len(batch) / 1e6 if in_bytes else total * records / 1e3
            return Measured((rate / elapsed,), total)

        return turn

    return Workload((quantity,), prepare)


def fetch(name: str, partition_bytes: int, filled_batches: int, total_bytes: int) -> Workload:
    """Reads a filled partition in a circle, so many bytes at a time."""
    batch = record_batch(FILLED_RECORDS, FILLED_VALUE_BYTES)

    def prepare(server: Server, cleanup: ExitStack) -> Turn:
        topic = new_topic(server.address, 1, cleanup)
        fill(server, topic, 0, batch, filled_batches)
        connection = cleanup.enter_context(Connection(server.address, partition_bytes + MIB))
        frame = fetch_frame({topic: range(1)}, partition_bytes)
        fetching = Fetching(connection, frame, topic, (FILLED_RECORDS, len(batch)))

        def turn() -> Measured:
            began = time.perf_counter()
            megabytes = fetching.fetch_bytes(total_bytes) / 1e6
            return Measured((megabytes / (time.perf_counter() - began),), megabytes)

        return turn

    return Workload((Quantity(name, "MB/s", work_unit="MB"),), prepare)


def producing(server: Server, topic: str, partition: int, batch: bytes, cleanup: ExitStack) -> Producing:
    """A connection whose batch the partition has already taken once."""
    connection = cleanup.enter_context(Connection(server.address))
    producer = Producing(connection, produce_frame(topic, partition, batch), IN_FLIGHT)
    producer.wait_until_writable()
    return producer


def fill(server: Server, topic: str, partition: int, batch: bytes, batches: int) -> None:
    """Leaves the partition with that many batches, all alike."""
    with ExitStack() as cleanup:
        producing(server, topic, partition, batch, cleanup).run(batches - 1)


def seconds_of(work: Callable[[], None]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began
