"""What goes in and out of topics: Kafka's BrokerTopicMetrics, for the whole node and by topic."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from moldau.base.turns import SLOW_ITEMS_A_TURN
from moldau.prometheus.text import COUNTER, Family, labels, lines, single
from moldau.replica.traffic import TopicTraffic, Traffic

_PREFIX: Final = "kafka_server_brokertopicmetrics"
_METRICS: Final = (
    ("messages_in", Family(f"{_PREFIX}_messagesin_total", COUNTER, "Records appended.")),
    ("bytes_in", Family(f"{_PREFIX}_bytesin_total", COUNTER, "Bytes of records appended.")),
    ("bytes_out", Family(f"{_PREFIX}_bytesout_total", COUNTER, "Bytes of records sent to consumers.")),
    (
        "produces",
        Family(f"{_PREFIX}_totalproducerequests_total", COUNTER, "Produce requests, counted once for each partition."),
    ),
    (
        "fetches",
        Family(
            f"{_PREFIX}_totalfetchrequests_total",
            COUNTER,
            "Fetch requests of consumers and followers, counted once for each partition.",
        ),
    ),
    (
        "failed_produces",
        Family(f"{_PREFIX}_failedproducerequests_total", COUNTER, "Produce requests that failed for a partition."),
    ),
    (
        "failed_fetches",
        Family(f"{_PREFIX}_failedfetchrequests_total", COUNTER, "Fetch requests that failed for a partition."),
    ),
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
        if not number % SLOW_ITEMS_A_TURN:
            yield ""
    for attribute, family in _METRICS:
        yield single(family, getattr(total, attribute))
        yield from lines(family.name, ((labelled, getattr(each, attribute)) for labelled, each in topics))
