"""What goes in and out of the topics of a node, as plain integers that only grow: metrics read them.

All partitions of a topic share one `TopicTraffic`. The totals of the node are the sums over its topics, so that an
append or a fetch counts once.
"""

from __future__ import annotations


class TopicTraffic:
    """Requests are counted once for each partition in them, as in Kafka."""

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "failed_fetches",
        "failed_produces",
        "fetches",
        "messages_in",
        "produces",
        "replication_bytes_in",
        "replication_bytes_out",
    )

    def __init__(self) -> None:
        self.messages_in = 0
        self.bytes_in = 0
        self.bytes_out = 0
        """To consumers; followers are in `replication_bytes_out`."""
        self.produces = 0
        self.failed_produces = 0
        self.fetches = 0
        self.failed_fetches = 0
        self.replication_bytes_in = 0
        self.replication_bytes_out = 0

    def add(self, other: TopicTraffic) -> None:
        # Thousands of topics may be deleted at once: a loop over the names would take five times as long.
        self.messages_in += other.messages_in
        self.bytes_in += other.bytes_in
        self.bytes_out += other.bytes_out
        self.produces += other.produces
        self.failed_produces += other.failed_produces
        self.fetches += other.fetches
        self.failed_fetches += other.failed_fetches
        self.replication_bytes_in += other.replication_bytes_in
        self.replication_bytes_out += other.replication_bytes_out


class Traffic:
    def __init__(self) -> None:
        self.topics: dict[str, TopicTraffic] = {}
        self.gone = TopicTraffic()
        """The sum of topics that have left this node: totals must not decrease."""

    def of(self, topic: str) -> TopicTraffic:
        traffic = self.topics.get(topic)
        if traffic is None:
            traffic = self.topics[topic] = TopicTraffic()
        return traffic

    def forget(self, topic: str) -> None:
        traffic = self.topics.pop(topic, None)
        if traffic is not None:
            self.gone.add(traffic)
