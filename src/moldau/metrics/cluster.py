"""The cluster as the metadata say: Kafka's KafkaController, and what kafka-exporter adds about topics and brokers.

Each partition is reported once in the cluster, so that sums over all nodes are right: by its leader, or by the active
controller if it has none. Only the active controller reports brokers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from moldau.metadata.apply import Changes
from moldau.metadata.current import CurrentImage
from moldau.metadata.image import RECOVERING, MetadataImage, PartitionState
from moldau.prometheus.text import COUNTER, GAUGE, PIECE_SERIES, Family, columns, labels, pieces, single, topic_prefix
from moldau.replica.partitions import Partitions

_CONTROLLER: Final = "kafka_controller_kafkacontroller"
_PARTITION: Final = "kafka_topic_partition"
_UNCLEAN: Final = Family(
    "kafka_controller_controllerstats_uncleanleaderelections_total", COUNTER, "Leaders that were not in sync."
)
_BROKERS: Final = Family("kafka_brokers", GAUGE, "Brokers that are not fenced.")
_BROKER_INFO: Final = Family("kafka_broker_info", GAUGE, "A broker and its address.")
_TOPIC_PARTITIONS: Final = Family("kafka_topic_partitions", GAUGE, "Partitions of a topic.")
_EACH: Final = (
    Family(f"{_PARTITION}_leader", GAUGE, "The leader; -1 if there is none."),
    Family(f"{_PARTITION}_replicas", GAUGE, "Replicas."),
    Family(f"{_PARTITION}_in_sync_replica", GAUGE, "In-sync replicas."),
    Family(f"{_PARTITION}_leader_is_preferred", GAUGE, "1 if the first replica leads."),
    Family(f"{_PARTITION}_under_replicated_partition", GAUGE, "1 if a replica is out of sync."),
)
"""The metrics of single partitions; a row has the labels and then their values."""
_OFFSETS: Final = (
    Family(f"{_PARTITION}_current_offset", GAUGE, "The high watermark."),
    Family(f"{_PARTITION}_oldest_offset", GAUGE, "The log start offset."),
)


class UncleanElections:
    """Counts unclean elections while this node is the active controller."""

    def __init__(self, current: CurrentImage, is_active: Callable[[], bool]) -> None:
        self._current = current
        self._is_active = is_active
        self.count = 0

    def on_image(self, image: MetadataImage, changes: Changes) -> None:
        """Called before the image is the current one."""
        if not self._is_active():
            return
        for name, indexes in changes.topics.items():
            topic = image.topics[name]
            if topic.is_view:
                continue  # its partitions are those of its source
            before = self._current.image.topics.get(name)
            after = topic.partitions
            for index in indexes:
                leader = after[index].leader
                if after[index].leader_recovery_state == RECOVERING and leader >= 0:
                    old = before.partitions[index] if before and index < len(before.partitions) else None
                    self.count += old is None or leader not in old.isr


def collect_controller(image: MetadataImage, is_active: bool, unclean_elections: int) -> Iterator[str]:
    """A controller that is not active reports zeros, as in Kafka: the sum over all nodes is the cluster's number."""
    partitions = offline = imbalanced = 0
    for _, _, state in _states(image) if is_active else ():
        partitions += 1
        offline += state.leader < 0
        imbalanced += state.replicas[:1] != (state.leader,)
        if not partitions % PIECE_SERIES:
            yield ""
    fenced = sum(broker.fenced for broker in image.brokers.values()) if is_active else 0
    brokers = len(image.brokers) if is_active else 0
    for name, help, value in (
        ("activecontrollercount", "1 on the active controller.", int(is_active)),
        ("offlinepartitionscount", "Partitions without a leader.", offline),
        ("preferredreplicaimbalancecount", "Partitions that their first replica does not lead.", imbalanced),
        ("globaltopiccount", "Topics.", len(image.topics) if is_active else 0),
        ("globalpartitioncount", "Partitions.", partitions),
        ("activebrokercount", "Brokers that are not fenced.", brokers - fenced),
        ("fencedbrokercount", "Brokers that are fenced.", fenced),
        ("lastappliedrecordoffset", "The last offset of the metadata that is applied.", image.offset),
    ):
        yield single(Family(f"{_CONTROLLER}_{name}", GAUGE, help), value)
    yield single(_UNCLEAN, unclean_elections)


def collect_brokers(image: MetadataImage, listener: str) -> Iterator[str]:
    """`listener` is the one whose address is shown."""
    brokers = image.live_brokers()
    yield single(_BROKERS, len(brokers))
    rows = []
    for broker in brokers:
        endpoint = broker.endpoint(listener) or next(iter(broker.endpoints), None)
        address = "" if endpoint is None else f"{endpoint.host}:{endpoint.port}"
        rows.append((labels(id=broker.id, address=address), 1))
    yield from pieces(_BROKER_INFO, rows)


def collect_topics(image: MetadataImage, node_id: int, is_active: bool) -> Iterator[str]:
    """Yield the number of partitions of each topic, from the node that reports its first partition."""
    rows = []
    for number, topic in enumerate(image.topics.values(), 1):
        if topic.partitions and _is_reported_here(topic.partitions[0], node_id, is_active):
            rows.append((labels(topic=topic.name), len(topic.partitions)))
        if not number % PIECE_SERIES:
            yield ""
    yield from pieces(_TOPIC_PARTITIONS, rows)


def collect_each(image: MetadataImage, node_id: int, is_active: bool, local: Partitions | None) -> Iterator[str]:
    """Yield the series of single partitions. `local` are those of this node, None if it is no broker."""
    chunks: list[list[tuple[str, int, int, int, int, int]]] = [[]]
    led: list[list[tuple[str, int, int]]] = [[]]
    last, prefix = "", ""
    for number, (topic, index, state) in enumerate(_states(image), 1):
        if _is_reported_here(state, node_id, is_active):
            if topic != last:
                last, prefix = topic, topic_prefix(topic)
            labelled, leader = f'{prefix}{index}"}}', state.leader
            replicas, isr = len(state.replicas), len(state.isr)
            is_preferred = int(state.replicas[0] == leader)
            chunks[-1].append((labelled, leader, replicas, isr, is_preferred, int(isr < replicas)))
            found = None if local is None else local.find(topic, index)
            if found is not None and found.is_leader:
                led[-1].append((labelled, found.high_watermark, found.log.start_offset))
        if not number % PIECE_SERIES:
            chunks.append([])
            led.append([])
            yield ""
    yield from columns(_EACH, [chunk for chunk in chunks if chunk])
    yield from columns(_OFFSETS, [chunk for chunk in led if chunk])


def _states(image: MetadataImage) -> Iterator[tuple[str, int, PartitionState]]:
    """Yield all partitions. The image does not change while others have their turns."""
    for topic in image.topics.values():
        if topic.is_view:
            continue
        for index, state in enumerate(topic.partitions):
            yield topic.name, index, state


def _is_reported_here(state: PartitionState, node_id: int, is_active: bool) -> bool:
    return state.leader == node_id or (is_active and state.leader < 0)
