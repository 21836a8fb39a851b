"""Small requests to one partition of a broker that holds many: here a cost for each thing held would show at once.

All brokers have the topic `active`, and its partition 0 is the one that is used; the others only exist.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass

from bench.brokers.connection import Connection, Fetching
from bench.brokers.frames import fetch_frame, record_batch
from bench.brokers.raw_workloads import fill, producing, seconds_of
from bench.brokers.servers import Server
from bench.measuring.results import Quantity
from bench.measuring.rounds import Measured, Turn, Workload

ACTIVE = "active"
FIRST_OF_ACTIVE = range(1)
TOPIC_PARTITIONS_MAX = 50
FILLED_BATCHES = 1_000
VALUE_BYTES = 100
FULL_SESSION = (0, 0)
"""Session id and epoch of a fetch that asks for a new session (KIP-227)."""


@dataclass(frozen=True)
class Layout:
    """Topics with their numbers of partitions; the last one is the active one."""

    topics: Mapping[str, int]


def layout_of(partitions: int) -> Layout:
    """Both topics and partitions grow: as many topics as it takes with at most 50 partitions each."""
    topics: dict[str, int] = {}
    while (left := partitions - 1 - sum(topics.values())) > 0:
        topics[f"silent-{len(topics)}"] = min(left, TOPIC_PARTITIONS_MAX)
    return Layout(topics | {ACTIVE: 1})


def produce_one(requests: int) -> Workload:
    """One record a request, 5 requests in flight."""
    batch = record_batch(1, VALUE_BYTES)

    def prepare(server: Server, cleanup: ExitStack) -> Turn:
        producer = producing(server, ACTIVE, 0, batch, cleanup)
        return lambda: Measured((requests / seconds_of(lambda: producer.run(requests)),), requests)

    return Workload((Quantity("produce to one partition", "req/s"),), prepare)


def fetch_one(requests: int) -> Workload:
    """One batch a request, without a session."""

    def prepare(server: Server, cleanup: ExitStack) -> Turn:
        return _fetch_turn(_fetching(server, cleanup), requests)

    return Workload((Quantity("fetch from one partition", "req/s"),), prepare)


def fetch_session(requests: int, layouts: Mapping[str, Layout]) -> Workload:
    """One batch a request from the active partition, in a session that holds every partition of the broker."""

    def prepare(server: Server, cleanup: ExitStack) -> Turn:
        return _fetch_turn(_session_of_all(server, layouts[server.name], cleanup), requests)

    return Workload((Quantity("fetch in a session of all", "req/s"),), prepare)


def wait_for_partitions(server: Server, layout: Layout) -> None:
    """Return when the broker has opened all partitions: it does so after the topics are created."""
    with ExitStack() as cleanup:
        _session_of_all(server, layout, cleanup)


def _session_of_all(server: Server, layout: Layout, cleanup: ExitStack) -> Fetching:
    fetching = _fetching(server, cleanup)
    everything = {topic: range(count) for topic, count in layout.topics.items()}
    fetching.open_session(fetch_frame(everything, 1, FULL_SESSION))
    return fetching


def _fetching(server: Server, cleanup: ExitStack) -> Fetching:
    batch = record_batch(1, VALUE_BYTES)
    fill(server, ACTIVE, 0, batch, FILLED_BATCHES)
    connection = cleanup.enter_context(Connection(server.address))
    return Fetching(connection, fetch_frame({ACTIVE: FIRST_OF_ACTIVE}, len(batch)), ACTIVE, (1, len(batch)))


def _fetch_turn(fetching: Fetching, requests: int) -> Turn:
    def turn() -> Measured:
        began = time.perf_counter()
        for _ in range(requests):
            fetching.fetch()
        return Measured((requests / (time.perf_counter() - began),), requests)

    return turn
