"""Puts orders into the topic `orders`, numbered from 0: python orders.py --count 10000"""

from __future__ import annotations

import argparse
import json

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, KafkaException, NewTopic
from pricing import DELIVERIES, ORDERS, PRICED

PARTITIONS, TIMEOUT_S = 3, 30.0


def create_topics(address: str) -> None:
    admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
    names = [ORDERS, *(f"{PRICED}.{delivery}" for delivery in DELIVERIES)]
    for name, made in admin.create_topics([NewTopic(name, PARTITIONS) for name in names]).items():
        try:
            made.result(TIMEOUT_S)
        except KafkaException as error:
            raise SystemExit(f"{error.args[0].str()} Begin with a fresh broker, or delete {name}.") from error


def send(address: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": address, "enable.idempotence": True, "log_level": 0})
    for number in range(count):
        order = {"id": number, "copies": 1 + number % 4}
        producer.produce(ORDERS, json.dumps(order).encode(), b"customer-%d" % (number % 97))
        producer.poll(0)
    if left := producer.flush(TIMEOUT_S):
        raise SystemExit(f"{left} orders could not be sent")


def main() -> None:
    parser = argparse.ArgumentParser(description="Puts numbered orders into the topic orders.")
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("-b", "--bootstrap", default="localhost:9092", metavar="HOST:PORT")
    args = parser.parse_args()
    create_topics(args.bootstrap)
    send(args.bootstrap, args.count)
    print(f"{args.count:,} orders are in the topic {ORDERS}")


if __name__ == "__main__":
    main()
