"""A producer that sends one small request every few milliseconds and waits for the answer: its latencies show what
other work of the broker costs everybody else."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack

from bench.brokers.connection import Connection, Producing
from bench.brokers.frames import METADATA, produce_frame, record_batch, request

TOPIC = "orders"


class SteadyProducer:
    """One request after the other, at most one in each interval: sends that a slow answer holds up are left out, not
    made up for. `login` are the requests that come first."""

    def __init__(self, address: str, cleanup: ExitStack, login: Iterable[bytes] = ()) -> None:
        connection = cleanup.enter_context(Connection(address))
        for frame in login:
            connection.ask(frame)
        topic = TOPIC.encode()
        connection.ask(request(METADATA, 1, struct.pack(">ih", 1, len(topic)) + topic))  # creates the topic
        self._producer = Producing(connection, produce_frame(TOPIC, 0, record_batch(1, 100)), 1)
        self._producer.wait_until_writable()

    def run(self, seconds: float, every_s: float) -> list[float]:
        """Return the latencies in milliseconds."""
        latencies: list[float] = []
        begun = due = time.perf_counter()
        while due - begun < seconds:
            time.sleep(max(0.0, due - time.perf_counter()))
            sent = time.perf_counter()
            self._producer.run(1)
            latencies.append((time.perf_counter() - sent) * 1000)
            due = max(due + every_s, time.perf_counter())
        return latencies


def percentile(latencies: Sequence[float], percent: float) -> float:
    ordered = sorted(latencies)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]
