"""A worker of a queue: a member of a share group. Start as many as you like.

python queue_worker.py [--until-idle]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

from confluent_kafka import AcknowledgeType, ShareConsumer
from jobs import Busy, do

ACCEPT, RELEASE, REJECT = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT


def work(bootstrap: str, goes_on: Callable[[int], bool]) -> None:
    """Do jobs until `goes_on`, which is told how many came, says no."""
    config = {"bootstrap.servers": bootstrap, "group.id": "workers", "share.acknowledgement.mode": "explicit"}
    worker = ShareConsumer(config)
    worker.subscribe(["jobs"])
    came = 1
    while goes_on(came):
        jobs = worker.poll(1.0)
        for job in jobs:
            try:
                do(job.value().decode(), job.delivery_count())
                worker.acknowledge(job, ACCEPT)
            except Busy:
                worker.acknowledge(job, RELEASE)  # it comes again, here or elsewhere, until it is given up
            except ValueError:
                worker.acknowledge(job, REJECT)  # it is given up, and has a dead letter in dlq.jobs
        worker.commit_sync()
        came = len(jobs)
    worker.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Works on the jobs of a queue.")
    parser.add_argument("--until-idle", action="store_true", help="stop when no job has come for a second")
    parser.add_argument("-b", "--bootstrap-server", default="localhost:9092")
    arguments = parser.parse_args()
    work(arguments.bootstrap_server, lambda came: came > 0 or not arguments.until_idle)
