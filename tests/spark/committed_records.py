"""The records that a read_committed consumer finds in a topic, once no transaction in it is open."""

from __future__ import annotations

import time
from contextlib import closing

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, TopicPartition
from harness.patience import PATIENCE_S, Patience

from moldau.base.ids import TopicPartition as Place
from moldau.client.cluster import Cluster


def committed_records(bootstrap: str, topic: str) -> list[Message]:
    """All records by partition, in order. A commit is answered before its markers are written, so wait for them."""
    with closing(Cluster(bootstrap, {})) as cluster:
        places = [Place(topic, number) for number in cluster.topic(topic).leaders]
        patience = Patience(f"the transactions in {topic} end")
        while cluster.latest(places, read_committed=True) != cluster.latest(places):
            patience.check()
            time.sleep(0.01)
    return _until_the_end(bootstrap, places)


def _until_the_end(bootstrap: str, places: list[Place]) -> list[Message]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "looking",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "log_level": 0,
        }
    )
    rest, found = set(places), []
    try:
        consumer.assign([TopicPartition(*place, OFFSET_BEGINNING) for place in places])
        while rest:
            message = consumer.poll(PATIENCE_S)
            assert message is not None, f"no record and no end of {rest}"
            error = message.error()
            if error is None:
                found.append(message)
            else:
                assert error.code() == KafkaError._PARTITION_EOF, error
                rest.discard(Place(message.topic() or "", message.partition() or 0))
    finally:
        consumer.close()
    return sorted(found, key=lambda message: (message.partition(), message.offset()))
