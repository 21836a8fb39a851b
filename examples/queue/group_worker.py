"""The same with a consumer group: what a queue does has to be written, and what one partition cannot do stays undone.

A job that is busy holds up all behind it in its partition, there are no more workers than partitions, and a worker that
dies forgets how often it has tried.

python group_worker.py [--until-idle]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

from confluent_kafka import Consumer, Message, Producer
from jobs import Busy, do

DELIVERIES_MAX = 3


def work(bootstrap: str, goes_on: Callable[[int], bool]) -> None:
    """Do jobs until `goes_on`, which is told how many came, says no."""
    config = {"bootstrap.servers": bootstrap, "group.id": "group-workers"}
    worker = Consumer({**config, "enable.auto.commit": False, "auto.offset.reset": "earliest"})
    graves = Producer({"bootstrap.servers": bootstrap})
    worker.subscribe(["jobs"])
    came = 1
    while goes_on(came):
        jobs = worker.consume(500, 1.0)
        for job in jobs:
            work_on(job, graves)
        graves.flush()
        if jobs:
            worker.commit(asynchronous=False)
        came = len(jobs)
    worker.close()


def work_on(job: Message, graves: Producer) -> None:
    """Try a job several times, with everybody waiting, and bury it if nothing helps."""
    reason = "Offset delivery count exceeded the threshold."
    for delivery in range(1, DELIVERIES_MAX + 1):
        try:
            do(job.value().decode(), delivery)
            return
        except Busy:
            continue
        except ValueError:
            reason = "Offset rejected by client."
            break
    place = {"topic": job.topic(), "partition": job.partition(), "offset": job.offset(), "message": reason}
    headers = [(f"__dlq.errors.{name}", str(value)) for name, value in place.items()]
    graves.produce("dlq.jobs", job.value(), job.key(), headers=headers)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Works on the jobs of a topic, as a member of a consumer group.")
    parser.add_argument("--until-idle", action="store_true", help="stop when no job has come for a second")
    parser.add_argument("-b", "--bootstrap-server", default="localhost:9092")
    arguments = parser.parse_args()
    work(arguments.bootstrap_server, lambda came: came > 0 or not arguments.until_idle)
