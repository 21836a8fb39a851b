"""A fleet of machines that measures and logs at a high rate.

python fleet.py --rate 50000 --seconds 20
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from random import Random

from confluent_kafka import Producer

HOSTS = tuple(f"web-{number}" for number in range(1, 21))
SERVICES = ("payments", "search", "basket", "login")
LEVELS = ("DEBUG", "INFO", "INFO", "INFO", "INFO", "WARN", "ERROR")
TICK_S = 0.1


def measurements(rng: Random, count: int, moment: datetime) -> Iterator[tuple[str, str]]:
    """Key and value: CSV with the host, what was measured, the figure and the time."""
    at = iso(moment)
    for _ in range(count):
        host = rng.choice(HOSTS)
        if rng.random() < 0.5:
            yield host, f"{host},cpu,{rng.betavariate(2, 5):.4f},{at}"
        else:
            yield host, f"{host},latency_ms,{rng.lognormvariate(3, 0.6):.2f},{at}"


def log_lines(rng: Random, count: int, moment: datetime) -> Iterator[tuple[str, str]]:
    at = iso(moment)
    for _ in range(count):
        service, level = rng.choice(SERVICES), rng.choice(LEVELS)
        yield service, f"{at} {level} {service} request {rng.getrandbits(32):08x} took {rng.randrange(1, 900)} ms"


def iso(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03}Z"


def main() -> None:
    parser = argparse.ArgumentParser(description="Measurements and log lines of a fleet, half and half.")
    parser.add_argument("--rate", type=int, default=20_000, metavar="N", help="records a second (default 20000)")
    parser.add_argument("--seconds", type=float, default=20, metavar="S", help="for so long (default 20)")
    parser.add_argument("-b", "--bootstrap-server", default="localhost:9092")
    parser.add_argument("--seed", type=int, default=7)
    args = parser.parse_args()
    # Batches of many records, compressed, a tenth of a second old at most: that is what a high rate is made of.
    producer = Producer(
        {
            "bootstrap.servers": args.bootstrap_server,
            "linger.ms": 100,
            "batch.size": 1_000_000,
            "compression.type": "lz4",
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    rng, share = Random(args.seed), max(1, round(args.rate * TICK_S / 2))
    begin = time.monotonic()
    for tick in range(round(args.seconds / TICK_S)):
        moment = datetime.now(UTC)
        for topic, records in (("ops.metrics", measurements), ("ops.logs", log_lines)):
            for key, value in records(rng, share, moment):
                producer.produce(topic, value, key)
            producer.poll(0)
        time.sleep(max(0.0, begin + (tick + 1) * TICK_S - time.monotonic()))
    producer.flush()
    took = time.monotonic() - begin
    sent = 2 * share * round(args.seconds / TICK_S)
    print(f"{sent:,} records in {took:.1f} s: {sent / took:,.0f} a second")


if __name__ == "__main__":
    main()
