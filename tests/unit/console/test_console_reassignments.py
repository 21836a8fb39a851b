"""Reassignments in the console: their progress, moves that are refused or have ended, and the partitions drawn."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import TopicPartition
from moldau.client.admin.cluster_admin import Outcomes
from moldau.client.admin.cluster_values import PartitionReplicas, Reassignment, TopicReplicas
from moldau.console.call import Call
from moldau.console.collector.events import ClusterEvents
from moldau.console.collector.readings import read_log_dirs
from moldau.console.collector.state import ClusterState, TopicState, total_size
from moldau.console.endpoints import cluster as endpoint
from moldau.operations.failures import OperationFailed
from moldau.web.failures import ApiError
from moldau.wire.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

GIB = 1 << 30
P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
PAYMENTS = TopicPartition("payments", 0)
MOVE_1_TO_2 = Reassignment(replicas=(1, 2), adding=(2,), removing=(1,))


def state_of(isr: tuple[int, ...], sizes: dict[int, int] | None, running: Reassignment = MOVE_1_TO_2) -> ClusterState:
    topic = TopicState("orders", False, bytes(16), array("i", [1]), [running.replicas], [isr])
    moving_sizes = {} if sizes is None else {P0: sizes}
    return ClusterState(topics={"orders": topic}, reassignments={P0: running}, moving_sizes=moving_sizes)


@pytest.mark.parametrize(
    ("isr", "sizes", "expected"),
    [
        ((1,), {1: GIB, 2: 9 * GIB // 10}, (9 * GIB // 10, GIB, pytest.approx(0.9))),
        ((1,), {1: GIB}, (0, GIB, 0.0)),
        ((1, 2), {1: GIB, 2: GIB - 5}, (GIB, GIB, 1.0)),
        ((1, 2), {2: GIB}, (GIB, GIB, 1.0)),
        ((1,), {1: GIB, 2: 2 * GIB}, (GIB, GIB, 1.0)),
        ((1,), {2: GIB // 2}, (None, None, 0.0)),
        ((1,), {1: 0, 2: 0}, (0, 0, 0.0)),
        ((1,), None, (None, None, 0.0)),
    ],
    ids=["partly", "not begun", "in sync", "old replica down", "not compacted yet", "unknown", "empty", "not read"],
)
def test_the_progress_of_a_move_is_the_size_of_the_added_replica(
    isr: tuple[int, ...], sizes: dict[int, int] | None, expected: tuple[Any, ...]
) -> None:
    state = state_of(isr, sizes)
    row = endpoint.reassignment_data(state, P0, MOVE_1_TO_2)
    assert (row["done_bytes"], row["total_bytes"], row["share"]) == expected


def test_sizes_of_moving_partitions_are_read_by_broker() -> None:
    class Channel:
        def __init__(self, size: int) -> None:
            self._size = size

        def ask(self, *_: object) -> DescribeLogDirsResponse:
            partitions = [DescribeLogDirsPartition(0, self._size), DescribeLogDirsPartition(1, 7)]
            directory = DescribeLogDirsResult(0, "/data", [DescribeLogDirsTopic("orders", partitions)])
            return DescribeLogDirsResponse(results=[directory])

    cluster: Any = SimpleNamespace(channel=lambda broker: Channel(100 // broker))
    topic = TopicState("orders", False, bytes(16), array("i", [1, 1]), [(1, 2)] * 2, [(1,)] * 2)
    _, sizes, moving_sizes = read_log_dirs(cluster, [1, 2], {"orders": topic}, {P0: MOVE_1_TO_2})
    assert sizes == {"orders": array("q", [150, 14])}
    assert moving_sizes == {P0: {1: 100, 2: 50}}


def test_sizes_are_unknown_while_a_broker_with_a_replica_does_not_answer() -> None:
    class Channel:
        def __init__(self, broker: int) -> None:
            self._broker = broker

        def ask(self, *_: object) -> DescribeLogDirsResponse:
            if self._broker == 2:
                raise ConnectionResetError
            partitions = [DescribeLogDirsPartition(0, 5), DescribeLogDirsPartition(1, 7)]
            directory = DescribeLogDirsResult(0, "/data", [DescribeLogDirsTopic("orders", partitions)])
            return DescribeLogDirsResponse(results=[directory])

    cluster: Any = SimpleNamespace(channel=Channel, drop=lambda broker: None)
    topic = TopicState("orders", False, bytes(16), array("i", [1, 1]), [(1,), (1, 2)], [(1,), (1, 2)])
    _, sizes, _ = read_log_dirs(cluster, [1, 2], {"orders": topic}, {})
    assert sizes == {"orders": array("q", [5, -1])}
    other, new = (TopicState(name, False, bytes(16), array("i", [1]), [(1,)], [(1,)]) for name in ("other", "new"))
    other.note_sizes(array("q", [3]))
    topic.note_sizes(sizes["orders"])
    assert (topic.size_bytes, total_size([topic, other, new])) == (None, None)
    topic.note_sizes(array("q", [5, 14]))
    assert (topic.size_bytes, total_size([topic, other, new])) == (19, 22), "topics that were not read yet do not count"


def test_only_the_first_partitions_of_a_large_topic_are_drawn() -> None:
    count = endpoint.TOPIC_PARTITIONS_DRAWN + 5
    topic = TopicState("orders", False, bytes(16), array("i", [1] * count), [(1,)] * count, [(1,)] * count)
    state = ClusterState(topics={"orders": topic})
    collector: Any = SimpleNamespace(look=lambda: state, freshness=dict)
    drawn = endpoint.cluster_data(collector, ClusterEvents(), "orders")["partitions"]
    assert [row["partition"] for row in drawn] == list(range(endpoint.TOPIC_PARTITIONS_DRAWN))


class Admin:
    """An admin client that returns these outcomes of the moves."""

    def __init__(self, outcomes: Outcomes) -> None:
        self._outcomes = outcomes
        self.altered: list[TopicPartition] = []

    def topics(self) -> dict[str, TopicReplicas]:
        partitions = {index: PartitionReplicas(1, (1,), (1,)) for index in range(2)}
        return {"orders": TopicReplicas("orders", False, partitions)}

    def reassignments(self) -> dict[TopicPartition, Reassignment]:
        return dict.fromkeys(self._outcomes, MOVE_1_TO_2)

    def alter_reassignments(self, targets: Mapping[TopicPartition, object]) -> Outcomes:
        self.altered += targets
        return {where: self._outcomes[where] for where in targets}


class Access:
    def __init__(self, admin: Admin) -> None:
        self._admin = admin
        self.refreshed = 0
        self.collector = SimpleNamespace(await_users_change=self._await_users_change)

    @contextmanager
    def admin(self) -> Iterator[Admin]:
        yield self._admin

    def _await_users_change(self, *_: object) -> None:
        self.refreshed += 1


def call(access: Access, body: dict[str, Any]) -> Call:
    unused: Any = None
    given: Any = access
    return Call(unused, given, body=body)


def test_the_collector_is_refreshed_even_if_one_move_is_refused() -> None:
    access = Access(Admin({P0: None, P1: KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT)}))
    plan = [{"topic": "orders", "partition": index, "to": [2]} for index in range(2)]
    with pytest.raises(OperationFailed, match="orders-1"):
        endpoint.reassign(call(access, {"plan": plan, "execute": True}))
    assert access.refreshed == 1


def test_the_response_of_a_move_has_only_validated_fields() -> None:
    access = Access(Admin({P0: None}))
    row = {"topic": "orders", "partition": 0, "to": [2]}
    given = [{**row, "from": [float("nan")], "more": 1}]
    answer = endpoint.reassign(call(access, {"plan": given, "execute": True}))
    assert answer == {"plan": [row], "executed": True}


def test_a_partition_in_two_rows_is_refused() -> None:
    access = Access(Admin({P0: None}))
    plan = [{"topic": "orders", "partition": 0, "to": to} for to in ([1], [2])]
    with pytest.raises(ApiError, match="orders-0 is in two rows"):
        endpoint.reassign(call(access, {"plan": plan, "execute": True}))


def test_a_move_that_already_ended_is_not_counted_as_cancelled() -> None:
    access = Access(Admin({P0: None, P1: KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)}))
    assert endpoint.cancel_reassignments(call(access, {})) == {"ok": True, "cancelled": 1}
    assert access.refreshed == 1


@pytest.mark.parametrize(
    ("body", "cancelled"),
    [({}, [P0, PAYMENTS]), ({"topics": ["payments"]}, [PAYMENTS]), ({"topics": ["orders", "other"]}, [P0])],
)
def test_only_moves_of_the_given_topics_are_cancelled(body: dict[str, Any], cancelled: list[TopicPartition]) -> None:
    admin = Admin({P0: None, PAYMENTS: None})
    assert endpoint.cancel_reassignments(call(Access(admin), body)) == {"ok": True, "cancelled": len(cancelled)}
    assert admin.altered == cancelled


def test_cancelling_for_a_topic_without_moves_is_an_error() -> None:
    admin = Admin({P0: None})
    with pytest.raises(ApiError, match="no partition of these topics is being moved"):
        endpoint.cancel_reassignments(call(Access(admin), {"topics": ["payments"]}))
    assert not admin.altered


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, "no partition is being moved"),
        ({"topics": ["orders"]}, "no partition of these topics is being moved"),
    ],
)
def test_cancelling_without_a_running_move_is_an_error(body: dict[str, Any], message: str) -> None:
    with pytest.raises(ApiError, match=message):
        endpoint.cancel_reassignments(call(Access(Admin({})), body))
