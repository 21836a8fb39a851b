"""Counts what became of the orders: python verdict.py

Every output topic is read to its end by a consumer with read_committed, as every reader should that wants to see
exactly what was done; `--uncommitted` shows what the others see.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from pricing import DELIVERIES, ORDERS, PRICED

TIMEOUT_S = 30.0


class Verdict(NamedTuple):
    orders: int
    lost: int
    doubled: int
    once: int


def verdict(orders: Iterable[int], priced: Iterable[int]) -> Verdict:
    wanted, found = set(orders), Counter(priced)
    once = sum(1 for number in wanted if found[number] == 1)
    doubled = sum(1 for number in wanted if found[number] > 1)
    return Verdict(len(wanted), len(wanted) - once - doubled, doubled, once)


def ids(address: str, topic: str, isolation: str = "read_committed") -> list[int]:
    """The id of every order in a topic, as often as it is there."""
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "report",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation,
            "log_level": 0,
        }
    )
    try:
        rest = set(consumer.list_topics(topic, TIMEOUT_S).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, index, 0) for index in rest])
        found = []
        while rest:
            message = consumer.poll(TIMEOUT_S)
            if message is None:
                raise TimeoutError(f"{topic}: the broker does not answer")
            error = message.error()
            if error is None:
                found.append(json.loads(message.value() or b"")["id"])
            elif error.code() == KafkaError._PARTITION_EOF:
                rest.discard(message.partition())
            else:
                raise KafkaException(error)
        return found
    finally:
        consumer.close()


def table(verdicts: dict[str, Verdict]) -> str:
    lines = [f"{'':15}{'orders':>9}{'lost':>9}{'doubled':>9}{'exactly once':>15}"]
    for delivery, each in verdicts.items():
        lines.append(f"{delivery:15}{each.orders:9,}{each.lost:9,}{each.doubled:9,}{each.once:15,}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description="Counts what became of the orders.")
    parser.add_argument("--uncommitted", action="store_true", help="also count what transactions took back")
    parser.add_argument("-b", "--bootstrap", default="localhost:9092", metavar="HOST:PORT")
    args = parser.parse_args()
    isolation = "read_uncommitted" if args.uncommitted else "read_committed"
    orders = ids(args.bootstrap, ORDERS)
    print(table({each: verdict(orders, ids(args.bootstrap, f"{PRICED}.{each}", isolation)) for each in DELIVERIES}))


if __name__ == "__main__":
    main()
