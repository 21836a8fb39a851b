"""The states of share groups survive coordinators that die: three nodes in this process, with real sockets and disks.

Whatever a node was told is written is there afterwards, for every node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from failover_roles import create_replicated
from harness.patience import PATIENCE_S, wait_until
from harness.share_state_node import write_data

from moldau.assembly.broker_side import BrokerSide
from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.promise import Promise
from moldau.base.topic_names import SHARE_GROUP_STATE_TOPIC
from moldau.share.ports import ShareKey, ShareStates
from moldau.testing import TestCluster, cluster

pytestmark = pytest.mark.moldau_only
PARTITIONS = 6
WRITES = 40
"""Of each partition, before and after a node dies."""


class Group:
    """A share group whose partitions' states are written, and what was acknowledged of that."""

    def __init__(self, three: TestCluster, topic: str) -> None:
        self.three = three
        running = three.nodes[1].node
        assert running is not None
        topic_id = running.assembly.current.image.topics[topic].id
        self.keys = [ShareKey("g", topic_id, partition) for partition in range(PARTITIONS)]
        self.written: dict[ShareKey, set[int]] = {key: set() for key in self.keys}
        self._next_offset = 0

    def side(self, node: int) -> BrokerSide:
        running = self.three.nodes[node].node
        assert running is not None
        assert running.assembly.broker_side is not None
        return running.assembly.broker_side

    def call(self, node: int, make: Callable[[ShareStates], Promise[Any]]) -> Future[Any]:
        """Make a call on the event loop of a node."""
        result: Future[Any] = Future()
        run = self.three.nodes[node]._run
        assert run is not None
        states = self.side(node).share_states
        run._loop.call_soon_threadsafe(lambda: make(states).then(result.set_result))
        return result

    def call_until(self, node: int, make: Callable[[ShareStates], Promise[Any]], ends: Callable[[Any], bool]) -> Any:
        """Make a call again until its result is right: a busy machine may need longer than its tries."""
        return wait_until(
            lambda: result if ends(result := self.call(node, make).result(PATIENCE_S)) else None, "the call succeeds"
        )

    def initialize(self, node: int) -> None:
        for key in self.keys:
            self.call_until(
                node,
                lambda states, key=key: states.initialize(key, 1, 0).map(lambda code: [code]),
                lambda it: not it[0],
            )

    def coordinator(self, node: int) -> int:
        """Return the coordinator of the first partition, -1 if there is none."""
        try:
            return self.side(node).share_coordinator.find(self.keys[0].coordinator_key)
        except KafkaError:
            return -1

    def begin_writes(self, node: int) -> list[tuple[ShareKey, int, Future[Any]]]:
        begun = []
        for offset in range(self._next_offset, self._next_offset + 2 * WRITES, 2):
            for key in self.keys:
                data = write_data((offset, offset, 2, 1), partition=key.partition, state_epoch=1)
                begun.append((key, offset, self.call(node, lambda states, key=key, data=data: states.write(key, data))))
        self._next_offset += 2 * WRITES
        return begun

    def finish(self, begun: list[tuple[ShareKey, int, Future[Any]]]) -> int:
        """Note what was written; return how many writes there were."""
        codes = [write.result(PATIENCE_S) for _, _, write in begun]
        for (key, offset, _), code in zip(begun, codes, strict=True):
            if code is ErrorCode.NONE:
                self.written[key].add(offset)
        return codes.count(ErrorCode.NONE)

    def check(self, node: int) -> None:
        for key in self.keys:
            read = self.call_until(node, lambda states, key=key: states.read(key, -1), lambda it: not it.error_code)
            found = {offset for each in read.state_batches for offset in range(each.first_offset, each.last_offset + 1)}
            assert self.written[key] <= found, f"node {node} lacks acknowledged writes of partition {key.partition}"


@pytest.fixture
def three() -> Iterator[TestCluster]:
    with cluster(
        share_coordinator_state_topic_num_partitions=4, share_coordinator_snapshot_update_records_per_snapshot=20
    ) as running:
        yield running


def test_acknowledged_states_survive_the_death_of_their_coordinators(three: TestCluster) -> None:
    admin = AdminClient({"bootstrap.servers": three.bootstrap_servers})
    create_replicated(three, admin, "orders", PARTITIONS)
    group = Group(three, "orders")
    group.initialize(1)
    three.wait_for_topic(SHARE_GROUP_STATE_TOPIC)
    for _ in range(3):
        victim = wait_until(lambda: max(group.coordinator(1), 0), "the first partition has a coordinator")
        survivor = next(node for node in three.nodes if node != victim)
        begun = group.begin_writes(survivor)
        three.kill(victim)
        written = group.finish(begun)
        written += group.finish(group.begin_writes(survivor))
        assert written, "no write was acknowledged"
        group.check(survivor)
        three.restart(victim)
        for index in range(4):
            three.wait_for_isr(SHARE_GROUP_STATE_TOPIC, index, three.nodes)
    for node in three.nodes:
        group.check(node)


def test_states_wait_for_a_coordinator_whose_partition_has_no_leader(three: TestCluster) -> None:
    """Of three nodes one is left: nobody leads the partitions of the others, or too few replicas are in sync."""
    admin = AdminClient({"bootstrap.servers": three.bootstrap_servers})
    create_replicated(three, admin, "orders", PARTITIONS)
    group = Group(three, "orders")
    group.initialize(1)
    for index in range(4):
        three.wait_for_isr(SHARE_GROUP_STATE_TOPIC, index, three.nodes)
    assert group.finish(group.begin_writes(1))
    three.kill(2)
    three.kill(3)
    begun = group.begin_writes(1)
    three.restart(2)
    three.restart(3)
    group.finish(begun)
    wait_until(lambda: group.finish(group.begin_writes(1)), "writes are acknowledged again")
    for node in three.nodes:
        group.check(node)
