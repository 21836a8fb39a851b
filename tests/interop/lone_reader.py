"""A consumer as a process of its own: reads partition 0 of a topic from the group's committed offset on, and writes the
offset of each record to a file.

    python lone_reader.py BOOTSTRAP GROUP TOPIC FILE

Two defects of librdkafka 2.16 (docs/simulation.md): it sometimes forgets all brokers, so it is replaced by a new
consumer until it has read something; and it sometimes waits for ever for the end of its connections to brokers that
were down, so it is killed, not closed.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TextIO

from confluent_kafka import Consumer, TopicPartition

POLLS_MAX = 30


def main() -> None:
    bootstrap, group, topic, path = sys.argv[1:]
    settings = {"enable.auto.commit": False, "auto.offset.reset": "earliest", "log_level": 0}
    consumers: list[Consumer] = []
    with Path(path).open("w") as file:
        while not file.tell():
            consumers.append(Consumer({"bootstrap.servers": bootstrap, "group.id": group, **settings}))
            consumers[-1].assign([TopicPartition(topic, 0)])
            write_offsets(consumers[-1], file)


def write_offsets(consumer: Consumer, file: TextIO) -> None:
    """Return if there is nothing to read for a while at the beginning."""
    polls_left = POLLS_MAX
    while polls_left or file.tell():
        message = consumer.poll(1)
        polls_left -= 1
        if message is not None and message.error() is None:
            print(message.offset(), file=file, flush=True)


if __name__ == "__main__":
    main()
