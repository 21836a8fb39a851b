"""How long a librdkafka producer with default settings gets no acknowledgement while a node is lost.

It sends a record every few milliseconds. The silence is the longest time between two acknowledgements around the
signal: what the cluster needs for a new leader, and what the client waits for after that.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from confluent_kafka import KafkaError, Message, Producer

from bench.brokers.connection import BrokerRefused
from bench.cluster.servers import Cluster

BEFORE_S = 1.0
"""Time to send before the signal, and after the first acknowledgement of a record sent after it."""
EVERY_S = 0.005
GIVE_UP_S = 120.0


class Acknowledgements:
    """A producer and when its records were acknowledged."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "log_level": 0})
        self._topic = topic
        self._times: list[float] = []
        self._acknowledged_of = 0.0
        """When the newest acknowledged record was sent."""

    def send_until(self, is_done: Callable[[float], bool]) -> None:
        """Send until `is_done` of the time when the newest acknowledged record was sent."""
        give_up = time.perf_counter() + GIVE_UP_S
        while not is_done(self._acknowledged_of):
            sent = time.perf_counter()
            if sent > give_up:
                raise BrokerRefused(f"{self._topic}: a producer got no acknowledgement within {GIVE_UP_S:g} s")
            self._producer.produce(self._topic, bytes(100), on_delivery=self._on_delivery(sent))
            self._producer.poll(EVERY_S)

    def close(self) -> float:
        """Return the longest time between two acknowledgements."""
        if self._producer.flush(GIVE_UP_S):
            raise BrokerRefused(f"{self._topic}: records of a producer were not acknowledged")
        return max(after - before for before, after in zip(self._times, self._times[1:], strict=False))

    def _on_delivery(self, sent: float) -> Callable[[KafkaError | None, Message], None]:
        def delivered(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                raise BrokerRefused(f"{self._topic}: {error}")
            self._times.append(time.perf_counter())
            self._acknowledged_of = max(self._acknowledged_of, sent)

        return delivered


def client_silence(cluster: Cluster, victim: int, topic: str, send_signal: Callable[[], None]) -> float:
    # Only the other nodes: a client that must first find a bootstrap server would measure something else.
    producer = Acknowledgements(",".join(cluster.others(victim)), topic)
    # Not always at the same time after its start: the client asks for the leader of a dead broker once a second.
    begun, before_s = time.perf_counter(), BEFORE_S + random.random()
    producer.send_until(lambda acknowledged_of: acknowledged_of > begun + before_s)
    send_signal()
    sent = time.perf_counter()
    producer.send_until(lambda acknowledged_of: acknowledged_of > sent + BEFORE_S)
    return producer.close()
