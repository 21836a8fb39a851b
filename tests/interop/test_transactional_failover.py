"""Consume–transform–produce while nodes are killed: each input record is in the output once and in order.

Three nodes in this process. A topic is written without pause and copied in transactions by each library, while the
leader of the output, the coordinator of the group or of the transactions, or the controller is killed and comes back.
Without more depth each library meets one or two of these four.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from clients import confluent_producer
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from failover_roles import (
    TRANSACTION_KEY,
    await_in_sync,
    controller_of,
    coordinator_of,
    create_replicated,
    leader_of,
)
from failover_senders import ConfluentSender
from harness.depth import sample
from harness.patience import PATIENCE_S, wait_until
from transactional_copier import COPIERS, CopierProcess, copied, group_of, open_copier, transactional_id_of
from transactional_libraries import LIBRARIES

from moldau.testing import TestCluster, cluster

pytestmark = pytest.mark.moldau_only
PARTITIONS = 3
END = b"the end"
FEED_EVERY_S = 0.03
ROLES: dict[str, Callable[[str, str], int]] = {
    "leader": leader_of,
    "group coordinator": lambda bootstrap, target: coordinator_of(bootstrap, group_of(target)),
    "transaction coordinator": lambda bootstrap, target: coordinator_of(
        bootstrap, transactional_id_of(target), TRANSACTION_KEY
    ),
    "controller": lambda bootstrap, target: controller_of(bootstrap),
}


@pytest.fixture(scope="module")
def three() -> Iterator[TestCluster]:
    with cluster(offsets_topic_num_partitions=4, transaction_state_log_num_partitions=4) as running:
        yield running


@pytest.fixture(scope="module")
def bootstrap(three: TestCluster) -> str:
    """The first node's address."""
    return three.bootstrap_servers.split(",")[0]


@pytest.fixture(autouse=True)
def all_nodes_run_again(three: TestCluster) -> Iterator[None]:
    """Restart all nodes after a failed test."""
    yield
    for node_id, node in three.nodes.items():
        if not node.is_running:
            three.restart(node_id)


class Feed(ConfluentSender):
    """Pauses after each record, whether or not others were delivered: copiers that lag would hide progress."""

    def send(self) -> None:
        settings = {"bootstrap.servers": self.bootstrap, "enable.idempotence": True, "linger.ms": 0, "log_level": 0}
        producer = Producer(settings | {"reconnect.backoff.max.ms": 500, "error_cb": self.on_error})
        number = 0
        while not self.closing.wait(FEED_EVERY_S):
            producer.produce(self.topic, b"%d" % number, partition=number % self.partitions, callback=self.delivered)
            number += 1
            producer.poll(0)
        if left := producer.flush(PATIENCE_S):
            self.errors.append(f"{left} records were not delivered")


class Output:
    """What a read_committed consumer has seen so far, by partition."""

    def __init__(self, bootstrap: str, target: str) -> None:
        group = f"reader-{uuid.uuid4().hex[:8]}"
        self.source: Any = LIBRARIES["confluent"].input(bootstrap, group, target, PARTITIONS)
        self.values: dict[int, list[bytes]] = {partition: [] for partition in range(PARTITIONS)}

    def __enter__(self) -> Output:
        return self

    def __exit__(self, *_: object) -> None:
        self.source.close()

    def read(self) -> dict[int, list[bytes]]:
        for each in self.source.poll():
            self.values[each.partition].append(each.value)
        return self.values


def await_copied(sender: Feed, copier: CopierProcess, output: Output, what: str) -> None:
    """Wait until a record written from now on to every partition has been copied."""
    start = len(sender.acked)

    def fresh() -> set[int]:
        assert not sender.errors, sender.errors
        if copier.fault is not None:
            raise copier.fault
        return {partition for partition, _ in sender.acked[start:]}

    wait_until(lambda: len(fresh()) == PARTITIONS, f"records are written to all partitions {what}")
    last = dict(sender.acked[start:])

    def is_copied() -> bool:
        values = output.read()
        fresh()
        return all(copied(b"%d" % number) in values[partition] for partition, number in last.items())

    wait_until(is_copied, lambda: f"the records are copied {what}, after {copier.errors}")


def read_to_the_end(bootstrap: str, target: str) -> dict[int, list[bytes]]:
    """Return all committed records from the beginning to a mark that is written now."""
    producer = confluent_producer(bootstrap)
    for partition in range(PARTITIONS):
        producer.produce(target, END, partition=partition)
    assert producer.flush(PATIENCE_S) == 0
    with Output(bootstrap, target) as output:
        wait_until(lambda: all(values[-1:] == [END] for values in output.read().values()), "all partitions are read")
    return {partition: values[:-1] for partition, values in output.values.items()}


@pytest.mark.parametrize("library", COPIERS)
def test_each_record_is_copied_once_and_in_order_whichever_node_is_killed(
    three: TestCluster, bootstrap: str, admin: AdminClient, library: str
) -> None:
    name = f"copy-{uuid.uuid4().hex[:8]}"
    source, target = f"{name}-in", f"{name}-out"
    for each in (source, target):
        create_replicated(three, admin, each, PARTITIONS)
    servers = three.bootstrap_servers
    with (
        Feed(servers, source, PARTITIONS) as sender,
        Output(servers, target) as output,
        open_copier(library, servers, source, target, PARTITIONS) as copier,
    ):
        await_copied(sender, copier, output, "at first")
        roles = sample(ROLES, 3, first=(*LIBRARIES, "java").index(library))
        for role in roles:
            lost = ROLES[role](bootstrap, target)
            three.kill(lost)
            await_copied(sender, copier, output, f"without node {lost}, the {role}")
            three.restart(lost)
            await_in_sync(admin, target, PARTITIONS)
        sender.close()
        assert not sender.thread.is_alive(), "records in flight are not delivered"
        assert not sender.errors, sender.errors
        fed = {p: [copied(b"%d" % number) for at, number in sender.acked if at == p] for p in range(PARTITIONS)}
        wait_until(lambda: all(len(output.read()[p]) >= len(fed[p]) for p in fed), "all records are copied")
    assert read_to_the_end(servers, target) == fed
    assert output.values == fed
