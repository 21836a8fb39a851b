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
from kio.schema.errors import ErrorCode
from patience import PATIENCE_S
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
NOT_HERE = BUSY | ELSEWHERE | {ErrorCode.not_leader_or_follower, ErrorCode.unknown_topic_or_partition}


@pytest.fixture(scope="module")
def three() -> Iterator[TestCluster]:
    with cluster(offsets_topic_num_partitions=4, transaction_state_log_num_partitions=4) as running:
        yield running


@pytest.fixture(scope="module")
def bootstrap(three: TestCluster) -> str:
    return three.bootstrap_servers.split(",")[0]


@pytest.fixture(autouse=True)
def all_back(three: TestCluster) -> Iterator[None]:
    yield
    for node_id, node in three.nodes.items():
        if not node.is_running:
            three.restart(node_id)


@pytest.fixture
def topic(three: TestCluster, admin: AdminClient) -> str:
    name = f"tx-failover-{uuid.uuid4().hex[:8]}"
    create_replicated(three, admin, name, 1)
    return name


class Asker:
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

        return until(found, lambda node_id: node_id > 0, "somebody is responsible")

    def ask(self, find: Callable[[str], int], call: Callable[[Wire], Any], code: Callable[[Any], Any]) -> Any:
        def attempt() -> Any:
            try:
                with Wire(self.three.nodes[self.node_of(find)].address) as wire:
                    return call(wire)
            except (ConnectionEnded, OSError):
                return None

        return until(attempt, lambda answer: answer is not None and code(answer) not in NOT_HERE, "it is answered")

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
def asker(three: TestCluster) -> Asker:
    return Asker(three)


@pytest.fixture
def transactional_id() -> str:
    return f"tx-{uuid.uuid4().hex[:8]}"


@pytest.mark.parametrize("committed", [True, False])
def test_an_open_transaction_survives_its_coordinator(
    three: TestCluster, asker: Asker, topic: str, transactional_id: str, committed: bool
) -> None:
    producer = asker.begin(transactional_id)
    assert asker.send(producer, topic).error_code == 0
    three.kill(asker.node_of(asker.coordinator(transactional_id)))
    assert asker.send(producer, topic, seq=1).error_code == 0
    answer = asker.end(producer, committed)
    assert (answer.error_code, answer.producer_epoch) == (ErrorCode.none, producer.epoch + 1)
    until(lambda: asker.offsets(topic), lambda found: found == (3, 3), "the marker is written")
    again = asker.end(producer, committed)
    assert (again.error_code, again.producer_epoch) == (ErrorCode.none, producer.epoch + 1)


@pytest.mark.parametrize("committed", [True, False])
def test_after_a_coordinator_died_before_the_last_marker_the_next_one_writes_it(
    three: TestCluster, asker: Asker, admin: AdminClient, transactional_id: str, committed: bool
) -> None:
    """The partition's only replica is down when the transaction is decided: the marker has to wait until after the
    coordinator has died."""
    producer = asker.begin(transactional_id)
    coordinator = asker.node_of(asker.coordinator(transactional_id))
    topic = lonely_topic(three, asker, admin, coordinator)
    leader = asker.node_of(asker.leader(topic))
    assert asker.send(producer, topic).error_code == 0
    three.kill(leader)
    assert asker.end(producer, committed).error_code == 0
    assert asker.state(transactional_id) == ("PrepareCommit" if committed else "PrepareAbort")
    three.restart(leader, wait=False)
    three.kill(coordinator)
    wanted = "CompleteCommit" if committed else "CompleteAbort"
    until(lambda: asker.state(transactional_id), lambda state: state == wanted, "it is completed")
    assert asker.offsets(topic) in ((2, 2), (3, 3)), "who comes after does not know whether the marker was written"


def lonely_topic(three: TestCluster, asker: Asker, admin: AdminClient, but: int) -> str:
    """Create a topic with one replica on another node than that."""
    name = f"tx-lonely-{uuid.uuid4().hex[:8]}"
    place = next(node_id for node_id in three.nodes if node_id != but)
    admin.create_topics([NewTopic(name, 1, replica_assignment=[[place]])])[name].result(PATIENCE_S)
    three.wait_for_topic(name)
    return name


def test_a_transaction_times_out_even_if_its_coordinator_dies(
    three: TestCluster, asker: Asker, topic: str, transactional_id: str
) -> None:
    producer = asker.begin(transactional_id, transaction_timeout=2000)
    assert asker.send(producer, topic).error_code == 0
    three.kill(asker.node_of(asker.coordinator(transactional_id)))
    until(lambda: asker.offsets(topic), lambda found: found == (2, 2), "it is aborted")
    assert asker.send(producer, topic, seq=1).error_code == ErrorCode.invalid_producer_epoch


def test_a_repeated_batch_is_written_once_even_if_the_leader_dies(
    three: TestCluster, asker: Asker, topic: str, transactional_id: str
) -> None:
    producer = asker.begin(transactional_id)
    assert [asker.send(producer, topic, seq).base_offset for seq in range(3)] == [0, 1, 2]
    three.kill(asker.node_of(asker.leader(topic)))
    assert [asker.send(producer, topic, seq).base_offset for seq in (1, 2, 3)] == [1, 2, 3]
    assert asker.offsets(topic) == (0, 4)
    assert asker.end(producer, committed=True).error_code == 0
    until(lambda: asker.offsets(topic), lambda found: found == (5, 5), "the marker is written")


@pytest.mark.parametrize("committed", [True, False])
def test_offsets_stay_pending_even_if_the_group_coordinator_dies(
    three: TestCluster, asker: Asker, topic: str, transactional_id: str, committed: bool
) -> None:
    group = f"group-{transactional_id}"
    producer = asker.begin(transactional_id)
    find = asker.group_coordinator(group)

    def commit(wire: Wire) -> ErrorCode:
        (code,) = commit_offsets(wire, producer, group, {(topic, 0): 5}, version=5).values()
        return code

    assert asker.ask(find, commit, lambda code: code) == ErrorCode.none
    three.kill(asker.node_of(find))

    def stable(wire: Wire) -> Any:
        try:
            return fetch_offset(wire, group, topic, require_stable=True)
        except AssertionError:  # the group itself does not exist yet
            return None

    assert asker.ask(find, stable, lambda one: one.error_code).error_code == ErrorCode.unstable_offset_commit
    assert asker.end(producer, committed).error_code == 0
    found = until(
        lambda: asker.ask(find, stable, lambda one: one.error_code),
        lambda answer: answer.error_code == 0,
        "nothing pends",
    )
    assert found.committed_offset == (5 if committed else -1)
