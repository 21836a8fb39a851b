"""All nodes are killed, the disk of one loses acknowledged records meanwhile, and that node comes back first."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest
from clients import CLIENTS, confluent_consumer, write_values
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from harness.depth import sample
from harness.patience import PATIENCE_S, wait_until

from moldau.testing import TestCluster, cluster

pytestmark = pytest.mark.moldau_only

RECORDS = 400
DAMAGED, *INTACT = REPLICAS = [1, 2, 3]
OTHERS = [4, 5]
"""Controllers without a replica: with them the damaged node has a quorum while all other replicas are down."""
EPOCHS = "leader-epoch-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
_names = itertools.count()


@pytest.fixture(scope="module", autouse=True)
def broker_answers() -> None:
    """These tests do not use the shared broker of this directory."""


@pytest.fixture(scope="module")
def shared() -> Iterator[TestCluster]:
    with cluster(nodes=5, replica_high_watermark_checkpoint_interval_ms=200, offsets_topic_num_partitions=1) as running:
        yield running


@pytest.fixture
def kafka(shared: TestCluster) -> Iterator[TestCluster]:
    """The cluster of this file, with all nodes running again after each test."""
    yield shared
    restart(shared, [node.id for node in shared.nodes.values() if not node.is_running])


def segments(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.log"))


def cut_within_a_batch(directory: Path) -> None:
    active = segments(directory)[-1]
    with active.open("r+b") as file:
        file.truncate(active.stat().st_size * 2 // 3 + 1)


def overwrite_the_end(directory: Path) -> None:
    active = segments(directory)[-1]
    with active.open("r+b") as file:
        file.seek(active.stat().st_size * 2 // 3)
        file.write(b"\xa5" * (active.stat().st_size // 3))


def remove_the_directory(directory: Path) -> None:
    shutil.rmtree(directory)


def remove_the_last_segment(directory: Path) -> None:
    assert len(segments(directory)) > 1
    segments(directory)[-1].unlink()


def remove_the_first_segment(directory: Path) -> None:
    assert len(segments(directory)) > 1
    segments(directory)[0].unlink()


DAMAGES = [cut_within_a_batch, overwrite_the_end, remove_the_directory]
DAMAGES_OF_SEGMENTS = [remove_the_first_segment, remove_the_last_segment]
"""A missing segment leaves no trace of itself: only the checkpoints tell."""


def new_topic(kafka: TestCluster) -> str:
    name = f"damaged-{next(_names)}"
    topic = NewTopic(name, 1, replica_assignment=[REPLICAS], config={"segment.bytes": str(1 << 20)})
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    admin.create_topics([topic], operation_timeout=PATIENCE_S)[name].result(PATIENCE_S)
    kafka.wait_for_topic(name)
    kafka.wait_for_isr(name, 0, REPLICAS)
    return name


def await_checkpoints(kafka: TestCluster, data_dir: Path, topic: str) -> None:
    """Wait until the damaged node's disk tells where the log begins and how far it is committed."""
    epochs, high_watermarks = data_dir / f"{topic}-0" / EPOCHS, data_dir / HIGH_WATERMARKS
    kafka.wait_for(
        lambda: epochs.exists() and f"{topic} 0 {RECORDS}\n" in high_watermarks.read_text(), what="the checkpoints"
    )


@pytest.mark.parametrize("damage", sample(DAMAGES + DAMAGES_OF_SEGMENTS, 2), ids=lambda damage: damage.__name__)
def test_a_damaged_replica_costs_no_acknowledged_record(kafka: TestCluster, damage: Callable[[Path], None]) -> None:
    topic = new_topic(kafka)
    values = [b"%d %s" % (number, b"." * 4_000) for number in range(RECORDS)]
    write_values(kafka.bootstrap_servers, topic, values)
    data_dir = kafka.nodes[DAMAGED].data_dir
    if damage in DAMAGES_OF_SEGMENTS:
        await_checkpoints(kafka, data_dir, topic)
    kafka.kill_all()
    damage(data_dir / f"{topic}-0")
    restart(kafka, [DAMAGED, *OTHERS])
    # The others, which are still down, stay in the ISR, and any of them may be elected again.
    assert DAMAGED not in kafka.isr_of(topic, 0)
    restart(kafka, INTACT)
    kafka.wait_for_isr(topic, 0, REPLICAS)
    # What is committed now is on the damaged node too: let it lead. Alone it is below min.insync.replicas, and does
    # not learn any more what is committed.
    kafka.wait_for(lambda: high_watermark(kafka, topic) == RECORDS, what="the damaged node knows what is committed")
    for node in INTACT:
        kafka.stop(node)
    kafka.wait_for(lambda: kafka.leader_of(topic, 0) == DAMAGED, what="the damaged node leads")
    assert values_of(kafka, topic) == values


def high_watermark(kafka: TestCluster, topic: str) -> int:
    node = kafka.nodes[DAMAGED].node
    assert node is not None
    assert node.assembly.broker_side is not None
    return node.assembly.broker_side.partitions.get(topic, 0).high_watermark


def restart(kafka: TestCluster, nodes: Iterable[int]) -> None:
    for node in nodes:
        kafka.restart(node, wait=False)
    for node in nodes:
        kafka.nodes[node].await_ready()


def values_of(kafka: TestCluster, topic: str) -> list[bytes | None]:
    """Return all records. A missing one fails at once, not after a long wait for it."""
    consumer = confluent_consumer(kafka.bootstrap_servers)
    try:
        bounds = wait_until(lambda: offsets_of(consumer, topic), "the leader knows where the log ends")
    finally:
        consumer.close()
    assert bounds == (0, RECORDS)
    return [each.value for each in CLIENTS["confluent"].consume(kafka.bootstrap_servers, topic, RECORDS)]


def offsets_of(consumer: Consumer, topic: str) -> tuple[int, int] | None:
    """Return the first offset and the end. None while a new leader does not know the end yet."""
    try:
        first, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=PATIENCE_S)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.OFFSET_NOT_AVAILABLE:
            raise
        return None
    return first, end
