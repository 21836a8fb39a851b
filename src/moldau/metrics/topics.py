"""What goes in and out of topics: Kafka's BrokerTopicMetrics, for the whole node and by topic."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from moldau.metrics.text import COUNTER, Family, labels, lines
from moldau.replica.traffic import TopicTraffic, Traffic

_PREFIX: Final = "kafka_server_brokertopicmetrics"
TOPICS_A_TURN: Final = 100
_BY_TOPIC: Final = (
    ("messages_in", Family(f"{_PREFIX}_messagesin_total", COUNTER, "Records appended.")),
    ("bytes_in", Family(f"{_PREFIX}_bytesin_total", COUNTER, "Bytes of records appended.")),
    ("bytes_out", Family(f"{_PREFIX}_bytesout_total", COUNTER, "Bytes of records sent to consumers.")),
    ("produces", Family(f"{_PREFIX}_totalproducerequests_total", COUNTER, "Appends, one for each partition.")),
    ("fetches", Family(f"{_PREFIX}_totalfetchrequests_total", COUNTER, "Reads, one for each partition.")),
    ("failed_produces", Family(f"{_PREFIX}_failedproducerequests_total", COUNTER, "Appends that failed.")),
    ("failed_fetches", Family(f"{_PREFIX}_failedfetchrequests_total", COUNTER, "Reads that failed.")),
    (
        "replication_bytes_in",
        Family(f"{_PREFIX}_replicationbytesin_total", COUNTER, "Bytes of records fetched from leaders."),
    ),
    (
        "replication_bytes_out",
        Family(f"{_PREFIX}_replicationbytesout_total", COUNTER, "Bytes of records sent to followers."),
    ),
)


def collect(traffic: Traffic) -> Iterator[str]:
    total = TopicTraffic()
    total.add(traffic.gone)
    topics = []
    for number, (name, each) in enumerate(list(traffic.topics.items()), 1):
        total.add(each)
        topics.append((labels(topic=name), each))
        if not number % TOPICS_A_TURN:
            yield ""
    for attribute, family in _BY_TOPIC:
        yield family.head + f"{family.name} {getattr(total, attribute)}\n"
        yield from lines(family.name, ((labelled, getattr(each, attribute)) for labelled, each in topics))
