"""Produce with three replicas and acks=all over raw connections to the leaders, and end-to-end latency.

The same requests and the same number in flight as with one broker (`raw_workloads`); here a response waits until two
more nodes have fetched the batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial

from bench.brokers.client_workloads import latency
from bench.brokers.connection import Connection, Producing, all_together
from bench.brokers.frames import produce_frame, record_batch
from bench.brokers.raw_workloads import IN_FLIGHT, KIB, seconds_of
from bench.brokers.servers import Server
from bench.cluster.topics import leader_address, scratch
from bench.measuring.results import Quantity
from bench.measuring.rounds import Measured, Turn, Workload


def cluster_workloads(scale: float) -> Iterator[Workload]:
    """At scale 1.0 a turn takes a few seconds."""

    def times(count: int) -> int:
        return max(10, int(count * scale))

    yield produce(1, 100, times(8_000))
    yield produce(100, 100, times(6_000))
    yield produce(1000, 100, times(2_500))
    yield produce(100, KIB, times(2_500), in_bytes=True)
    yield produce(100, 100, times(4_000), leaders=3)
    yield latency(max(1.0, 10 * scale))


def produce(records: int, value_bytes: int, requests: int, leaders: int = 1, in_bytes: bool = False) -> Workload:
    """Send batches of `records` to one or several partitions, each over a connection to its leader."""
    size = f"{value_bytes // KIB}KiB" if value_bytes >= KIB else f"{value_bytes}B"
    name = f"produce {records}x{size}, acks=all" + (f", {leaders} leaders" if leaders > 1 else "")
    quantity = Quantity(name, "MB/s" if in_bytes else "k rec/s")
    batch = record_batch(records, value_bytes)

    def prepare(server: Server, cleanup: ExitStack) -> Turn:
        addresses = server.address.split(",")
        topic = scratch(server.address, addresses, leaders, cleanup)
        producers = [producing(addresses, topic, index, batch, cleanup) for index in range(leaders)]
        return partial(turn, producers)

    def turn(producers: list[Producing]) -> Measured:
        elapsed = seconds_of(lambda: all_together(producers, requests))
        total = requests * leaders
        return Measured(((total * len(batch) / 1e6 if in_bytes else total * records / 1e3) / elapsed,), total)

    return Workload((quantity,), prepare)


def producing(addresses: list[str], topic: str, partition: int, batch: bytes, cleanup: ExitStack) -> Producing:
    """Return a connection whose batch the leader has already accepted once."""
    connection = cleanup.enter_context(Connection(leader_address(addresses, topic, partition)))
    producer = Producing(connection, produce_frame(topic, partition, batch), IN_FLIGHT)
    producer.wait_until_writable()
    return producer
