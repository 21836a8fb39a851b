"""An unexpected error in a later turn of work ends as one in the first turn does: the node stops, or the connection of
the client is closed. The work is not silently dead."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple
from unittest.mock import Mock

import pytest
from harness.fetch_requests import fetch, parked
from harness.in_memory_node import InMemoryNode

from moldau.base.errors import MalformedData
from moldau.log import store
from moldau.log.log import Log
from moldau.log.producers import Producers
from moldau.replica.partition import Partition
from moldau.runtime import housekeeping
from moldau.runtime.broker import leader_lease
from moldau.runtime.broker.leader_lease import LeaderLease
from moldau.runtime.housekeeping import Housekeeping
from moldau.runtime.replication import isr_changes
from moldau.server.handlers import fetch_answer
from moldau.server.handlers.fetch_answer import FetchAnswer
from moldau.testing.ports import at_once


class Unexpected(Exception):
    pass


class Pass(NamedTuple):
    """Work on all partitions or logs, one in each turn: what `start` begins calls `method` of `owner` for each."""

    start: Callable[[InMemoryNode, Housekeeping], object]
    size: tuple[object, str]
    """Of a turn."""
    owner: type
    method: str


def fail_at_the_second_call(monkeypatch: pytest.MonkeyPatch, owner: type, method: str) -> None:
    """The first call does nothing, and the second comes in another turn."""
    calls = 0

    def fail(*_: object, **__: object) -> tuple[()]:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise Unexpected
        return ()

    monkeypatch.setattr(owner, method, fail)


def end_the_lease(node: InMemoryNode, _: Housekeeping) -> None:
    broker = node.assembly.broker_side
    assert broker is not None
    node.clock.move(60_000)
    broker._lease._check()


PASSES = {
    "retention": Pass(
        lambda _, it: it.retain(at_once, pytest.fail), (housekeeping, "RETAINED_A_TURN"), Partition, "delete_expired"
    ),
    "flush": Pass(lambda _, it: it.flush_by_time(), (housekeeping, "LOOKED_AT_A_TURN"), Log, "flush_due"),
    "producers": Pass(lambda _, it: it.expire_producers(), (housekeeping, "LOOKED_AT_A_TURN"), Producers, "expire"),
    "checkpoints": Pass(
        lambda _, it: it.write_checkpoints(at_once, pytest.fail),
        (store, "LOGS_A_STEP"),
        Housekeeping,
        "_high_watermark",
    ),
    "purge": Pass(lambda _, it: it.purge(at_once, pytest.fail), (store, "LOGS_A_STEP"), Log, "take_deletable"),
    "lease": Pass(end_the_lease, (leader_lease, "PARTITIONS_A_TURN"), LeaderLease, "_check_partition"),
}


@pytest.mark.parametrize("work", PASSES.values(), ids=PASSES)
def test_an_error_in_a_later_turn_stops_the_node(monkeypatch: pytest.MonkeyPatch, work: Pass) -> None:
    monkeypatch.setattr(*work.size, 1)
    node = InMemoryNode().start()
    node.create_topic("a", 3)
    node.settle()
    for index in range(3):
        node.append("a", index)
    fail_at_the_second_call(monkeypatch, work.owner, work.method)
    broker = node.assembly.broker_side
    assert broker is not None
    work.start(node, broker.housekeeping)
    while node.timers.run_soon():
        pass
    assert [type(fault) for fault in node.faults] == [Unexpected]


def test_an_error_in_a_later_turn_of_a_waiting_fetch_closes_the_connection(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    node = InMemoryNode().start()
    node.create_topic("a", 3)
    node.timers.run_soon()
    answer = parked(fetch(node, {("a", index): 0 for index in range(3)}, wait_ms=500))
    monkeypatch.setattr(fetch_answer, "PARTITIONS_A_TURN", 1)
    added = 0

    def fail(*_: object) -> None:
        nonlocal added
        added += 1
        if added == 2:
            raise Unexpected

    monkeypatch.setattr(FetchAnswer, "_add_results", fail)
    node.append("a", 1)
    while node.timers.run_soon():
        pass
    assert isinstance(answer.value(), MalformedData)
    assert (len(node.parked), node.waiting, node.faults) == (0, 0, [])
    assert [record.getMessage() for record in caplog.records] == ["a waiting fetch failed"]


def test_an_error_in_a_later_turn_of_the_check_for_laggards_stops_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only partitions with several replicas have one: the node gets two that it does not have."""
    monkeypatch.setattr(isr_changes, "PARTITIONS_A_TURN", 1)
    node = InMemoryNode(static={"replica.lag.time.max.ms": "4"}).start()
    checked, broken = Mock(), Mock()
    broken.reevaluate_isr.side_effect = Unexpected
    monkeypatch.setattr(node.partitions, "all", lambda: [checked, broken])
    node.timers.advance(2)
    checked.reevaluate_isr.assert_called_once_with(looks_for_laggards=True)
    assert [type(fault) for fault in node.faults] == [Unexpected]
