"""The partitions of a node: Kafka's ReplicaManager, and series of single partitions as far as they are wanted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from moldau.prometheus.text import COUNTER, GAUGE, PIECE_SERIES, Family, columns, single, topic_prefix
from moldau.replica.partition import Partition
from moldau.replica.replication import Replication

_REPLICAS: Final = "kafka_server_replicamanager"
_PARTITION: Final = "kafka_cluster_partition"
_LOG: Final = "kafka_log_log"


def under_replicated(partition: Partition) -> bool:
    """Whether replicas are out of sync; those that a reassignment adds do not count yet. Only a leader knows."""
    state = partition.state
    return partition.is_leader and len(state.isr) < len(state.replicas) - len(state.adding_replicas)


def above_min_isr(partition: Partition) -> int:
    """Return how many in-sync replicas may be lost until acks=all fails; below 0 if it fails already."""
    state = partition.state
    return len(state.isr) - min(partition.min_insync_replicas, len(state.replicas))


_EACH: Final = (
    Family(f"{_PARTITION}_atminisr", GAUGE, "1 if no in-sync replica may be lost."),
    Family(f"{_PARTITION}_underminisr", GAUGE, "1 if acks=all fails for lack of in-sync replicas."),
    Family(f"{_PARTITION}_replicascount", GAUGE, "Replicas, on their leader."),
    Family(f"{_LOG}_size", GAUGE, "Bytes of a partition on this node."),
    Family(f"{_LOG}_logstartoffset", GAUGE, "The first offset."),
    Family(f"{_LOG}_logendoffset", GAUGE, "The next offset."),
)
"""The metrics of single partitions; a row has the labels and then their values."""
EachRow = tuple[str, int, int, int, int, int, int]


@dataclass(slots=True)
class _Counted:
    partitions: int = 0
    leaders: int = 0
    under_replicated: int = 0
    under_min_isr: int = 0
    at_min_isr: int = 0
    reassigning: int = 0

    def add(self, partition: Partition) -> None:
        self.partitions += 1
        if partition.is_leader:
            above = above_min_isr(partition)
            self.leaders += 1
            self.under_replicated += under_replicated(partition)
            self.under_min_isr += above < 0
            self.at_min_isr += above == 0
            self.reassigning += partition.state.is_reassigning


def collect(partitions: Sequence[Partition], missing_count: int, replication: Replication) -> Iterator[str]:
    """`missing_count` is the number of partitions whose log cannot be opened."""
    counted = _Counted()
    for number, partition in enumerate(partitions, 1):
        counted.add(partition)
        if not number % PIECE_SERIES:
            yield ""
    for name, help, value in (
        ("partitioncount", "Partitions on this node.", counted.partitions),
        ("leadercount", "Partitions that this node leads.", counted.leaders),
        ("underreplicatedpartitions", "Led partitions with replicas out of sync.", counted.under_replicated),
        ("underminisrpartitioncount", "Led partitions below min.insync.replicas.", counted.under_min_isr),
        ("atminisrpartitioncount", "Led partitions at min.insync.replicas.", counted.at_min_isr),
        ("reassigningpartitions", "Led partitions that are being reassigned.", counted.reassigning),
        ("offlinereplicacount", "Partitions whose log cannot be opened.", missing_count),
    ):
        yield single(Family(f"{_REPLICAS}_{name}", GAUGE, help), value)
    for name, help, value in (
        ("isrshrinks_total", "Times that a replica left the in-sync replicas.", replication.isr_shrinks),
        ("isrexpands_total", "Times that a replica joined the in-sync replicas.", replication.isr_expands),
        ("failedisrupdates_total", "Such changes that the controller refused.", replication.isr_failures),
    ):
        yield single(Family(f"{_REPLICAS}_{name}", COUNTER, help), value)


def collect_each(partitions: Sequence[Partition]) -> Iterator[str]:
    """Yield the series of single partitions. All values of a partition are read at once: that is faster, too."""
    chunks: list[list[EachRow]] = []
    prefixes: dict[str, str] = {}
    for start in range(0, len(partitions), PIECE_SERIES):
        chunks.append([_row(each, prefixes) for each in partitions[start : start + PIECE_SERIES]])
        yield ""
    yield from columns(_EACH, chunks)


def _row(partition: Partition, prefixes: dict[str, str]) -> EachRow:
    topic, index = partition.name
    prefix = prefixes.get(topic)
    if prefix is None:
        prefix = prefixes[topic] = topic_prefix(topic)
    log, segments = partition.log, partition.log.segments
    size = segments.active.size if len(segments) == 1 else log.size_bytes
    if not partition.is_leader:
        return f'{prefix}{index}"}}', 0, 0, 0, size, log.start_offset, log.end_offset
    above, replicas = above_min_isr(partition), len(partition.state.replicas)
    return f'{prefix}{index}"}}', int(not above), int(above < 0), replicas, size, log.start_offset, log.end_offset
