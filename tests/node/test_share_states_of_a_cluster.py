"""`ShareStates` on nodes that do not coordinate the partitions: requests to other nodes, joined ones, and failures."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from harness.attacked_cluster import AttackedCluster
from harness.share_state_node import write_data

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.promise import Promise
from moldau.base.topic_names import SHARE_GROUP_STATE_TOPIC
from moldau.runtime.broker.broker_client import BrokerClient
from moldau.share.ports import ShareKey, ShareStates
from moldau.wire.apis import ApiKey
from moldau.wire.schema import Message

NONE = ErrorCode.NONE
SETTINGS = {"share_coordinator_state_topic_num_partitions": "6"}


class ShareCluster:
    """Three nodes. Requests between them for states of share groups are counted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.cluster = AttackedCluster(3, **SETTINGS)
        self.until = self.cluster.until
        self.cluster.create("orders", partitions=40)
        self.topic_id = self.cluster.nodes[1].current.image.topics["orders"].id
        self.sent: list[tuple[int, ApiKey, Message]] = []
        ask = BrokerClient.ask

        def counted(client: BrokerClient, node_id: int, api: ApiKey, request: Message) -> Promise[Any]:
            self.sent.append((node_id, api, request))
            return ask(client, node_id, api, request)

        monkeypatch.setattr(BrokerClient, "ask", counted)
        self.result(self.states(1).initialize(self.key(0), 0, 0))  # creates the topic

    def states(self, node: int) -> ShareStates:
        side = self.cluster.nodes[node].broker_side
        assert side is not None
        return side.share_states

    def key(self, partition: int, group_id: str = "g") -> ShareKey:
        return ShareKey(group_id, self.topic_id, partition)

    def result(self, call: Promise[Any]) -> Any:
        self.until(lambda: call.done, "the call is completed")
        return call.value()

    def results(self, calls: list[Promise[Any]]) -> list[Any]:
        return [self.result(call) for call in calls]

    def coordinator_of(self, key: ShareKey, node: int = 1) -> int:
        side = self.cluster.nodes[node].broker_side
        assert side is not None
        try:
            return side.share_coordinator.find(key.coordinator_key)
        except KafkaError:
            return -1

    def keys_of(self, node: int) -> list[ShareKey]:
        """Return the partitions of the group that a node coordinates."""
        keys = map(self.key, range(40))
        return [key for key in keys if self.coordinator_of(key) == node]


@pytest.fixture
def three(monkeypatch: pytest.MonkeyPatch) -> ShareCluster:
    return ShareCluster(monkeypatch)


def offsets(result: Any) -> list[int]:
    return [offset for each in result.state_batches for offset in range(each.first_offset, each.last_offset + 1)]


def test_every_node_reads_what_another_has_written(three: ShareCluster) -> None:
    for partition in range(12):
        key = three.key(partition)
        assert three.result(three.states(1).initialize(key, 1, 0)) is NONE
        data = write_data((partition, partition, 2, 1), partition=partition)
        assert three.result(three.states(2).write(key, data)) is NONE
        read = three.result(three.states(3).read(key, 0))
        assert (read.error_code, read.partition, offsets(read)) == (NONE, partition, [partition])
        assert three.result(three.states(1).read_summary(key, 0)).state_epoch == 1
    assert three.result(three.states(3).delete(three.key(0))) is NONE
    assert three.result(three.states(2).read(three.key(0), 0)).error_code == ErrorCode.INVALID_REQUEST
    assert three.result(three.states(2).read_summary(three.key(0), 0)).start_offset == -1


def test_calls_that_wait_for_the_same_node_are_one_request(three: ShareCluster) -> None:
    keys = three.keys_of(2)
    assert len(keys) >= 5
    three.sent.clear()
    assert set(three.results([three.states(1).initialize(key, 1, 0) for key in keys])) == {NONE}
    assert [(node, api) for node, api, _ in three.sent] == [(2, ApiKey.INITIALIZE_SHARE_GROUP_STATE)] * 2
    assert [len(request.topics[0].partitions) for _, _, request in three.sent] == [1, len(keys) - 1]  # type: ignore[attr-defined]
    # One request has one change of each partition, and those of a partition keep their order.
    three.sent.clear()
    writes = [
        three.states(1).write(key, write_data((n, n, 2, 1), partition=key.partition, start_offset=n))
        for n in range(3)
        for key in keys
    ]
    assert set(three.results(writes)) == {NONE}
    sizes = [len(request.topics[0].partitions) for _, _, request in three.sent]  # type: ignore[attr-defined]
    assert sum(sizes) == 3 * len(keys)
    assert max(sizes) == len(keys)
    assert len(sizes) <= 5
    assert {three.result(three.states(3).read(key, -1)).start_offset for key in keys} == {2}


def test_requests_have_a_limited_size(three: ShareCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moldau.runtime.coordinators.share_states.REQUEST_BYTES_MAX", 1_000)
    keys = three.keys_of(3)[:6]
    three.results([three.states(1).initialize(key, 1, 0) for key in keys])
    three.sent.clear()
    some = [(2 * n, 2 * n, 2, 1) for n in range(20)]
    calls = [three.states(1).write(key, write_data(*some, partition=key.partition)) for key in keys]
    assert set(three.results(calls)) == {NONE}
    assert Counter(len(request.topics[0].partitions) for _, _, request in three.sent) == {1: 6}  # type: ignore[attr-defined]


def test_a_call_survives_the_loss_of_its_coordinator(three: ShareCluster) -> None:
    """The node that leads the partition is cut off; the calls go on at its successor, in their order."""
    key = three.keys_of(2)[0]
    assert three.result(three.states(1).initialize(key, 1, 0)) is NONE
    three.cluster.cut_off(2)
    calls = [
        three.states(1).write(key, write_data((n, n, 2, 1), partition=key.partition, start_offset=n)) for n in range(5)
    ]
    three.cluster.timers.advance(100)
    request_to_move(three, 2)
    late = [
        three.states(1).write(key, write_data((n, n, 2, 1), partition=key.partition, start_offset=n))
        for n in range(5, 8)
    ]
    assert three.results([*calls, *late]) == [NONE] * 8
    assert three.coordinator_of(key) != 2
    read = three.result(three.states(1).read(key, -1))
    assert (read.start_offset, offsets(read)) == (7, [7])
    three.cluster.heal()
    assert not three.cluster.faults


def request_to_move(three: ShareCluster, node: int) -> None:
    """Let the node hand over its leaderships, as before a stop."""
    side = three.cluster.nodes[node].broker_side
    assert side is not None
    left = side.leave()
    three.until(lambda: left.done, "the node leads nothing")


def test_a_call_to_a_node_that_is_gone_ends_with_an_error(three: ShareCluster) -> None:
    key = three.keys_of(2)[0]
    three.cluster.cut_off(2)
    call = three.states(1).initialize(key, 1, 0)
    assert three.result(call) is ErrorCode.NETWORK_EXCEPTION
    three.cluster.heal()
    assert three.result(three.states(1).initialize(key, 1, 0)) is NONE


def test_a_stop_completes_the_calls_to_other_nodes(three: ShareCluster) -> None:
    keys = three.keys_of(2)[:3]
    calls = [three.states(1).initialize(key, 1, 0) for key in keys]
    side = three.cluster.nodes[1].broker_side
    assert side is not None
    side.release()
    assert [call.value() for call in calls] == [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 3
    three.cluster.timers.advance(1_000)
    assert not three.cluster.faults


def test_the_successor_has_all_states(three: ShareCluster) -> None:
    keys = [three.key(partition) for partition in range(40)]
    assert set(three.results([three.states(1).initialize(key, 1, 0) for key in keys])) == {NONE}
    calls = [three.states(3).write(key, write_data((1, 5, 2, 1), partition=key.partition)) for key in keys]
    assert set(three.results(calls)) == {NONE}
    request_to_move(three, 2)
    three.until(lambda: all(three.coordinator_of(key) in (1, 3) for key in keys), "others coordinate the partitions")
    reads = three.results([three.states(1).read(key, 0) for key in keys])
    assert [offsets(read) for read in reads] == [[1, 2, 3, 4, 5]] * 40
    image = three.cluster.nodes[1].current.image
    assert {state.leader for state in image.topics[SHARE_GROUP_STATE_TOPIC].partitions} == {1, 3}
