"""Views: how fast a broker evaluates them, and what a consumer of a selective view gains.

For values of about 100 B and 1 KiB of JSON: records of the source a second that a view filters on one field, cold (the
worker evaluates, by its CPU seconds) and warm (the broker has the results); then one librdkafka consumer that reads a
view which shows 1 % of the records, against one that reads the source and filters. Both have their turn in every round.
Linux only.

    python -m bench.views
    python -m bench.views --records 200000 --rounds 3
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from contextlib import suppress

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from bench.brokers.procfs import children, cpu_seconds
from bench.brokers.servers import MoldauProcess, Server

PATIENCE_S = 120
WORKER = "moldau.runtime.views.process_worker"


def fill(server: Server, topic: str, records: int, padding: int) -> None:
    producer = Producer({"bootstrap.servers": server.address, "linger.ms": 20, "batch.size": 65536})
    for number in range(records):
        value = {"id": number, "amount": number % 100, "user": f"user-{number % 900}", "note": "x" * padding}
        while True:
            try:
                producer.produce(topic, json.dumps(value), partition=0)
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush(PATIENCE_S)


def create(server: Server, name: str, **configs: str) -> None:
    admin = AdminClient({"bootstrap.servers": server.address})
    settings = {"moldau.view." + key: value for key, value in configs.items()}
    new = NewTopic(name, num_partitions=-1 if configs else 1, replication_factor=-1, config=settings)
    admin.create_topics([new], operation_timeout=PATIENCE_S)[name].result(PATIENCE_S)


def read(server: Server, topic: str, end: int, is_wanted: Callable[[bytes], bool] | None) -> tuple[float, int, int]:
    """Read to the end. Return seconds, wanted records, and bytes received from the broker."""
    received: list[int] = [0]

    def on_statistics(text: str) -> None:
        received[0] = json.loads(text)["rx_bytes"]

    consumer = Consumer(
        {
            "bootstrap.servers": server.address,
            "group.id": "bench-views",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "statistics.interval.ms": 50,
            "stats_cb": on_statistics,
            "fetch.queue.backoff.ms": 5,
            "fetch.wait.max.ms": 10,  # the end of a partition is told by an empty response
        }
    )
    consumer.list_topics(topic, timeout=PATIENCE_S)
    began = time.perf_counter()
    consumer.assign([TopicPartition(topic, 0, 0)])
    wanted, is_done = 0, False
    while not is_done:
        for message in consumer.consume(1000, 0.05):
            if message.error():
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                is_done = (message.offset() or 0) >= end
            elif is_wanted is None or is_wanted(message.value()):
                wanted += 1
    seconds = time.perf_counter() - began
    for _ in range(4):
        consumer.poll(0.05)  # the last statistics
    consumer.close()
    return seconds, wanted, received[0]


def worker_seconds(server: Server) -> float:
    total = 0.0
    for pid in children(server.pid):
        with suppress(OSError), open(f"/proc/{pid}/cmdline", encoding="ascii") as file:
            if WORKER in file.read():
                total += cpu_seconds(pid)
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=1_000_000, help="of 100 B; a quarter of it of 1 KiB")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    for size, padding, records in (("100 B", 25, options.records), ("1 KiB", 930, options.records // 4)):
        with MoldauProcess() as process:
            server = process.start()
            create(server, "source")
            fill(server, "source", records, padding)
            measure(server, size, records, options.rounds)


def measure(server: Server, size: str, records: int, rounds: int) -> None:
    create(server, "warm-up", **{"from": "source", "where": "amount < 0"})
    read(server, "warm-up", records, None)
    cold, warm, sooner, bytes_ratio = [], [], [], []
    for number in range(rounds):
        view = f"one-percent-{number}"
        create(server, view, **{"from": "source", "where": "amount = 7", "select": "id, amount"})
        before = worker_seconds(server)
        cold_s, shown, view_bytes = read(server, view, records, None)
        cold.append(records / (worker_seconds(server) - before))
        warm_s, _, _ = read(server, view, records, None)
        warm.append(records / warm_s)
        all_s, wanted, all_bytes = read(server, "source", records, lambda value: json.loads(value)["amount"] == 7)
        assert shown == wanted == records // 100
        sooner.append(all_s / cold_s)
        bytes_ratio.append(all_bytes / max(view_bytes, 1))
        print(f"{size}: cold {cold_s:.2f} s, warm {warm_s:.2f} s, reading all {all_s:.2f} s", flush=True)
    print(
        f"{size}: {statistics.median(cold) / 1e3:,.0f}k source records a CPU second of the worker; "
        f"warm {statistics.median(warm) / 1e3:,.0f}k a second; {statistics.median(sooner):.1f} times sooner than "
        f"reading all; {statistics.median(bytes_ratio):.0f} times fewer bytes",
        flush=True,
    )


if __name__ == "__main__":
    main()
