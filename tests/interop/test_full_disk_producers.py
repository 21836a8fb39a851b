"""One disk of three is full for a while: idempotent producers of all libraries go on, and all is stored once.

Before, the full leader refused a batch, and took those in flight behind it for a gap. librdkafka then began a new epoch
for all partitions, and sent again what other leaders held up, because they waited for the full follower.
"""

from __future__ import annotations

import shutil
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from clients import confluent_consumer, poll_messages
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from failover_roles import await_in_sync, create_replicated
from failover_senders import KAFKA_LIBS, SENDERS, ConfluentSender, Sender
from harness.patience import PATIENCE_S, wait_until

from moldau.testing import TestCluster, cluster

pytestmark = [pytest.mark.moldau_only, pytest.mark.usefixtures("sockets_are_collected_at_once")]
PARTITIONS = 3
SENT_MEANWHILE = 300
"""Records that a producer sends while the disk is full: for several seconds, longer than the short timeout."""


class ImpatientConfluentSender(ConfluentSender):
    """Sends requests again that are held up."""

    SETTINGS = {"request.timeout.ms": 1_500}  # noqa: RUF012


@pytest.fixture(scope="module")
def three_nodes() -> Iterator[TestCluster]:
    with cluster(min_insync_replicas=2, replica_lag_time_max_ms=10_000) as running:
        yield running


@pytest.fixture(scope="module")
def bootstrap(three_nodes: TestCluster) -> str:
    return three_nodes.bootstrap_servers


def new_topic(three_nodes: TestCluster, admin: AdminClient) -> str:
    name = f"full-{uuid.uuid4().hex[:8]}"
    create_replicated(three_nodes, admin, name, PARTITIONS)
    return name


def await_acks(sender: Sender, what: str) -> None:
    """Wait until records sent from now on are acknowledged in every partition."""
    start = len(sender.acked)
    wait_until(lambda: len({partition for partition, _ in sender.acked[start:]}) == PARTITIONS, what)


def stored(bootstrap: str, topic: str) -> Counter[int]:
    consumer = confluent_consumer(bootstrap)
    found: Counter[int] = Counter()
    try:
        for partition in range(PARTITIONS):
            place = TopicPartition(topic, partition, 0)
            _, end = consumer.get_watermark_offsets(place, timeout=PATIENCE_S)
            consumer.assign([place])
            found.update(int(each.value()) for each in poll_messages(consumer, end))
    finally:
        consumer.close()
    return found


def is_full(three_nodes: TestCluster, node_id: int) -> bool:
    """Return whether the nodes know that this one cannot write."""
    nodes = [each.node for each in three_nodes.nodes.values()]
    return all(node is not None and node.assembly.current.image.brokers[node_id].cannot_write for node in nodes)


def senders() -> dict[str, type[Sender]]:
    has_java = KAFKA_LIBS and shutil.which("java")
    impatient = {"impatient confluent": ImpatientConfluentSender}
    return impatient | {name: sender for name, sender in SENDERS.items() if name != "java" or has_java}


def test_nothing_is_stored_twice_or_lost(three_nodes: TestCluster, bootstrap: str, admin: AdminClient) -> None:
    topics = {name: new_topic(three_nodes, admin) for name in senders()}
    full = three_nodes.leader_of(topics["impatient confluent"], 0)
    assert full is not None
    with ExitStack() as stack:
        running = {
            name: stack.enter_context(sender(bootstrap, topics[name], PARTITIONS)) for name, sender in senders().items()
        }
        for name, sender in running.items():
            await_acks(sender, f"{name} writes to all partitions")
        three_nodes.fill_disk(full)
        clock = running["impatient confluent"]
        enough = clock.sent + SENT_MEANWHILE
        wait_until(lambda: clock.sent >= enough or clock.errors, "the disk has been full for some seconds")
        three_nodes.free_disk(full)
        for name, topic in topics.items():
            await_in_sync(admin, topic, PARTITIONS)
            await_acks(running[name], f"{name} writes to all partitions again")
    assert {name: sender.errors for name, sender in running.items()} == {name: [] for name in running}
    kept = {name: stored(bootstrap, topic) for name, topic in topics.items()}
    twice = {name: sum(count > 1 for count in found.values()) for name, found in kept.items()}
    assert twice == dict.fromkeys(running, 0)
    lost = {name: {number for _, number in sender.acked} - set(kept[name]) for name, sender in running.items()}
    assert lost == {name: set() for name in running}


def test_others_take_over_from_the_full_broker_and_it_comes_back(
    three_nodes: TestCluster, bootstrap: str, admin: AdminClient
) -> None:
    topic = new_topic(three_nodes, admin)
    full = three_nodes.leader_of(topic, 0)
    assert full is not None

    def is_replaced() -> bool:
        states = [
            (three_nodes.leader_of(topic, index), three_nodes.isr_of(topic, index)) for index in range(PARTITIONS)
        ]
        return all(leader not in (None, full) and full not in isr for leader, isr in states)

    with ConfluentSender(bootstrap, topic, PARTITIONS) as sender:
        await_acks(sender, "all partitions are written")
        three_nodes.fill_disk(full)
        wait_until(is_replaced, f"node {full} leads nothing and is in no ISR")
        await_acks(sender, "all partitions are written without the full broker")
        assert three_nodes.nodes[full].is_running
        three_nodes.free_disk(full)
        await_in_sync(admin, topic, PARTITIONS)
        await_acks(sender, "all partitions are written with all brokers")
    assert sender.errors == []


def test_reads_go_on_when_all_disks_are_full(three_nodes: TestCluster, bootstrap: str, admin: AdminClient) -> None:
    topic = new_topic(three_nodes, admin)
    with ConfluentSender(bootstrap, topic, PARTITIONS) as sender:
        await_acks(sender, "all partitions are written")
        written = {number for _, number in list(sender.acked)}
        await_acks(sender, "all partitions are written some more")
        for node_id in three_nodes.nodes:
            three_nodes.fill_disk(node_id)
        wait_until(lambda: any(is_full(three_nodes, each) for each in three_nodes.nodes), "a broker cannot write")
        consumer = confluent_consumer(bootstrap)
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
        found: set[int] = set()
        while not written <= found:
            (message,) = poll_messages(consumer, 1)
            found.add(int(message.value()))
        consumer.close()
        for node_id in three_nodes.nodes:
            three_nodes.free_disk(node_id)
        await_in_sync(admin, topic, PARTITIONS)
        await_acks(sender, "all partitions are written again")
    assert sender.errors == []
    assert max(stored(bootstrap, topic).values()) == 1
