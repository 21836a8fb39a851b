"""A consumer as a process of its own: reads partition 0 of a topic from the group's committed offset on, and writes the
offset of each record to a file.

    python lone_reader.py BOOTSTRAP GROUP TOPIC FILE

It is killed, not closed: librdkafka 2.16 sometimes waits for ever for the end of its connections to brokers that were
down (docs/simulation.md).
"""

from __future__ import annotations

import sys
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition


def main() -> None:
    bootstrap, group, topic, path = sys.argv[1:]
    settings = {"enable.auto.commit": False, "auto.offset.reset": "earliest", "log_level": 0}
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, **settings})
    consumer.assign([TopicPartition(topic, 0)])
    with Path(path).open("w") as file:
        while True:
            message = consumer.poll(1)
            if message is not None and message.error() is None:
                print(message.offset(), file=file, flush=True)


if __name__ == "__main__":
    main()
