"""Transactions survive coordinators and leaders that die at the worst moments, tested on the wire.

Three nodes in this process. Acknowledged results stay valid, and the next coordinator completes decided transactions.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from failover_roles import GROUP_KEY, TRANSACTION_KEY, coordinator_of, create_replicated, leader_of
from harness.patience import PATIENCE_S
from kio.schema.errors import ErrorCode
from protocol_requests import list_offset
from transaction_requests import (
    BUSY,
    ELSEWHERE,
    TransactionalProducer,
    commit_offsets,
    describe,
    end,
    fetch_offset,
    init,
    send,
    until,
)
from wire_client import ConnectionEnded, Wire

from moldau.testing import TestCluster, cluster

pytestmark = pytest.mark.moldau_only
RETRIABLE = BUSY | ELSEWHERE | {ErrorCode.not_leader_or_follower, ErrorCode.unknown_topic_or_partition}


@pytest.fixture(scope="module")
def three() -> Iterator[TestCluster]:
    with cluster(offsets_topic_num_partitions=4, transaction_state_log_num_partitions=4) as running:
        yield running


@pytest.fixture(scope="module")
def bootstrap(three: TestCluster) -> str:
    return three.bootstrap_servers.split(",")[0]


@pytest.fixture(autouse=True)
def all_nodes_run_again(three: TestCluster) -> Iterator[None]:
    yield
    for node_id, node in three.nodes.items():
        if not node.is_running:
            three.restart(node_id)


@pytest.fixture
def topic(three: TestCluster, admin: AdminClient) -> str:
    name = f"tx-failover-{uuid.uuid4().hex[:8]}"
    create_replicated(three, admin, name, 1)
    return name


class RoutingClient:
    """Sends requests to the current leader or coordinator, and retries while that changes."""

    def __init__(self, three: TestCluster) -> None:
        self.three = three

    def any_address(self) -> str:
        return next(node.address for node in self.three.nodes.values() if node.is_running)

    def node_of(self, find: Callable[[str], int]) -> int:
        """Return its node id, as soon as that node runs."""

        def found() -> int:
            node_id = find(self.any_address())
            return node_id if node_id > 0 and self.three.nodes[node_id].is_running else -1

        return until(found, lambda node_id: node_id > 0, "the leader or coordinator runs")

    def ask(self, find: Callable[[str], int], call: Callable[[Wire], Any], code: Callable[[Any], Any]) -> Any:
        def attempt() -> Any:
            try:
                with Wire(self.three.nodes[self.node_of(find)].address) as wire:
                    return call(wire)
            except (ConnectionEnded, OSError):
                return None

        return until(
            attempt, lambda answer: answer is not None and code(answer) not in RETRIABLE, "the request is answered"
        )

    def coordinator(self, transactional_id: str) -> Callable[[str], int]:
        return lambda address: coordinator_of(address, transactional_id, TRANSACTION_KEY)

    def group_coordinator(self, group: str) -> Callable[[str], int]:
        return lambda address: coordinator_of(address, group, GROUP_KEY)

    def leader(self, topic: str) -> Callable[[str], int]:
        return lambda address: leader_of(address, topic)

    def begin(self, transactional_id: str, **fields: Any) -> TransactionalProducer:
        answer = self.ask(
            self.coordinator(transactional_id),
            lambda wire: init(wire, transactional_id, at_once=True, **fields),
            lambda answer: answer.error_code,
        )
        assert answer.error_code == 0, answer
        return TransactionalProducer(transactional_id, answer.producer_id, answer.producer_epoch)

    def send(self, producer: TransactionalProducer, topic: str, seq: int = 0) -> Any:
        return self.ask(
            self.leader(topic),
            lambda wire: send(wire, producer, topic, seq=seq, version=12),
            lambda one: one.error_code,
        )

    def end(self, producer: TransactionalProducer, committed: bool) -> Any:
        return self.ask(
            self.coordinator(producer.transactional_id),
            lambda wire: end(wire, producer, committed, version=5, at_once=True),
            lambda answer: answer.error_code,
        )

    def state(self, transactional_id: str) -> str:
        answer = self.ask(
            self.coordinator(transactional_id),
            lambda wire: describe(wire, transactional_id),
            lambda shown: shown.error_code,
        )
        return str(answer.state)

    def offsets(self, topic: str) -> tuple[int, int]:
        """Return the last stable offset and the log end offset."""

        def both(wire: Wire) -> Any:
            found = [list_offset(wire, topic, -1, isolation_level=level) for level in (1, 0)]
            return found if all(each.error_code == 0 for each in found) else None

        stable, last = self.ask(self.leader(topic), both, lambda _: ErrorCode.none)
        return stable.offset, last.offset


@pytest.fixture
def client(three: TestCluster) -> RoutingClient:
    return RoutingClient(three)


@pytest.fixture
def transactional_id() -> str:
    return f"tx-{uuid.uuid4().hex[:8]}"


@pytest.mark.parametrize("committed", [True, False])
def test_an_open_transaction_survives_the_death_of_its_coordinator(
    three: TestCluster, client: RoutingClient, topic: str, transactional_id: str, committed: bool
) -> None:
    producer = client.begin(transactional_id)
    assert client.send(producer, topic).error_code == 0
    three.kill(client.node_of(client.coordinator(transactional_id)))
    assert client.send(producer, topic, seq=1).error_code == 0
    answer = client.end(producer, committed)
    assert (answer.error_code, answer.producer_epoch) == (ErrorCode.none, producer.epoch + 1)
    until(lambda: client.offsets(topic), lambda found: found == (3, 3), "the marker is written")
    again = client.end(producer, committed)
    assert (again.error_code, again.producer_epoch) == (ErrorCode.none, producer.epoch + 1)


@pytest.mark.parametrize("committed", [True, False])
def test_the_next_coordinator_writes_a_missing_marker(
    three: TestCluster, client: RoutingClient, admin: AdminClient, transactional_id: str, committed: bool
) -> None:
    """The partition's only replica is down when the transaction is decided: the marker has to wait until after the
    coordinator has died."""
    producer = client.begin(transactional_id)
    coordinator = client.node_of(client.coordinator(transactional_id))
    topic = topic_with_one_replica(three, client, admin, coordinator)
    leader = client.node_of(client.leader(topic))
    assert client.send(producer, topic).error_code == 0
    three.kill(leader)
    assert client.end(producer, committed).error_code == 0
    assert client.state(transactional_id) == ("PrepareCommit" if committed else "PrepareAbort")
    three.restart(leader, wait=False)
    three.kill(coordinator)
    wanted = "CompleteCommit" if committed else "CompleteAbort"
    until(lambda: client.state(transactional_id), lambda state: state == wanted, "it is completed")
    assert client.offsets(topic) in ((2, 2), (3, 3)), "the next coordinator cannot know whether the marker was written"


def topic_with_one_replica(three: TestCluster, client: RoutingClient, admin: AdminClient, but: int) -> str:
    """Create a topic whose only replica is not on node `but`."""
    name = f"tx-lonely-{uuid.uuid4().hex[:8]}"
    place = next(node_id for node_id in three.nodes if node_id != but)
    admin.create_topics([NewTopic(name, 1, replica_assignment=[[place]])])[name].result(PATIENCE_S)
    three.wait_for_topic(name)
    return name


def test_a_transaction_times_out_even_if_its_coordinator_dies(
    three: TestCluster, client: RoutingClient, topic: str, transactional_id: str
) -> None:
    producer = client.begin(transactional_id, transaction_timeout=2000)
    assert client.send(producer, topic).error_code == 0
    three.kill(client.node_of(client.coordinator(transactional_id)))
    until(lambda: client.offsets(topic), lambda found: found == (2, 2), "it is aborted")
    assert client.send(producer, topic, seq=1).error_code == ErrorCode.invalid_producer_epoch


def test_a_repeated_batch_is_written_once_even_if_the_leader_dies(
    three: TestCluster, client: RoutingClient, topic: str, transactional_id: str
) -> None:
    producer = client.begin(transactional_id)
    assert [client.send(producer, topic, seq).base_offset for seq in range(3)] == [0, 1, 2]
    three.kill(client.node_of(client.leader(topic)))
    assert [client.send(producer, topic, seq).base_offset for seq in (1, 2, 3)] == [1, 2, 3]
    assert client.offsets(topic) == (0, 4)
    assert client.end(producer, committed=True).error_code == 0
    until(lambda: client.offsets(topic), lambda found: found == (5, 5), "the marker is written")


@pytest.mark.parametrize("committed", [True, False])
def test_offsets_stay_pending_even_if_the_group_coordinator_dies(
    three: TestCluster, client: RoutingClient, topic: str, transactional_id: str, committed: bool
) -> None:
    group = f"group-{transactional_id}"
    producer = client.begin(transactional_id)
    find = client.group_coordinator(group)

    def commit(wire: Wire) -> ErrorCode:
        (code,) = commit_offsets(wire, producer, group, {(topic, 0): 5}, version=5).values()
        return code

    assert client.ask(find, commit, lambda code: code) == ErrorCode.none
    three.kill(client.node_of(find))

    def stable(wire: Wire) -> Any:
        try:
            return fetch_offset(wire, group, topic, require_stable=True)
        except AssertionError:  # an error of the whole group: its coordinator is not ready
            return None

    assert client.ask(find, stable, lambda one: one.error_code).error_code == ErrorCode.unstable_offset_commit
    assert client.end(producer, committed).error_code == 0
    found = until(
        lambda: client.ask(find, stable, lambda one: one.error_code),
        lambda answer: answer.error_code == 0,
        "no offset is pending",
    )
    assert found.committed_offset == (5 if committed else -1)
